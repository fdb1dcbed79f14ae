"""The service's own record of one history, asked about grants and operations by their rows.

Each answer is a ``Word``: what the record shows of a violation that was told, in a sentence. What
the answers are for, and how far they go, says ``lockbench.checker.service``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Literal

from lockbench.checker.analysis import Analysis
from lockbench.checker.brackets import bracketed
from lockbench.checker.kinds import OWNED, REENTRANT, keys_of
from lockbench.checker.promises import effective_releases
from lockbench.checker.rows import FOREVER, rows_of
from lockbench.checker.verdict import Verdict
from lockbench.checker.words import clock, many
from lockbench.history.op import NULL, F, Type
from lockbench.history.service import How, Service, Tenure

Says = Literal["confirmed", "contradicted", "not decided"]

CLOCKS: Final = "clock-"  # how the faults are called that move servers' clocks
# A fault that ends server processes says so in its facts; in histories without that fact the names
# decide. Redis may answer before it has written (for up to two seconds while a sync takes its
# time), so what it did last may be missing in its file.
DEADLY: Final = frozenset({"kill", "restart", "rolling-restart", "wipe", "power-loss", "failover"})
CONTRADICTIONS_MAX: Final = 5
_HOW: Final[Mapping[How | None, str]] = {
    "deleted": "deleted",
    "replaced": "replaced by another",
    "session": "with its session",
    "expired": "at the end of its term",
    "lost": "lost with all that the server had kept",
    None: "never",
}


@dataclass(frozen=True, slots=True)
class Word:
    """One statement of the record, in a sentence."""

    says: Says
    text: str


class Witness:
    """The service's record of one history, asked about grants and operations by their rows."""

    def __init__(self, analysis: Analysis, service: Service) -> None:
        self._analysis = analysis
        self._service = service
        self._links = analysis.links
        self.record = service.record
        self.several_decide = service.quorum > 1
        history, links = analysis.history, analysis.links
        asked = rows_of(history, F.ACQUIRE, Type.OK, Type.INFO)
        keys = [history.keys[key] for key in history.key[asked].tolist()]
        self._identity = dict(
            zip(asked.tolist(), zip(keys, history.hold[asked].tolist(), strict=True), strict=True)
        )
        self._leases = analysis.promises.lease.tolist()
        moved = any(fault.name.startswith(CLOCKS) for fault in history.faults)
        self._died = any(
            fault.name in DEADLY or fault.seen.ends_servers is True for fault in history.faults
        )
        tenures = service.tenures
        if moved:
            tenures = tuple(replace(tenure, until_ns=None) for tenure in tenures)
        self._of: dict[tuple[str, int], list[Tenure]] = defaultdict(list)
        for tenure in tenures:
            self._of[tenure.key, tenure.hold].append(tenure)
        self._bounds = bracketed(history, links, tenures, self._identity, alone=service.quorum == 1)
        self._grant_of = {row: i for i, row in enumerate(analysis.promises.row.tolist())}
        extends = links.under(rows_of(history, F.EXTEND, Type.OK))
        self._extended = {
            int(row): int(history.complete_ns[extend])  # the last one of each
            for row, extend in zip(links.acquire[extends], extends, strict=True)
        }

    # --- about the whole history ---

    @cached_property
    def missing(self) -> str | None:
        """Why the record is no witness, if it is none."""
        if self._service.partial is not None:
            return self._service.partial
        unseen = [row for row in self._told if not self._tenures(row)]
        if not unseen:
            return None
        (at,) = clock(self._analysis.history, [int(self._analysis.history.complete_ns[unseen[0]])])
        return (
            f"it shows nothing of {many(len(unseen), 'grant')} that clients were told of, the "
            f"first at {at} s"
        )

    def contradictions(self) -> list[str]:
        """Promises that outlive the term which the service had noted for the hold."""
        said = []
        for row in self._told:
            noted = self._term_outlived(row) if row in self._grant_of else None
            if noted is not None:
                said.append(self._outlived(self._grant_of[row], noted))
        return said

    def summary(self) -> dict[str, object]:
        """For ``measurements``: what the record is and what it says of unknown outcomes."""
        history = self._analysis.history
        unknown = rows_of(history, F.ACQUIRE, Type.INFO)
        acquires = [bool(self._tenures(int(row))) for row in unknown]
        acquired = [int(row) for row in self._links.acquire[rows_of(history, F.RELEASE, Type.INFO)]]
        releases = [self._gone(row) for row in acquired if row >= 0 and self._tenures(row)]
        contradictions = self.contradictions()
        return {
            "record": self._service.record,
            "tenures": len(self._service.tenures),
            "missing": self.missing,
            "unknown_acquires": {
                "took_effect": sum(acquires),
                "left_no_trace": acquires.count(False),
            },
            "unknown_releases": {"gone": sum(releases), "still_there": releases.count(False)},
            "contradictions": contradictions[:CONTRADICTIONS_MAX],
            "contradicted": len(contradictions),
        }

    # --- about one violation ---

    def silent_on(self, verdict: Verdict) -> str | None:
        """Why it is no witness of what a verdict is about, if it is none."""
        history = self._analysis.history
        rows = [row for item in verdict.evidence if isinstance(row := item.get("row"), int)]
        judged = keys_of(history, OWNED - REENTRANT)
        if not all(judged[history.key[row]] and history.hold[row] != NULL for row in rows):
            return "it is asked about locks with one holder at a time only"
        return None if self.missing is None else f"not a witness, for {self.missing}"

    def double_grant(self, grants: Sequence[int]) -> Word:
        """Of the promises of two holds, given by the rows of their acquires."""
        if len(grants) != 2:
            return self.undecided("it was asked of two holds at a time only")
        if self.several_decide:
            return self._majorities(*grants)
        first, second = self._in_order(*grants)
        (mine,), (other,) = self._tenures(first), self._tenures(second)
        at = self._granted(second)
        a, b = self._name(first), self._name(second)
        noted = self._outlives(first, at)
        if noted is not None:
            return Word("contradicted", noted)
        if mine.log != other.log:
            return self._over_two_logs(first, second)
        (told,) = clock(self._analysis.history, [at])
        if other.begun is None or self._not_before(other.log, other.begun) > at:
            return self._confirmed(
                f"{b} was told at {told} s, and by then it had not been its turn"
            )
        end = int(self._analysis.promises.end[self._grant_of[first]])
        until = "for good"
        if end < FOREVER:
            told, at_end = clock(self._analysis.history, [at, end])
            until = f"until {at_end} s"
        text = (
            f"the entry of {a} was gone ({_HOW[mine.how]}) at #{mine.ended}, and it was the turn "
            f"of {b} at #{other.begun}, by {told} s; {a} was promised it {until}"
        )
        if self._may_be_over(first, mine, at):
            return self.undecided(f"{text}, which is longer than it can show")
        return self._confirmed(text)

    def late_grant(self, row: int) -> Word:
        """Of a grant that was told after its promise."""
        until_ns = self._noted_until(row)
        if until_ns is None:
            return self.undecided("it notes no term")
        done = int(self._analysis.history.complete_ns[row])
        over, told = clock(self._analysis.history, [until_ns[1], done])
        if until_ns[1] < done:
            return self._confirmed(
                f"the term of {self._name(row)} was over at {over} s, and it was told at {told} s"
            )
        return self.undecided(
            f"the term of {self._name(row)} ran until {over} s; when it began, its client could "
            "not know"
        )

    def stale_holder(self, operation: int, later: int, applied_ns: int) -> Word:
        """Of an operation that was applied after its hold's promise and beside a later grant. Its
        acquire may be one whose outcome is unknown."""
        held = int(self._links.acquire[operation])
        a = self._name(held)
        (other,) = self._tenures(later)
        mine = self._tenures(held)
        (at,) = clock(self._analysis.history, [applied_ns])
        if not mine:
            return self._confirmed(
                f"no entry of {a} was ever there, when its operation was applied at {at} s"
            )
        last = mine[-1]
        if last.log != other.log:
            return self.undecided("they stand in logs that cannot be compared")
        if last.ended is None:
            return self.undecided(f"the entry of {a} was never gone")
        if self._by(last.log, last.ended) <= applied_ns:
            return self._confirmed(f"the entry of {a} was gone at #{last.ended}, before {at} s")
        return self.undecided(f"whether the entry of {a} was gone by {at} s is not known")

    def wrong_release(self, release: int, ended: int) -> Word:
        """Of a release that is said to have ended another's hold."""
        history = self._analysis.history
        (theirs,) = self._tenures(ended)
        a = self._name(ended)
        begin, end = int(history.invoke_ns[release]), int(history.complete_ns[release])
        if theirs.ended is None:
            if theirs.how == "lost":
                return self.undecided("the entry was lost with all that the server had kept")
            return self._contradicted(f"the entry of {a} was never taken away")
        first = self._not_before(theirs.log, theirs.ended)
        last = self._by(theirs.log, theirs.ended)
        asked, done = clock(history, [begin, end])
        if first > end or last < begin:
            return self._contradicted(
                f"the entry of {a} was taken away at #{theirs.ended}, which was not between "
                f"{asked} and {done} s"
            )
        own = int(effective_releases(history, self._links)[ended])
        asked_itself = own >= 0 and history.invoke_ns[own] <= last
        over = self._may_be_over(ended, theirs, last)
        if theirs.how == "deleted" and not asked_itself and not over:
            return self._confirmed(
                f"the entry of {a} was deleted at #{theirs.ended}, before the end of its term and "
                f"before {a} had asked for it"
            )
        return self.undecided(f"who took the entry of {a} away is not in it")

    def false_release(self, release: int) -> Word:
        """Of a release that was answered ok though its hold is said to have been over."""
        history = self._analysis.history
        row = int(self._links.acquire[release])
        tenures = self._tenures(row)
        begin = int(history.invoke_ns[release])
        (asked,) = clock(history, [begin])
        a = self._name(row)
        if len(tenures) != 1 or tenures[0].ended is None:
            return self.undecided(f"what became of the entry of {a} is not in it")
        (mine,) = tenures
        assert mine.ended is not None
        if self._by(mine.log, mine.ended) <= begin:
            return self._confirmed(f"the entry of {a} was gone at #{mine.ended}, before {asked} s")
        there_at = self._not_before(mine.log, mine.ended)
        earlier = self._confirmed_before(release)
        if earlier is not None and there_at > history.complete_ns[earlier]:
            return self._confirmed(
                f"the entry of {a} was deleted at #{mine.ended}, after its first release had been "
                "confirmed"
            )
        if there_at > begin and mine.how == "deleted":
            return self._contradicted(
                f"the entry of {a} still stood at {asked} s and was deleted later, at #{mine.ended}"
            )
        return self.undecided(f"whether the entry of {a} was gone by {asked} s is not known")

    def _confirmed_before(self, release: int) -> int | None:
        """A release of the same hold that was answered ok before this one was asked for."""
        history, links = self._analysis.history, self._links
        rows = rows_of(history, F.RELEASE, Type.OK)
        rows = rows[links.acquire[rows] == links.acquire[release]]
        rows = rows[history.complete_ns[rows] < history.invoke_ns[release]]
        return int(rows[0]) if len(rows) else None

    def fence_order(self, first: int, second: int) -> Word:
        """Of two grants of which the second is said to be the later one."""
        (mine,), (other,) = self._tenures(first), self._tenures(second)
        a, b = self._name(first), self._name(second)
        if mine.log != other.log or mine.begun is None or other.begun is None:
            return self.undecided("they stand in logs that cannot be compared")
        text = f"{a} had its turn at #{mine.begun}, {b} at #{other.begun}"
        history = self._analysis.history
        if mine.begun < other.begun or history.fence[first] == history.fence[second]:
            return self._confirmed(text)
        if history.complete_ns[first] < history.invoke_ns[second]:
            return self._contradicted(text)
        return self.undecided(text)

    # --- how it is known ---

    def _majorities(self, first: int, second: int) -> Word:
        """Of a lock that stands on a majority of independent nodes: both did, when the second was
        told."""
        told_ns = max(self._granted(first), self._granted(second))
        for row in (first, second):
            noted = self._outlives(row, told_ns)
            if noted is not None:
                return Word("contradicted", noted)
        standing = {row: self._standing(row, told_ns) for row in (first, second)}
        if any(len(logs) < self._service.quorum for logs in standing.values()):
            return self.undecided("that both stood on a majority at once is not certain")
        (at,) = clock(self._analysis.history, [told_ns])
        text = f"at {at} s " + " and ".join(
            f"{self._name(row)} stood on {', '.join(logs)}" for row, logs in standing.items()
        )
        return self._confirmed(text)

    def _standing(self, row: int, at_ns: int) -> list[str]:
        """The logs in which an acquire's entry stood at a time; one that was lost with its node
        counts for as long as its term, because nobody ever took it back."""
        found = []
        for tenure in self._tenures(row):
            if self._may_be_over(row, tenure, at_ns):
                continue
            if tenure.ended is None:
                found.append(f"{tenure.log} (wiped)" if tenure.how == "lost" else tenure.log)
            elif self._not_before(tenure.log, tenure.ended) >= at_ns:
                found.append(tenure.log)
        return found

    def _may_be_over(self, row: int, tenure: Tenure, at_ns: int) -> bool:
        """Whether the term of a grant's entry may have ended by a time. One that was not noted may
        have, unless the grant has no limit."""
        if tenure.until_ns is not None:
            return tenure.until_ns[0] <= at_ns
        lease: int = self._leases[self._grant_of[row]]
        return lease < FOREVER

    def _over_two_logs(self, first: int, second: int) -> Word:
        """Where the server lost its data between two holds."""
        (mine,), (other,) = self._tenures(first), self._tenures(second)
        a, b = self._name(first), self._name(second)
        if mine.how != "lost" or other.how == "lost":
            return self.undecided(f"{a} and {b} stand in logs that cannot be compared")
        if mine.until_ns is not None and mine.until_ns[0] <= self._granted(second):
            return self.undecided(f"the term of {a} may have been over when {b} was granted")
        return self._confirmed(
            f"the entry of {a} stood in {mine.log} when its data was taken away, and that of {b} "
            f"was made in {other.log}, at #{other.made}"
        )

    def _outlives(self, row: int, at_ns: int) -> str | None:
        """What is wrong with the promise of a grant, if the term noted for it was over by a time
        and the promise was not."""
        noted = self._term_outlived(row)
        if noted is None or noted > at_ns:
            return None
        return self._outlived(self._grant_of[row], noted)

    def _term_outlived(self, row: int) -> int | None:
        """The end of the term that the service had noted for a grant at the latest, if its promise
        is longer and it is certain that the service never noted another one."""
        i, until_ns = self._grant_of[row], self._noted_until(row)
        promised = self._leases[i]
        if until_ns is None or promised >= FOREVER or promised <= until_ns[1]:
            return None
        extends = self._extended.get(row)
        if extends is None:
            return until_ns[1]
        if self._died:
            return None
        # An extend may be answered though the entry was gone, which is the lock's doing.
        stood = any(
            tenure.ended is None
            if tenure.how is None
            else tenure.ended is not None and self._not_before(tenure.log, tenure.ended) > extends
            for tenure in self._tenures(row)
        )
        return until_ns[1] if stood and self._service.quorum == 1 else None

    def _outlived(self, i: int, until_ns: int) -> str:
        promises = self._analysis.promises
        promised, noted = clock(self._analysis.history, [int(promises.lease[i]), until_ns])
        return self._sentence(
            f"the term of {self._name(int(promises.row[i]))} ended at {noted} s, but the promise "
            f"that was recorded for it at {promised} s"
        )

    def _noted_until(self, row: int) -> tuple[int, int] | None:
        """Until when the service had noted that a hold lasts: on a majority."""
        noted = [t.until_ns for t in self._tenures(row) if t.until_ns is not None]
        if len(noted) < self._service.quorum:
            return None
        if self.several_decide and self._service.partial is not None:
            return None  # others may have noted a longer one
        # So many servers keep it at least that long.
        at = self._service.quorum - 1
        return (
            sorted((earliest for earliest, _ in noted), reverse=True)[at],
            sorted((latest for _, latest in noted), reverse=True)[at],
        )

    def _not_before(self, log: str, place: int) -> int:
        return self._bounds[log].earliest(place)

    def _by(self, log: str, place: int) -> int:
        return self._bounds[log].latest(place)

    @cached_property
    def _told(self) -> list[int]:
        """The grants of which the record must know."""
        history = self._analysis.history
        rows = rows_of(history, F.ACQUIRE, Type.OK)
        judged = keys_of(history, OWNED - REENTRANT)[history.key[rows]] & (
            history.hold[rows] != NULL
        )
        return list(rows[judged].tolist())

    def _gone(self, row: int) -> bool:
        return all(tenure.ended is not None or tenure.how for tenure in self._tenures(row))

    def _granted(self, row: int) -> int:
        return int(self._analysis.history.complete_ns[row])

    def _tenures(self, row: int) -> list[Tenure]:
        return self._of.get(self._identity[row], [])

    def _in_order(self, first: int, second: int) -> tuple[int, int]:
        """Two grants as they stand in the record; the one whose server lost it comes first."""
        (one,), (two,) = self._tenures(first), self._tenures(second)
        swap = one.made > two.made if one.log == two.log else two.how == "lost"
        return (second, first) if swap else (first, second)

    def _name(self, row: int) -> str:
        history = self._analysis.history
        return f"{self._analysis.name(row)} (hold {history.hold_name(int(history.hold[row]))})"

    def _sentence(self, text: str) -> str:
        return f"{self._service.record}: {text}"

    def _confirmed(self, text: str) -> Word:
        return Word("confirmed", self._sentence(text))

    def _contradicted(self, text: str) -> Word:
        """What was taken back may be missing at the end of what a server had when it died."""
        if self._died:
            return self.undecided(f"{text}; but a server died, and may have lost the end of it")
        return Word("contradicted", self._sentence(text))

    def undecided(self, text: str) -> Word:
        """It cannot tell, and why."""
        return Word("not decided", self._sentence(text))
