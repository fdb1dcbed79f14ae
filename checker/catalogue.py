"""The catalogue of verdicts: whatever is said of a verdict anywhere is said here.

What each verdict follows from is argued in ``lockbench.checker.follows``, and each is decided in
the file that ``docs/checker.md`` names. The order is that in which a reader is told of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

# ``lock``: the service, or the library that speaks to it, broke its word. ``holder``: a client
# acted when its time was over, which no lock prevents and fencing does. ``nobody``: it is a fact
# about what was done; a verdict beside it says who is to blame.
Blame = Literal["lock", "holder", "nobody"]
# Where it shows: in the answers of the lock, in what the resource applied, in what a job did, or in
# the record of a store that checks for itself.
Seen = Literal["answers", "resource", "job", "store"]
# What a lock has to offer to be judged by it.
Needs = Literal["a limit", "a fence", "a queue"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One verdict.

    ``code`` stands for it in narrow tables; verdicts of jobs have none. ``did`` says what a lock
    did whose verdict is invalid, ``means`` when it is invalid. ``follows_from`` are the verdicts
    that may break this one without anything else being wrong. ``not_of`` are the kinds of lock
    (``lockbench.locks.base.LockKind``) that are not judged by it.

    ``always``: every lock is judged by it, where the load reaches what it is seen in. ``general``:
    it says less than any other that broke, and is told alone. ``act`` is the piece of evidence that
    should not have been, which was there from then on. ``self_contained``: two holds, or one hold
    and what was done under it, suffice to show it, whatever happened before. ``by_chance``: it is
    about what clients of most locks do in few runs, so that most runs are not judged by it.
    """

    name: str
    code: str
    did: str
    means: str
    blames: Blame = "lock"
    seen: Seen = "answers"
    follows_from: tuple[str, ...] = ()
    not_of: tuple[str, ...] = ("none",)
    needs: Needs | None = None
    job: str = ""
    always: bool = False
    general: bool = False
    act: Literal["first grant", "last grant", "first operation", "last operation"] = (
        "last operation"
    )
    self_contained: bool = False
    by_chance: bool = False


def _of_job(job: str, name: str, did: str, means: str, follows_from: tuple[str, ...]) -> Entry:
    return Entry(
        name, "", did, means, "nobody", "job", follows_from=follows_from, not_of=(), job=job
    )


# What it takes to act beside somebody else.
_BESIDE: Final = ("double-grant", "late-grant", "stale-holder")

_ENTRIES: Final = (
    Entry(
        "double-grant",
        "DG",
        "gave the lock away twice",
        "two promises of one key that exclude each other are in force at the same instant",
        always=True,
        act="last grant",
        self_contained=True,
    ),
    Entry(
        "late-grant",
        "LG",
        "handed over locks whose lease had passed",
        "a grant was returned after its own `valid_until`",
        needs="a limit",
        always=True,
        act="first grant",
        self_contained=True,
    ),
    Entry(
        "stale-holder",
        "SH",
        "let a holder act after its time",
        "the resource applied an operation of a hold whose promise had ended, although another "
        "owner had been granted the key since or was promised it then; or an operation under an "
        "acquire of unknown outcome, inside another owner's promise",
        blames="holder",
        seen="resource",
        follows_from=("late-grant",),
        not_of=("semaphore", "none"),
        always=True,
        self_contained=True,
    ),
    Entry(
        "wrong-release",
        "WR",
        "let one client's release end another's grant",
        "a release of a hold that was over ended somebody else's grant",
        not_of=("read-write", "semaphore", "none"),
        always=True,
        act="first operation",
    ),
    Entry(
        "false-release",
        "FR",
        "confirmed releases of locks no longer held",
        "the service confirmed the release of a hold that was over, although somebody else had "
        "certainly been granted the key since, and that release ended no grant; of a shared "
        "lock: although others had taken every place",
        follows_from=("wrong-release", "double-grant"),
        act="first operation",
    ),
    Entry(
        "wrong-extend",
        "WE",
        "let one client's extension touch another's grant",
        "a hold whose lease had passed was extended while somebody else was promised the key; "
        "not judged of shared locks",
        act="first operation",
        by_chance=True,
    ),
    Entry(
        "queue-order",
        "QO",
        "let later waiters pass",
        "B asked after A's place in the queue was acknowledged, and was granted before A",
        needs="a queue",
    ),
    Entry(
        "leaked-lock",
        "LK",
        "kept keys locked that nobody held",
        "after the load nobody can hold the key any more, yet for longer than its lease and a "
        "slack nobody is granted it, while other keys are granted",
        act="first operation",
    ),
    Entry(
        "fence-order",
        "FO",
        "issued fences out of order",
        "of two grants that are certainly in order, the later has no larger fence; or two "
        "grants whose promises overlap have the same fence",
        needs="a fence",
        always=True,
        act="last grant",
        self_contained=True,
    ),
    Entry(
        "lost-update",
        "LU",
        "lost updates",
        "an acknowledged write did not build on what it replaced",
        blames="nobody",
        seen="resource",
        follows_from=_BESIDE,
        not_of=("semaphore", "none"),
        always=True,
    ),
    Entry(
        "linearizable",
        "LN",
        "answered as no single lock could",
        "no order of effects explains every answer",
        follows_from=("double-grant", "wrong-release", "false-release", "wrong-extend"),
        general=True,
    ),
    Entry(
        "broken-guard",
        "BG",
        "guarded a store that did not do what its own check says",
        "a guarded store applied a write that its check refuses, or refused one that it has to "
        "apply",
        blames="nobody",
        seen="store",
    ),
    _of_job(
        "inventory",
        "oversold",
        "sold a unit twice",
        "two sales sold the same unit. A sale is a write: it sells the next unit of the state it "
        "was made from. Without a lock: one place was given to two buyers",
        ("lost-update",),
    ),
    _of_job(
        "payment",
        "charged-twice",
        "charged a payment twice",
        "the same charge was applied twice",
        (*_BESIDE, "lost-update"),
    ),
    _of_job(
        "payment",
        "lost-charge",
        "lost charges that were confirmed",
        "a payment that was confirmed has no charge",
        (),
    ),
    _of_job("cron", "ran-twice", "started a run twice", "the same run was started twice", _BESIDE),
    _of_job(
        "leader",
        "two-leaders",
        "let two leaders act",
        "a hold acted again after a later one had acted",
        _BESIDE,
    ),
    _of_job(
        "rate-limit",
        "rate-exceeded",
        "let more calls through than allowed",
        "more than `bound` calls within some `window_ns`",
        _BESIDE,
    ),
    _of_job(
        "gate",
        "over-capacity",
        "let in more than there are permits",
        "more were between their first and their last effect than there are `permits`",
        _BESIDE,
    ),
)

CATALOGUE: Final[Mapping[str, Entry]] = MappingProxyType({e.name: e for e in _ENTRIES})

GENERAL: Final = next(e.name for e in _ENTRIES if e.general)
# Those that say what it cost; they are told beside whatever caused them.
OF_JOBS: Final = tuple(e.name for e in _ENTRIES if e.seen == "job")
# Those that say what the lock itself did, or let be done.
OF_LOCKS: Final = tuple(e.name for e in _ENTRIES if e.seen in {"answers", "resource"})
# Those by which every lock is judged.
ALWAYS: Final = tuple(e.name for e in _ENTRIES if e.always)
# Those that a declaration may say something of.
NAMED: Final = tuple(name for name in OF_LOCKS if name != GENERAL)
# Those that only a load with a resource reaches.
AT_THE_RESOURCE: Final = tuple(e.name for e in _ENTRIES if e.seen == "resource")
