"""What would settle a decision that is open: which cases, with which command, in how many minutes.

Guarantees: the options come one after the other, what the reader prefers first, then what is not
known to break, then what takes fewer minutes. What can rule an option out at little cost comes
first: a try of each fault that broke it in the published observations, a sweep, a try of each other
fault. Nothing that could not change the decision is asked for: nothing of an option to which the
bench cannot do what is required, or whose measured p99 or rate lies on both sides of a limit.

Published observations only order what is measured. They are no evidence of a record: they are of
other machines and versions, their histories are not there to be judged again, and a try of a break
that shows every time takes less than a minute.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from lockbench.bench import rates
from lockbench.bench.plan import Case, expected_s, make_case, resolve
from lockbench.bench.suites import alike, brief, sampled
from lockbench.clusters.base import NETWORKS
from lockbench.clusters.registry import topologies
from lockbench.evidence.adr import TRIES, Key, Option, of_the_lock, same_servers, untried
from lockbench.evidence.adr_tree import Answers, Decision, missing, preference, speed, unreachable
from lockbench.evidence.observations import Observations
from lockbench.locks.registry import systems
from lockbench.nemesis.registry import NONE

P99_COUNT: Final = 1_000  # what a p99 takes, in each round
# Lock and fault → in how many published tries its word broke, where, and the last run.
Breaks = Mapping[tuple[str, str], str]


@dataclass(frozen=True)
class Needed:
    """Cases that are missing. ``cases`` are those of the first run; ``command`` is for all
    ``runs``. ``broke``: it broke under each of these faults in the published observations."""

    option: Option
    what: str
    command: str
    cases: tuple[Case, ...]
    runs: int = 1
    broke: bool = False

    @property
    def is_sweep(self) -> bool:
        """Whether it measures rates, and no faults."""
        return bool(self.cases[0].rates.steps)

    @property
    def minutes(self) -> float:
        """For all runs, if every try is exposed and every break that is due shows at once."""
        return self.runs * sum(map(expected_s, self.cases)) / 60


def considered(measured: Sequence[Option], answers: Answers, *, anew: bool = False) -> list[Option]:
    """What was measured, and locks of ours that were not: those that need no other servers than the
    ones that are there, and ``anew`` of each system one recipe and one Go client, which may carry
    several times as much. For correctness they have a fence."""
    there = {o for name in answers.already_have for o in same_servers(name)}
    samples = {*sampled(), *alike()}
    found = [
        (one, name)
        for one in systems().values()
        if one.kind == "mutex" and not one.variant and "control" not in one.kinds_expected
        if one.fence or answers.needs != "correctness"
        for name in one.topologies
        if (name in there and (one.fence or one.name in samples))
        or (anew and one.name in samples and name == one.topologies[0])
    ]
    known = {(o.lock, o.topology) for o in measured}
    return [
        *measured,
        *(
            untried(one, name, topologies()[name].default_size)
            for one, name in found
            if (one.name, name) not in known
        ),
    ]


def breaks(observations: Observations) -> Breaks:
    """What broke the word of a lock in the published observations; of several clusters the one with
    the most tries is told."""
    found: dict[tuple[str, str], tuple[int, str]] = {}
    for key, observed in observations.cases.items():
        shares = [one for name, one in observed.verdicts.items() if one.k and of_the_lock(name)]
        if shares:
            most = max(shares, key=lambda one: one.k)
            said = f"{most.k} of {most.n} on {key.topology}, last in {observed.last.run}"
            if most.n > found.get((key.lock, key.fault), (0, ""))[0]:
                found[key.lock, key.fault] = (most.n, said)
    return {key: said for key, (_, said) in found.items()}


def needed(
    decision: Decision, swept: Collection[Key] = (), published: Breaks | None = None
) -> list[Needed]:
    """In the order in which they are best run. ``swept`` are options whose rates are not measured
    again, whatever came of it."""
    answers = decision.answers
    steps = [
        _steps(o, decision, o.key not in swept, published or {})
        for o in decision.open_
        if _is_ours(o) and not unreachable(o, answers)
    ]
    return [
        one
        for of in sorted(
            (of for of in steps if of),
            key=lambda of: (
                preference(of[0].option, answers),
                of[0].broke,
                sum(one.minutes for one in of),
            ),
        )
        for one in of
    ]


def likely(wanted: Sequence[Needed]) -> tuple[Option, float]:
    """The option that is chosen if what broke in the published observations breaks again and all
    else holds, and the minutes until then. Where all are known to break, the first."""
    looks = first_looks(wanted)
    option = next((one.option for one in looks if not one.broke), wanted[0].option)
    before = sum(one.minutes for one in looks if one.broke and one.option.key != option.key)
    own = sum(one.minutes for one in wanted if one.option.key == option.key)
    return option, before + own


def first_looks(wanted: Sequence[Needed]) -> list[Needed]:
    """Without what is only run if a lock holds where it broke in the published observations."""
    doubted = {one.option.key for one in wanted if one.broke}
    return [one for one in wanted if one.broke or one.option.key not in doubted]


def _steps(option: Option, decision: Decision, to_sweep: bool, published: Breaks) -> list[Needed]:
    """What is missing of one option, in order."""
    answers = decision.answers
    sweep = _sweep(option, answers) if to_sweep else None
    if _crosses(option, decision) and sweep is None:
        return []
    tries = missing(option, answers)
    new = [fault for fault, count in tries.items() if count == TRIES]
    broke = {f: said for f in new if (said := published.get((option.lock, f)))}
    rest = [fault for fault in new if fault not in broke]
    found = []
    if broke:
        said = "; ".join(f"{fault} {often}" for fault, often in broke.items())
        first = _tries(option, list(broke), 1)
        found.append(replace(first, what=f"what broke it before ({said})", broke=True))
    if sweep is not None:
        found.append(sweep)
    if rest:
        found.append(_tries(option, rest, 1))
    if more := max((n - (fault in new) for fault, n in tries.items()), default=0):
        found.append(_tries(option, list(tries), more, after=bool(new)))
    return found


def unsettled(decision: Decision) -> list[Option]:
    """Options that are not ruled out, of which no measuring here can show that they meet every
    need."""
    return [
        o
        for o in (*decision.open_, *decision.beside)
        if _is_ours(o)
        and (
            unreachable(o, decision.answers)
            or (_crosses(o, decision) and _sweep(o, decision.answers) is None)
        )
    ]


def _crosses(option: Option, decision: Decision) -> bool:
    """Whether it is not shown to keep within a limit."""
    return any(
        step.found.get(option.name, ("yes", ""))[0] == "not shown" for step in decision.steps[1:3]
    )


def _is_ours(option: Option) -> bool:
    """No code that a run folder names is loaded."""
    system = systems().get(option.lock)
    if system is None or option.own or option.topology not in system.topologies:
        return False
    return option.size in topologies()[option.topology].sizes and option.network in NETWORKS


def _where(option: Option) -> list[str]:
    of = topologies()[option.topology]
    usual = systems()[option.lock].topologies[0]
    return [
        *(["--topology", option.topology] if option.topology != usual else []),
        *(["--nodes", str(option.size)] if option.size != of.default_size else []),
        *(["--network", option.network] if option.network != "loopback" else []),
    ]


def _sweep(option: Option, answers: Answers) -> Needed | None:
    """Three rounds at the rate that was asked for, or at shares of what is carried."""
    asked = answers.ops_per_second
    if asked is None and answers.p99_ms is None:
        return None
    known = speed(option, asked)
    if (known is not None and not known.why) or "--nodes" in _where(option):
        return None
    seconds = rates.SWEEP_MEASURED_S
    said = ["lockbench", "sweep", "--lock", option.lock, *_where(option)]
    if asked is not None:
        seconds = float(min(600, max(seconds, math.ceil(P99_COUNT / asked))))
        said += ["--rate", f"{asked:g}"]
    if seconds != rates.SWEEP_MEASURED_S:
        said += ["--seconds", f"{seconds:g}"]
    cases = rates.sweep(
        [option.lock],
        topology=option.topology,
        rates=() if asked is None else (asked,),
        networks=(option.network,),
        measured_s=seconds,
    )
    return Needed(option, "its latency and what it carries", shlex.join(said), tuple(cases))


def _tries(option: Option, faults: Sequence[str], runs: int, *, after: bool = False) -> Needed:
    seed = option.seed + 1
    usual = make_case(option.lock, NONE, seed=seed, topology=option.topology)
    usual = replace(usual, size=option.size, network=option.network)
    cases = [brief(replace(usual, fault=fault)) for fault in faults]
    said = ["lockbench", "run", "--brief", "--lock", option.lock, *_where(option)]
    said += ["--fault", ",".join(faults)]
    command = f"{shlex.join(said)} --seed {seed}"
    if runs > 1:
        first = seed + after
        command = (
            f"for seed in $(seq {first} {first + runs - 1}); do "
            f"{shlex.join(said)} --seed $seed; done"
        )
    none_else = list(faults) == [NONE]
    of = "without a fault" if none_else else "of each fault"
    what = f"one try {of}" if runs == 1 else f"{runs} more tries {of}"
    return Needed(option, what, command, tuple(map(resolve, cases)), runs)
