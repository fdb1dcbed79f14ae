"""Removes what carries given labels, and says what is left of it.

Guarantees: it ends, a few calls of the engine after its time at the latest, also when the engine
hangs or is gone; nothing is called removed that the engine did not say is gone. While time is left
it tries again, so an engine that comes back in time does the work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from lockbench.clusters.engine import ledger, owner
from lockbench.clusters.engine.docker import Container, Engine, EngineError, Labels

# How long a case waits for an engine that does not answer, and how long a second attempt does.
CLEARING_S = 30.0
AGAIN_S = 5.0
AT_ONCE = 11
POLL_S = 0.02
ON_HOST = " on host "

Remove = Callable[[Engine, Container], None]


def remove(
    labels: Labels,
    *,
    limit_s: float = CLEARING_S,
    engine: Engine | None = None,
    each: Remove = Engine.remove,
    prefix: str = "",
) -> list[str]:
    """Remove every container and network with these labels; the names of what is left, nothing as a
    rule. ``each`` removes one container. ``prefix``: how the names of all those begin that this
    process made, and of no others. Never raises."""
    until = time.monotonic() + limit_s
    host = "" if engine is None else engine.host
    listed: list[str] = []
    while True:
        try:
            engine = engine or Engine()
            containers, networks = engine.containers(labels), engine.networks(labels)
            listed = [*(c.name for c in containers), *(n.name for n in networks)]
            for name in set(ledger.names(prefix, host)) - set(listed):
                ledger.gone(name, host)
            if not listed:
                return []
            _remove_at_once(engine, containers, each, listed)
            for network in networks:
                engine.remove_network(network)
                listed.remove(network.name)
        except EngineError:
            pass  # what is left is looked at again, or told
        if time.monotonic() > until:
            # What others made for us is known from the list alone.
            left = dict.fromkeys([*listed, *ledger.names(prefix, host)])
            return [name + (f"{ON_HOST}{host}" if host else "") for name in left]
        time.sleep(POLL_S)


def remove_run(run_id: str, limit_s: float = AGAIN_S) -> list[str]:
    """Remove what is left of a run's clusters on this machine's engine, which is not asked when
    this process has seen all that it made for them removed. The names of what is left. Never
    raises."""
    prefix = f"lockbench-{run_id}-"
    if not ledger.names(prefix):
        return []
    return remove({owner.RUN: run_id}, limit_s=limit_s, prefix=prefix)


def remove_own(limit_s: float = AGAIN_S) -> list[str]:
    """The same of everything that belongs to this process."""
    if not ledger.names():
        return []
    return remove({owner.OURS: "1", owner.OWNER: owner.me()}, limit_s=limit_s)


def left_behind(names: Sequence[str]) -> str:
    """For people: what is left, and what becomes of it."""
    of_hosts = [name for name in names if name.startswith("lockbench-") and ON_HOST in name]
    of_engine = [name for name in names if name.startswith("lockbench-") and name not in of_hosts]
    there = [name for name in names if not name.startswith("lockbench-")]
    said = []
    if of_hosts:
        said.append(
            f"{', '.join(of_hosts)} could not be removed; the next start of a run there, or "
            "`lockbench clean --hosts FILE`, does it"
        )
    if of_engine:
        said.append(
            f"the Docker engine did not remove {', '.join(of_engine)}; the next start of a run, or "
            "`lockbench clean`, does"
        )
    if there:
        said.append(
            f"on your own cluster is left: {'; '.join(there)}; `lockbench clean "
            "--cluster FILE` tries again"
        )
    return "; ".join(said)


def _remove_at_once(
    engine: Engine, containers: Sequence[Container], each: Remove, listed: list[str]
) -> None:
    """Take their names off the list. Raises the first EngineError when all have ended."""

    def one(container: Container) -> None:
        each(engine, container)
        listed.remove(container.name)

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="removal") as pool:
        removed = [pool.submit(one, container) for container in containers]
    for future in removed:
        future.result()
