"""What ``lockbench list`` tells: everything that can be named, from a scan of the declarations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeVar

from lockbench.bench.judge import expectation
from lockbench.bench.plan import MUTEX, fits, unknown
from lockbench.bench.suites import SUITES, undrawn
from lockbench.bench.undeclared import undeclared
from lockbench.checker.catalogue import ALWAYS
from lockbench.clusters.base import NETWORKS
from lockbench.clusters.registry import topologies
from lockbench.declarations.parameters import Parameter
from lockbench.locks.base import System
from lockbench.locks.registry import systems, without
from lockbench.nemesis.registry import NONE, faults
from lockbench.report.console import out, plain, say, say_json
from lockbench.report.grid import Grid, drawn, texts
from lockbench.stores.registry import declared as stores
from lockbench.stores.registry import parameters
from lockbench.workloads.base import LOAD
from lockbench.workloads.registry import declared

KINDS: Final = ("lock", "no-lock", "resource", "topology", "fault", "workload", "suite")
# The worst kind of what is declared of a lock, and how it is marked.
MARKS: Final[Mapping[str | None, str]] = {"control": "control", "defect": "known defect"}
WIDE: Final = 1000
LOAD_IS: Final = (
    "how jobs arrive (at a rate or as they can), how long holds last, which keys they ask for"
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be listed. ``kind`` is one of KINDS, ``system`` a family of locks or a topology;
    None: all. With a system or a fault nothing is listed that has to do with neither."""

    kind: str | None = None
    system: str | None = None
    fault: str | None = None

    def __post_init__(self) -> None:
        """Raises BadInput for a name that does not exist."""
        families = {one.family for one in (*systems().values(), *without().values())}
        for what, name, known in (
            ("kind of thing", self.kind, KINDS),
            ("system", self.system, sorted({*families, *topologies()})),
            ("fault", self.fault, (NONE, *faults())),
        ):
            if name is not None and name not in known:
                raise unknown(what, name, known)

    def some(self, kind: str) -> bool:
        """Whether anything of this kind is listed."""
        about = kind in {"workload", "suite", "resource"} and (self.system or self.fault)
        return self.kind in {None, kind} and not about

    def lock(self, system: System) -> bool:
        """Whether a lock, or a way to do without one, is listed."""
        of = self.system in {None, system.family, *system.topologies}
        return of and (self.fault is None or not met(self.fault).isdisjoint(system.topologies))

    def topology(self, name: str) -> bool:
        """Whether a topology is listed: its own name, or that of locks on it."""
        of = self.system in {None, name, *_families()[name]}
        return of and (self.fault is None or name in met(self.fault))

    def applies(self, fault: str) -> bool:
        """Whether a fault is listed: it applies to the system."""
        return self.fault in {None, fault} and (
            self.system is None or any(self.system in {t, *_families()[t]} for t in met(fault))
        )


@cache
def _families() -> Mapping[str, set[str]]:
    """Topology → families of the locks on it."""
    return {
        name: {one.family for one in systems().values() if name in one.topologies}
        for name in topologies()
    }


@cache
def met(fault: str) -> set[str]:
    """The topologies that a fault applies to."""
    return {name for name in topologies() if fault == NONE or fits(fault, name)}


def catalogue(wanted: Wanted) -> dict[str, Any]:
    """The object of ``lockbench list --json``. What was not asked for is an empty list."""
    return {
        "locks": [_lock(s) for s in _asked("lock", wanted, systems().values()) if wanted.lock(s)],
        "topologies": [
            _named(t, "name", "sizes", "default_size", "images") | {"settings": dict(t.settings)}
            for t in _asked("topology", wanted, topologies().values())
            if wanted.topology(t.name)
        ],
        "faults": [
            _fault(name)
            for name in _asked("fault", wanted, (NONE, *faults()))
            if wanted.applies(name)
        ],
        "workloads": [
            _named(w, "name", "summary", "verdicts") | {"parameters": _parameters(w.parameters)}
            for w in _asked("workload", wanted, declared().values())
        ],
        "without": [
            _named(system, "name", "topologies", "waits_by", "source")
            for system in _asked("no-lock", wanted, without().values())
            if wanted.lock(system)
        ],
        "resources": [
            {
                "name": store.name,
                "summary": store.summary,
                "topologies": list(store.topologies),
                "parameters": _parameters(parameters(store)),
                "guards": [
                    _named(guard, "name", "rule", "promises", "source") for guard in store.guards
                ],
            }
            for store in _asked("resource", wanted, stores().values())
        ],
        "networks": list(NETWORKS),
        "suites": [
            {
                "name": s.name,
                "summary": s.summary,
                "cases": [case.name for case in s.cases],
                "expected_seconds": round(s.expected_s),
                "duration": s.duration,
            }
            for s in (undrawn(name, seed=0) for name in _asked("suite", wanted, SUITES))
        ],
    }


def _asked(kind: str, wanted: Wanted, all_: Iterable[T]) -> Iterable[T]:
    return all_ if wanted.some(kind) else ()


def _named(declaration: object, *names: str) -> dict[str, Any]:
    """These fields of a declaration."""
    return {name: getattr(declaration, name) for name in names}


def _fault(name: str) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "parameters": [], "applies_to": sorted(met(name))}
    if name != NONE:
        fault = faults()[name]
        found |= {"parameters": _parameters(fault.parameters), "summary": fault.summary}
    return found


def _parameters(declared: Mapping[str, Parameter]) -> list[dict[str, Any]]:
    return [
        {"name": name} | _named(parameter, "summary", "default", "choices")
        for name, parameter in declared.items()
    ]


def show_undeclared(wanted: Wanted, *, as_json: bool) -> None:
    """The faults of which a declaration says nothing, by lock."""
    of = {"lock": systems(), "no-lock": without()}
    locks = (one for kind, all_ in of.items() for one in _asked(kind, wanted, all_.values()))
    found = {
        lock: [fault for fault in silent if wanted.fault in {None, fault}]
        for lock, silent in undeclared(filter(wanted.lock, locks)).items()
    }
    found = {lock: silent for lock, silent in found.items() if silent}
    if as_json:
        say_json({"undeclared": found})
        return
    for lock, silent in found.items():
        say(f"{lock}: {', '.join(silent)}")


def show(found: dict[str, Any], fault: str | None) -> None:
    """The same for people. ``fault``: the one that was asked for."""
    # What is not a terminal has no width, so a row is a line, and no name is cut.
    console = out if out.is_terminal else plain(width=WIDE)
    for grid in (_locks(found["locks"], fault), _faults(found["faults"]), _rest(found)):
        if grid.rows:
            console.print(drawn(grid))


def _locks(locks: Sequence[Mapping[str, Any]], fault: str | None) -> Grid:
    rows = [
        [
            lock["name"],
            MARKS.get(lock["known"], ""),
            ", ".join(lock["topologies"]),
            lock["waits_by"],
            lock["fence"] or "none",
            *([] if fault is None else [_not_holding(lock["expectations"][fault])]),
        ]
        for lock in locks
    ]
    expected = [] if fault is None else [f"not declared to hold under {fault}"]
    headings = ["name", "marked", "topologies", "waits by", "fence", *expected]
    return texts("locks", "Locks", headings, rows)


def _not_holding(expected: Mapping[str, Mapping[str, Any]]) -> str:
    words = {
        word: [verdict for verdict, one in expected.items() if one["expected"] == word]
        for word in ("breaks", "may-break", "undeclared")
    }
    return "; ".join(f"{word} {', '.join(names)}" for word, names in words.items() if names)


def _faults(faults: Sequence[Mapping[str, Any]]) -> Grid:
    rows = [
        [
            "\n".join([fault["name"], *map(_choice, fault["parameters"])]),
            fault.get("summary", "nothing"),
            ", ".join(fault["applies_to"]),
        ]
        for fault in faults
    ]
    return texts("faults", "Faults", ["name", "does", "applies to"], rows)


def _rest(found: Mapping[str, Any]) -> Grid:
    rows = []
    for topology in found["topologies"]:
        sizes = ", ".join(map(str, topology["sizes"]))
        rows.append(["topology", topology["name"], f"{sizes} nodes ({topology['default_size']})"])
    for workload in found["workloads"]:
        own = [p for p in workload["parameters"] if p["name"] not in LOAD]
        name = "\n".join([workload["name"], *map(_choice, own)])
        rows.append(["workload", name, workload["summary"]])
    for workload in found["workloads"]:
        if workload["name"] == MUTEX:
            name = "\n".join(["of most workloads", *map(_choice, workload["parameters"])])
            rows.append(["load", name, LOAD_IS])
    rows += [
        ["no lock", way["name"], f"on {', '.join(way['topologies'])}; {way['waits_by']}"]
        for way in found["without"]
    ]
    for store in found["resources"]:
        name = "\n".join([store["name"], *map(_choice, store["parameters"])])
        rows.append(["resource", name, store["summary"]])
    rows += [["suite", s["name"], f"{s['duration']}: {s['summary']}"] for s in found["suites"]]
    return texts("rest", "Everything else", ["kind", "name", "what"], rows)


def _choice(parameter: Mapping[str, Any]) -> str:
    """A parameter, as it may be written."""
    values = "|".join(parameter["choices"]) or format(parameter["default"], "g")
    return f"  :{parameter['name']}={values}"


def _known(system: System) -> str | None:
    """Whether a lock is here to be caught, or a source says that it does what it must not."""
    return next((kind for kind in MARKS if kind in system.kinds_expected), None)


def _lock(system: System) -> dict[str, Any]:
    fields = _named(system, "name", "topologies", "family", "fence", "waits_by", "source")
    return fields | {
        "known": _known(system),
        "expectations": {
            fault: {
                verdict: _named(expectation(system, fault, verdict), "expected", "kind", "source")
                for verdict in ALWAYS
            }
            for fault in (NONE, *faults())
            if not met(fault).isdisjoint(system.topologies)
        },
    }
