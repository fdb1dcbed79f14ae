"""The store of a case whose lock guards one (``lockbench.stores``): its servers, the ways there for
the load, and its own record of what it applied, written beside the history once the load is over.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

from lockbench.bench.plan import WORKERS, Case, cluster_plan_of, store_topology_of
from lockbench.clusters.base import HARNESS, Cluster
from lockbench.history.guarded import Applied, Guarded, write_guarded
from lockbench.locks.base import Address
from lockbench.locks.without.base import Entry
from lockbench.stores.base import Away, Where
from lockbench.stores.registry import Asked
from lockbench.workloads.audit import write_down
from lockbench.workloads.load import Load

# A store that was struck late may need its time to answer again.
RECORD_S: Final = 20.0
READ_TIMEOUT_S: Final = 10.0
PAUSE_S: Final = 0.2
SESSION_S: Final = 30.0


def store_cluster_of(case: Case, run_id: str, logs: Path) -> Cluster | None:
    """The servers of the case's store, not started; None where it needs none of its own."""
    topology = store_topology_of(case)
    if topology is None:
        return None
    plan = cluster_plan_of(case, run_id, logs)
    # Of a store no session need end before a client that sleeps wakes up.
    return topology.make(
        replace(
            plan,
            topology=topology.name,
            size=topology.default_size,
            lease_ttl_s=max(plan.lease_ttl_s, SESSION_S),
        )
    )


def with_store(load: Load, case: Case, cluster: Cluster, beside: Cluster | None) -> Load:
    """The load with the ways to the store: to its own servers, to those of the lock, or a
    folder."""
    store = case.store
    if store is None:
        return load
    if not store.topology:
        load.store_folder.mkdir()
        return replace(load, store=store.spec)
    of_store = beside or cluster
    nodes = tuple(tuple(of_store.addresses(group)) for group in range(1, WORKERS + 2))
    return replace(load, store=store.spec, store_nodes=nodes)


def read_written(case: Case, load: Load, cluster: Cluster, beside: Cluster | None) -> str | None:
    """Writes the store's record into the folder of the history; why there is none, or None."""
    store = case.store
    if store is None:
        return None
    nodes: list[Address] = []
    if store.topology:
        nodes = [Address(*address) for address in (beside or cluster).addresses(HARNESS)]
    where = Where(nodes, load.store_folder, store.topology, READ_TIMEOUT_S)
    try:
        applied = written(store, where)
    except Away as error:
        return f"the record of the resource cannot be read: {error}"
    write_guarded(load.history, guarded(store, applied))
    if store.guard.rule == "once":
        done = (Entry(one.key, one.made, one.place, one.hold) for one in applied)
        write_down(load.history, list(done))
    return None


def written(store: Asked, where: Where) -> tuple[Applied, ...]:
    """What a store says that it applied. Raises Away."""
    end = time.monotonic() + RECORD_S
    while True:
        with closing(store.connect(where)) as client:
            try:
                return tuple(client.written())
            except Away:
                if time.monotonic() > end:
                    raise
        time.sleep(PAUSE_S)


def guarded(store: Asked, applied: tuple[Applied, ...]) -> Guarded:
    """A store's record as a history has it."""
    return Guarded(
        store.store.name, store.guard.name, store.guard.rule, store.store.record, applied
    )
