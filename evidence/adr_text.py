"""A decision record in MADR form (https://adr.github.io/madr/), from evidence alone.

Every claim carries the numbers of its evidence (E1, E2 …); the list at the end says for each the
run, the history's digest, the images, the seed and the command. What was not tried is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from evidence.adr import STALE, Evidence, Option, Tried, k_of_n
from evidence.adr_tree import Decision
from evidence.templates import rendered
from nemesis.registry import faults
from report.grid import Markdown, markdown_table
from results import wording
from results.cases import in_order
from results.documents import CaseResult, Machine
from results.machine import describe
from results.wording import escape_markdown

# Heading → field of an ``Evidence``.
SOURCES: Final = {
    "id": "id",
    "lock": "lock",
    "fault": "fault",
    "run": "run",
    "case": "folder",
    "seed": "seed",
    "SHA-256 of the history": "history",
    "images": "images",
}
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


def record(
    decision: Decision,
    options: Sequence[Option],
    evidence: Sequence[tuple[Evidence, CaseResult]],
    *,
    machine: Machine,
    notes: Sequence[str],
    date: str,
) -> str:
    """The whole document, Markdown."""
    return rendered(
        "adr.md.j2",
        decision=decision,
        chosen=decision.chosen,
        options=options,
        stale=wording.words([o.name for o in options if _let_act_late(o)]),
        evidence=[found for found, _ in evidence],
        not_tested=_not_tested(options, evidence),
        machine=describe(machine),
        notes=notes,
        date=date,
        side_by_side=markdown_table(TABLE, map(_row, options)),
        sources=markdown_table(
            SOURCES, ([getattr(e, name) for name in SOURCES.values()] for e, _ in evidence)
        ),
        pros_and_cons=_pros_and_cons,
        k_of_n=k_of_n,
        cited=_cited,
    )


def _let_act_late(o: Option) -> bool:
    return not o.control and any(t.verdict == STALE for t in o.broke())


def _cited(evidence: Sequence[str]) -> Markdown:
    return Markdown(f"[{', '.join(evidence)}]")


def _row(o: Option) -> list[str]:
    pauses = [t for t in o.tried if _is_pause(t.fault)]
    skew = [t for t in o.tried if "clock" in t.fault]
    other = [t for t in o.tried if t not in pauses and t not in skew and t.fault != "none"]
    refs = f" [{', '.join(o.evidence)}]"
    quiet = f" [{', '.join(o.quiet_evidence)}]" if o.quiet_evidence else ""
    tries = {t.fault: t.share.n for t in o.tried}
    itself = o.broke_itself()
    strength = (
        f"broke its own promises: {', '.join(in_order(t.verdict for t in itself))}"
        if itself
        else f"kept its promises in {sum(tries.values())} exposed tries"
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


def _pros_and_cons(o: Option) -> list[tuple[str, Markdown]]:
    """Good, neutral and bad, each with its evidence."""
    found = []
    kept = [t for t in o.tried if not t.share.k and t.share.n]
    for fault in in_order(t.fault for t in kept):
        of = [t for t in kept if t.fault == fault]
        fewest = min((t.share for t in of), key=lambda s: s.n)
        names = escape_markdown(", ".join(t.verdict for t in of))
        broke = f"none of {names} broke, {k_of_n(fewest)}"
        found.append(("Good", f"{_under(fault)} {broke} {_cited(of[0].evidence)}"))
    open_ = [t for t in o.tried if (t.undecided or not t.share.n) and not t.share.k]
    nothing = "nothing is known: not exposed, or undecided"
    found += [
        ("Neutral", f"{_under(fault)} {nothing}") for fault in in_order(t.fault for t in open_)
    ]
    for t in o.tried:
        if t.share.k:
            broke = f"{escape_markdown(t.verdict)} broke, {k_of_n(t.share)} {_cited(t.evidence)}"
            found.append(("Bad", f"{_under(t.fault)} {broke}; expected: {t.expected}"))
    return [(word, Markdown(claim)) for word, claim in found]


def _under(fault: str) -> str:
    return "without a fault" if fault == "none" else f"under {escape_markdown(fault)}"


def _not_tested(
    options: Sequence[Option], evidence: Sequence[tuple[Evidence, CaseResult]]
) -> list[str]:
    lines = []
    for o in options:
        tried = {t.fault.partition(":")[0] for t in o.tried}
        missing = [name for name in faults() if not any(name in fault for fault in tried)]
        if missing and not o.control:
            lines.append(f"{o.name}: {', '.join(missing)}")
    networks = in_order(case.network or "loopback" for _, case in evidence)
    if networks == ["loopback"]:
        lines.append("any network but loopback, which favours systems that have to agree")
    loads = sorted({case.clients for _, case in evidence if case.clients})
    if loads:
        lines.append(f"other numbers of clients than {', '.join(map(str, loads))}")
    return lines
