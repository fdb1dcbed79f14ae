"""What ``lockbench list`` tells: everything that can be named, from a scan of the declarations."""

from __future__ import annotations

from functools import cache
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.plan import MUTEX, fits
from bench.suites import SUITES, suite
from clusters.base import NETWORKS
from clusters.registry import topologies
from locks.base import VERDICTS, System
from locks.registry import systems, without
from nemesis.registry import NONE, faults
from workloads.base import LOAD
from workloads.registry import declared


def catalogue() -> dict[str, Any]:
    """The object of ``lockbench list --json``."""
    suites = [suite(name, seed=0) for name in SUITES]
    return {
        "locks": [_lock(system) for system in systems().values()],
        "topologies": [
            {
                "name": t.name,
                "sizes": list(t.sizes),
                "default_size": t.default_size,
                "images": list(t.images),
                "settings": dict(t.settings),
            }
            for t in topologies().values()
        ],
        "faults": [{"name": NONE, "parameters": [], "applies_to": sorted(topologies())}]
        + [
            {
                "name": fault.name,
                "parameters": [
                    {
                        "name": name,
                        "summary": parameter.summary,
                        "default": parameter.default,
                        "choices": list(parameter.choices),
                    }
                    for name, parameter in fault.parameters.items()
                ],
                "summary": fault.summary,
                "applies_to": _applies_to(fault.name),
            }
            for fault in faults().values()
        ],
        "workloads": [
            {
                "name": workload.name,
                "summary": workload.summary,
                "verdicts": list(workload.verdicts),
                "parameters": [
                    {
                        "name": name,
                        "summary": parameter.summary,
                        "default": parameter.default,
                        "choices": list(parameter.choices),
                    }
                    for name, parameter in workload.parameters.items()
                ],
            }
            for workload in declared().values()
        ],
        "without": [
            {
                "name": system.name,
                "topologies": list(system.topologies),
                "waits_by": system.waits_by,
                "source": system.source,
            }
            for system in without().values()
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
            for s in suites
        ],
    }


def show(console: Console) -> None:
    """The same for people."""
    found = catalogue()
    locks = Table("lock", "topologies", "waits by", "fence", title="Locks", title_justify="left")
    for lock in found["locks"]:
        locks.add_row(
            lock["name"], ", ".join(lock["topologies"]), lock["waits_by"], lock["fence"] or "none"
        )
    console.print(locks)
    faults_table = Table("fault", "does", "applies to", title="Faults", title_justify="left")
    for fault in found["faults"]:
        parameters = [
            f"{p['name']}={'|'.join(p['choices']) or format(p['default'], 'g')}"
            for p in fault["parameters"]
        ]
        faults_table.add_row(
            "\n".join([fault["name"], *(f"  :{text}" for text in parameters)]),
            fault.get("summary", "nothing"),
            ", ".join(fault["applies_to"]),
        )
    console.print(faults_table)
    rest = Table("kind", "name", "what", title="Everything else", title_justify="left")
    for topology in found["topologies"]:
        sizes = ", ".join(map(str, topology["sizes"]))
        rest.add_row("topology", topology["name"], f"{sizes} nodes ({topology['default_size']})")
    for workload in found["workloads"]:
        own = [p for p in workload["parameters"] if p["name"] not in LOAD]
        rest.add_row(
            "workload",
            "\n".join([workload["name"], *map(_choice, own)]),
            workload["summary"],
        )
    loaded = next(w for w in found["workloads"] if w["name"] == MUTEX)
    rest.add_row(
        "load",
        "\n".join(["of most workloads", *map(_choice, loaded["parameters"])]),
        "how jobs arrive (at a rate or as they can), how long holds last, which keys they ask for",
    )
    for way in found["without"]:
        rest.add_row(
            "no lock", way["name"], f"on {', '.join(way['topologies'])}; {way['waits_by']}"
        )
    for suited in found["suites"]:
        rest.add_row("suite", suited["name"], f"{suited['duration']}: {suited['summary']}")
    console.print(rest)


def _choice(parameter: dict[str, Any]) -> str:
    """A parameter of a workload, as it may be written."""
    values = "|".join(parameter["choices"]) or format(parameter["default"], "g")
    return f"  :{parameter['name']}={values}"


def _lock(system: System) -> dict[str, Any]:
    return {
        "name": system.name,
        "topologies": list(system.topologies),
        "family": system.family,
        "fence": system.fence,
        "waits_by": system.waits_by,
        "source": system.source,
        "expectations": {
            fault: {
                verdict: {
                    "expected": (e := system.expectation(fault, verdict)).expected,
                    "kind": e.kind,
                    "source": e.source,
                }
                for verdict in VERDICTS
            }
            for fault in (NONE, *faults())
            if fault == NONE or set(_applies_to(fault)) & set(system.topologies)
        },
    }


@cache
def _applies_to(fault: str) -> list[str]:
    return [name for name in sorted(topologies()) if fits(fault, name)]
