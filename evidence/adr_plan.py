"""What would settle a decision that is open: which cases, with which command, in how many minutes.

Guarantees: what can rule an option out at little cost comes first (a sweep, one try of each fault),
for every option that could still be chosen; then the missing tries, of the option that would be
chosen first. Nothing that could not change the decision is asked for: no tries of an option whose
measured p99 or rate lies on both sides of a limit.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bench import rates
from bench.plan import Case, expected_s, make_case, resolve, with_time_for_faults
from bench.suites import brief, faults_of, sampled
from clusters.base import NETWORKS
from clusters.registry import topologies
from evidence.adr import TRIES, Key, Option, same_servers, untried
from evidence.adr_tree import Answers, Decision, missing, speed
from locks.registry import systems
from nemesis.registry import NONE

P99_COUNT: Final = 1_000  # what a p99 takes, in each round


@dataclass(frozen=True)
class Needed:
    """Cases that are missing. ``cases`` are those of the first run; ``command`` is for all
    ``runs``."""

    option: Option
    what: str
    command: str
    cases: tuple[Case, ...]
    runs: int = 1

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
    ones that are there, and ``anew`` one of each system. For correctness they have a fence."""
    there = {o for name in answers.already_have for o in same_servers(name)}
    samples = sampled()
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


def needed(decision: Decision, swept: Collection[Key] = ()) -> list[Needed]:
    """In the order in which they are best run. ``swept`` are options whose rates are not measured
    again, whatever came of it."""
    answers = decision.answers
    open_ = [o for o in decision.open_ if _is_ours(o)]
    found = [one for o in open_ if o.key not in swept and (one := _sweep(o, answers))]
    to_be_swept = {one.option.key for one in found}
    rest = []
    for option in open_:
        if _crosses(option, decision) and option.key not in to_be_swept:
            continue
        tries = missing(option, answers.needs)
        new = [fault for fault, count in tries.items() if count == TRIES]
        if new:
            found.append(_tries(option, new, 1))
        if more := max((n - (fault in new) for fault, n in tries.items()), default=0):
            rest.append(_tries(option, list(tries), more, after=bool(new)))
    return [*found, *rest]


def unsettled(decision: Decision) -> list[Option]:
    """Open options of which no measuring here can show that they keep within the limits."""
    return [
        o
        for o in decision.open_
        if _is_ours(o) and _crosses(o, decision) and _sweep(o, decision.answers) is None
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
    where = _where(option)
    usual = make_case(option.lock, NONE, seed=seed, topology=option.topology)
    usual = replace(usual, size=option.size, network=option.network)
    cases = [replace(usual, fault=fault) for fault in faults]
    if where or systems()[option.lock].variant:
        cases = [with_time_for_faults(case) for case in cases]
        said = ["lockbench", "run", "--lock", option.lock, *where, "--fault", ",".join(faults)]
    else:
        # The suite has shorter cases of them.
        cases = [brief(case) for case in cases]
        said = ["lockbench", "suite", "full", "--lock", option.lock]
        if set(faults) != {NONE, *faults_of("full")} - option.cannot.keys():
            said += ["--fault", ",".join(faults)]
    command = f"{shlex.join(said)} --seed {seed}"
    if runs > 1:
        first = seed + after
        command = (
            f"for seed in $(seq {first} {first + runs - 1}); do "
            f"{shlex.join(said)} --seed $seed; done"
        )
    what = "one try of each fault" if runs == 1 else f"{runs} more tries of each fault"
    return Needed(option, what, command, tuple(map(resolve, cases)), runs)
