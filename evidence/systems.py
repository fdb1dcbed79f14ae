"""Every lock on one page: what is expected of it, what was observed, and what it costs.

    python -m evidence.systems [RUN ...]      make systems RUNS="runs/a runs/b"

Adds what the runs show to ``docs/observed`` and writes ``docs/systems.md`` from the declarations
and that folder. Guarantees: nothing on the page comes from anywhere else. What was not
observed is said to be so, never shown as kept.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from bench.judge import Expected, expectation
from bench.plan import REPLY_LOST, applies, make_case
from bench.suites import faults_of, full_faults
from bench.undeclared import undeclared
from checker.catalogue import CATALOGUE, NAMED, OF_LOCKS
from evidence.observations import (
    DOCS,
    FOLDER,
    Histories,
    Key,
    Observations,
    Observed,
    Share,
    add,
    histories_in,
    history_showing,
    load,
    save,
)
from evidence.templates import rendered
from evidence.track import KINDS, LIVENESS, BadPage, Page, pages
from history.lines import UnreadableHistory
from locks.base import ANY, System
from locks.registry import systems
from nemesis.registry import NONE
from report.grid import Markdown, markdown_table
from results.documents import PerGrant
from results.errors import BAD_INPUT, BadInput
from results.statistics import share
from results.store import write_atomically
from results.wording import NONE as NONE_WORD
from results.wording import printable

PAGE: Final = DOCS / "systems.md"
COLUMNS: Final = (NONE, *faults_of("full"))
SHORT: Final = {name: CATALOGUE[name].code for name in OF_LOCKS}
MARKS: Final = {"breaks": "!", "may-break": "~"}
WORDS: Final = {
    "breaks": "breaks",
    "may-break": "may break",
    "holds": "holds",
    "n/a": "does not apply",
}
UNEXPECTED: Final = "‼"
SILENT: Final = "†"  # nothing is declared under the fault
LOCKED: Final = "⛔ locked"
EXHAUSTIVE: Final = "`exhaustive`"
FROZEN: Final = "client-pause"


def render(observations: Observations, found: Sequence[Page], histories: Histories) -> str:
    """The page."""
    seen = _Seen(observations, found, histories)
    sources = _sources()

    def cited(source: str) -> Markdown:
        return Markdown(f"[[{sources[source]}]](#source-{sources[source]})")

    too_late, never = _too_late(seen)
    taken_back: dict[str, list[str]] = defaultdict(list)
    for key, entry in sorted(observations.taken_back.items()):
        taken_back[entry.why].append(f"{key} ({entry.cases})")
    return rendered(
        "systems.md.j2",
        codes=Markdown("; ".join(f"{short} {verdict}" for verdict, short in SHORT.items())),
        matrix=_matrix(seen),
        too_late=too_late,
        never_too_late=never,
        costs=_costs(observations),
        locks=[_declared(system, found, cited) for system in systems().values()],
        cited=cited,
        reply_lost=REPLY_LOST,
        sources=sources,
        runs=_runs(observations),
        taken_back=dict(sorted(taken_back.items())),
    )


@dataclass(frozen=True, slots=True)
class _Seen:
    """Everything that the table of verdicts is made of, beside the declarations."""

    observations: Observations
    pages: Sequence[Page]
    histories: Histories

    def case(self, lock: str, topology: str, fault: str) -> Observed | None:
        return self.observations.cases.get(Key(lock, topology, fault))

    def link(self, lock: str, fault: str, verdict: str) -> str | None:
        """Where the break is shown: a page of the track record, or a saved history."""
        for page in self.pages:
            if page.explains(lock, fault) and verdict in page.verdicts:
                return f"track/{page.id}.md"
        return self.history(lock, fault, verdict)

    def history(self, lock: str, fault: str, verdict: str) -> str | None:
        """Where the few operations of the break are."""
        name = history_showing(self.histories, lock, fault, verdict)
        return name and f"{FOLDER.name}/{name}"

    def marked(self, mark: str, lock: str, fault: str, kinds: Collection[str]) -> str:
        """A mark with the page of one of these kinds that says why, where there is one."""
        for page in self.pages:
            if page.kind in kinds and page.explains(lock, fault):
                return f"[{mark}](track/{page.id}.md)"
        return mark


def _matrix(seen: _Seen) -> Markdown:
    """A row for every lock on its first topology, and on each other that was observed."""
    rows = []
    for system in systems().values():
        for topology in system.topologies:
            first = topology == system.topologies[0]
            cases = [seen.case(system.name, topology, fault) for fault in COLUMNS]
            if first or any(cases):
                name = f"[{system.name}](#{system.name})" + ("" if first else f" on {topology}")
                cells = (_cell(system, topology, fault, seen) for fault in COLUMNS)
                rows.append(map(Markdown, (name, *cells)))
    return markdown_table(("lock", *COLUMNS), rows)


def _cell(system: System, topology: str, fault: str, seen: _Seen) -> str:
    if not applies(make_case(system.name, fault, seed=0, topology=topology)):
        return "·"
    case = seen.case(system.name, topology, fault)
    shares = {} if case is None else case.verdicts
    broke = [verdict for verdict in SHORT if case is not None and case.share(verdict).k]
    expected = Expected(system, (fault,))
    parts = []
    for verdict, short in SHORT.items():
        word = expected.of(verdict).expected
        named = verdict in NAMED
        if verdict not in broke and expectation(system, fault, verdict).expected not in MARKS:
            continue
        if not named and not {*broke}.isdisjoint(NAMED):
            continue
        shown = short + MARKS.get(word, SILENT if word == "undeclared" else UNEXPECTED)
        link = seen.link(system.name, fault, verdict) if verdict in broke else None
        parts.append(_counted(f"[{shown}]({link})" if link else shown, shares.get(verdict), word))
    if case is None:
        parts.append("not run" if _in_full(system, topology, fault) else EXHAUSTIVE)
        return ", ".join(parts)
    if not broke:
        least = min((found.n for found in shares.values()), default=0)
        held = SILENT if expected.silent() else "✓"
        unexposed = seen.marked(f"? 0/{case.cases}", system.name, fault, (*KINDS, LIVENESS))
        parts.insert(0, f"{held} {least}" if least else unexposed)
    if case.locked.k:
        locked = seen.marked(LOCKED, system.name, fault, (LIVENESS,))
        parts.append(f"{locked} {case.locked.k}/{case.locked.n}")
    return ", ".join(parts)


def _in_full(system: System, topology: str, fault: str) -> bool:
    return topology == system.topologies[0] and fault in (NONE, *full_faults(system.name))


def _counted(shown: str, found: Share | None, word: str) -> str:
    if found is None or not found.n:
        return shown
    k, n = found.k, found.n
    bound = f" (≤ {100 * share(k, n).high:.0f} %)" if word == "may-break" and not k else ""
    return f"{shown} {k}/{n}{bound}"


def _too_late(seen: _Seen) -> tuple[Markdown, Markdown]:
    """Every lock whose holder was frozen and acted too late, with where that is shown; and those
    with which it did not show."""
    not_shown, rows = [], []
    for system in systems().values():
        shares = [
            case.share("stale-holder")
            for topology in system.topologies
            if (case := seen.case(system.name, topology, FROZEN)) is not None
        ]
        k, n = sum(found.k for found in shares), sum(found.n for found in shares)
        if k:
            path = seen.history(system.name, FROZEN, "stale-holder")
            link = f"[{Path(path).name}]({path})" if path else NONE_WORD
            rows.append(map(Markdown, (f"[{system.name}](#{system.name})", f"{k}/{n}", link)))
        elif n:
            lease = "" if system.limited else " (no lease)"
            not_shown.append(f"[{system.name}](#{system.name}) {k}/{n}{lease}")
    return markdown_table(("lock", "k/n", "history"), rows), Markdown(", ".join(not_shown))


def unshown(observations: Observations, found: Sequence[Page], histories: Histories) -> list[str]:
    """A sentence for every observed break that leads nowhere, unless it follows from another."""
    seen = _Seen(observations, found, histories)
    said = []
    for key, case in observations.cases.items():
        broke = [verdict for verdict, share in case.verdicts.items() if share.k]
        named = [verdict for verdict in broke if verdict in NAMED]
        said += [
            f"{key}: neither a page nor a saved history shows {verdict}"
            for verdict in named or broke
            if seen.link(case.lock, case.fault, verdict) is None
        ]
    return said


def _costs(observations: Observations) -> Markdown:
    heads = (
        "lock", "topology", "servers", "memory, MiB", "commands per grant, own keys", "contended",
        "server CPU per grant, own keys, µs", "contended", "grants/s, own keys", "contended",
        "fairness (Jain)",
    )  # fmt: skip
    rows = []
    for found in observations.footprints.values():
        it = found.footprint
        spans = [it.own or PerGrant(), it.contended or PerGrant()]
        numbers = [
            it.servers,
            None if it.memory_bytes is None else it.memory_bytes / 2**20,
            *(span.commands_per_grant for span in spans),
            *(span.cpu_us_per_grant for span in spans),
            *(span.grants_per_second for span in spans),
            found.jain,
        ]
        rows.append([found.lock, found.topology, *map(_number, numbers)])
    return markdown_table(heads, rows)


def _number(value: float | None) -> str:
    if value is None:
        return NONE_WORD
    return f"{value:,.0f}" if value >= 100 or isinstance(value, int) else f"{value:.3g}"


def _declared(
    system: System, found: Sequence[Page], cited: Callable[[str], Markdown]
) -> dict[str, Any]:
    """What is declared of a lock, for the template."""
    under: dict[tuple[str, str, str | None, str], list[str]] = defaultdict(list)
    for fault, verdicts in system.expectations.items():
        for verdict, e in verdicts.items():
            told = "every other verdict" if verdict == ANY else verdict
            under[e.expected, told, e.kind, e.source].append(f"`{fault}`")
    expected: dict[str, list[str]] = {word: [] for word in WORDS}
    for (word, told, kind, source), where in under.items():
        of_kind = f" ({kind})" if kind else ""
        expected[word].append(f"{told} under {', '.join(where)}{of_kind} {cited(source)}")
    return {
        "system": system,
        "expected": {WORDS[word]: items for word, items in expected.items() if items},
        "silent": undeclared([system]).get(system.name),
        "pages": [page for page in found if system.name in page.locks],
    }


def _sources() -> dict[str, int]:
    """Every source that a declaration names → its number."""
    named = [
        source
        for system in systems().values()
        for source in (
            system.source,
            *filter(None, [system.asks_first]),
            *(e.source for verdicts in system.expectations.values() for e in verdicts.values()),
        )
    ]
    return {source: number for number, source in enumerate(dict.fromkeys(named), 1)}


def _runs(observations: Observations) -> Markdown:
    rows = [
        (
            name,
            run.cases,
            ", ".join(f"{package} {version}" for package, version in run.versions.items()),
        )
        for name, run in observations.runs.items()
    ]
    return markdown_table(("run", "cases", "versions"), rows)


def current() -> str:
    """The page as it has to be now."""
    return render(load(), pages(), histories_in())


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def write(
    runs: Annotated[list[Path] | None, typer.Argument(help="Run folders to add.")] = None,
) -> None:
    """Add runs to the observations, and write the page."""
    if runs:
        observations, said = add(load(), runs)
        for sentence in said:
            print(printable(sentence))
        save(observations)
    saved = histories_in()
    for sentence in unshown(load(), pages(), saved):
        print(printable(sentence))
    write_atomically(PAGE, render(load(), pages(), saved))


def main() -> None:
    """Bad input ends with 254 and one sentence."""
    try:
        app(standalone_mode=False)
    except (BadInput, BadPage, UnreadableHistory) as error:
        print(printable(f"systems: {error}"), file=sys.stderr)
        sys.exit(BAD_INPUT)


if __name__ == "__main__":
    main()
