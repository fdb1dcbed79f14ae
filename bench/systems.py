"""Every lock on one page: what is expected of it, what was observed, and what it costs.

    python -m bench.systems [RUN ...]      make systems RUNS="runs/a runs/b"

Adds what the runs show to ``docs/observations.json`` and writes ``docs/systems.md`` from the
declarations and that file. Guarantees: nothing on the page comes from anywhere else. What was not
observed is said to be so, never shown as kept.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from bench.errors import BAD_INPUT, BadInput
from bench.judge import Expected
from bench.observations import DOCS, HISTORIES, Observations, add, history_file, key, load, save
from bench.plan import REPLY_LOST, applies, make_case
from bench.suites import CANONICAL_FAULTS, full_faults
from bench.track import KINDS, LIVENESS, BadPage, Page, broken, pages
from history.jsonl import read_jsonl
from locks.base import NAMED_VERDICTS, System
from locks.registry import systems
from nemesis.registry import NONE
from results.statistics import share
from results.store import write_atomically
from results.wording import NONE as NONE_WORD

PAGE: Final = DOCS / "systems.md"
COLUMNS: Final = (NONE, *CANONICAL_FAULTS)
SHORT: Final = {
    "double-grant": "DG",
    "late-grant": "LG",
    "stale-holder": "SH",
    "wrong-release": "WR",
    "fence-order": "FO",
    "lost-update": "LU",
    "wrong-extend": "WE",
    "linearizable": "LN",
    "false-release": "FR",
    "leaked-lock": "LK",
    "queue-order": "QO",
}
MARKS: Final = {"breaks": "!", "may-break": "~"}
WORDS: Final = {
    "breaks": "breaks",
    "may-break": "may break",
    "holds": "holds",
    "n/a": "does not apply",
}
UNEXPECTED: Final = "‼"
LOCKED: Final = "⛔ locked"
EXHAUSTIVE: Final = "`exhaustive`"
FROZEN: Final = "client-pause"
Histories = Mapping[str, Collection[str]]  # name of a saved history → what it breaks
NEVER: Final = {"k": 0, "n": 0}
INTRO: Final = """# Systems

<!-- Written by `make systems`; change the declarations or add runs, not this page. -->

Every lock without a fault and under the ten canonical faults: what is expected of it (declared in
`locks/`, each with a source), and what was observed (`docs/observations.json`, added up from run
folders whose histories are still judged as they were). The other faults are in the suite
`exhaustive`. `make systems RUNS="runs/a runs/b"` adds runs and writes this page; without
`docs/observations.json` it starts anew.

## Verdicts

k/n: the verdict broke in k of n tries in which it could have broken. `✓ n`: nothing broke in n
tries. `!` has to break, `~` may break (a race), `‼` broke and was expected to hold. For what may
break and never did, the bound is that of its share with 95 % confidence. `not run`: no stored run
has the case. `? 0/n`: it ran n times, and failed or met a fault that could not have hurt. `·`: the
fault does not apply, or leaves nothing to judge. Verdicts that follow from others (LN, FR) are
shown only where nothing else broke. A link leads to the page of the track record, or to the few
operations that show the break.
`exhaustive`: no stored run has the case, and of the suites that one alone has it: `full` has fewer
faults for a variant, and one topology for each lock. `⛔ locked k/n`: in k of n cases the key of a
holder that the fault killed was never granted again, although the lease was over and others asked
for it until the end. Where its case had a quiet phase after the load, the verdict LK says so; the
cases above without LK are older, and `✓` stands beside it there.

Taken back: `✓` for locks without a lease under `clock-jump`, and for PostgreSQL's under
`partition-drop` and `partition-stall` (its primary cut off from a replica that it asks nothing and
that nobody puts in its place). Those faults could not have hurt there; the cells are now `·`.
"""
AWAKE_TOO_LATE: Final = """## Awake too late

A holder whose process was frozen for longer than its lease wrote after somebody else had been
granted the key ([what happens](track/stale-holder.md)). By lock: in how many tries under
`client-pause` stale-holder broke, and the few operations of one of them.
"""
COSTS: Final = """## What they cost

Servers only, links and clients left out, in the last run of the case without a fault. *Own keys*:
nobody else wants the key. *Contended*: eight clients on two keys, so that waiting is in it. Per
grant: everything that the servers did meanwhile, release, polling, heartbeats and replication
included, divided by the grants. Commands: as Redis (`total_commands_processed`), ZooKeeper (packets
received) and etcd (gRPC messages received) count them; PostgreSQL does not. Jain: 1 is even. A dash
is what was not measured.
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
    if not observations["taken_back"]:
        return
    yield "\n## Taken back\n"
    yield "Cases of these runs that count no longer, because the bench had recorded them wrong:\n"
    by_reason: dict[str, list[str]] = defaultdict(list)
    for name, entry in sorted(observations["taken_back"].items()):
        by_reason[entry["why"]].append(f"{name} ({entry['cases']})")
    for why, names in sorted(by_reason.items()):
        yield f"- {why}: {'; '.join(names)}"


@dataclass(frozen=True, slots=True)
class _Seen:
    """Everything that the table of verdicts is made of, beside the declarations."""

    observations: Observations
    pages: Sequence[Page]
    histories: Histories

    def case(self, lock: str, topology: str, fault: str) -> Mapping[str, Any] | None:
        found: Mapping[str, Any] | None = self.observations["cases"].get(key(lock, topology, fault))
        return found

    def link(self, lock: str, fault: str, verdict: str) -> str | None:
        """Where the break is shown: a page of the track record, the history that was saved for it,
        or one that was saved for another break of the same case and shows this one too."""
        for page in self.pages:
            if page.explains(lock, fault) and verdict in page.verdicts:
                return f"track/{page.id}.md"
        for saved in (verdict, *SHORT):
            name = history_file(lock, fault, saved)
            if verdict in self.histories.get(name, ()):
                return f"histories/{name}"
        return None

    def unexposed(self, lock: str, fault: str, case: Mapping[str, Any]) -> str:
        """The mark of what never could have broken, with the page that says why where there is
        one."""
        mark = f"? 0/{case['cases']}"
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
    yield f"| lock | {' | '.join(COLUMNS)} |"
    yield "|---" * (len(COLUMNS) + 1) + "|"
    for system in systems().values():
        for topology in system.topologies:
            first = topology == system.topologies[0]
            cases = [seen.case(system.name, topology, fault) for fault in COLUMNS]
            if first or any(cases):
                name = f"[{system.name}](#{system.name})" + ("" if first else f" on {topology}")
                cells = (_cell(system, topology, fault, seen) for fault in COLUMNS)
                yield f"| {name} | {' | '.join(cells)} |"


def _cell(system: System, topology: str, fault: str, seen: _Seen) -> str:
    if not applies(make_case(system.name, fault, seed=0, topology=topology)):
        return "·"
    case = seen.case(system.name, topology, fault)
    shares = {} if case is None else case["verdicts"]
    broke = [verdict for verdict in SHORT if shares.get(verdict, NEVER)["k"]]
    expected = Expected(system, (fault,))
    parts = []
    for verdict, short in SHORT.items():
        word = expected.of(verdict).expected
        named = verdict in NAMED_VERDICTS
        if verdict not in broke and system.expectation(fault, verdict).expected not in MARKS:
            continue
        if not named and not {*broke}.isdisjoint(NAMED_VERDICTS):
            continue
        shown = short + MARKS.get(word, UNEXPECTED)
        link = seen.link(system.name, fault, verdict) if verdict in broke else None
        parts.append(_counted(f"[{shown}]({link})" if link else shown, shares.get(verdict), word))
    if case is None:
        parts.append("not run" if _in_full(system, topology, fault) else EXHAUSTIVE)
        return ", ".join(parts)
    if not broke:
        least = min((found["n"] for found in shares.values()), default=0)
        parts.insert(0, f"✓ {least}" if least else seen.unexposed(system.name, fault, case))
    locked = case.get("dead_holder", {}).get("locked", NEVER)
    if locked["k"]:
        parts.append(f"{seen.locked(system.name, fault)} {locked['k']}/{locked['n']}")
    return ", ".join(parts)


def _in_full(system: System, topology: str, fault: str) -> bool:
    return topology == system.topologies[0] and fault in (NONE, *full_faults(system.name))


def _counted(shown: str, found: Mapping[str, int] | None, word: str) -> str:
    if found is None or not found["n"]:
        return shown
    k, n = found["k"], found["n"]
    bound = f" (≤ {100 * share(k, n).high:.0f} %)" if word == "may-break" and not k else ""
    return f"{shown} {k}/{n}{bound}"


def _awake_too_late(seen: _Seen) -> Iterator[str]:
    """Every lock whose holder was frozen, and where it is shown that it acted too late."""
    yield AWAKE_TOO_LATE
    kept = []
    yield "| lock | k/n | history |"
    yield "|---|---|---|"
    for system in systems().values():
        shares = [
            case["verdicts"].get("stale-holder", NEVER)
            for topology in system.topologies
            if (case := seen.case(system.name, topology, FROZEN)) is not None
        ]
        k, n = (sum(found[name] for found in shares) for name in ("k", "n"))
        name = history_file(system.name, FROZEN, "stale-holder")
        if k:
            link = f"[{name}](histories/{name})" if name in seen.histories else NONE_WORD
            yield f"| [{system.name}](#{system.name}) | {k}/{n} | {link} |"
        elif n:
            lease = "" if system.limited else " (no lease)"
            kept.append(f"[{system.name}](#{system.name}) {k}/{n}{lease}")
    if kept:
        yield f"\nIt did not show with: {', '.join(kept)}."


def unshown(observations: Observations, found: Sequence[Page], histories: Histories) -> list[str]:
    """A sentence for every observed break that leads nowhere, unless it follows from another."""
    seen = _Seen(observations, found, histories)
    said = []
    for name, case in observations["cases"].items():
        broke = [verdict for verdict, share in case["verdicts"].items() if share["k"]]
        named = [verdict for verdict in broke if verdict in NAMED_VERDICTS]
        said += [
            f"{name}: neither a page nor a saved history shows {verdict}"
            for verdict in named or broke
            if seen.link(case["lock"], case["fault"], verdict) is None
        ]
    return said


def _costs(observations: Observations) -> Iterator[str]:
    heads = (
        "lock", "topology", "servers", "memory, MiB", "commands per grant, own keys", "contended",
        "server CPU per grant, own keys, µs", "contended", "grants/s, own keys", "contended",
        "fairness (Jain)",
    )  # fmt: skip
    yield f"| {' | '.join(heads)} |"
    yield "|---|---|" + "---:|" * (len(heads) - 2)
    for found in observations["footprints"].values():
        own, contended = found.get("own") or {}, found.get("contended") or {}
        memory = found["memory_bytes"]
        numbers = [
            found["servers"],
            None if memory is None else memory / 2**20,
            *(
                span.get(name)
                for name in ("commands_per_grant", "cpu_us_per_grant", "grants_per_second")
                for span in (own, contended)
            ),
            found["jain"],
        ]
        cells = [found["lock"], found["topology"], *map(_number, numbers)]
        yield f"| {' | '.join(cells)} |"


def _number(value: float | None) -> str:
    if value is None:
        return NONE_WORD
    return f"{value:,.0f}" if value >= 100 or isinstance(value, int) else f"{value:.3g}"


def _section(system: System, found: Sequence[Page], sources: Mapping[str, int]) -> Iterator[str]:
    """What is declared of a lock; numbers in brackets name the sources."""
    yield f"### {system.name}\n"
    yield (
        f"On {', '.join(system.topologies)}. Waits by: {system.waits_by}. Fence: "
        f"{system.fence or 'none'}. What is not listed holds {_cited(system.source, sources)}.\n"
    )
    under: dict[tuple[str, str, str | None, str], list[str]] = defaultdict(list)
    for fault, verdicts in system.expectations.items():
        for verdict, e in verdicts.items():
            under[e.expected, verdict, e.kind, e.source].append(f"`{fault}`")
    for expected, word in WORDS.items():
        items = [
            f"{verdict} under {', '.join(where)}{f' ({kind})' if kind else ''} "
            f"{_cited(source, sources)}"
            for (expected_, verdict, kind, source), where in under.items()
            if expected_ == expected
        ]
        if items:
            yield f"- **{word}**: {'; '.join(items)}"
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
    yield "| run | cases | versions |"
    yield "|---|---:|---|"
    for name, run in observations["runs"].items():
        versions = ", ".join(f"{package} {version}" for package, version in run["versions"].items())
        yield f"| {name} | {run['cases']} | {versions} |"


def histories_in(folder: Path = HISTORIES) -> Histories:
    """What each saved history breaks."""
    return {path.name: broken(read_jsonl(path)) for path in sorted(folder.glob("*.jsonl"))}


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
        observations = load()
        for sentence in add(observations, runs, HISTORIES):
            print(sentence)
        save(observations)
    saved = histories_in()
    for sentence in unshown(load(), pages(), saved):
        print(sentence)
    write_atomically(PAGE, render(load(), pages(), saved))


def main() -> None:
    """Bad input ends with 254 and one sentence."""
    try:
        app(standalone_mode=False)
    except (BadInput, BadPage) as error:
        print(f"systems: {error}", file=sys.stderr)
        sys.exit(BAD_INPUT)


if __name__ == "__main__":
    main()
