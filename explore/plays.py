"""Plays trials on one cluster, many at once.

Plays of strikes at servers come to their events together, and share one strike
(``lockbench.explore.servers``); the cluster serves again before others begin.
"""

from __future__ import annotations

import math
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

import psutil

from lockbench.bench import interruption, plan
from lockbench.clusters.base import Cluster, ClusterError, Recorded, Sharded
from lockbench.explore.actors import Actors
from lockbench.explore.asked import LEASE_S, Asked
from lockbench.explore.faults import BEYOND, ENDS
from lockbench.explore.servers import (
    APART,
    Blow,
    addresses,
    independent,
    interchangeable,
    of_one_quorum,
)
from lockbench.explore.stage import Stage
from lockbench.explore.trial import Played, Setting, Trial, clients_of
from lockbench.explore.trials import act_of, at_s_of, servers_of
from lockbench.history.clocks import STEP_S_MAX, wall_minus_monotonic_ns
from lockbench.history.service import write_service
from lockbench.locks.shared.client_container import ContainerLibrary
from lockbench.locks.shared.client_programs import TAKES_BYTES
from lockbench.locks.shared.library import library_of
from lockbench.locks.shared.tenures import service_of

# So many plays at once, fewer while the processors are full, and more while they are idle: plays
# wait most of the time, those of longer leases for longer. On a full machine calls are late, and a
# waiter seems forgotten.
LEAST: Final = 2
SLOTS: Final = 6
MOST: Final = 48
MOST_OF_LONGER: Final = 120
BUSY_MAX: Final = 85.0  # percent of the processors
FULL: Final = 95.0
SPARE_BYTES: Final = 1 << 30  # of memory
SHARING: Final = 24  # to begin with, of those that share a strike at servers
CONTAINER_SHARING: Final = 12
APART_MAX: Final = 0.5  # of them: fewer are played again beside others
SHARING_MIN: Final = 4
CONTAINER_SPARE_BYTES: Final = 4 << 30  # a JVM takes a moment to fill the memory
FIRST_HOST: Final = 100  # 127.0.0.100 and up are the victims'
VICTIMS_GROUP: Final = 1
OTHERS_GROUP: Final = 2
RECOVERS_S: Final = 30.0
POLL_S: Final = 0.1
LOOKS_S: Final = 0.1
PLAYS: Final = "[0-9][0-9][0-9][0-9][0-9][0-9]"  # the folders of plays


class ClusterLost(ClusterError):
    """The cluster did not come back from these."""

    def __init__(self, trials: Sequence[Trial], why: str) -> None:
        super().__init__(why)
        self.trials = trials


class Plays:
    """``cluster``: with the links of ``OTHERS_GROUP`` groups. ``folder``: where each play has one
    of its own, by the next of the ``numbers``. ``victims``, ``others``: processes; whoever was a
    rival may share what it keeps of the servers' other links, and is never a victim. ``room``: for
    all clusters of this lock."""

    def __init__(
        self,
        what: Asked,
        cluster: Cluster,
        victims: Actors,
        others: Actors,
        folder: Path,
        *,
        room: Room,
        numbers: Iterator[int],
    ) -> None:
        case = what.case
        topology = plan.topology_of(case)
        self.setting = Setting(
            case.lock,
            case.system,
            case.pace,
            tuple(addresses(cluster, topology, VICTIMS_GROUP)),
            tuple(addresses(cluster, topology, OTHERS_GROUP)),
            case.seed,
            what.clients,
            interchangeable=interchangeable(cluster, topology),
            of_one_quorum=of_one_quorum(cluster, topology),
            independent=independent(cluster, topology),
        )
        self.cluster = cluster
        self.folder = folder
        self._victims, self._others = victims, others
        self._room = room
        self.most = room.of_one
        """How many plays at once there may be."""
        self.sharing = room.sharing
        """How many of those that share a strike at servers; fewer where too many come apart."""
        self._hosts: SimpleQueue[str] = SimpleQueue()
        for slot in range(self.most):
            self._hosts.put(f"127.0.0.{FIRST_HOST + slot}")
        self._numbers = numbers
        self._warmed: set[str] = set()  # scenarios
        self._forgets = not topology.quorum
        self._lending = threading.Lock()
        victims.raise_to(SLOTS)
        others.raise_to(SLOTS * self.setting.rivals_and_helper)

    def play_all(self, trials: Sequence[Trial]) -> list[Played]:
        """Those that may be played together (``lockbench.explore.pending``), with what the servers
        kept themselves beside each history. Raises ClusterLost."""
        interruption.raise_if_asked()
        act = act_of(trials[0])
        with ThreadPoolExecutor(self.most) as pool:
            try:
                self._warm(pool, {trial.scenario for trial in trials})
                if act:
                    played = self._play_blow(pool, trials)
                    if act in ENDS and self._forgets:
                        self._warmed.clear()
                else:
                    played = self._play_at_once(pool, self._play_alone, trials)
                self._record(played)
            except ClusterError as error:
                raise ClusterLost(trials, str(error)) from error
        return played

    def _warm(self, pool: ThreadPoolExecutor, scenarios: Set[str]) -> None:
        """The first plays on a server are of other messages, and those after it was started again,
        if it forgets the scripts of the lock then."""
        new = [Trial(scenario) for scenario in scenarios - self._warmed]
        for play in self._play_at_once(pool, self._play_alone, new):
            shutil.rmtree(play.folder, ignore_errors=True)
        self._warmed.update(scenarios)

    def _play_blow(self, pool: ThreadPoolExecutor, trials: Sequence[Trial]) -> list[Played]:
        """One strike at servers for all of these."""
        blow = Blow(
            self.cluster,
            servers_of(trials[0], self.setting.interchangeable),
            act_of(trials[0]),
            plays=len(trials),
            lease_s=self.setting.lease_s,
            frozen_s=self.setting.lasts_s(BEYOND),
        )
        striker = threading.Thread(target=blow.run, daemon=True)
        processors = Processors()
        striker.start()
        latest_s = max(map(at_s_of, trials))
        servers = [Later(blow, latest_s - at_s_of(trial)) for trial in trials]
        try:
            played = self._play_at_once(pool, self._play, trials, servers)
        finally:
            blow.over()
            striker.join()
        self._recover()
        for play in played:
            play.unable = play.unable or blow.failure
        most = self.most if self._room.has_memory() else self.sharing
        self.sharing = next_sharing(self.sharing, most, played, processors.busy())
        return played

    def _play_at_once(
        self,
        pool: ThreadPoolExecutor,
        play: Callable[..., Played],
        trials: Sequence[Trial],
        *servers: Sequence[Later],
    ) -> list[Played]:
        try:
            return list(pool.map(play, trials, *servers))
        except BaseException:  # nobody wants to know any more how the others end
            self.kill()
            raise

    def kill(self) -> None:
        """Ends all plays; none can be begun afterwards."""
        self._victims.kill()
        self._others.kill()

    def _recover(self) -> None:
        """Waits until the whole cluster serves. Raises ClusterError."""
        end = time.monotonic() + RECOVERS_S
        while not all(self.cluster.serves(node, 1.0) for node in self.cluster.nodes):
            if time.monotonic() > end:
                self.cluster.verify()
                return
            interruption.raise_if_asked()
            time.sleep(POLL_S)

    def _play_alone(self, trial: Trial) -> Played:
        with self._room:
            return self._play(trial)

    def _play(self, trial: Trial, server: Later | None = None) -> Played:
        host = self._hosts.get()
        try:
            with ExitStack() as stack:
                with self._lending:
                    count = self.setting.rivals_and_helper
                    self._victims.raise_to(1)
                    self._others.raise_to(count)
                    lent = [
                        *stack.enter_context(self._victims.lent(1)),
                        *stack.enter_context(self._others.lent(count)),
                    ]
                    number = next(self._numbers)
                stage = Stage(
                    self.setting,
                    trial,
                    lent,
                    folder=self.folder / f"{number:06}",
                    host=host,
                    key=self._key(number),
                    server=server,
                )
                return stage.play()
        finally:
            if server is not None:
                server.leave()
            self._hosts.put(host)

    def _key(self, number: int) -> str:
        key = f"p{number:06}"  # messages of all plays have the same sizes
        return self.cluster.beside_aimed(key) if isinstance(self.cluster, Sharded) else key

    def _record(self, played: Sequence[Played]) -> None:
        """Nothing if this machine's wall clock was set meanwhile, by which servers note their
        times."""
        entry, cluster = self.setting.system.entry, self.cluster
        plays = [play for play in played if not play.unable]
        if entry is None or not isinstance(cluster, Recorded) or not plays:
            return
        keys = {play.key for play in plays}
        ahead_ns = [wall_minus_monotonic_ns(), *(play.ahead_ns for play in plays)]
        least_ns, most_ns = min(ahead_ns), max(ahead_ns)
        if most_ns - least_ns > 1e9 * STEP_S_MAX:
            return
        service = service_of(
            cluster.server_logs(), entry, cluster.record_name, keys, (least_ns, most_ns)
        )
        for play in plays:
            mine = tuple(tenure for tenure in service.tenures if tenure.key == play.key)
            write_service(play.folder, replace(service, tenures=mine))


def next_sharing(sharing: int, most: int, played: Sequence[Played], busy: float) -> int:
    """How many are to share the next strike: half where too many came apart from the others, fewer
    where the processors were ``busy`` (percent) from the first to the last, then more again."""
    apart = sum(play.unable == APART for play in played)
    together = min(sharing, len(played))
    if apart > APART_MAX * len(played):
        return max(SHARING_MIN, together // 2)
    if busy > FULL:
        return max(SHARING_MIN, together - together // 4)
    if apart or 2 * len(played) < sharing:  # there may be as many parts of the same size
        return sharing
    return min(most, sharing + sharing // 4)


def last_number(folder: Path) -> int:
    """Of the plays that are left there: those that show a finding."""
    return max((int(one.name) for one in folder.glob(PLAYS)), default=0)


class Room:
    """A context manager for who does something beside others: ``LEAST`` at once, and more, one
    after the other, by what the processors still have to give."""

    def __init__(
        self,
        most: int,
        spare_bytes: int,
        sharing: int = SHARING,
        busy: Callable[[], float] | None = None,
        *,
        of_one: int = MOST_OF_LONGER,
    ) -> None:
        """``spare_bytes``: so much memory is to stay free. ``sharing``: how many share a strike at
        first. ``busy``: percent of the processors since it was asked last. ``of_one``: how many
        there may be on one cluster."""
        self.most, self.sharing, self._busy = most, sharing, busy or Processors().busy
        self.of_one = min(most, of_one)
        self._spare_bytes = spare_bytes
        self._there = 0
        self._first = threading.Lock()  # one of those that wait looks at the processors
        self._changed = threading.Condition()
        self._looked = -math.inf

    def __enter__(self) -> None:
        with self._first, self._changed:
            while self._there >= LEAST and not self._takes_more():
                self._changed.wait(LOOKS_S)
            self._there += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._there -= 1
            self._changed.notify()

    def _takes_more(self) -> bool:
        """Once in a while: the next look tells what the one that was let in takes."""
        now = time.monotonic()
        if self._there >= self.most or now < self._looked + LOOKS_S:
            return False
        self._looked = now
        if self._there < SLOTS:
            return self._busy() < FULL
        return self._busy() < BUSY_MAX and self.has_memory()

    def has_memory(self) -> bool:
        """Whether the memory suffices for more."""
        return psutil.virtual_memory().available > self._spare_bytes


def room_of(what: Asked, memory_bytes: int) -> Room:
    """For the plays of a lock on all its clusters. ``memory_bytes``: what is there for the clients
    of one of them, who keep their containers."""
    case = what.case
    library = library_of(case.system)
    if isinstance(library, ContainerLibrary):
        clients = clients_of(case.system, what.clients)
        fit = memory_bytes // (clients * TAKES_BYTES[library.image])
        of_one = min(MOST, max(SHARING_MIN, fit))
        return Room(MOST, CONTAINER_SPARE_BYTES, min(CONTAINER_SHARING, of_one), of_one=of_one)
    longer = case.pace.lease_ttl_s / LEASE_S
    return Room(min(MOST_OF_LONGER, int(MOST * longer)), SPARE_BYTES)


class Processors:
    """How busy they are, whichever thread asks (psutil's own percentage is one for each thread)."""

    def __init__(self) -> None:
        self._last = psutil.cpu_times()

    def busy(self) -> float:
        """Percent since it was asked last."""
        now, last = psutil.cpu_times(), self._last
        self._last = now
        idle_s = now.idle + now.iowait - last.idle - last.iowait
        return 100.0 * (1.0 - idle_s / max(1e-9, _total_s(now) - _total_s(last)))


def _total_s(times: Any) -> float:
    # What guests take is in ``user`` and ``nice``, too.
    return float(sum(times) - times.guest - times.guest_nice)


class Later:
    """A play that begins later than the others of its blow, so that all come at once."""

    def __init__(self, blow: Blow, delay_s: float) -> None:
        self._blow = blow
        self._delay_s = delay_s
        self._was_ready = False
        self.struck = partial(blow.struck, self)
        self.healed = blow.healed

    def ready(self) -> None:
        self._was_ready = True
        self._blow.ready()
        time.sleep(self._delay_s)

    def leave(self) -> None:
        """The play is over. One that could not begin comes to the start now: the others wait."""
        if not self._was_ready:
            self._blow.ready()
