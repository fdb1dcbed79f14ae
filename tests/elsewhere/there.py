"""What tests do with a cluster of somebody else."""

from __future__ import annotations

import os
from pathlib import Path

from lockbench.bench import plan
from lockbench.bench.plan import Case
from lockbench.clusters.base import ClusterPlan
from lockbench.clusters.elsewhere import examine
from lockbench.clusters.elsewhere.cluster import Elsewhere
from lockbench.clusters.elsewhere.topology import known, topology
from lockbench.locks.base import Address, Granted, Lock, NoObserver, Observer, Released, new_hold_id
from lockbench.locks.registry import systems
from lockbench.locks.shared.prefixed import prefixed
from tests.elsewhere.servers import PASSWORD, VARIABLE

LONG_S = 30.0


def case(file: Path, lock: str = "redis-token") -> Case:
    """A case of a lock there, without a fault. Raises BadInput."""
    os.environ[VARIABLE] = PASSWORD
    return plan.make_case(lock, "none", seed=0, cluster=str(file))


def look(file: Path) -> str:
    """The version of its servers. Raises SiteError, ClusterError."""
    os.environ[VARIABLE] = PASSWORD  # which is taken away by whoever reads it
    return examine.look(known(str(file)))


def made(file: Path, logs: Path) -> Elsewhere:
    """The cluster of a file, with one client group."""
    os.environ[VARIABLE] = PASSWORD
    return built(file, logs)


def built(file: Path, logs: Path) -> Elsewhere:
    """The same where the password is known."""
    declared = topology(str(file))
    plan_ = ClusterPlan(
        declared.name, declared.default_size, 1, f"test-{os.getpid()}", 3.0, str(logs)
    )
    found = declared.make(plan_)
    assert isinstance(found, Elsewhere)
    return found


def lock_on(there: Elsewhere, name: str) -> Lock:
    nodes = [Address(*at) for at in there.addresses(1)]

    def connect(observer: Observer) -> Lock:
        return systems()[name].connect(nodes, timeout_s=10.0, ttl_s=LONG_S, observer=observer)

    return prefixed(there.key_prefix, NoObserver(), connect)


def taken_and_released(lock: Lock) -> None:
    got = lock.acquire("k0", hold_id=new_hold_id(), ttl_s=LONG_S, wait_s=0)
    assert isinstance(got, Granted), got
    assert got.hold.key == "k0"
    assert isinstance(lock.release(got.hold), Released)
