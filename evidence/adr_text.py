"""A decision record from evidence alone: one page to decide by, and behind it what it rests on.

The form is that of Nygard (https://cognitect.com/blog/2011/11/15/documenting-architecture-decisions)
and MADR (https://adr.github.io/madr/). Every claim carries the numbers of its evidence (E1, E2 …);
the list at the end says for each the run, the history's digest, the images, the seed and the
command. What was not tried is said.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from lockbench.evidence.adr import AIMED, STALE, TRIES, Evidence, Option, k_of_n
from lockbench.evidence.adr_plan import Breaks, first_looks, likely, needed, unsettled
from lockbench.evidence.adr_tree import Decision, required, speed
from lockbench.evidence.templates import rendered
from lockbench.nemesis.registry import faults
from lockbench.report.grid import Markdown, markdown_table
from lockbench.results import wording
from lockbench.results.cases import fault_names, in_order, is_elsewhere, is_over_hosts
from lockbench.results.documents import CaseResult, Machine
from lockbench.results.machine import describe
from lockbench.results.statistics import BOUND_TRIES_MIN, Share
from lockbench.results.wording import escape_markdown
from lockbench.stores.registry import Asked, guards_of

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
    "consistency",
    "fencing",
    "acquire, p50 and p99",
    "carried",
    "granted again after heal",
    "fairness",
)


def record(
    decision: Decision,
    options: Sequence[Option],
    evidence: Sequence[tuple[Evidence, CaseResult]],
    published: Breaks | None = None,
    *,
    machines: Sequence[Machine],
    notes: Sequence[str],
    date: str,
) -> str:
    """The whole document, Markdown. ``machines``: of each of the runs, the one that made it."""
    found = [one for one, _ in evidence]
    wanted = needed(decision, published=published)
    one_machine = _is_one(evidence, machines)
    machine = machines[0] if machines else Machine()
    return rendered(
        "adr.md.j2",
        decision=decision,
        chosen=decision.chosen,
        options=options,
        stale=[
            o.name for o in options if not o.control and any(t.verdict == STALE for t in o.broke())
        ],
        evidence=found,
        needed=wanted,
        looks=first_looks(wanted),
        likely=likely(wanted) if wanted else None,
        not_shown=[
            (o, _not_shown(o, decision))
            for o in options
            if o in (*decision.open_, *decision.beside)
        ],
        at_resource=_at_resource(decision.chosen),
        excused=_excused(decision),
        unsettled=unsettled(decision),
        almost=[(o, only) for o in options if (only := _breaks_only_under(o, decision))],
        not_tested=_not_tested(options, evidence),
        machine=describe(machine),
        where=_where(options, machine if one_machine else None),
        one_machine=one_machine,
        notes=notes,
        date=date,
        tries=TRIES,
        kept_table=markdown_table(
            ["fault", *(o.name for o in options)], _kept_rows(decision, options)
        ),
        side_by_side=markdown_table(TABLE, (_row(o, decision) for o in options)),
        sources=markdown_table(
            SOURCES, ([getattr(e, name) for name in SOURCES.values()] for e in found)
        ),
        commands=[(_ids(e.id for e in of), command) for command, of in _by_command(found)],
        k_of_n=k_of_n,
        cited=cited,
        recoveries=recoveries,
    )


def _at_resource(chosen: Option | None) -> list[Asked]:
    """Of each store the usual guard that such a lock can use; of a lock without a fence all: what
    can be done instead depends on the work."""
    if chosen is None:
        return []
    found = guards_of(chosen.lock, chosen.fence)
    if chosen.fence is None:
        return found
    return [next(guards) for _, guards in groupby(found, lambda one: one.store.name)]


def kept(found: Share) -> str:
    """That no promise was seen to break, with the tries that say so; a bound from three on."""
    if found.n == 0:
        return "not exposed"
    if found.n < BOUND_TRIES_MIN:
        return "kept in one try" if found.n == 1 else "kept in 2 tries"
    return f"kept in {found.n} tries (broken in at most {found.at_most_percent} %)"


def cited(evidence: Sequence[str]) -> Markdown:
    """``[E1 to E20, E23]``."""
    return Markdown(f"[{_ids(evidence)}]" if evidence else "")


def _ids(evidence: Iterable[str]) -> str:
    numbers = sorted(int(one[1:]) for one in evidence)
    runs = []
    for _, of in groupby(enumerate(numbers), lambda one: one[1] - one[0]):
        first, *more = (number for _, number in of)
        runs.append(f"E{first} to E{more[-1]}" if more else f"E{first}")
    return ", ".join(runs)


def _by_command(evidence: Sequence[Evidence]) -> list[tuple[str, list[Evidence]]]:
    """Commands that differ in their seed only are one."""
    found: dict[str, list[Evidence]] = {}
    for one in evidence:
        command = one.command.replace(f"--seed {one.seed}", "--seed SEED")
        found.setdefault(command, []).append(one)
    return list(found.items())


def _is_one(evidence: Sequence[tuple[Evidence, CaseResult]], machines: Sequence[Machine]) -> bool:
    """Whether all servers and clients of all cases were on one machine, and that the same."""
    cases = [case for _, case in evidence]
    beside = any(is_elsewhere(c) or is_over_hosts(c) or c.machines for c in cases)
    return not beside and len({(one.cpu, one.cores_usable) for one in machines}) <= 1


def _where(options: Sequence[Option], machine: Machine | None) -> str:
    """``machine``: None where there were several."""
    networks = wording.words(in_order(o.network for o in options if o.evidence))
    if not networks:
        return ""
    if machine is None:
        return f"on more than one machine, over {networks}"
    cores = f" with {machine.cores_usable} cores" if machine.cores_usable else ""
    return f"on one machine{cores}, over {networks}"


def _breaks_only_under(option: Option, decision: Decision) -> str | None:
    """The one fault under which an option with a fence broke its word, where it can be accepted."""
    broke = {t.fault for t in option.broke_itself() if not decision.answers.accepts(t.fault)}
    one = len(broke) == 1 and option.fence is not None and not option.control
    return broke.pop() if one and broke <= {*faults()} - {AIMED} else None


def _not_shown(option: Option, decision: Decision) -> str:
    """What is not known of it, each once."""
    found = [step.found.get(option.name, ("yes", "")) for step in decision.steps[:3]]
    return "; ".join(dict.fromkeys(why for word, why in found if word != "yes"))


def _excused(decision: Decision) -> list[str]:
    """The required faults that the chosen option has nothing to lose by."""
    impossible = {} if decision.chosen is None else decision.chosen.impossible
    return [fault for fault in required(decision.answers) if fault in impossible]


def _kept_rows(decision: Decision, options: Sequence[Option]) -> list[list[str]]:
    names = in_order([*required(decision.answers), *(t.fault for o in options for t in o.tried)])
    return [[name, *(_cell(o, name) for o in options)] for name in names]


def _cell(option: Option, fault: str) -> str:
    of = [t for t in option.tried if t.fault == fault]
    if not of:
        if fault in option.out_of_reach:
            return "cannot be tried"
        return "does not apply" if fault in option.impossible else "not tried"
    lines = [f"{t.verdict} {k_of_n(t.share)}, expected: {t.expected}" for t in of if t.share.k]
    own = option.of_fault(fault)
    if any(t.undecided for t in own):
        lines.insert(0, "undecided: " + ", ".join(t.verdict for t in own if t.undecided))
    elif not any(t.share.k for t in own):
        lines.insert(0, kept(option.exposed(fault)))
    return Markdown(f"{escape_markdown(chr(10).join(lines))} {cited(of[0].evidence)}")


def recoveries(o: Option) -> list[str]:
    """How long it took until the lock was granted after a heal, and how often it never was."""
    said = [f"{fault} {wording.seconds(s)} (n = {n})" for fault, (s, n) in o.recovery_s.items()]
    for fault, never in o.unrecovered.items():
        n = never + o.recovery_s.get(fault, (0.0, 0))[1]
        said.append(f"{fault} not within the load in {never} of {n}")
    return said


def _row(o: Option, decision: Decision) -> list[str]:
    back = recoveries(o)
    return [
        o.name + (" (control)" if o.control else ""),
        (
            f"{'a quorum agrees on every grant' if o.consensus else 'no consensus'}, "
            f"{wording.times(o.size, 'node')}"
        ),
        _fencing(o),
        _latency(o, decision.answers.ops_per_second),
        "\n".join(
            f"{wording.rate(bounds.min)} to {wording.rate(bounds.max)} "
            f"per second, {one.of.clients} clients" + (", or more" if one.why else "")
            for one in o.rates
            if (bounds := one.carried_range_per_s) is not None
        )
        or "not measured",
        ", ".join(back) or "not tried",
        "not measured" if o.jain is None else f"Jain {o.jain:.3f}",
    ]


def _fencing(o: Option) -> str:
    if o.fence is None:
        return "none"
    if not o.fence_checked:
        return f"{o.fence}; never put to the test"
    let = ", ".join(f"{fault} {k_of_n(of)}" for fault, of in o.fence_checked.items())
    return f"{o.fence}; checked on reads and writes, stale holders wrote under {let}"


def _latency(o: Option, rate_per_s: float | None) -> str:
    found = speed(o, rate_per_s)
    if found is None:
        return "not measured"
    pairs = [
        f"{wording.ms(low)} to {'more' if high == math.inf else wording.ms(high)}"
        for low, high in (found.p50_ms, found.p99_ms)
    ]
    void = f"; void: {found.why}" if found.why else ""
    return f"{pairs[0]} and {pairs[1]} ms at {found.rate_per_s:,.0f} per second{void}"


def _not_tested(
    options: Sequence[Option], evidence: Sequence[tuple[Evidence, CaseResult]]
) -> list[str]:
    tried = {name for o in options for t in o.tried for name in fault_names(t.fault)}
    absent = [name for name in faults() if name not in tried]
    lines = [f"on no option: {', '.join(absent)}"] if absent else []
    lines += [
        f"{o.name}: {fault}, because {why}"
        for o in options
        for fault, why in {**o.impossible, **o.out_of_reach}.items()
    ]
    networks = in_order(case.network or "loopback" for _, case in evidence)
    if networks == ["loopback"]:
        lines.append("any network but loopback, which favours systems that have to agree")
    loads = sorted({case.clients for _, case in evidence if case.clients})
    if loads:
        lines.append(f"other numbers of clients than {', '.join(map(str, loads))}")
    return lines
