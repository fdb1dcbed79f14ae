"""What was observed of every lock, added up over runs, with the histories that show it.

    docs/observed/runs.json             the runs that were added
    docs/observed/<lock>/observed.json  what they showed of this lock
    docs/observed/<lock>/<fault>-<verdict>.jsonl   the few operations behind a break

Guarantees: only cases of complete runs count whose histories are the recorded ones and are judged
today as they were then (``lockbench.results.stored``), and only those that an expectation was
written for: the ordinary workload and network, one fault with its default parameters, our own
images. A run counts once. A try counts for a verdict if the verdict broke, or held although the
fault could have hurt. Does not guarantee that the runs were made on one machine, or with the same
versions: each is named with its own. Rates are those of the last run that measured them with a key
for each client. What became of a dead holder's key, which runs the cases of a key are from, and
the machine of a run are there for what was added since they are recorded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from lockbench.bench.plan import MUTEX, images_of
from lockbench.checker.catalogue import NAMED, OF_LOCKS
from lockbench.clusters.registry import topologies
from lockbench.evidence.dead_holder import DeadHolder, dead_holder
from lockbench.evidence.excerpt import broken as breaks
from lockbench.evidence.excerpt import excerpt, lines
from lockbench.history.files import BadFile, MissingFile, read_bytes, read_json
from lockbench.history.jsonl import read_jsonl
from lockbench.locks.registry import systems
from lockbench.nemesis.registry import NONE, faults
from lockbench.results.cases import (
    AMISS,
    attempts,
    counts_as_try,
    has_numbers,
    proven,
    results_of,
)
from lockbench.results.documents import (
    CaseResult,
    Count,
    Footprint,
    LockRates,
    Machine,
    Real,
    Seed,
    Sha256,
    Versions,
)
from lockbench.results.errors import BadInput
from lockbench.results.store import NotARun, write_atomically
from lockbench.results.stored import Edited, Stored, countable, history_of, stored

DOCS: Final = Path(__file__).resolve().parents[1] / "docs"
FOLDER: Final = DOCS / "observed"
FILE: Final = "observed.json"
RUNS: Final = "runs.json"
FORMAT: Final = 2
Histories = Mapping[str, Collection[str]]  # name of a saved history → what it breaks
T = TypeVar("T")
K = TypeVar("K", bound=tuple[str, ...])


class Key(NamedTuple):
    """What is observed: a lock on a topology under a fault."""

    lock: str
    topology: str
    fault: str

    def __str__(self) -> str:
        return f"{self.lock} on {self.topology} under {self.fault}"


class Share(Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """k of n."""

    k: Count = 0
    n: Count = 0

    def plus(self, *, counts: bool) -> Share:
        """With one more, which counts for k or does not."""
        return Share(self.k + counts, self.n + 1)


class Locked(Struct, frozen=True, forbid_unknown_fields=True):
    """``longest_s``: the longest time until the key of a holder that was struck was granted again,
    or None; ``locked``: in k of n cases with such a key nobody could get it any more."""

    longest_s: Real | None = None
    locked: Share = Share()


class Last(Struct, frozen=True, forbid_unknown_fields=True):
    """What came of the last case that was added."""

    run: str
    seed: Seed | None
    judgement: str | None
    broke: tuple[str, ...]


class Keyed(Struct, frozen=True, forbid_unknown_fields=True):
    """Something about the cases of one key."""

    lock: str
    topology: str
    fault: str
    cases: Count

    @property
    def key(self) -> Key:
        return Key(self.lock, self.topology, self.fault)


class Observed(Keyed, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What came of them, and how often each verdict broke."""

    tries: Count
    exposed: Count
    verdicts: dict[str, Share]
    last: Last
    dead_holder: Locked | None = None
    runs: tuple[str, ...] = ()  # of each case that was added since they are recorded

    def share(self, verdict: str) -> Share:
        """In how many tries a verdict broke; 0 of 0 where none counts."""
        return self.verdicts.get(verdict, NEVER)

    @property
    def locked(self) -> Share:
        return self.dead_holder.locked if self.dead_holder else NEVER

    def wrong(self) -> Iterator[str]:
        """A sentence for everything that ``add`` would not have written."""
        if not 0 <= self.exposed <= self.tries or self.cases < 1:
            yield f"{self.key}: {self.exposed} exposed of {self.tries} tries"
        for verdict, share in self.verdicts.items():
            if not 0 <= share.k <= share.n <= self.tries:
                yield f"{self.key}: {verdict} {share.k} of {share.n} in {self.tries} tries"
        k, n = self.locked.k, self.locked.n
        if not 0 <= k <= n <= self.cases:
            yield f"{self.key}: locked in {k} of {n} of {self.cases} cases"
        if len(self.runs) > self.cases:
            yield f"{self.key}: {len(self.runs)} runs of {self.cases} cases"
        if any(not self.share(verdict).k for verdict in self.last.broke):
            yield f"{self.key}: what broke last is not among what broke"


NEVER: Final = Share()


class Counted(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A run that was added. ``machine`` is empty for those added before it was recorded."""

    run: str
    cases: Count
    results_sha256: Sha256
    versions: dict[str, str]
    machine: str = ""


class Cost(Struct, frozen=True, forbid_unknown_fields=True):
    """What the servers of a lock cost, in the last run without a fault."""

    lock: str
    topology: str
    run: str
    jain: Real | None
    footprint: Footprint


class Rated(Struct, frozen=True, forbid_unknown_fields=True):
    """A lock at stated rates, in the last run that measured them."""

    lock: str
    topology: str
    run: str
    rates: LockRates


class TakenBack(Keyed, frozen=True, forbid_unknown_fields=True):
    """They count no longer, because the bench had recorded something wrong: what."""

    why: str


class OfLock(Struct, frozen=True, forbid_unknown_fields=True):
    """The file of one lock. ``as_of``: the day of the last run in it."""

    format: Literal[2]
    as_of: str
    cases: tuple[Observed, ...]
    footprints: tuple[Cost, ...]
    taken_back: tuple[TakenBack, ...]
    rates: tuple[Rated, ...] = ()


class Runs(Struct, frozen=True, forbid_unknown_fields=True):
    """The file of the runs."""

    format: Literal[2]
    runs: tuple[Counted, ...]


@dataclass(frozen=True)
class Observations:
    """All of it: runs by name, what they showed by lock, topology and fault."""

    runs: Mapping[str, Counted] = field(default_factory=dict)
    cases: Mapping[Key, Observed] = field(default_factory=dict)
    footprints: Mapping[tuple[str, str], Cost] = field(default_factory=dict)
    taken_back: Mapping[Key, TakenBack] = field(default_factory=dict)
    rates: Mapping[tuple[str, str], Rated] = field(default_factory=dict)


def load(folder: Path = FOLDER) -> Observations:
    """What is stored; no link in the folder is followed. Raises BadInput."""
    try:
        runs = read_json(folder / RUNS, Runs, inside=folder).runs
    except MissingFile:
        runs = ()
    except BadFile as error:
        raise _unreadable(error) from error
    found = [_of_lock(path, folder) for path in sorted(folder.glob(f"*/{FILE}"))]
    observations = Observations(
        {run.run: run for run in runs},
        {it.key: it for of in found for it in of.cases},
        {(it.lock, it.topology): it for of in found for it in of.footprints},
        {it.key: it for of in found for it in of.taken_back},
        {(it.lock, it.topology): it for of in found for it in of.rates},
    )
    for sentence in wrong(observations):
        raise BadInput(f"{folder}: {sentence}")
    return observations


def _of_lock(path: Path, folder: Path) -> OfLock:
    try:
        found = read_json(path, OfLock, inside=folder)
    except BadFile as error:
        raise _unreadable(error) from error
    named = {it.lock for it in (*found.cases, *found.taken_back)}
    named |= {it.lock for it in found.footprints} | {it.lock for it in found.rates}
    for lock in sorted(named - {path.parent.name}):
        raise BadInput(f"{path}: {lock} is another lock")
    return found


def _unreadable(error: BadFile) -> BadInput:
    return BadInput(f"{error.path} cannot be read: {error.why}")


def save(observations: Observations, folder: Path = FOLDER) -> None:
    """Writes every file as ``files`` says."""
    for name, text in files(observations).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / name, text)


def files(observations: Observations) -> dict[str, str]:
    """Every file below the folder, with a line for each thing observed, so that a change of it can
    be read."""
    runs = Runs(FORMAT, tuple(observations.runs[name] for name in sorted(observations.runs)))
    found = {RUNS: _text(runs)}
    for lock in sorted({key.lock for key in (*observations.cases, *observations.taken_back)}):
        cases = _of(observations.cases, lock)
        costs = _of(observations.footprints, lock)
        dates = [*(it.last.run[:10] for it in cases), *(it.run[:10] for it in costs)]
        back, rates = _of(observations.taken_back, lock), _of(observations.rates, lock)
        dates += [it.run[:10] for it in rates]
        of_lock = OfLock(FORMAT, max(dates, default=""), cases, costs, back, rates)
        found[f"{lock}/{FILE}"] = _text(of_lock)
    return found


def _of(found: Mapping[K, T], lock: str) -> tuple[T, ...]:
    return tuple(found[key] for key in sorted(found) if key[0] == lock)


def _text(document: Struct) -> str:
    fields = []
    for name in document.__struct_fields__:
        value = getattr(document, name)
        if name == "rates" and not value:
            continue
        many = isinstance(value, tuple) and value
        text = "[\n" + ",\n".join(map(_line, value)) + "\n]" if many else _line(value)
        fields.append(f'"{name}": {text}')
    return "{\n" + ",\n".join(fields) + "\n}\n"


def _line(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


def wrong(observations: Observations) -> Iterator[str]:
    """A sentence for everything that ``add`` would not have written."""
    for key, it in observations.cases.items():
        yield from it.wrong()
        if not observations.runs.keys() >= {it.last.run, *it.runs}:
            yield f"{key}: one of its runs is not among the runs"
    entries = (*observations.cases.values(), *observations.taken_back.values())
    if sum(it.cases for it in entries) != sum(run.cases for run in observations.runs.values()):
        yield "its cases are not as many as its runs had"


def histories_in(folder: Path = FOLDER) -> dict[str, Collection[str]]:
    """What each saved history breaks."""
    paths = sorted(folder.glob("*/*.jsonl"))
    return {f"{path.parent.name}/{path.name}": breaks(read_jsonl(path)) for path in paths}


def history_file(lock: str, fault: str, verdict: str) -> str:
    """What the few operations behind a break are called."""
    return f"{lock}/{fault}-{verdict}.jsonl"


def history_showing(histories: Histories, lock: str, fault: str, verdict: str) -> str | None:
    """The saved history of a break: its own, or that of another break of the same lock and fault
    which shows this one too."""
    for saved in (verdict, *OF_LOCKS):
        name = history_file(lock, fault, saved)
        if verdict in histories.get(name, ()):
            return name
    return None


def add(
    observations: Observations, runs: Sequence[Path], folder: Path = FOLDER
) -> tuple[Observations, list[str]]:
    """With what these runs show, and a sentence per run. Saves into ``folder`` the few operations
    behind each break that no saved history shows yet, also of a run that was counted before; a
    sentence for each that could not be cut out. Raises BadInput, having saved nothing."""
    found = {path.resolve().name: _run(path) for path in runs}
    digests = {name: _digest(run) for name, run in found.items()}
    for name, digest in digests.items():
        before = observations.runs.get(name)
        if before is not None and digest != before.results_sha256:
            raise BadInput(
                f"another state of {name} was counted before; remove {FOLDER.name} and name every "
                "run that is to count"
            )
    all_runs, cases = dict(observations.runs), dict(observations.cases)
    footprints, rates = dict(observations.footprints), dict(observations.rates)
    histories = histories_in(folder)
    said: list[str] = []
    refused: dict[str, str] = {}
    for name, run in found.items():
        counted = [case for case in run.cases if _counts(case)]
        for case in counted:
            refused |= _save_histories(run, case, folder, histories)
        if name in all_runs:
            said.append(f"{name}: counted before")
            continue
        versions, machine = _versions(run.versions), _machine(run.machine)
        all_runs[name] = Counted(name, len(counted), digests[name], versions, machine)
        for case in counted:
            struck = dead_holder(case, partial(history_of, run.run, case))
            key = Key(case.lock, case.topology or "", case.fault)
            cases[key] = _with_case(cases.get(key), key, case, name, struck)
            if key.fault == NONE and case.footprint is not None and has_numbers(case):
                footprints[key[:2]] = _cost(key, name, case, case.footprint)
        known = {(case.lock, case.topology) for case in counted}
        for one in run.results.rates:
            of = (one.of.lock, one.of.topology)
            if of in known and _usual(one):
                rounded = msgspec.convert(_rounded(msgspec.to_builtins(one)), LockRates)
                rates[of] = Rated(*of, name, rounded)
        said.append(f"{name}: {len(counted)} of {len(run.cases)} cases count")
    now = Observations(all_runs, cases, footprints, observations.taken_back, rates)
    return now, [*said, *(text for history, text in refused.items() if history not in histories)]


def _digest(run: Stored) -> str:
    return hashlib.sha256(read_bytes(run.path / "results.json", inside=run.path)).hexdigest()


def _run(path: Path) -> Stored:
    try:
        run = stored(path)
        countable([run])
    except (NotARun, Edited) as error:
        raise BadInput(str(error)) from error
    ours = images_of(topologies().values())
    if foreign := set(run.versions.images or {}).difference(ours):
        raise BadInput(f"{path} was made with other images: {', '.join(sorted(foreign))}")
    return run


def _counts(case: CaseResult) -> bool:
    system, topology = systems().get(case.lock), topologies().get(case.topology or "")
    return (
        system is not None
        and case.own is None  # of a file from elsewhere, which may call its lock like one of ours
        and topology is not None
        and topology.name in system.topologies
        and case.size == topology.default_size
        and case.resource is None  # a store with a check of its own
        and case.fault in {NONE, *faults()}
        and case.workload == MUTEX
        and case.network == "loopback"
    )


def _usual(one: LockRates) -> bool:
    """Whether nothing but the lock is in its way: no network, no contention, no hold."""
    of, usual = one.of, topologies()[one.of.topology].default_size
    return (of.size, of.network, of.keys, of.hold_s) == (usual, "loopback", 0, 0.0)


def _with_case(
    known: Observed | None, key: Key, case: CaseResult, run: str, struck: DeadHolder | None
) -> Observed:
    tries = [attempt for attempt in attempts(case) if results_of(attempt)]
    verdicts = dict(known.verdicts) if known else {}
    for attempt in tries:
        for verdict in results_of(attempt):
            if counts_as_try(attempt, verdict):
                share = verdicts.get(verdict, NEVER)
                verdicts[verdict] = share.plus(counts=verdict in proven(attempt))
    dead = known.dead_holder if known else None
    return Observed(
        *key,
        cases=1 + (known.cases if known else 0),
        tries=len(tries) + (known.tries if known else 0),
        exposed=sum(map(_is_exposed, tries)) + (known.exposed if known else 0),
        verdicts=dict(sorted(verdicts.items())),
        last=Last(run, case.seed, case.judgement, tuple(sorted(proven(case)))),
        dead_holder=dead if struck is None else _with_struck(dead or Locked(), struck),
        runs=(*(known.runs if known else ()), run),
    )


def _is_exposed(attempt: CaseResult) -> bool:
    return attempt.exposed is True and attempt.judgement not in AMISS


def _with_struck(known: Locked, struck: DeadHolder) -> Locked:
    longest = [s for s in (known.longest_s, struck.longest_s) if s is not None]
    share = known.locked.plus(counts=struck.locked)
    return Locked(_rounded(max(longest, default=None)), share)


def _cost(key: Key, run: str, case: CaseResult, cost: Footprint) -> Cost:
    fairness = case.measurements.fairness
    footprint = msgspec.convert(_rounded(msgspec.to_builtins(cost)), Footprint)
    jain = None if fairness is None else _rounded(fairness.jain)
    return Cost(key.lock, key.topology, run, jain, footprint)


def _save_histories(
    run: Stored, case: CaseResult, folder: Path, histories: dict[str, Collection[str]]
) -> dict[str, str]:
    """The few operations of each break, also of one that showed in an earlier try alone, where no
    history shows it yet; for each that could not be cut out, its file and a sentence. What follows
    from another break is not shown a second time."""
    refused = {}
    folders = [case.folder, *(earlier.folder for earlier in case.earlier_tries)]
    lock, fault = case.lock, case.fault
    for attempt, recorded in zip(attempts(case), folders, strict=True):
        broke = proven(attempt)
        named = [verdict for verdict in broke if verdict in NAMED]
        for verdict in named or broke:
            if history_showing(histories, lock, fault, verdict):
                continue
            name = history_file(lock, fault, verdict)
            try:
                small = excerpt(history_of(run.run, replace(attempt, folder=recorded)), verdict)
            except (BadInput, Edited) as error:
                refused[name] = f"{run.path.name}, {recorded}: {verdict} is not shown: {error}"
                continue
            (folder / lock).mkdir(parents=True, exist_ok=True)
            write_atomically(folder / name, lines(small))
            histories[name] = breaks(small)
    return refused


def _versions(versions: Versions) -> dict[str, str]:
    """Package → version of everything in the images, of the lock libraries, and ours."""
    ours = str((versions.libraries or {}).get("lockbench"))
    return dict(sorted({**versions.packages(), "lockbench": ours}.items()))


def _machine(machine: Machine) -> str:
    """What it is, in one line."""
    cores = machine.cores_usable or machine.cores
    told = [f"{cores} cores" if cores else None, machine.cpu, machine.os, machine.kernel]
    return ", ".join(one for one in told if one)


def _rounded(value: Any) -> Any:
    """Three significant digits: these numbers carry no more, and the file stays readable."""
    if isinstance(value, dict):
        return {name: _rounded(inner) for name, inner in value.items()}
    return float(f"{value:.3g}") if isinstance(value, float) else value
