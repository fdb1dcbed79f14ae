"""``make soak``: faults in a row and kills from outside; everything must be healed, nothing left.

**Schedules.** One cluster of each topology stays up and under load while schedule after schedule is
drawn from its seed and played on it: a heal that leaves something behind is met by the next one.
After each, the links must be in their base state, every node must serve, and the whole cluster must
verify. The memory of the bench and of the processes of the load is read after each, and must not
grow. At the end nothing of it may be left on the machine. This tests the nemesis, not the locks:
histories are written and not judged.

**Kills** (``soak.kills``). Short cases, of which something is killed from outside at a moment that
is drawn: nothing may be left after the next start, and no wrong word be said.

Exit code 0 only if all of that was so.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lockbench.bench import interruption, plan
from lockbench.bench.run import load_of
from lockbench.clusters import images
from lockbench.clusters.base import Cluster, Cuttable
from lockbench.clusters.engine.docker import Engine
from lockbench.clusters.engine.reaper import reap
from lockbench.clusters.registry import topologies
from lockbench.history.recording import write_meta
from lockbench.locks.registry import systems
from lockbench.nemesis import schedule
from lockbench.nemesis.base import Arena, Injection
from lockbench.nemesis.conductor import Played, TargetClaims, play
from lockbench.nemesis.faults.failover import NOBODY
from lockbench.nemesis.registry import faults
from lockbench.nemesis.schedule import ScheduleError
from lockbench.nemesis.staging import NOT_GRANTED
from lockbench.results.errors import BadInput
from lockbench.workloads.fleet import Fleet, leftovers
from lockbench.workloads.fork_server import ForkServer
from lockbench.workloads.load import Pace, Phases
from soak import kills
from soak.growth import GROWS, Memory, memory_table

SCHEDULES = 200
KILLS = 100
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
    memory: Memory = field(default_factory=Memory)


def soak(
    count: int, seed: int, names: Sequence[str], console: Console, minutes: float | None = None
) -> Tally:
    """Plays ``count`` schedules, or as many as there is time for, shared evenly among the
    topologies."""
    tally = Tally()
    run_id = uuid.uuid4().hex[:12]
    with ForkServer(run_id) as fork_server:
        for number, name in enumerate(names):
            share = len(range(number, count, len(names)))
            seeds: Iterable[int] = range(seed, seed + share)
            if minutes is not None:
                seeds = _until(time.monotonic() + 60 * minutes / len(names), seed)
            console.print(name, highlight=False)
            found_before = len(tally.wrong)
            folder = Path(tempfile.mkdtemp(prefix="lockbench-soak-"))
            try:
                _soak_one(
                    name, seeds, folder, fork_server=fork_server, tally=tally, console=console
                )
            except Exception as error:  # noqa: BLE001 - the others are to be tested as well
                tally.wrong.append(f"{name}: {type(error).__name__}: {error}")
            finally:
                if len(tally.wrong) == found_before:
                    shutil.rmtree(folder)
    tally.wrong += _left_behind(run_id)
    return tally


def _until(end: float, seed: int) -> Iterable[int]:
    return itertools.takewhile(lambda _: time.monotonic() < end, itertools.count(seed))


def _soak_one(
    name: str,
    seeds: Iterable[int],
    folder: Path,
    *,
    fork_server: ForkServer,
    tally: Tally,
    console: Console,
) -> None:
    run_id = fork_server.run_id
    lock = kills.plain_lock(name)
    case = replace(plan.make_case(lock, "none", seed=0, topology=name), pace=PACE, clients=CLIENTS)
    asked = plan.cluster_plan_of(case, run_id, folder / "logs")
    # Records would grow for as long as the soak lasts.
    cluster_plan = replace(asked, keeps_records=False)
    with (
        Fleet(folder, run_id, plan.WORKERS, fork_server) as fleet,
        topologies()[name].make(cluster_plan) as cluster,
    ):
        fleet.launch()
        load = load_of(case, fleet, cluster, PHASES)
        write_meta(fleet.history, load.objects(), wall_minus_monotonic_ns=0)
        fleet.begin(load)
        start_ns = fleet.go()
        time.sleep((start_ns - time.monotonic_ns()) / 1e9 + PHASES.floor_s + PHASES.own_s)
        for seed in seeds:
            interruption.raise_if_asked()
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
            tally.memory.read(os.getpid(), name)


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
    claims, stop = TargetClaims(fleet), threading.Event()
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
            claims=claims,
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
        if NOT_GRANTED in failure or NOBODY in failure:
            tally.missed[cluster.plan.topology] += 1
        else:
            wrong.append(failure)
    try:
        fleet.raise_if_failed()
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


def main(  # noqa: PLR0917 - its parameters are its options
    schedules: Annotated[int, typer.Option(help="How many schedules.")] = SCHEDULES,
    minutes: Annotated[
        float | None, typer.Option(help="Play schedules for so long, however many they are.")
    ] = None,
    killed: Annotated[int, typer.Option("--kills", help="How many kills.")] = KILLS,
    seed: Annotated[int, typer.Option(help="Decides schedules and kills.")] = 0,
    only: Annotated[
        str | None, typer.Option(help="Only these kills, no schedules: 3,20-39.")
    ] = None,
    topology: Annotated[str, typer.Option(help="Only these, separated by commas.")] = "",
) -> None:
    """Random schedules in a row, and kills at random moments, over the topologies."""
    console = Console(width=None if sys.stdout.isatty() else 140)
    known = topologies()
    # What needs nothing to be installed (``kills.plain_lock``).
    plain = [system for system in systems().values() if system.prepare is None]
    used = {t for system in plain for t in system.topologies}
    names = topology.split(",") if topology else [t for t in known if t in used]
    try:
        numbers = list(range(killed)) if only is None else _numbers(only)
        for name in set(names) - used:
            raise plan.unknown("topology", name, known)
    except BadInput as error:
        console.print(f"soak: {error}", highlight=False)
        raise SystemExit(254) from error
    interruption.arm()
    reap()
    images.ensure(plan.images_of(known[n] for n in names), say=console.print)
    console.print(f"seed {seed}", highlight=False)
    good = [
        only is not None or _schedules(schedules, minutes, seed, names, console),
        _kills(numbers, seed, names, console),
    ]
    raise SystemExit(0 if all(good) else 1)


def _numbers(words: str) -> list[int]:
    found: list[int] = []
    for word in words.split(","):
        first, _, last = word.partition("-")
        if not (first.isdigit() and (last or first).isdigit()):
            raise BadInput(f"--only {words}: give numbers of kills, such as 3,20-39")
        found += range(int(first), int(last or first) + 1)
    return found


def _schedules(
    count: int, minutes: float | None, seed: int, names: Sequence[str], console: Console
) -> bool:
    """Whether all was well with them."""
    if not (count or minutes):
        return True
    began = time.monotonic()
    tally = soak(count, seed, names, console, minutes)
    took = (time.monotonic() - began) / 60
    console.print(
        f"\n{tally.schedules} schedules{'' if minutes else f' of {count}'} on {len(names)} "
        f"topologies in {took:.0f} "
        f"minutes: {tally.played.total()} faults of {len(tally.played)} kinds, "
        f"{tally.unproven.total()} without a proven effect {dict(tally.unproven) or ''}, "
        f"{tally.missed.total()} not injected {dict(tally.missed) or ''}, "
        f"{len(tally.wrong)} things wrong",
        highlight=False,
    )
    for line in tally.wrong:
        console.print(f"  {line}", highlight=False, soft_wrap=True)
    found = tally.memory.found()
    console.print(memory_table(found))
    enough = tally.missed.total() <= MISSED_MAX * tally.played.total()
    all_played = tally.schedules == count or (minutes is not None and tally.schedules > 0)
    grows = [name for name, seen in found.items() if seen.word == GROWS]
    return all_played and enough and not tally.wrong and not grows


def _kills(numbers: Sequence[int], seed: int, names: Sequence[str], console: Console) -> bool:
    """Whether nothing was left by them and nothing wrong said."""
    if not numbers:
        return True
    folder = Path(tempfile.mkdtemp(prefix="lockbench-kills-"))
    found: list[kills.Found] = []
    wrong: list[str] = []
    try:
        with kills.Room(folder, console) as room:
            for number in numbers:
                found.append(room.play(kills.attack(seed, number, names)))  # noqa: PERF401
            wrong += room.healthy()
    except KeyboardInterrupt:  # what was found is shown
        wrong.append(f"interrupted after {len(found)} of {len(numbers)}")
    for one in found:
        again = f"{one.attack} (again: --seed {seed} --only {one.attack.number})"
        wrong += [f"{again}: {line}" for line in one.all_wrong()]
    console.print(kills.table(found))
    for line in wrong:
        console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
    struck = sum(one.struck_s is not None for one in found)
    console.print(f"{struck} kills, {len(wrong)} things wrong", highlight=False)
    if wrong:
        console.print(f"their runs are in {folder}", highlight=False, soft_wrap=True)
    return kills.enough(found) and not wrong


if __name__ == "__main__":
    typer.run(main)
