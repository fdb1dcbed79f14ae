"""Removes what a bench that was killed has left behind.

Only what carries our label is ever touched, and of that only what belongs to an owner that has
certainly ended (see ``lockbench.clusters.engine.owner``), unless everything is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from lockbench.clusters.engine import owner
from lockbench.clusters.engine.docker import Container, Engine, Labels

AT_ONCE = 6


def reap(
    log: Callable[[str], None] = lambda _: None,
    *,
    all: bool = False,  # noqa: A002 - it reads as what it means
    engine: Engine | None = None,
) -> list[str]:
    """Remove containers and networks without a living owner; return their names.

    With ``all``, those of living owners too. EngineError when the engine does not do it.
    """
    engine = engine or Engine()
    ours = {owner.OURS: "1"}

    def doomed(labels: Labels) -> bool:
        # Asked again although the engine has filtered: nothing unlabelled is ever removed.
        return labels.get(owner.OURS) == "1" and (all or owner.orphaned(labels))

    def remove(container: Container) -> str | None:
        state = engine.state(container)
        if state is None or not doomed(state.labels):
            return None
        engine.remove(container)
        return container.name

    with ThreadPoolExecutor(AT_ONCE) as pool:
        removed = [name for name in pool.map(remove, engine.containers(ours)) if name]
    # Networks last: their containers must be gone.
    for network in engine.networks(ours):
        if doomed(network.labels):
            engine.remove_network(network)
            removed.append(network.name)
    for name in removed:
        log(f"removed {name}, left by a run that has ended")
    return removed
