"""Tries on a real cluster what a lock owes to its users: ``lockbench conform``, and the tests.

Guarantees that every duty (``lockbench.bench.duties``) is told as kept, broken, not owed or not
tried, none left out. Does not guarantee what a lock does under a fault: that is a case's to find
out (``lockbench run``).
"""

from __future__ import annotations

import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from lockbench.bench import plan
from lockbench.bench.duties import DUTIES, GROUP, LEASE_S, Breach, Desk, Duty, NotTriable, Running
from lockbench.bench.usable import why_unusable
from lockbench.clusters import images
from lockbench.clusters.base import Cluster
from lockbench.clusters.engine.docker import EngineError
from lockbench.clusters.engine.reaper import reap
from lockbench.locks.base import Address
from lockbench.locks.shared import sidecar
from lockbench.results.errors import BadInput, Ending, Unfit
from lockbench.workloads.load import Pace

# A duty that takes longer does not end. The longest that does waits for most of ``LONG_S``.
DUTY_S: Final = 120.0
ENDED_S: Final = 30.0  # from the end of its sidecars until what was in flight is over

Word = Literal["kept", "broken", "not owed", "not tried"]


@dataclass(frozen=True)
class Outcome:
    """What came of a duty, and why where it was not kept."""

    duty: Duty
    word: Word
    why: str = ""
    took_s: float = 0.0


def conform(
    lock: str,
    *,
    topology: str | None = None,
    told: Callable[[Outcome], None],
    say: Callable[[str], None],
) -> list[Outcome]:
    """Starts a cluster, tries every duty of a lock on it, and tells each as it is known. ``lock``
    is a name, a file or a folder; ``say`` is told of images that are built. Raises BadInput."""
    case = _case(lock, topology)
    _ready(case, say)
    found: list[Outcome] = []
    with ExitStack() as stack:
        cluster = stack.enter_context(_cluster(case))
        stack.callback(sidecar.close_shared)  # before its servers, whose end it would tell
        running = Running([Address(*each) for each in cluster.addresses(GROUP)], cluster)
        stuck = ""
        for duty in DUTIES:
            if stuck:
                outcome = Outcome(duty, "not tried", f"“{stuck}” has not ended")
            else:
                outcome, ended = _tried(duty, case, running)
                stuck = "" if ended else duty.sentence
            found.append(outcome)
            told(outcome)
    return found


def ending(outcomes: list[Outcome]) -> Ending:
    """How the command ends: what was not tried leaves it open whether the lock conforms."""
    words = {outcome.word for outcome in outcomes}
    if "broken" in words:
        return Ending.SAFETY
    return Ending.INCONCLUSIVE if "not tried" in words else Ending.OK


def tried(duty: Duty, desk: Desk) -> Outcome:
    """Holds a lock to a duty. Whatever it raises is broken: a lock answers, it does not raise."""
    reason = desk.system.not_owed.get(duty.name)
    if reason is not None:
        return Outcome(duty, "not owed", reason)
    began = time.monotonic()
    word: Word = "broken"
    why = ""
    try:
        with desk.open:
            why = duty.hold_to(desk) or ""
        word = "not owed" if why else "kept"
    except NotTriable as error:
        word, why = "not tried", str(error)
    except Breach as error:
        why = str(error)
    except Exception as error:  # noqa: BLE001 - of a lock that nobody knows
        why = f"it raised {type(error).__name__}: {error}"
    return Outcome(duty, word, why, time.monotonic() - began)


def _tried(duty: Duty, case: plan.Case, running: Running) -> tuple[Outcome, bool]:
    """Also whether it has ended: a library may let its user wait for ever."""
    outcomes: list[Outcome] = []

    def work() -> None:
        lease_s = case.pace.lease_ttl_s
        outcomes.append(tried(duty, Desk(case.system, case.lock, running, lease_s, lease_s / 2)))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(DUTY_S)
    if not thread.is_alive() and outcomes:
        return outcomes[0], True
    sidecar.close_shared()  # ends what it waits for
    thread.join(ENDED_S)
    why = f"it did not end within {DUTY_S:g} s"
    return Outcome(duty, "broken", why, DUTY_S), not thread.is_alive()


def _case(lock: str, topology: str | None) -> plan.Case:
    """The lock and its cluster. Raises BadInput for what owes something else than a mutex."""
    system = plan.find_system(lock)
    if system.kind == "none":
        raise Unfit(f"{system.name} is a way to do without a lock; the duties are of a lock")
    if system.permits is not None and system.permits > 1:
        if "permits" not in system.parameters:
            raise Unfit(f"{system.name} has {system.permits} permits; the duties are of a mutex")
        lock = f"{lock}:permits=1"
    known = plan.topology_for(system, topology)
    pace = Pace(lease_ttl_s=system.pace.get("lease_ttl_s", LEASE_S))
    return plan.Case(lock, known.name, known.default_size, "none", pace=pace)


def _ready(case: plan.Case, say: Callable[[str], None]) -> None:
    try:
        images.ensure(plan.built_for(case), say=say)
        reap()
    except EngineError as error:
        raise BadInput(str(error)) from error
    if why := why_unusable(case.system):
        raise Unfit(why)


@contextmanager
def _cluster(case: plan.Case) -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="lockbench-") as logs:
        asked = plan.cluster_plan_of(case, uuid.uuid4().hex[:12], Path(logs))
        with plan.topology_of(case).make(replace(asked, groups=GROUP)) as cluster:
            yield cluster
