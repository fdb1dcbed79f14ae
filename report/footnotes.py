"""What has to stand beside a table so that nobody misreads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, Final, NamedTuple

import msgspec

from lockbench.report.facts import LATENCY, PARTS
from lockbench.results import wording
from lockbench.results.cases import (
    PHASES,
    came_to_nothing,
    in_order,
    is_consensus,
    is_generator_bound,
    is_published,
    latencies,
    lock_of,
    number,
)
from lockbench.results.documents import CaseResult, Machine, Versions
from lockbench.results.judgements import AS_EXPECTED
from lockbench.results.machine import describe
from lockbench.results.quantiles import P50, P99, P999, carries, needed

# Settings that one reads first, and what they are called under the table.
PACE: Final = {
    "lease_ttl_s": "lease {} s",
    "hold_s": "hold {} s",
    "wait_s": "wait up to {} s",
    "client_timeout_s": "client timeout {} s",
    "aimed_hold_s": "aimed hold {} s",
    "aimed_wait_s": "rivals ask for it for {} s at a time",
    "think_s": "pause between two cycles on a shared key {} s",
    "own_period_s": "own keys every {} s (of more than 32 clients each more rarely)",
    "retry_pause_s": "pause after a refusal {} s",
    "touch_resource": "touches the resource: {}",
}


class Notes(NamedTuple):
    """Sentences, each kind beside what it is about: the verdicts, the figures that are void, all
    figures, how it was run."""

    verdicts: tuple[str, ...] = ()
    void: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    run: tuple[str, ...] = ()


def notes(cases: Sequence[CaseResult], *, machine: Machine, versions: Versions) -> Notes:
    """Of each kind the ones that change how a table is read first."""
    line, known = describe(machine), version_line(msgspec.to_builtins(versions))
    seeds = in_order(str(case.seed) for case in cases if case.seed is not None)
    return Notes(
        verdicts=(*_crashes(cases), *_reasons(cases)),
        void=tuple(_void(cases)),
        figures=(
            *_dashes(cases),
            *_latencies(cases),
            *_links(cases),
            *_disk(cases, machine),
            *_generator(cases),
            *_machines(cases),
        ),
        run=(
            *_declared(cases),
            *([f"Machine: {line}."] if line else []),
            *([f"Versions: {known}."] if known else []),
            *(
                [f"Seed {wording.words(seeds)}: replays the schedule of faults, not the network."]
                if seeds
                else []
            ),
        ),
    )


def _crashes(cases: Sequence[CaseResult]) -> list[str]:
    """What servers said of their own crashes."""
    told = []
    for case in cases:
        found = case.crashes
        if found is not None and found.first:
            first = found.first[0]
            more = f", {found.count - 1} lines more" if found.count > 1 else ""
            told.append(
                f"{lock_of(case)} under {case.fault}: {first.server} said "
                f'"{first.text}" (line {first.line} of its log{more})'
            )
    return [f"A server crashed: {'; '.join(told)}."] if told else []


def version_line(versions: Mapping[str, Any]) -> str:
    """All versions in one line, nested ones in parentheses, digests cut to twelve characters. Of
    what libraries stand on only what was asked for by name."""
    parts = []
    for name, value in versions.items():
        if name == PINS:
            continue
        if isinstance(value, Mapping):
            inner = version_line(value)
            parts += [f"{name} ({inner})"] if inner else []
        elif isinstance(value, str) and value and name not in NO_VERSIONS:
            head, colon, digest = value.rpartition("sha256:")
            parts.append(f"{name} {head}{colon}{digest[:12] if colon else digest}")
    return ", ".join(parts)


# Names of images, which say nothing that versions and digest do not.
NO_VERSIONS: Final = frozenset({"ref", "id", "fingerprint"})
PINS: Final = "pins"


WORDS: Final = (
    (
        "hand-over: release invoked to next grant, with a waiter; wait: mostly the queue. These "
        "are of operations that succeeded; den/unk counts the acquires that were denied or ended "
        "unknown. Cycles/s at most: what keys, holds and pauses allow, were the lock to cost "
        "nothing. Before, during and after the fault are never pooled."
    ),
    (
        "avail: one-second windows with a grant; gap: longest time without one; recov: heal to "
        "first grant asked for since the fault; orphan: fault to next grant of a key whose holder "
        "it froze or killed. alone: one client alone, acquire p50 and the client's own CPU per "
        "cycle, which is part of every latency beside it."
    ),
)


def _reasons(cases: Sequence[CaseResult]) -> list[str]:
    return [
        f"{lock_of(case)} under {case.fault}: {case.judgement}: {case.why}."
        for case in cases
        if case.judgement not in {None, AS_EXPECTED} and case.why
    ]


def _void(cases: Sequence[CaseResult]) -> list[str]:
    """Cases whose generator was the bottleneck."""
    notes = []
    for case in cases:
        if not is_generator_bound(case) or came_to_nothing(case):
            continue
        reasons = (case.generator and case.generator.why) or ["the generator was the bottleneck"]
        why = "; ".join(reasons)
        what = f"Numbers in brackets are void: {lock_of(case)} under {case.fault}"
        if is_published(case):
            what = f"Generator-bound: {lock_of(case)} in the published experiment"
        notes.append(f"{what}: {why}.")
    return notes


def _dashes(cases: Sequence[CaseResult]) -> list[str]:
    """Which quantiles are left out because too few operations carry them, and how few."""
    thin: dict[tuple[str, str], list[int]] = {}
    for row in LATENCY.rows([case for case in cases if not is_published(case)]):
        count = row.values["count"]
        if count and not carries(count, P99):
            thin.setdefault((row.values["kind"], row.values["phase"]), []).append(count)
    parts = [
        f"{word} {phase} n = {_span(thin[kind, phase])}"
        for kind, word in KIND_WORDS.items()
        for phase in PHASES
        if (kind, phase) in thin
    ]
    if not parts:
        return []
    return [
        (
            f"– for a quantile that its n does not carry (p50 needs {needed(P50)}, p99 "
            f"{needed(P99):,}, p99.9 {needed(P999):,}): {', '.join(parts)}."
        )
    ]


KIND_WORDS: Final = {"acquire": "acquire", "handover": "hand-over", "wait": "wait"}


def _span(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _latencies(cases: Sequence[CaseResult]) -> list[str]:
    if not any(case.latency_ms for case in cases):
        return []
    paced = any(latencies(case, "response").get("acquire") for case in cases)
    start = "from its intended start, " if paced else ""
    acquire = (
        f"acquire, own key: {start}on a key that nobody else wants; what failed or timed out "
        "counts as longer than until it was given up. Before: without other load, during and "
        "after: beside the contended load."
    )
    return [acquire, *WORDS]


def _links(cases: Sequence[CaseResult]) -> list[str]:
    """The same link stands before every system, and is in every latency."""
    by_topology: dict[str, list[tuple[float, float]]] = {}
    for case in cases:
        link = case.link_us
        if link is not None and link.linked is not None and link.direct is not None:
            name = case.topology or lock_of(case)
            by_topology.setdefault(name, []).append((link.linked, link.direct))
    if not by_topology:
        return []
    parts = []
    for name, pairs in by_topology.items():
        linked, direct = (median(values) for values in zip(*pairs, strict=True))
        parts.append(f"{name} {linked:,.0f} µs, {direct:,.0f} µs without")
    what = "The link (published port and Toxiproxy), one cheapest request, median"
    return [f"{what}: {'; '.join(parts)}. It is part of every latency."]


def _disk(cases: Sequence[CaseResult], machine: Machine) -> list[str]:
    systems = in_order(lock_of(case) for case in cases if is_consensus(case))
    fsync = machine.fsync_ms
    if not systems or fsync is None or fsync.p50 is None:
        return []
    tail = f"p99 {wording.ms(fsync.p99)} ms"
    if fsync.p99 is None:
        tail = f"max {wording.ms(fsync.max)} ms of {fsync.count}"
    return [
        (
            f"{wording.words(systems)}: every grant waits for disks; fdatasync here takes p50 "
            f"{wording.ms(fsync.p50)} ms, {tail}."
        )
    ]


def _generator(cases: Sequence[CaseResult]) -> list[str]:
    checked = [case.generator for case in cases if case.generator is not None]
    if not checked:
        return []
    workers = [worker for generator in checked for worker in generator.workers]
    cpu = _largest(worker.cpu_percent_mean for worker in workers)
    lag = _largest(worker.lag_ms_p99 for worker in workers)
    fine, cases_ = sum(bool(g.ok) for g in checked), wording.times(len(checked), "case")
    parts = [f"Load generator healthy in {fine} of {cases_}"]
    if cpu is not None:
        parts.append(f"busiest worker {cpu:.0f} % of a core on average")
    if lag is not None:
        parts.append(f"its loop's lag p99 at most {wording.ms(lag)} ms")
    missing = sum(generator.missing or 0 for generator in checked)
    parts.append(f"{wording.times(missing, 'worker')} missing")
    machine = _largest(generator.machine_percent for generator in checked)
    if machine is not None:
        parts.append(f"the whole machine at most {machine:.0f} % busy (mean of a case)")
    processors = [g.processors for g in checked if g.processors is not None]
    used = [
        f"{part} {median(of):.0f} %"
        for part in PARTS
        if (of := [p.parts[part].used_percent for p in processors if p.parts and part in p.parts])
    ]
    if used:
        parts.append(f"of its processors {', '.join(used)} (median of the cases)")
    others = _largest(found.others_percent for found in processors)
    if others is not None:
        parts.append(f"other programs at most {others:.0f} % of its processors")
    return ["; ".join(parts) + "."]


def _machines(cases: Sequence[CaseResult]) -> list[str]:
    """What clients did on each of several machines."""
    notes = []
    for case in cases:
        parts = []
        for one in case.machines:
            p50, agree = one.acquire_ms.p50, one.agree_to_ns
            figures = [f"{one.grants:,} grants"]
            figures += [] if p50 is None else [f"acquire p50 {p50:.3g} ms"]
            figures += [] if agree is None else [f"clock ±{agree / 1e6:.2g} ms"]
            figures += [] if one.came_back else ["its recording did not come back"]
            parts.append(f"{one.name} {', '.join(figures)}")
        if parts:
            notes.append(f"{lock_of(case)} under {case.fault}, by machine: {'; '.join(parts)}.")
    return notes


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _declared(cases: Sequence[CaseResult]) -> list[str]:
    """One lease, hold and timeout for all; what servers were told besides, per topology."""
    notes = []
    paces = {True: "Declared for all", False: "Declared for the published experiment"}
    for ordinary, word in paces.items():
        chosen = [case for case in cases if is_published(case) is not ordinary]
        lines = in_order(_pace(case) for case in chosen if case.settings)
        for line in filter(None, lines):
            of = wording.words(in_order(lock_of(c) for c in chosen if _pace(c) == line))
            notes.append(f"{word if len(lines) == 1 else f'Declared for {of}'}: {line}.")
    servers: dict[str, list[str]] = {}
    for case in cases:
        own = [f"{k} {v}" for k, v in case.settings.items() if k not in PACE]
        if own:
            servers.setdefault(", ".join(own), []).append(case.topology or "?")
    notes += [f"Settings of {wording.words(in_order(of))}: {line}." for line, of in servers.items()]
    return notes


def _pace(case: CaseResult) -> str:
    settings = case.settings
    return ", ".join(
        text.format(f"{settings[name]:g}" if number(settings[name]) is not None else settings[name])
        for name, text in PACE.items()
        if name in settings
    )
