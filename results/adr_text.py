"""A decision record in MADR form (https://adr.github.io/madr/), from evidence alone.

Every claim carries the numbers of its evidence (E1, E2 …); the list at the end says for each the
run, the history's digest, the images, the seed and the command. What was not tried is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from nemesis.registry import faults
from results import wording
from results.adr import STALE, Evidence, Option, Tried, k_of_n
from results.adr_tree import Decision
from results.cases import Case, in_order
from results.machine import describe
from results.tables import markdown_table
from results.wording import escape_markdown

TABLE: Final = (
    "option",
    "strength",
    "consistency",
    "safety under pauses",
    "safety under other faults",
    "clock skew",
    "fencing",
    "performance",
    "operations",
    "fairness",
    "use case",
)
WITHOUT_A_LOCK: Final = (
    "**Make it idempotent.** If doing the work twice is harmless, a lock only saves effort.",
    "**Conditional writes.** Compare-and-set, or `UPDATE … WHERE version = n`.",
    "**A unique constraint or a transaction** in the database that holds the data anyway.",
    "**One owner per key.** A partitioned log gives each key to one consumer.",
)
MONITORING: Final = (
    "acquisitions by resource and result (granted, denied, unknown)",
    "hold seconds against the lease: a hold near its lease is one pause away from a stale holder",
    "contention ratio (acquisitions that had to wait ÷ all) above 0.3 for 5 minutes",
    "leases that expired before their release, more than 0.1 per second for 2 minutes",
    "writes that the resource refused because of their fence: each is an accident prevented",
    "`lockbench alerts --rules` prints rules for these, `lockbench alerts RUN` what they had seen",
)
K_OF_N: Final = (
    "k of n: tries in which it broke, of those that could have shown it; in parentheses the 95 % "
    "bounds (Clopper-Pearson; one-sided where k is 0 or n, which for 0 of n is the rule of three). "
    "*Not tried* is no sign of safety."
)
PROBLEM: Final = (
    "Several processes must not work on the same thing at once. Which lock keeps its word on a bad "
    "night, at what price, and is a lock the right tool at all?"
)
DIGEST: Final = (
    "The digest of a history, in its folder: `find . -type f -printf '%P\\n' | LC_ALL=C sort | "
    "xargs sha256sum | sha256sum`. It was checked, and the history judged again, when this was "
    "written."
)
NOT_MEASURED: Final = (
    "anything longer than a case (seconds under load): leaks, compaction, full disks",
    "more than one machine: all nodes and clients shared one kernel, its disk and its clock",
    "upgrades and changes of membership while locks are held",
    "what an operator does wrong",
)


def record(
    decision: Decision,
    options: Sequence[Option],
    evidence: Sequence[tuple[Evidence, Case]],
    *,
    machine: Mapping[str, Any],
    notes: Sequence[str],
    date: str,
) -> str:
    """The whole document, Markdown."""
    chosen = decision.chosen
    title = f"Use {chosen.name} as the distributed lock" if chosen else "No lock is chosen yet"
    parts = [
        f"---\nstatus: proposed\ndate: {date}\n---",
        f"# {escape_markdown(title)}",
        *_context(options),
        *_drivers(decision),
        "## Considered Options",
        "\n".join(
            [*(f"* {escape_markdown(o.name)}{_control(o)}" for o in options), "* no lock at all"]
        ),
        *_outcome(decision),
        "## The options side by side",
        markdown_table(_table(options)),
        K_OF_N,
        *_pros(options),
        "### No lock at all",
        "\n".join(f"* {line}" for line in WITHOUT_A_LOCK),
        *_not_tested(options, evidence),
        *_information(evidence, machine, notes),
    ]
    return "\n\n".join(parts) + "\n"


def _considered(options: Sequence[Option]) -> list[str]:
    lines = [f"* {escape_markdown(option.name)}{_control(option)}" for option in options]
    return ["\n".join([*lines, "* no lock at all"])]


def _control(option: Option) -> str:
    return " (a control: known to be wrong, here to be caught)" if option.control else ""


def _context(options: Sequence[Option]) -> list[str]:
    broke = [
        o.name for o in options if any(t.verdict == STALE for t in o.broke()) and not o.control
    ]
    fact = (
        f"Measured here: {wording.words(broke)} let a holder act after its time when its process "
        "was frozen; no lease can prevent that, only a check at the resource."
        if broke
        else "No stale holder was seen in these runs."
    )
    return [
        "## Context and Problem Statement",
        f"{PROBLEM} {escape_markdown(fact)}",
    ]


def _drivers(decision: Decision) -> list[str]:
    lines = [f"* {step.question} **{escape_markdown(step.answer)}**" for step in decision.steps]
    return ["## Decision Drivers", "\n".join(lines)]


def _outcome(decision: Decision) -> list[str]:
    chosen = decision.chosen
    word = (
        f"Chosen: **{escape_markdown(chosen.name)}**, because" if chosen else "Nothing is chosen:"
    )
    parts = [
        "## Decision Outcome",
        f"{word} {escape_markdown(decision.why)}.",
        "The questions, in turn:",
    ]
    lines = []
    for at, step in enumerate(decision.steps, 1):
        lines.append(f"{at}. {step.question} {escape_markdown(step.answer)}")
        lines += [
            f"    * {escape_markdown(name)}: **{word}**, {escape_markdown(why)}"
            for name, (word, why) in step.found.items()
        ]
    parts.append("\n".join(lines))
    parts += ["### Consequences", "\n".join(f"* {line}" for line in _consequences(decision))]
    parts += ["### Confirmation", "Watch in production:", "\n".join(f"* {m}" for m in MONITORING)]
    return parts


def _consequences(decision: Decision) -> list[str]:
    chosen = decision.chosen
    if chosen is None:
        return ["Until the open points are answered, use one of the ways to do without a lock."]
    name = escape_markdown(chosen.name)
    lines = []
    if chosen.fence is not None and decision.answers.needs == "correctness":
        lines.append(
            f"Good only together with a check: every write carries the fence "
            f"({escape_markdown(chosen.fence)}) and the resource refuses lower ones. Without that "
            f"check {name} is not shown to be enough."
        )
    if chosen.fence is None:
        lines.append(
            f"{name} offers no fence: whatever it guards must survive two holders at once."
        )
    lines += [
        f"Bad: {escape_markdown(t.verdict)} under {escape_markdown(t.fault)} is part of the deal "
        f"({k_of_n(t.share)}) [{', '.join(t.evidence)}]"
        for t in chosen.broke()
    ]
    lines += [
        f"After {escape_markdown(fault)} the lock was granted again within {wording.seconds(s)} "
        f"of the heal (slowest of {n})"
        for fault, (s, n) in chosen.recovery_s.items()
    ]
    if chosen.consensus:
        lines.append("Neutral: every grant waits for a quorum and its disks; no majority, no lock.")
    return lines


def _table(options: Sequence[Option]) -> pd.DataFrame:
    return pd.DataFrame([_row(option) for option in options], columns=list(TABLE))


def _row(o: Option) -> list[str]:
    pauses = [t for t in o.tried if _is_pause(t.fault)]
    skew = [t for t in o.tried if "clock" in t.fault]
    other = [t for t in o.tried if t not in pauses and t not in skew and t.fault != "none"]
    refs = f" [{', '.join(o.evidence)}]"
    quiet = f" [{', '.join(o.quiet_evidence)}]" if o.quiet_evidence else ""
    tries = {t.fault: t.share.n for t in o.tried}
    itself = o.broke_itself()
    strength = (
        f"broke its own word: {', '.join(in_order(t.verdict for t in itself))}"
        if itself
        else f"kept its own word in {sum(tries.values())} exposed tries"
    )
    return [
        o.name + (" (control)" if o.control else ""),
        strength + refs,
        ("a quorum agrees on every grant" if o.consensus else "no consensus")
        + f", {wording.times(o.size, 'node')}{refs}",
        _safety(pauses),
        _safety(other),
        _safety(skew),
        _fencing(o) + refs,
        _performance(o) + refs,
        _operations(o) + refs,
        _fairness(o) + quiet,
        _use(o) + refs,
    ]


def _is_pause(fault: str) -> bool:
    return any(word in fault for word in ("pause", "freeze", "gc"))


def _safety(tried: Sequence[Tried]) -> str:
    if not tried:
        return "not tried"
    lines = []
    for fault in in_order(t.fault for t in tried):
        of = [t for t in tried if t.fault == fault]
        refs = f" [{', '.join(of[0].evidence)}]"
        broke = [t for t in of if t.share.k]
        parts = [f"{t.verdict} {k_of_n(t.share)}" for t in broke]
        fewest = min((t.share for t in of), key=lambda s: s.n)
        if any(t.undecided for t in of):
            parts.append("undecided: " + ", ".join(t.verdict for t in of if t.undecided))
        elif not broke:
            parts.append(f"broke {k_of_n(fewest)}" if fewest.n else "not exposed")
        lines.append(f"{fault}: {', '.join(parts)}{refs}")
    return "\n".join(lines)


def _fencing(o: Option) -> str:
    if o.fence is None:
        return "none"
    if o.fence_checked is None:
        return f"{o.fence}; never put to the test"
    k, n = o.fence_checked
    return f"{o.fence}; checked at the resource, stale writes passed in {k} of {n}"


def _performance(o: Option) -> str:
    count = o.acquire_ms.get("count") or 0
    pair = wording.pair(o.acquire_ms.get("p50"), o.acquire_ms.get("p99"))
    rate = "" if o.cycles_per_s is None else f"; {wording.rate(o.cycles_per_s)} cycles/s contended"
    return f"acquire {pair} ms (p50 / p99, n = {count:,.0f}){rate}"


def _operations(o: Option) -> str:
    back = [f"{fault} {wording.seconds(s)} (n = {n})" for fault, (s, n) in o.recovery_s.items()]
    return f"{o.topology}; granted again after heal: {', '.join(back) or 'not tried'}"


def _fairness(o: Option) -> str:
    jain, overtaken, longest = (o.fairness.get(n) for n in ("jain", "overtaken", "wait_max_s"))
    if jain is None:
        return "not measured"
    late = "" if overtaken is None else f", {100 * overtaken:.0f} % of waits overtaken"
    return f"Jain {jain:.3f}{late}, longest wait {wording.seconds(longest)}"


def _use(o: Option) -> str:
    if o.control:
        return "none"
    if o.broke_itself() or o.fence is None:
        return "efficiency"
    if o.fence_checked is not None and not o.fence_checked[0]:
        return "correctness, with the fence checked at the resource; efficiency"
    return "efficiency; for correctness its fence was not put to the test"


def _pros(options: Sequence[Option]) -> list[str]:
    parts = ["## Pros and Cons of the Options"]
    for o in options:
        good = []
        bad = [
            f"* Bad: {_under(t.fault)} {escape_markdown(t.verdict)} broke, "
            f"{k_of_n(t.share)} [{', '.join(t.evidence)}]; expected: {t.expected}"
            for t in o.tried
            if t.share.k
        ]
        kept = [t for t in o.tried if not t.share.k and t.share.n]
        for fault in in_order(t.fault for t in kept):
            of = [t for t in kept if t.fault == fault]
            fewest = min((t.share for t in of), key=lambda s: s.n)
            names = ", ".join(t.verdict for t in of)
            good.append(
                f"* Good: {_under(fault)} nothing of {escape_markdown(names)} broke, "
                f"{k_of_n(fewest)} [{', '.join(of[0].evidence)}]"
            )
        open_ = [t for t in o.tried if t.undecided or not t.share.n]
        vague = [
            f"* Neutral: {_under(fault)} nothing is known: not exposed, or undecided"
            for fault in in_order(t.fault for t in open_ if not t.share.k)
        ]
        parts += [
            f"### {escape_markdown(o.name)}",
            "\n".join([*good, *vague, *bad]) or "Not measured.",
        ]
    return parts


def _under(fault: str) -> str:
    return "without a fault" if fault == "none" else f"under {escape_markdown(fault)}"


def _not_tested(options: Sequence[Option], evidence: Sequence[tuple[Evidence, Case]]) -> list[str]:
    lines = []
    for o in options:
        tried = {t.fault.partition(":")[0] for t in o.tried}
        missing = [name for name in faults() if not any(name in fault for fault in tried)]
        if missing and not o.control:
            lines.append(f"{o.name}: {', '.join(missing)}")
    networks = in_order(str(case.get("network", "loopback")) for _, case in evidence)
    if networks == ["loopback"]:
        lines.append("any network but loopback, which flatters every system that has to agree")
    loads = sorted({int(case["clients"]) for _, case in evidence if case.get("clients")})
    if loads:
        lines.append(f"other numbers of clients than {', '.join(map(str, loads))}")
    lines += NOT_MEASURED
    return ["## What was not tested", "\n".join(f"* {escape_markdown(line)}" for line in lines)]


def _information(
    evidence: Sequence[tuple[Evidence, Case]], machine: Mapping[str, Any], notes: Sequence[str]
) -> list[str]:
    rows = [
        [e.id, e.lock, e.fault, e.run, e.folder, e.seed, e.history, e.images] for e, _ in evidence
    ]
    heads = ["id", "lock", "fault", "run", "case", "seed", "SHA-256 of the history", "images"]
    commands = [f"{e.id}: {e.command}" for e, _ in evidence]
    return [
        "## More Information",
        f"Machine: {escape_markdown(describe(machine))}.",
        *(escape_markdown(note) for note in notes),
        markdown_table(pd.DataFrame(rows, columns=heads)),
        DIGEST,
        "Commands that repeat each:\n\n" + "\n".join(f"    {line}" for line in commands),
    ]
