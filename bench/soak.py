"""``make soak``: random schedules in a row, after each of which everything must be healed.

One cluster of each topology stays up and under load while schedule after schedule is drawn from its
seed and played on it: a heal that leaves something behind is met by the next one. After each, the
links must be in their base state, every node must serve, and the whole cluster must verify. At the
end nothing of it may be left on the machine. Exit code 0 only if all of that was so.

It tests the nemesis, not the locks: histories are written and not judged.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench import interruption, plan
from bench.run import load_of
from clusters import images
from clusters.base import Cluster, ClusterPlan, Cuttable
from clusters.docker import Engine
from clusters.reaper import reap
from clusters.registry import topologies
from history.recording import write_meta
from locks.registry import systems
from nemesis import schedule
from nemesis.base import Arena, Injection
from nemesis.conductor import Grip, Played, play
from nemesis.registry import faults
from nemesis.schedule import ScheduleError
from nemesis.staging import NOT_GRANTED
from workloads.fleet import Fleet, leftovers
from workloads.load import Pace, Phases
from workloads.nursery import Nursery

SCHEDULES = 200
FAULTS_EACH = "random:count=2"
# A short lease makes short faults.
PACE = Pace(lease_ttl_s=2.0, client_timeout_s=0.8)
PHASES = Phases(floor_s=0.5, own_s=0.5, contended_s=36_000.0)
CLIENTS = 4
SERVES_S = 1.0
BETWEEN_S = (0.2, 0.6)
SETTLED_S = 30.0
# A soak in which little was injected shows little.
MISSED_MAX = 0.05


@dataclass
class Tally:
    """What was played, and what went wrong. ``unproven``: a fault whose probe saw no effect.
    ``missed``: one for which the victim was not granted the lock, which is the lock's affair (a
    session that hangs, a key whose holder's answer was lost) and leaves nothing to be healed."""

    schedules: int = 0
    played: Counter[str] = field(default_factory=Counter)
    unproven: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def soak(count: int, seed: int, names: Sequence[str], console: Console) -> Tally:
    """Plays ``count`` schedules, shared evenly among the topologies."""
    tally = Tally()
    run_id = uuid.uuid4().hex[:12]
    with Nursery(run_id) as nursery:
        for number, name in enumerate(names):
            share = len(range(number, count, len(names)))
            console.print(f"{name}: {share} schedules", highlight=False)
            try:
                _soak_one(name, range(seed, seed + share), nursery, tally, console)
            except Exception as error:  # noqa: BLE001 - the others are to be tested as well
                tally.wrong.append(f"{name}: {type(error).__name__}: {error}")
    tally.wrong += _left_behind(run_id)
    return tally


def _soak_one(
    name: str, seeds: Sequence[int], nursery: Nursery, tally: Tally, console: Console
) -> None:
    run_id = nursery.run_id
    lock = next(n for n, system in sorted(systems().items()) if name in system.topologies)
    case = replace(plan.make_case(lock, "none", seed=0, topology=name), pace=PACE, clients=CLIENTS)
    with tempfile.TemporaryDirectory(prefix="lockbench-soak-") as folder:
        cluster_plan = ClusterPlan(
            topology=name,
            size=case.size,
            groups=plan.WORKERS + 1,
            run_id=run_id,
            lease_ttl_s=PACE.lease_ttl_s,
            log_dir=str(Path(folder) / "logs"),
        )
        with (
            Fleet(Path(folder), run_id, plan.WORKERS, nursery) as fleet,
            topologies()[name].make(cluster_plan) as cluster,
        ):
            fleet.launch()
            load = load_of(case, fleet, cluster, PHASES)
            write_meta(fleet.history, load.objects(), wall_minus_monotonic_ns=0)
            fleet.begin(load)
            start_ns = fleet.go()
            time.sleep((start_ns - time.monotonic_ns()) / 1e9 + PHASES.floor_s + PHASES.own_s)
            for seed in seeds:
                interruption.check()
                injections = _drawn(seed, cluster)
                wrong = _play(injections, cluster, fleet, tally, console)
                tally.schedules += 1
                what = ", ".join(i.fault for i in injections)
                console.print(
                    f"  {name} seed {seed}: {what}: {'; '.join(wrong) or 'healed'}",
                    highlight=False,
                    soft_wrap=True,
                )
                tally.wrong += [f"{name} seed {seed} ({what}): {line}" for line in wrong]


def _drawn(seed: int, cluster: Cluster) -> tuple[Injection, ...]:
    """Two faults; of every other seed they overlap, where they do not contradict each other."""
    first, second = schedule.resolve(
        schedule.parse(FAULTS_EACH),
        seed=seed,
        lease_ttl_s=PACE.lease_ttl_s,
        cluster=cluster,
        between_s=BETWEEN_S,
    )
    if seed % 2:
        early = replace(second, begin_s=first.begin_s + first.duration_s / 2)
        with suppress(ScheduleError):
            schedule.check_contradictions((first, early))
            return (first, early)
    return (first, second)


def _play(
    injections: Sequence[Injection],
    cluster: Cluster,
    fleet: Fleet,
    tally: Tally,
    console: Console,
) -> list[str]:
    """One schedule; what was not healed after it."""
    played: list[Played] = []
    grip, stop = Grip(fleet), threading.Event()
    first_s = injections[0].begin_s - 0.2
    start_ns = time.monotonic_ns() - int(first_s * 1e9)

    def conduct(injection: Injection) -> None:
        arena = Arena(cluster, fleet, injection, PACE.lease_ttl_s)
        found = play(
            faults()[injection.fault],
            arena,
            start_ns=start_ns,
            on_change=lambda _: None,
            stop=stop,
            grip=grip,
        )
        played.append(found)
        tally.played[injection.fault] += 1
        if found.failure is None and found.fault and not found.fault.facts["proven"]:
            tally.unproven[f"{injection.fault} on {cluster.plan.topology}"] += 1
            console.print(f"  {injection.fault}: no effect seen: {found.fault.facts}")

    threads = [threading.Thread(target=partial(conduct, i)) for i in injections]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    finally:
        stop.set()
    wrong = []
    for failure in (p.failure for p in played if p.failure is not None):
        if NOT_GRANTED in failure:
            tally.missed[cluster.plan.topology] += 1
        else:
            wrong.append(failure)
    try:
        fleet.check()
        cluster.verify()
    except Exception as error:  # noqa: BLE001 - what is wrong is what is asked for
        wrong.append(f"{type(error).__name__}: {error}")
    if isinstance(cluster, Cuttable):
        wrong += [f"not in its base state: {line}" for line in cluster.broken_links()]
    wrong += [
        f"{cluster.node_name(node)} does not serve"
        for node in cluster.nodes
        if not _serves_soon(cluster, node)
    ]
    return wrong


def _serves_soon(cluster: Cluster, node: int) -> bool:
    end = time.monotonic() + SETTLED_S
    while not cluster.serves(node, SERVES_S):
        if time.monotonic() > end:
            return False
    return True


def _left_behind(run_id: str) -> list[str]:
    """Containers and processes of this run that are still there."""
    found = [c.name for c in Engine().containers({"lockbench.run": run_id})]
    found += [f"process {p.pid}" for p in leftovers()]
    return [f"left behind: {name}" for name in found]


def main(
    count: Annotated[int, typer.Option(help="How many schedules.")] = SCHEDULES,
    seed: Annotated[int, typer.Option(help="Of the first; the next ones follow.")] = 0,
    topology: Annotated[str, typer.Option(help="Only these, separated by commas.")] = "",
) -> None:
    """Random schedules in a row over the topologies."""
    console = Console(width=None if sys.stdout.isatty() else 140)
    known = topologies()
    used = {t for system in systems().values() for t in system.topologies}
    names = topology.split(",") if topology else [t for t in known if t in used]
    interruption.arm()
    reap()
    images.ensure(plan.images_of(known[n] for n in names), say=console.print)
    began = time.monotonic()
    tally = soak(count, seed, names, console)
    minutes = (time.monotonic() - began) / 60
    console.print(
        f"\n{tally.schedules} schedules of {count} on {len(names)} topologies in {minutes:.0f} "
        f"minutes: {tally.played.total()} faults of {len(tally.played)} kinds, "
        f"{tally.unproven.total()} without a proven effect {dict(tally.unproven) or ''}, "
        f"{tally.missed.total()} not injected {dict(tally.missed) or ''}, "
        f"{len(tally.wrong)} things wrong",
        highlight=False,
    )
    for line in tally.wrong:
        console.print(f"  {line}", highlight=False, soft_wrap=True)
    enough = tally.missed.total() <= MISSED_MAX * tally.played.total()
    raise SystemExit(0 if tally.schedules == count and enough and not tally.wrong else 1)


if __name__ == "__main__":
    typer.run(main)
