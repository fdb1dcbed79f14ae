"""Every lock on one page: what is expected of it, what was observed, and what it costs.

    python -m evidence.systems [RUN ...]      make systems RUNS="runs/a runs/b"

Adds what the runs show to ``docs/observed`` and writes ``docs/systems.md`` from the declarations
and that folder. Guarantees: nothing on the page comes from anywhere else. What was not
observed is said to be so, never shown as kept.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from bench.judge import Expected, expectation
from bench.plan import REPLY_LOST, applies, make_case
from bench.suites import CANONICAL_FAULTS, full_faults
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
COLUMNS: Final = (NONE, *CANONICAL_FAULTS)
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
INTRO: Final = """# Systems

<!-- Written by `make systems`; change the declarations or add runs, not this page. -->

Every lock without a fault and under the ten canonical faults: what is expected of it, and what was
observed. Expectations are declared in `locks/`, each with a source. Observations
([observed](observed/README.md)) are summed over runs whose histories are still judged as they were.
The suite `exhaustive` has the other faults. `make systems RUNS="runs/a runs/b"` adds runs and
writes this page.

## Verdicts

- `k/n`: the verdict broke in k of n tries in which it could have broken. `✓ n`: nothing broke in n
  tries.
- `!`: it has to break. `~`: it may break (a race); if it never did, the bound of its share is given
  with 95 % confidence. `‼`: it broke and was expected to hold. `†` in place of `✓` or of one of
  these: the lock's declaration says nothing of this fault.
- `not run`: no stored run has the case. `exhaustive`: the same, and only that suite has it, because
  `full` has fewer faults for a variant, and one topology for each lock.
- `? 0/n`: it ran n times, and failed or met a fault that could not have hurt. `·`: the fault does
  not apply, or leaves nothing to judge.
- `⛔ locked k/n`: in k of n cases the key of a holder that the fault killed was never granted
  again, although the lease was over and others asked for it until the end. The verdict LK says so
  if the case had a quiet phase after the load. Cases above without LK are older, and have `✓`
  beside it.

Verdicts that follow from others (LN, FR) are shown only if nothing else broke. A link leads to the
page of the track record, or to the few operations that show the violation.

Withdrawn: `✓` for locks without a lease under `clock-jump`, and for PostgreSQL's locks under
`partition-drop` and `partition-stall` (its primary cut off from a replica that it never asks and
that is not promoted). Those faults could not have hurt there, so the cells are now `·`.
"""
AWAKE_TOO_LATE: Final = """## Awake too late

A holder whose process was frozen for longer than its lease wrote after another client had been
granted the key ([what happens](track/stale-holder.md)). For each lock: in how many tries under
`client-pause` stale-holder broke, and the few operations of one of them.
"""
COSTS: Final = """## What they cost

Servers only, without links and clients, in the last run of the case without a fault. *Own keys*:
nobody else wants the key. *Contended*: eight clients on two keys, waiting included. Per grant:
everything that the servers did meanwhile (release, polling, heartbeats and replication included),
divided by the grants. Commands: as Redis (`total_commands_processed`), ZooKeeper (packets received)
and etcd (gRPC messages received) count them; PostgreSQL does not. Jain: 1 is even. A dash: not
measured.
"""


def render(observations: Observations, found: Sequence[Page], histories: Histories) -> str:
    """The page."""
    seen = _Seen(observations, found, histories)
    sources = _sources()
    lines = [
        INTRO,
        "; ".join(f"{short} {verdict}" for verdict, short in SHORT.items()) + ".",
        "",
        *_matrix(seen),
        "",
        *_awake_too_late(seen),
        "",
        COSTS,
        *_costs(observations),
        "",
        "## Each lock",
        "",
        *(line for system in systems().values() for line in _section(system, found, sources)),
        "## Sources",
        "",
        *(f'<a id="source-{n}"></a>{n}: {source}\n' for source, n in sources.items()),
        "## Runs",
        "",
        *_runs(observations),
        *_taken_back(observations),
    ]
    return "\n".join(lines) + "\n"


def _taken_back(observations: Observations) -> Iterator[str]:
    """What once was published and was the bench's mistake."""
    if not observations.taken_back:
        return
    yield "\n## Taken back\n"
    yield "Cases of these runs that count no longer, because the bench had recorded them wrong:\n"
    by_reason: dict[str, list[str]] = defaultdict(list)
    for key, entry in sorted(observations.taken_back.items()):
        by_reason[entry.why].append(f"{key} ({entry.cases})")
    for why, names in sorted(by_reason.items()):
        yield f"- {why}: {'; '.join(names)}"


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

    def unexposed(self, lock: str, fault: str, case: Observed) -> str:
        """The mark of what never could have broken, with the page that says why where there is
        one."""
        mark = f"? 0/{case.cases}"
        for page in self.pages:
            if page.explains(lock, fault) and page.kind in (*KINDS, LIVENESS):
                return f"[{mark}](track/{page.id}.md)"
        return mark

    def locked(self, lock: str, fault: str) -> str:
        """The mark of a key that nobody gets any more, with its page where there is one."""
        for page in self.pages:
            if page.kind == LIVENESS and page.explains(lock, fault):
                return f"[{LOCKED}](track/{page.id}.md)"
        return LOCKED


def _matrix(seen: _Seen) -> Iterator[str]:
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
    yield markdown_table(("lock", *COLUMNS), rows)


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
        parts.insert(0, f"{held} {least}" if least else seen.unexposed(system.name, fault, case))
    if case.locked.k:
        parts.append(f"{seen.locked(system.name, fault)} {case.locked.k}/{case.locked.n}")
    return ", ".join(parts)


def _in_full(system: System, topology: str, fault: str) -> bool:
    return topology == system.topologies[0] and fault in (NONE, *full_faults(system.name))


def _counted(shown: str, found: Share | None, word: str) -> str:
    if found is None or not found.n:
        return shown
    k, n = found.k, found.n
    bound = f" (≤ {100 * share(k, n).high:.0f} %)" if word == "may-break" and not k else ""
    return f"{shown} {k}/{n}{bound}"


def _awake_too_late(seen: _Seen) -> Iterator[str]:
    """Every lock whose holder was frozen, and where it is shown that it acted too late."""
    yield AWAKE_TOO_LATE
    kept, rows = [], []
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
            kept.append(f"[{system.name}](#{system.name}) {k}/{n}{lease}")
    yield markdown_table(("lock", "k/n", "history"), rows)
    if kept:
        yield f"\nIt did not show with: {', '.join(kept)}."


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


def _costs(observations: Observations) -> Iterator[str]:
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
    yield markdown_table(heads, rows)


def _number(value: float | None) -> str:
    if value is None:
        return NONE_WORD
    return f"{value:,.0f}" if value >= 100 or isinstance(value, int) else f"{value:.3g}"


def _section(system: System, found: Sequence[Page], sources: Mapping[str, int]) -> Iterator[str]:
    """What is declared of a lock; numbers in brackets name the sources."""
    yield f"### {system.name}\n"
    yield (
        f"On {', '.join(system.topologies)}. Waits by: {system.waits_by}. Fence: "
        f"{system.fence or 'none'}. What is not listed holds without a fault and under each "
        f"fault that is listed {_cited(system.source, sources)}.\n"
    )
    under: dict[tuple[str, str, str | None, str], list[str]] = defaultdict(list)
    for fault, verdicts in system.expectations.items():
        for verdict, e in verdicts.items():
            told = "every other verdict" if verdict == ANY else verdict
            under[e.expected, told, e.kind, e.source].append(f"`{fault}`")
    for expected, word in WORDS.items():
        items = [
            f"{verdict} under {', '.join(where)}{f' ({kind})' if kind else ''} "
            f"{_cited(source, sources)}"
            for (expected_, verdict, kind, source), where in under.items()
            if expected_ == expected
        ]
        if items:
            yield f"- **{word}**: {'; '.join(items)}"
    if silent := undeclared([system]).get(system.name):
        yield f"- **undeclared**: {', '.join(f'`{fault}`' for fault in silent)}"
    if system.asks_first:
        yield f"- **nothing to judge**: `{REPLY_LOST}` {_cited(system.asks_first, sources)}"
    pages_of = [
        f"[{page.title}](track/{page.id}.md)" for page in found if system.name in page.locks
    ]
    if pages_of:
        yield f"- **on record**: {'; '.join(pages_of)}"
    yield ""


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


def _cited(source: str, sources: Mapping[str, int]) -> str:
    number = sources[source]
    return f"[[{number}]](#source-{number})"


def _runs(observations: Observations) -> Iterator[str]:
    rows = [
        (
            name,
            run.cases,
            ", ".join(f"{package} {version}" for package, version in run.versions.items()),
        )
        for name, run in observations.runs.items()
    ]
    yield markdown_table(("run", "cases", "versions"), rows)


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
