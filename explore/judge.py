"""What a play shows: broken verdicts, and what is wrong whatever a lock promises (``MEANS``)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from lockbench.bench.judge import MAY, Expected
from lockbench.checker.catalogue import GENERAL, OF_LOCKS
from lockbench.checker.check import check
from lockbench.checker.follows import following, told
from lockbench.checker.rows import FOREVER, late_of, rows_of
from lockbench.checker.service import contradictions
from lockbench.explore.faults import FAULTS, FREEZES
from lockbench.explore.scenarios import SCENARIOS
from lockbench.explore.servers import JUMPS
from lockbench.explore.stage import VICTIM
from lockbench.explore.trial import CLIENT_TIMEOUT_S, Played
from lockbench.history.columns import History
from lockbench.history.op import NULL, F, Fault, Object, Type
from lockbench.history.recorder import PROCESSES_PER_WORKER
from lockbench.history.recording import read_recording
from lockbench.history.service import Service, Tenure
from lockbench.locks.base import System
from lockbench.locks.shared.lease import lives_on
from lockbench.locks.shared.library import library_of
from lockbench.locks.shared.sidecar import has_ended, is_senseless
from lockbench.locks.shared.sidecar import raised as error_of
from lockbench.nemesis.registry import NONE

HANGS: Final = "hangs"
RAISES: Final = "raises"
DENIED_YET_TAKEN: Final = "denied-yet-taken"
RELEASED_YET_KEPT: Final = "released-yet-kept"
PROMISED_TOO_LONG: Final = "promised-too-long"
LATE_GRANT: Final = "late-grant"
LOST_WAKEUP: Final = "lost-wakeup"
UNTIMED: Final = frozenset({"leaked-lock", "double-grant"})
# What the record contradicts where a promise is longer than what it noted.
OF_PROMISES: Final = frozenset({"promises", "double-grant", LATE_GRANT, "stale-holder"})
MEANS: Final = {
    HANGS: "a call outlasted its own limit and everything that was done to it",
    RAISES: (
        "an error came out of the lock that its adapter does not know, or the documentation of its "
        "library does not name; or the program of the library ended"
    ),
    DENIED_YET_TAKEN: (
        "the service's own record shows, on as many servers as decide, that a hold which was "
        "refused was never taken away again"
    ),
    RELEASED_YET_KEPT: (
        "the service's own record shows, on as many servers as decide, that a hold whose release "
        "was confirmed was not deleted"
    ),
    PROMISED_TOO_LONG: (
        "the service's own record shows that a hold was promised for more than a quarter of a "
        "lease longer than the service had noted"
    ),
    LOST_WAKEUP: (
        "who waited was not granted the key for more than a quarter of a lease in which certainly "
        "nobody held it"
    ),
}
# A waiter for a free key needs no more steps than this, each as long as the slowest release.
STEPS: Final = 8
KILLS: Final = frozenset({"client-killed", "client-gone"})  # the sidecars of a client, too
# What ``lockbench.workloads.caller`` records of an error that a lock let escape.
UNEXPECTED: Final = "unexpected: "


@dataclass(frozen=True, slots=True)
class Shown:
    """``verdicts``: what broke, those that follow from others left out. ``declared``: the lock's
    declaration lets all of them break under such faults. ``errors``: what was raised, one of each
    class (``class_of``)."""

    verdicts: tuple[str, ...]
    why: str
    declared: bool
    errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Unwoken:
    """Somebody was kept from a key that nobody held. ``certain``: for longer than a machine can
    account for that was as slow as in this play."""

    why: str
    certain: bool


@dataclass(frozen=True, slots=True)
class Undecided:
    """Nothing is known to have broken, and not everything is known to have held."""

    why: str


def judged(played: Played, system: System, *, timed: bool = True) -> Shown | Undecided | None:
    """None where everything was as it should be. ``timed``: with what a busy machine may show, too
    (``waits_too_long``). What the service's own record refutes is no evidence against the lock.
    Raises UnreadableHistory."""
    history = read_recording(played.folder)
    report = check(history)
    ours = {name: verdict for name, verdict in report.verdicts.items() if name in OF_LOCKS}
    broken = {name: verdict.reason for name, verdict in ours.items() if verdict.result == "invalid"}
    waited = _unwoken(played, history, system)
    errors = {class_of(error): error for error in reversed([*_raised(played, history, system)])}
    raised = tuple(reversed(errors.values()))  # the first of each class
    always = dict(_always(played, history, system, waited, raised))
    refuted = contradictions(report)
    if PROMISED_TOO_LONG in always:  # what follows from it is no mistake of the bench
        refuted = {name: why for name, why in refuted.items() if name not in OF_PROMISES}
    for name in following(refuted, {*refuted, GENERAL}.intersection(broken)):
        broken.pop(name, None)
    if _is_late_unstruck(history, missed=bool(played.missed)):
        broken.pop(LATE_GRANT, None)
    faults = [strike.fault for strike in played.trial.strikes]
    names = told(sorted(broken))
    # Nobody can be granted a key that leaked. Where two had it, who was kept by whom is not known.
    leaks = _unharmed(system).of("leaked-lock").expected in MAY
    if not timed or leaks or not UNTIMED.isdisjoint(broken):
        waited = None
        always.pop(LOST_WAKEUP, None)
    if not broken and not always:
        unknown = {name: v.reason for name, v in ours.items() if v.result == "unknown"}
        open_ = [*refuted.items(), *_due(unknown, _expected(system, faults, played.trial.scenario))]
        open_ += [] if waited is None else [(LOST_WAKEUP, waited.why)]
        return Undecided("; ".join(f"{name}: {why}" for name, why in open_)) if open_ else None
    declared = not always and is_declared(
        system,
        faults,
        played.trial.scenario,
        broken,
        outlasts=_is_late_itself(history, faults),
    )
    whys = [*always.values(), *(broken[name] for name in names)]
    return Shown((*always, *names), "; ".join(whys), declared, raised)


def class_of(error: str) -> str:
    """What errors that are one finding have in common: the class; of a program that ended or does
    not make sense any more, that."""
    if (name := error_of(error)) is not None:
        return name
    return "ended" if has_ended(error) else "senseless" if is_senseless(error) else error


def is_declared(
    system: System,
    faults: Iterable[str],
    scenario: str,
    broken: Collection[str],
    *,
    outlasts: bool = False,
) -> bool:
    """Whether all of these verdicts may break under faults of ``lockbench.explore.faults``. What
    breaks without a fault breaks beside one. ``outlasts``: a holder was late, whatever the
    scenario."""
    excused = _expected(system, faults, scenario, outlasts=outlasts).excused(broken)
    return excused | _unharmed(system).excused(broken) >= set(broken)


def _expected(
    system: System, faults: Iterable[str], scenario: str, *, outlasts: bool = False
) -> Expected:
    like = tuple(dict.fromkeys(name for fault in faults for name in FAULTS[fault].like))
    outlasts = outlasts or SCENARIOS[scenario].outlasts
    return Expected(system, like or (NONE,), exact=False, outlasts=outlasts)


def _is_late_unstruck(history: History, *, missed: bool) -> bool:
    """Whether every late grant was returned before anything was struck, or nothing was though it
    was to be (``missed``). Until then the play is as one without a fault, in which a lock that is
    late shows it, too."""
    late = late_of(history, rows_of(history, F.ACQUIRE, Type.OK))
    told_ns = history.complete_ns[late].max(initial=0)
    return bool(late.size and (history.faults or missed) and told_ns < _struck_ns(history))


def _struck_ns(history: History) -> int:
    """When the first fault began."""
    return min((fault.begin_ns[0] for fault in history.faults), default=FOREVER)


def _is_late_itself(history: History, faults: Sequence[str]) -> bool:
    """Whether a client that nobody struck was granted the lock in time and asked for its release
    when its promise was over: this machine is slow, and no lock can help it."""
    granted = rows_of(history, F.ACQUIRE, Type.OK)
    for row in rows_of(history, F.RELEASE).tolist():
        if faults and history.process[row] // PROCESSES_PER_WORKER == VICTIM:
            continue
        own = history.hold == history.hold[row]
        until_ns = history.valid_until_ns[own].max()
        told_ns = history.complete_ns[granted][own[granted]]
        if told_ns.size and told_ns.max() < until_ns < history.invoke_ns[row]:
            return True
    return False


def _unharmed(system: System) -> Expected:
    return Expected(system, (NONE,), exact=False)


def _due(unknown: Mapping[str, str], expected: Expected) -> Iterator[tuple[str, str]]:
    """Of the verdicts that are unknown, those by which this lock is judged."""
    for name, why in unknown.items():
        if expected.of(name).expected != "n/a":
            yield name, why


def waits_too_long(played: Played, system: System) -> bool:
    """Whether a play shows a lost wake-up. On a busy machine one play alone is no proof of it: the
    waiter itself may not have been run. Raises UnreadableHistory."""
    waited = _unwoken(played, read_recording(played.folder), system)
    return waited is not None and waited.certain


def _always(
    played: Played,
    history: History,
    system: System,
    waited: _Unwoken | None,
    raised: Sequence[str],
) -> Iterator[tuple[str, str]]:
    """What no declaration excuses: its name, and a sentence."""
    if played.hangs:
        yield HANGS, "; ".join(played.hangs)
    if raised:
        yield RAISES, "; ".join(raised)
    if waited is not None and waited.certain:
        yield LOST_WAKEUP, waited.why
    record = history.service
    # An inner hold of a lock that is entered again leaves the entry to the outer one.
    if record is None or record.partial is not None or system.kind == "reentrant":
        return
    for name, f, ended, said in (
        (DENIED_YET_TAKEN, F.ACQUIRE, Type.FAIL, "refused"),
        (RELEASED_YET_KEPT, F.RELEASE, Type.OK, "confirmed as released"),
    ):
        for row in rows_of(history, f, ended).tolist():
            asked_ns, told_ns = int(history.invoke_ns[row]), int(history.complete_ns[row])
            own = [t for t in record.tenures if t.hold == history.hold[row]]
            released = f == F.RELEASE
            left = [t for t in own if not (released and _is_late(t, own, asked_ns, history))]
            if len({t.log for t in left if _outlasts(t, told_ns, history)}) >= record.quorum:
                yield (
                    name,
                    f"in {record.record}: a hold was {said}, and its entry was never deleted",
                )
                break
    # The promise of a library is reckoned by its adapter, which is the bench's.
    if library_of(system) is None and not any(map(_of_servers, history.faults)):
        for over_ns in _promised_too_long(history, record):
            longer = f"{over_ns / 1e9:.1f} s longer than was noted there"
            yield PROMISED_TOO_LONG, f"in {record.record}: a hold was promised for {longer}"


def _aimed(history: History) -> Object:
    (aimed,) = (o for o in history.objects.values() if o.role == "aimed")
    return aimed


def _outlasts(tenure: Tenure, told_ns: int, history: History) -> bool:
    """Whether nobody deleted an entry. One that ended by itself was there for more than a quarter
    of a lease after this; where clocks jumped, its end that was noted says nothing."""
    if tenure.how == "expired" and any(map(_moves_clocks, history.faults)):
        return False
    if tenure.how == "expired" and tenure.until_ns is not None:
        return tenure.until_ns[0] - told_ns > (_aimed(history).lease_ns or 0) // 4
    return tenure.how in {None, "replaced"}


def _is_late(tenure: Tenure, own: Sequence[Tenure], asked_ns: int, history: History) -> bool:
    """Whether a request that was still on its way made an entry, after a release that was asked
    for at ``asked_ns`` had deleted the entry of the same hold."""
    if tenure.until_ns is None or tenure.until_ns[1] - (_aimed(history).lease_ns or 0) < asked_ns:
        return False
    earlier = [t for t in own if t.log == tenure.log and t.made < tenure.made]
    return any(t.how == "deleted" for t in earlier)


def _promised_too_long(history: History, record: Service) -> Iterator[int]:
    """By how much, for each hold of which that is certain. An extension is another verdict's."""
    noted: dict[int, dict[str, int]] = {}  # hold → server → end
    for tenure in record.tenures:
        if tenure.until_ns is not None:
            ends_ns = noted.setdefault(tenure.hold, {})
            ends_ns[tenure.log] = max(tenure.until_ns[1], ends_ns.get(tenure.log, 0))
    aimed = _aimed(history)
    for hold, ends_ns in noted.items():
        promised = (history.hold == hold) & (history.valid_until_ns != NULL)
        promised &= (history.type == Type.OK) & (history.f == F.ACQUIRE)
        if len(ends_ns) < record.quorum or not promised.any():
            continue
        end_ns = sorted(ends_ns.values(), reverse=True)[record.quorum - 1]
        over_ns = int(history.valid_until_ns[promised].max()) - end_ns
        if over_ns > (aimed.lease_ns or 0) // 4:
            yield over_ns


def _raised(played: Played, history: History, system: System) -> Iterator[str]:
    """The errors that no lock may raise, in words. What an adapter calls a refusal it knows; of a
    library behind a sidecar the other answers say what was raised."""
    for error in history.errors:
        if error.startswith(UNEXPECTED):
            yield error.removeprefix(UNEXPECTED)
    acts = {FAULTS[strike.fault].act for strike in played.trial.strikes}
    if not played.hangs and KILLS.isdisjoint(acts):
        yield from filter(has_ended, history.errors)
        if "client-frozen" not in acts:
            yield from filter(is_senseless, history.errors)
    if system.raises is None:
        return
    for place in dict.fromkeys(history.error[history.type == Type.INFO].tolist()):
        error = history.errors[place] if place >= 0 else ""
        if (name := error_of(error)) is not None and name not in system.raises:
            yield error


def _unwoken(played: Played, history: History, system: System) -> _Unwoken | None:
    """Of those who were kept from a key that nobody held for more than a quarter of a lease, the
    first that is certain, or else the last. Nothing is said of a time in which somebody may have
    held it or servers were struck, and of the victim not before the last strike was over.

    A rival that is granted a mutex after another was had not held it before, or both would have
    held it at once. Where servers were struck it may have held it, lost it and asked again; where
    several that are no quorum are asked, both may have held a part of it.

    Who asks first, and alone, before anything was struck, is kept from it by nobody: the machine is
    slow, or the client only begins."""
    aimed = _aimed(history)
    lease_ns, slack_ns = aimed.lease_ns or 0, aimed.slack_ns or 0
    of_servers = [fault for fault in history.faults if _of_servers(fault)]
    in_turn = aimed.kind in {"mutex", "reentrant"} and not (played.in_parts or of_servers)
    healed_ns = max((f.heal_ns[1] for f in of_servers if f.heal_ns), default=0)
    # What was sent to servers that stood still takes effect when they go on. Where several are
    # asked that are no quorum, nobody is told so, and only time ends it.
    taken_ns = lease_ns if played.in_parts else 0
    # What was written while a clock was ahead is in its future when it is set back.
    ahead_ns = int(JUMPS * lease_ns)
    answers_ns = {
        servers: max(
            (_answered_ns(fault, system, taken_ns, ahead_ns) for fault in faults), default=0
        )
        for servers, faults in ((True, of_servers), (False, history.faults))
    }
    # A new leader gives each lease or session its whole time again, from when it leads
    # (etcd's lessor, Promote; ZooKeeper's SessionTrackerImpl).
    led_ns = healed_ns + lease_ns + slack_ns if healed_ns else 0
    acquires = rows_of(history, F.ACQUIRE)
    alive = lives_on(system)
    ends = np.array(
        [_end_ns(history, row, lease_ns, slack_ns, led_ns, alive=alive) for row in acquires]
    )
    # A service that keeps a hold for longer than its lease may keep what a refusal gave back, too.
    refused = history.type[acquires] == Type.FAIL
    ends[refused] += int((system.kept_leases - 1.0) * lease_ns)
    of_rivals = np.array([_is_rivals_grant(history, row) for row in acquires])
    struck_ns = _struck_ns(history)
    step_ns = _step_ns(history, of_servers)
    least_ns, limit_ns = lease_ns // 4, max(lease_ns // 4, STEPS * step_ns)
    found = None
    for at, row in enumerate(acquires.tolist()):
        if history.type[row] == Type.INFO:
            continue
        answered_ns = int(history.complete_ns[row])
        before_ns = answered_ns if in_turn and of_rivals[at] else FOREVER
        others = (
            (acquires != row)
            & (history.key[acquires] == history.key[row])
            & (history.invoke_ns[acquires] < answered_ns)
        )
        if not others.any() and answered_ns < struck_ns:
            continue
        others &= ~((history.complete_ns[acquires] > before_ns) & of_rivals)
        others_row = history.process[row] // PROCESSES_PER_WORKER != VICTIM
        free_ns = max(int(history.invoke_ns[row]), answers_ns[bool(others_row)], *ends[others])
        waited_ns = answered_ns - free_ns
        if waited_ns > least_ns:
            who = history.client(int(history.process[row]))
            why = f"{who} waited for {waited_ns / 1e9:.1f} s for a key that nobody held"
            if waited_ns > limit_ns:
                return _Unwoken(why, certain=True)
            slow = f"{why}, where a release took {step_ns / 1e9:.1f} s"
            found = _Unwoken(slow, certain=False)
    return found


def _step_ns(history: History, of_servers: Sequence[Fault]) -> int:
    """What the slowest release took of clients that nobody struck, while no server was struck: so
    slow is this machine."""
    releases = rows_of(history, F.RELEASE, Type.OK)
    unstruck = history.process[releases] // PROCESSES_PER_WORKER != VICTIM
    for fault in of_servers:
        until_ns = fault.heal_ns[1] if fault.heal_ns else FOREVER
        unstruck &= (history.complete_ns[releases] < fault.begin_ns[0]) | (
            history.invoke_ns[releases] > until_ns
        )
    took_ns = (history.complete_ns - history.invoke_ns)[releases[unstruck]]
    return int(took_ns.max(initial=0))


def _answered_ns(fault: Fault, system: System, taken_ns: int, ahead_ns: int) -> int:
    """From when on clients have an answer to all that is asked, and the lock grants again. What was
    sent before a fault was over may get none, and its client waits for one; of a frozen client
    nothing is lost but its session. ``taken_ns``: how long what frozen servers were asked for may
    be taken. ``ahead_ns``: by how much a clock that jumped was ahead."""
    if fault.heal_ns is None:
        return 0
    act = FAULTS[fault.name].act if fault.name in FAULTS else ""
    if act == "client-frozen":
        return fault.heal_ns[1] + int(1e9 * system.recovers_s)
    unheard_ns = int(1e9 * (CLIENT_TIMEOUT_S + system.settles_s + system.recovers_s))
    lasts_ns = ahead_ns if act == "clock-jumped" else taken_ns if act in FREEZES else 0
    return fault.heal_ns[1] + unheard_ns + lasts_ns


def _is_rivals_grant(history: History, row: int) -> bool:
    """Whether it was told before its promise was over, too."""
    rivals = history.process[row] // PROCESSES_PER_WORKER != VICTIM
    until_ns = history.valid_until_ns[row]
    in_time = until_ns == NULL or history.complete_ns[row] < until_ns
    return bool(rivals and history.type[row] == Type.OK and in_time)


def _of_servers(fault: Fault) -> bool:
    known = FAULTS.get(fault.name)
    return known is None or known.of_servers


def _moves_clocks(fault: Fault) -> bool:
    return fault.name in FAULTS and FAULTS[fault.name].act == "clock-jumped"


def _end_ns(
    history: History, row: int, lease_ns: int, slack_ns: int, led_ns: int, *, alive: bool
) -> int:
    """When the hold that an acquire may have led to was certainly over. Who is refused may have
    been granted something until then, and given it back. ``led_ns``: until then servers that were
    struck may have kept what only time ends. ``alive``: a client renews its holds, and nobody knows
    when it has given up a release that was not answered."""
    if history.type[row] == Type.FAIL:
        return int(history.complete_ns[row])
    same = history.hold == history.hold[row]
    answered = same & (history.f == F.RELEASE) & (history.type != Type.INFO)
    if answered.any():
        return int(history.complete_ns[answered].min())
    deaths = (history.f == F.DEATH) & (history.process == history.process[row])
    if deaths.any():
        return max(led_ns, int(history.invoke_ns[deaths].min()) + lease_ns + slack_ns)
    promised = same & (history.valid_until_ns != NULL)
    released = (same & (history.f == F.RELEASE)).any()
    if history.type[row] == Type.OK and promised.any() and not (alive and released):
        return max(led_ns, int(history.valid_until_ns[promised].max()) + slack_ns)
    return FOREVER
