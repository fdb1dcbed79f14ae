"""Every duty of ``lockbench.bench.conform``, on real clusters. A new lock is found by the scan.

``test_conformance_gevent`` runs this file again under gevent, as Locust's workers do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lockbench.bench.duties import DUTIES, LEASE_S, Breach, Desk, Duty, NotTriable, Running
from lockbench.locks import registry
from lockbench.locks.base import System
from lockbench.locks.shared.library import library_of
from tests.locks.conftest import every_system, more_systems, why_untested

pytestmark = pytest.mark.docker


def cases() -> Iterator[object]:
    """Lock by lock, so that clusters are started one by one."""
    for systems, marks in ((every_system(), ()), (more_systems(), pytest.mark.long)):
        for system in systems:
            for duty in DUTIES:
                yield pytest.param(system, duty, marks=marks, id=f"{system.name}/{duty.name}")


@pytest.mark.parametrize(("system", "duty"), [*cases()])
def test_it_is_owed(system: System, duty: Duty, running: Callable[[str], Running]) -> None:
    if duty.name in system.not_owed:
        pytest.skip(system.not_owed[duty.name])
    if system.prepare is not None:
        system.prepare()
    cluster = running(system.topologies[0])
    # A shorter lease suits a server that elects nobody, not a JVM that connects for the first time,
    # which takes longer than a quarter of it.
    short = system.family == "redis" and getattr(library_of(system), "image", "") != "jvm-sidecar"
    for last in (False, False, True):  # a lease that ends while the machine stands still is no news
        desk = Desk(system, system.name, cluster)
        if short and not last:
            desk.lease_s, desk.timeout_s = LEASE_S / 2, LEASE_S / 4
        try:
            with desk.open:
                duty.hold_to(desk)
        except NotTriable as reason:
            pytest.skip(str(reason))
        except Breach:
            if last:
                raise
        else:
            break


@pytest.mark.parametrize(
    "system", [*filter(why_untested, registry.systems().values())], ids=lambda system: system.name
)
def test_a_lock_that_is_not_tested_says_why(system: System) -> None:
    pytest.skip(why_untested(system))
