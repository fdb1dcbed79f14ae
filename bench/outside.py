"""What happened to a case that neither its load nor its nemesis did. It voids the case.

Watched from just before the load starts until it is over: containers (the engine's events,
``lockbench.clusters.engine.events``), processes (ended, or stopped by a signal), the event loops of
the workers (a clock that ticks in each), this process' own clock, and whether the machine slept.
What the nemesis does is told apart by who does it: the engine that the cluster uses and the fleet
note what they are about to do to whom, and that is taken away. Start and teardown are not watched.

What is found is written into the history as a fault named ``outside``, so that whoever judges the
history later excuses the same (``lockbench.checker.outside``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from lockbench.bench.pressure import Counters, Ours, Processors
from lockbench.bench.usable import shown
from lockbench.checker.outside import OUTSIDE
from lockbench.clusters.base import Attended, Cluster
from lockbench.clusters.engine.docker import Act, Event
from lockbench.clusters.engine.events import Contained, ContainerWatch, Spread
from lockbench.clusters.engine.owner import OWNER, is_stopped
from lockbench.history.clocks import wall_minus_monotonic_ns
from lockbench.history.op import Fault
from lockbench.results import documents
from lockbench.workloads.fleet import Fleet, Member
from lockbench.workloads.worker_process import LoadError

SAMPLE_S: Final = 0.1
PRESSURE_S: Final = 1.0
LINK: Final = "-link"  # ends the name of a container that is one
# Both clocks are read one after the other.
SLEPT_NS: Final = 50_000_000
TOLD_MAX: Final = 3
LINE_CHARS_MAX: Final = 160


class OutsideError(LoadError):
    """Something from outside whose effects last: there is no use in going on."""


@dataclass(frozen=True, slots=True)
class Outside:
    """One thing that happened. ``who`` it happened to, ``what`` was seen, in monotonic nanoseconds
    from the last moment at which all was well. ``end_ns``: when it was over; None where its effects
    last. ``log``: what it said last."""

    who: str
    what: str
    begin_ns: int
    end_ns: int | None = None
    log: tuple[str, ...] = ()

    def sentence(self, start_ns: int) -> str:
        """For people; times count from the start of the load."""
        at_s = (self.begin_ns - start_ns) / 1e9
        said = f"; its log ends: {' | '.join(self.log)}" if self.log else ""
        return f"{self.who} {self.what}, {at_s:.1f} s into the load{said}"


def stall_s_max(lease_ttl_s: float, client_timeout_s: float, hold_s: float) -> float:
    """How long a client may stand still without having to come too late: what a lease has left
    once the slowest call that is granted has been answered and the longest hold is over. At least
    half of what such a hold leaves; half a lease where the work is to outlast its lease anyway."""
    left_s = lease_ttl_s - hold_s
    if left_s <= 0:
        return lease_ttl_s / 2
    return max(left_s - client_timeout_s, left_s / 2)


class Watch:
    """A context manager around the load. ``raise_if_lasting`` where the bench waits, ``found``
    afterwards."""

    def __init__(
        self,
        fleet: Fleet,
        cluster: Cluster,
        workers: int,
        stall_s: float,
        *,
        beside: Cluster | None = None,
        containers: ContainerWatch | None = None,
        clocks: Callable[[], tuple[int, int]] | None = None,
    ) -> None:
        """``beside``: another cluster of the same run. ``clocks`` tells (monotonic, since boot with
        sleep) in nanoseconds."""
        self._fleet = fleet
        self._cluster = cluster
        self._beside = beside
        self._workers = workers
        self._stall_ns = int(1e9 * stall_s)
        self._containers = containers
        self._there: list[ContainerWatch] = []  # on other hosts, whose processes are not seen
        self._clocks = clocks or _clocks
        self._wall_ns = wall_minus_monotonic_ns()
        self._begin_ns = time.monotonic_ns()
        self._looked_ns, boot_ns = self._clocks()
        self._asleep_ns = boot_ns - self._looked_ns
        self._lasting: list[Outside] = []
        self._stops: list[Outside] = []
        self._stalls: list[Outside] = []
        self._stopped: dict[Member, int] = {}
        self._ended: set[Member] = set()
        self._ticked: dict[int, int] = {}
        self._logs: dict[str, tuple[str, ...]] = {}
        self._over = threading.Event()
        self._looking = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._processors: Processors | None = None

    def __enter__(self) -> Watch:
        if self._containers is None and isinstance(self._cluster, Contained):
            run_id = self._cluster.plan.run_id
            self._containers = ContainerWatch(run_id, self._acts, self._is_of_a_killed)
            engines = self._cluster.engines_elsewhere() if isinstance(self._cluster, Spread) else ()
            self._there = [ContainerWatch(run_id, self._acts, engine=one) for one in engines]
        running = self._containers.running.values() if self._containers else ()
        addresses = chain.from_iterable(one.addresses for one in running)
        self._processors = Processors(self._ours, addresses)
        self._looked_ns, _ = self._clocks()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.look()
        for watch in self._watches():
            watch.close(ask=kind is not KeyboardInterrupt)

    def _watches(self) -> list[ContainerWatch]:
        here = [] if self._containers is None else [self._containers]
        return [*here, *self._there]

    def _acts(self) -> Sequence[Act]:
        """What was done to containers by those who may."""
        both: Sequence[object] = (self._cluster, self._beside)
        return [act for one in both if isinstance(one, Contained) for act in one.acts()]

    def note_processors(self) -> None:
        """Reads what the processors did up to now, beside once a second."""
        if self._processors is not None:
            self._processors.look()

    @property
    def pressure(self) -> list[Counters]:
        """What the processors did, second by second."""
        return self._processors.read if self._processors is not None else []

    def raise_if_lasting(self) -> None:
        """Raises OutsideError where something lasts."""
        lasting = [one for one in self.found() if one.end_ns is None]
        if lasting:
            raise OutsideError(told(lasting, self._begin_ns))

    def found(self) -> list[Outside]:
        """Everything so far, in the order of time."""
        with self._looking:
            stops = list(self._stops)
            for member, begin_ns in self._stopped.items():
                stops.append(_stop(member, begin_ns, self._looked_ns))
            # Of who was stopped, that its loop stood still says no more.
            names = {one.who for one in stops}
            stalls = [one for one in self._stalls if one.who not in names]
            found = [*self._lasting, *stops, *stalls]
        for watch in self._watches():
            found += self._of_containers(watch)
        return sorted(found, key=lambda one: one.begin_ns)

    def look(self) -> None:
        """One look at everything but the containers."""
        with self._looking:
            before_ns = self._looked_ns
            now_ns, boot_ns = self._clocks()
            self._looked_ns = now_ns
            asleep_ns = boot_ns - now_ns
            if asleep_ns - self._asleep_ns > SLEPT_NS:
                slept_s = (asleep_ns - self._asleep_ns) / 1e9
                slept = Outside("this machine", f"slept for {slept_s:.1f} s", before_ns)
                self._lasting.append(slept)
                self._asleep_ns = asleep_ns
            if now_ns - before_ns > self._stall_ns:
                stood = _stood(now_ns - before_ns)
                self._stalls.append(Outside("lockbench", stood, before_ns, now_ns))
            for member in [*self._members(), *self._first_processes()]:
                self._look_at(member, before_ns)
            for worker in range(self._workers + 1):
                self._look_at_loop(worker, now_ns)

    def _run(self) -> None:
        pressure_s = 0.0
        try:
            while not self._over.wait(SAMPLE_S):
                self.look()
                if self._processors is not None and time.monotonic() - pressure_s >= PRESSURE_S:
                    pressure_s = time.monotonic()
                    self._processors.look()
        except Exception as error:  # noqa: BLE001 - a case that nobody watches is not judged
            what = f"failed: {type(error).__name__}: {error}"
            self._lasting.append(Outside("the watch", what, self._looked_ns))

    def _look_at(self, member: Member, before_ns: int) -> None:
        asked_ns = time.monotonic_ns()
        stopped = is_stopped(member.pid)
        now_ns = time.monotonic_ns()
        if stopped is None:
            # Asked again: the nemesis notes whom it kills before it does.
            if member in self._members() and member not in self._ended:
                self._ended.add(member)
                said = tuple(map(_line, self._fleet.last_lines(member)))
                what = "ended, and not by this run"
                self._lasting.append(Outside(member.name, what, before_ns, log=said))
        elif stopped and not self._is_struck(member, asked_ns, now_ns):
            self._stopped.setdefault(member, before_ns)
        elif member in self._stopped:
            self._stops.append(_stop(member, self._stopped.pop(member), now_ns))

    def _is_struck(self, member: Member, begin_ns: int, end_ns: int) -> bool:
        worker = member.worker
        return worker is not None and self._fleet.struck_ns(worker, begin_ns, end_ns) > 0

    def _look_at_loop(self, worker: int, now_ns: int) -> None:
        """From one tick to the next one that is seen, or to now while none comes."""
        ticked_ns = self._fleet.ticked_ns(worker)
        last_ns = self._ticked.get(worker, 0)
        self._ticked[worker] = ticked_ns
        until_ns = now_ns if self._over.is_set() and ticked_ns == last_ns else ticked_ns
        if last_ns == 0:
            return
        stood_ns = until_ns - last_ns - self._fleet.struck_ns(worker, last_ns, until_ns)
        if stood_ns > self._stall_ns:
            stall = Outside(f"worker-{worker}", _stood(stood_ns), last_ns, until_ns)
            self._stalls.append(stall)

    def _of_containers(self, watch: ContainerWatch) -> list[Outside]:
        by_name: dict[str, list[Event]] = {}
        for event in watch.unexplained():
            by_name.setdefault(watch.name_of(event), []).append(event)
        found = []
        for name, events in by_name.items():
            if name not in self._logs:
                self._logs[name] = tuple(map(_line, watch.last_words(events[0])))
            what = f"met with {', '.join(map(_word, events))}, not by this run"
            at_ns = events[0].at_ns - self._wall_ns
            found.append(Outside(name, what, at_ns, log=self._logs[name]))
        if watch.lost is not None:
            what = f"were not watched to the end: {watch.lost}"
            on = f" of host {watch.host}" if watch.host else ""
            found.append(Outside(f"the containers{on}", what, self._begin_ns))
        return found

    def _members(self) -> list[Member]:
        """Processes that have to run as long as the load does: its own, and the cluster's."""
        attendants = self._cluster.attendants() if isinstance(self._cluster, Attended) else ()
        return [*self._fleet.members(), *(Member(name, pid, log=name) for name, pid in attendants)]

    def _first_processes(self) -> list[Member]:
        """Of servers and links; whether they have ended is the engine's to tell. Those of clients
        are processes of the load."""
        running = self._containers.running.values() if self._containers else ()
        return [
            Member(one.name, one.pid)
            for one in running
            if not one.of_client and one.pid and is_stopped(one.pid) is not None
        ]

    def _ours(self) -> Ours:
        members = self._fleet.members()
        pids = frozenset(member.pid for member in members)
        running = self._containers.running if self._containers else {}
        return Ours(
            clients=pids,
            workers=frozenset(m.pid for m in members if m.name == f"worker-{m.worker}"),
            containers={
                i: (one.pid, "links" if one.name.endswith(LINK) else "servers")
                for i, one in running.items()
                if one.pid and one.pid not in pids
            },
        )

    def _is_of_a_killed(self, event: Event) -> bool:
        """A client container ends with its worker."""
        pid, _, _ = event.attributes.get(OWNER, "").partition(":")
        return pid.isdigit() and int(pid) in self._fleet.killed_pids()


def told(found: Sequence[Outside], start_ns: int) -> str:
    """The first of them in a sentence."""
    more = f"; and {len(found) - TOLD_MAX} more" if len(found) > TOLD_MAX else ""
    return "; ".join(one.sentence(start_ns) for one in found[:TOLD_MAX]) + more


def as_faults(found: Sequence[Outside], start_ns: int) -> list[Fault]:
    """As they stand in the history."""
    return [
        Fault(
            name=OUTSIDE,
            targets=(one.who,),
            begin_ns=(one.begin_ns, one.begin_ns),
            heal_ns=None if one.end_ns is None else (one.end_ns, one.end_ns),
            facts={"what": replace(one, log=()).sentence(start_ns)},
        )
        for one in found
    ]


def documented(found: Sequence[Outside], start_ns: int) -> tuple[documents.Outside, ...]:
    """As they stand in the case; seconds count from the start of the load."""
    return tuple(
        documents.Outside(
            who=one.who,
            what=one.what,
            at_s=(one.begin_ns - start_ns) / 1e9,
            for_s=None if one.end_ns is None else (one.end_ns - one.begin_ns) / 1e9,
            log=tuple(one.log),
        )
        for one in found
    )


def _stop(member: Member, begin_ns: int, end_ns: int) -> Outside:
    what = f"was stopped from outside for {(end_ns - begin_ns) / 1e9:.1f} s"
    return Outside(member.name, what, begin_ns, end_ns)


def _line(said: str) -> str:
    return shown(said)[:LINE_CHARS_MAX]


def _stood(ns: int) -> str:
    return f"stood still for {ns / 1e9:.1f} s"


def _word(event: Event) -> str:
    """``kill (signal 9)``, ``die (exit code 137)``."""
    words = (("signal", "signal"), ("exitCode", "exit code"))
    said = [f"{word} {event.attributes[key]}" for key, word in words if key in event.attributes]
    return event.action + (f" ({', '.join(said)})" if said else "")


def _clocks() -> tuple[int, int]:
    return time.monotonic_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME)
