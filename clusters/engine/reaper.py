"""Removes what a bench that was killed has left behind.

Only what carries our label is ever touched, and of that only what belongs to an owner that has
certainly ended (see ``lockbench.clusters.engine.owner``), unless everything is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from lockbench.clusters.engine import owner
from lockbench.clusters.engine.docker import (
    Container,
    Engine,
    EngineError,
    EngineUnreachable,
    Labels,
)

AT_ONCE = 6
AGAIN_S = 5.0
POLL_S = 0.1


def reap(
    log: Callable[[str], None] = lambda _: None,
    *,
    all: bool = False,  # noqa: A002 - it reads as what it means
    must: bool = False,
    engine: Engine | None = None,
) -> list[str]:
    """Remove containers and networks without a living owner; return their names.

    With ``all``, those of living owners too. ``must``: EngineError for what the engine does not
    remove, of which the log is told otherwise. EngineUnreachable where none answers.
    """
    engine = engine or Engine()

    def doomed(labels: Labels) -> bool:
        # Asked again although the engine has filtered: nothing unlabelled is ever removed.
        return labels.get(owner.OURS) == "1" and (all or owner.orphaned(labels))

    removed: list[str] = []
    # Another start may be removing the same: then a network is in use until that one is done.
    until = time.monotonic() + AGAIN_S
    while (left := _removed(engine, doomed, removed)) and time.monotonic() < until:
        time.sleep(POLL_S)
    for name in removed:
        log(f"removed {name}, left by a run that has ended")
    for name, error in left.items():
        log(f"{name}, left by a run that has ended, could not be removed: {error}")
    if must and left:
        raise next(iter(left.values()))
    return removed


def _removed(
    engine: Engine, doomed: Callable[[Labels], bool], removed: list[str]
) -> dict[str, EngineError]:
    """Removes once what there is, adds its names to ``removed``, and returns what is left and why.
    Raises EngineUnreachable."""
    ours = {owner.OURS: "1"}
    left: dict[str, EngineError] = {}

    @contextmanager
    def noting(name: str) -> Iterator[None]:
        try:
            yield
        except EngineUnreachable:
            raise
        except EngineError as error:
            left[name] = error

    def remove(container: Container) -> None:
        with noting(container.name):
            state = engine.state(container)
            if state is not None and doomed(state.labels):
                engine.remove(container)
                removed.append(container.name)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(remove, engine.containers(ours)))
    # Networks last: their containers must be gone.
    for network in engine.networks(ours):
        if doomed(network.labels):
            with noting(network.name):
                engine.remove_network(network)
                removed.append(network.name)
    return left
