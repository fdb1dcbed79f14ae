"""What was observed of every lock, added up over runs: ``docs/observations.json``.

Guarantees: only cases of complete runs count whose histories are the recorded ones and are judged
today as they were then (``results.evidence``), and only those that an expectation was written for:
the ordinary workload and network, one fault with its default parameters, our own images. A run
counts once. A try counts for a verdict if the verdict broke, or held although the fault could have
hurt. Does not guarantee that the runs were made on one machine, or with the same versions: each is
named with its own. What became of a dead holder's key is there for the cases that were added since
it is looked at: ``dead_holder`` is missing in the others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.errors import BadInput
from bench.locked import DeadHolder, dead_holder
from bench.plan import MUTEX, images_of
from bench.track import excerpt, lines
from clusters.registry import topologies
from locks.base import NAMED_VERDICTS
from locks.registry import systems
from nemesis.registry import NONE, faults
from results.cases import Case, attempts, broken, counts_as_try, has_numbers, results_of
from results.evidence import Edited, Stored, countable, history_of, stored
from results.store import NotARun, write_atomically

DOCS: Final = Path(__file__).parents[1] / "docs"
FILE: Final = DOCS / "observations.json"
HISTORIES: Final = DOCS / "histories"
FORMAT: Final = 1
Observations = dict[str, Any]


def empty() -> Observations:
    """Nothing observed yet: ``runs`` by name, ``cases`` by ``key``, ``footprints`` by lock and
    topology. ``taken_back``: by ``key``, how many cases of the runs count no longer, because the
    bench had recorded something wrong, and what."""
    return {"format": FORMAT, "runs": {}, "cases": {}, "footprints": {}, "taken_back": {}}


def load(path: Path = FILE) -> Observations:
    """What is stored. Raises BadInput."""
    try:
        found: Observations = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return empty()
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from error
    return found


def text_of(observations: Observations) -> str:
    """As it is stored: sorted, so that a change of it can be read."""
    return json.dumps(observations, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def key(lock: str, topology: str, fault: str) -> str:
    """Names an observation."""
    return f"{lock} on {topology} under {fault}"


def add(observations: Observations, runs: Sequence[Path], histories: Path) -> list[str]:
    """Adds what these runs show, and saves into ``histories`` the few operations behind each break
    that has none yet, also of a run that was counted before; answers a sentence per run, and one
    per break that could not be cut out. Raises BadInput, having added nothing."""
    found = {path.resolve().name: _run(path) for path in runs}
    digests = {name: _digest(run) for name, run in found.items()}
    counted_before = {
        name: observations["runs"][name]["results_sha256"]
        for name in found
        if name in observations["runs"]
    }
    for name, digest in counted_before.items():
        if digest != digests[name]:
            raise BadInput(
                f"another state of {name} was counted before; remove {FILE.name} and name every "
                "run that is to count"
            )
    said: list[str] = []
    refused: dict[Path, str] = {}
    for name, run in found.items():
        counted = [case for case in run.cases if _counts(case)]
        for case in counted:
            refused |= _save_histories(run, case, histories)
        if name in counted_before:
            said.append(f"{name}: counted before")
            continue
        observations["runs"][name] = {
            "cases": len(counted),
            "results_sha256": digests[name],
            "versions": _versions(run.versions),
        }
        for case in counted:
            struck = dead_holder(case, partial(history_of, run.run, case))
            _add_case(observations, case, name, struck)
        said.append(f"{name}: {len(counted)} of {len(run.cases)} cases count")
    return [*said, *(sentence for path, sentence in refused.items() if not path.exists())]


def _digest(run: Stored) -> str:
    return hashlib.sha256((run.path / "results.json").read_bytes()).hexdigest()


def save(observations: Observations, path: Path = FILE) -> None:
    """Writes it as ``text_of`` says."""
    write_atomically(path, text_of(observations))


def history_file(lock: str, fault: str, verdict: str) -> str:
    """What the few operations behind a break are called."""
    return f"{lock}-{fault}-{verdict}.jsonl"


def _run(path: Path) -> Stored:
    try:
        run = stored(path)
        countable([run])
    except (NotARun, Edited) as error:
        raise BadInput(str(error)) from error
    ours = images_of(topologies().values())
    if foreign := set(run.versions.get("images", {})).difference(ours):
        raise BadInput(f"{path} was made with other images: {', '.join(sorted(foreign))}")
    return run


def _counts(case: Case) -> bool:
    system = systems().get(str(case["lock"]))
    topology = topologies().get(str(case["topology"]))
    return (
        system is not None
        and topology is not None
        and case["topology"] in system.topologies
        and case.get("size") == topology.default_size
        and case["fault"] in {NONE, *faults()}
        and case.get("workload") == MUTEX
        and case.get("network") == "loopback"
    )


def _add_case(observations: Observations, case: Case, run: str, struck: DeadHolder | None) -> None:
    lock, topology, fault = (str(case[name]) for name in ("lock", "topology", "fault"))
    entry = observations["cases"].setdefault(
        key(lock, topology, fault),
        {
            "lock": lock,
            "topology": topology,
            "fault": fault,
            "cases": 0,
            "tries": 0,
            "exposed": 0,
            "verdicts": {},
        },
    )
    tries = [attempt for attempt in attempts(case) if results_of(attempt)]
    entry["cases"] += 1
    entry["tries"] += len(tries)
    entry["exposed"] += sum(attempt.get("exposed") is True for attempt in tries)
    for attempt in tries:
        for verdict in results_of(attempt):
            if counts_as_try(attempt, verdict):
                share = entry["verdicts"].setdefault(verdict, {"k": 0, "n": 0})
                share["n"] += 1
                share["k"] += verdict in broken(attempt)
    if struck is not None:
        _add_dead_holder(entry, struck)
    entry["last"] = {
        "run": run,
        "seed": case.get("seed"),
        "judgement": case.get("judgement"),
        "broke": sorted(broken(case)),
    }
    cost = case.get("footprint")
    if fault == NONE and cost is not None and has_numbers(case):
        fairness = case.get("measurements", {}).get("fairness") or {}
        observations["footprints"][f"{lock} on {topology}"] = {
            "lock": lock,
            "topology": topology,
            "run": run,
            **_rounded(cost),
            "jain": _rounded(fairness.get("jain")),
        }


def _add_dead_holder(entry: dict[str, Any], struck: DeadHolder) -> None:
    """``longest_s``: the longest time until such a key was granted again, or None; ``locked``: in k
    of n cases with such a key nobody could get it any more."""
    found = entry.setdefault("dead_holder", {"longest_s": None, "locked": {"k": 0, "n": 0}})
    known = [s for s in (found["longest_s"], struck.longest_s) if s is not None]
    found["longest_s"] = _rounded(max(known, default=None))
    found["locked"]["n"] += 1
    found["locked"]["k"] += struck.locked


def _save_histories(run: Stored, case: Case, folder: Path) -> dict[Path, str]:
    """The few operations of each break, also of one that showed in an earlier try alone, where
    nothing was saved before; for each that could not be cut out, its file and a sentence. What
    follows from another break is not shown a second time."""
    refused = {}
    folders = [case.get("folder"), *(e.get("folder") for e in case.get("earlier_tries") or ())]
    for attempt, recorded in zip(attempts(case), folders, strict=True):
        broke = broken(attempt)
        named = [verdict for verdict in broke if verdict in NAMED_VERDICTS]
        for verdict in named or broke:
            path = folder / history_file(str(case["lock"]), str(case["fault"]), verdict)
            if path.exists():
                continue
            try:
                small = excerpt(history_of(run.run, {**attempt, "folder": recorded}), verdict)
            except (BadInput, Edited) as error:
                refused[path] = f"{run.path.name}, {recorded}: {verdict} is not shown: {error}"
                continue
            folder.mkdir(exist_ok=True)
            write_atomically(path, lines(small))
    return refused


def _versions(versions: Mapping[str, Any]) -> dict[str, str]:
    """Package → version of everything in the images, of the lock libraries, and ours."""
    found = {
        package: str(version)
        for part in ("images", "clients")
        for one in versions.get(part, {}).values()
        for package, version in one.get("versions", {}).items()
    }
    return found | {"lockbench": str(versions.get("libraries", {}).get("lockbench"))}


def _rounded(value: Any) -> Any:
    """Three significant digits: these numbers carry no more, and the file stays readable."""
    if isinstance(value, Mapping):
        return {name: _rounded(inner) for name, inner in value.items()}
    return float(f"{value:.3g}") if isinstance(value, float) else value


def wrong(observations: Observations) -> Iterable[str]:
    """A sentence for everything that ``add`` would not have written."""
    if observations.get("format") != FORMAT or set(observations) != set(empty()):
        yield "it has another form"
        return
    for name, entry in observations["cases"].items():
        if name != key(entry["lock"], entry["topology"], entry["fault"]):
            yield f"{name} names another case than it holds"
        if not 0 <= entry["exposed"] <= entry["tries"] or entry["cases"] < 1:
            yield f"{name}: {entry['exposed']} exposed of {entry['tries']} tries"
        for verdict, share in entry["verdicts"].items():
            if not 0 <= share["k"] <= share["n"] <= entry["tries"]:
                yield f"{name}: {verdict} {share['k']} of {share['n']} in {entry['tries']} tries"
        locked = entry.get("dead_holder", {}).get("locked", {"k": 0, "n": 0})
        if not 0 <= locked["k"] <= locked["n"] <= entry["cases"]:
            yield f"{name}: locked in {locked['k']} of {locked['n']} of {entry['cases']} cases"
        last = entry["last"]
        if last["run"] not in observations["runs"]:
            yield f"{name}: its last run is not among the runs"
        if any(not entry["verdicts"].get(verdict, {}).get("k") for verdict in last["broke"]):
            yield f"{name}: what broke last is not among what broke"
    counted = sum(
        entry["cases"] for of in ("cases", "taken_back") for entry in observations[of].values()
    )
    if counted != sum(run["cases"] for run in observations["runs"].values()):
        yield "its cases are not as many as its runs had"
