"""What a play shows: broken verdicts, and what is wrong whatever a lock promises.

``hangs``: a call outlasted its own limit and everything that was done to it. ``raises``: an error
came out of the lock that its adapter does not know. ``denied-yet-taken`` and ``released-yet-kept``:
the service's own record shows, on as many servers as decide, that a hold which was refused was
never taken away again, or that one whose release was confirmed was not deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bench.judge import Expected
from checker.catalogue import OF_LOCKS
from checker.check import check
from checker.follows import told
from checker.rows import rows_of
from explore.faults import FAULTS
from explore.scenarios import SCENARIOS
from explore.stage import Played
from history.columns import History
from history.op import F, Type
from history.recording import read_recording
from locks.base import System
from nemesis.registry import NONE

HANGS: Final = "hangs"
RAISES: Final = "raises"
DENIED_YET_TAKEN: Final = "denied-yet-taken"
RELEASED_YET_KEPT: Final = "released-yet-kept"
# What ``workloads.caller`` records of an error that a lock let escape.
UNEXPECTED: Final = "unexpected: "


@dataclass(frozen=True, slots=True)
class Shown:
    """``verdicts``: what broke, those that follow from others left out. ``declared``: the lock's
    declaration lets all of them break under such faults."""

    verdicts: tuple[str, ...]
    why: str
    declared: bool


def judged(played: Played, system: System) -> Shown | None:
    """None where everything was as it should be. Raises UnreadableHistory."""
    history = read_recording(played.folder)
    broken = {
        name: verdict.reason
        for name, verdict in check(history).verdicts.items()
        if verdict.result == "invalid" and name in OF_LOCKS
    }
    strikes = played.trial.strikes
    like = tuple(dict.fromkeys(name for s in strikes for name in FAULTS[s.fault].like))
    outlasts = SCENARIOS[played.trial.scenario].outlasts
    expected = Expected(system, like or (NONE,), exact=False, outlasts=outlasts)
    excused = expected.excused(list(broken))
    names = told(sorted(broken))
    always = dict(_always(played, history, system))
    if not broken and not always:
        return None
    declared = not always and excused >= set(broken)
    whys = [*always.values(), *(broken[name] for name in names)]
    return Shown((*always, *names), "; ".join(whys), declared)


def _always(played: Played, history: History, system: System) -> Iterator[tuple[str, str]]:
    """What no declaration excuses: its name, and a sentence."""
    if played.hangs:
        yield HANGS, "; ".join(played.hangs)
    raised = [error for error in history.errors if error.startswith(UNEXPECTED)]
    if raised:
        yield RAISES, raised[0].removeprefix(UNEXPECTED)
    record = history.service
    # An inner hold of a lock that is entered again leaves the entry to the outer one.
    if record is None or record.partial is not None or system.kind == "reentrant":
        return
    left: dict[int, int] = {}  # hold → on how many servers nothing deleted it
    for tenure in record.tenures:
        left[tenure.hold] = left.get(tenure.hold, 0) + (tenure.how in {None, "replaced"})
    for name, f, ended, said in (
        (DENIED_YET_TAKEN, F.ACQUIRE, Type.FAIL, "refused, and its entry was never deleted"),
        (RELEASED_YET_KEPT, F.RELEASE, Type.OK, "confirmed as released, and not deleted"),
    ):
        wrong = [h for h in history.hold[rows_of(history, f, ended)].tolist() if left.get(h, 0)]
        if any(left[hold] >= record.quorum for hold in wrong):
            yield name, f"in {record.record}: a hold was {said}"
