"""What the load of one case is: clients, keys, phases, times. Plain data, written as JSON.

Phases, the same for every system:

``floor``      one client alone, as fast as it can: what the client itself costs;
``own``        every client its own key, paced: the lock without contention;
``contended``  the clients share a few keys in a closed loop; two *solo* clients go on with their
               own keys; two *rivals* and the *victim* take turns at the key ``aimed`` with long
               holds, so that a fault can be aimed at one. Faults happen in this phase;
``rates``      where a case has steps: clients of their own, each with a key of its own, take and
               release locks at one stated rate after the other (``Step``);
``quiet``      nobody begins anything. Once nobody holds anything either, the solo clients ask for
               every key that was used, until it is granted or stays taken for too long
               (``lockbench.checker.leaks``). It has no fixed length: it lasts as long as that
               takes.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from lockbench.history.op import Object
from lockbench.locks.base import System
from lockbench.locks.registry import find
from lockbench.workloads.registry import find as find_workload

AIMED_KEY = "aimed"
VICTIM = 0  # the number of the victim's worker
FLOOR_KEY = "floor"
WORKER_ENVIRONMENT = "LOCKBENCH_WORKER"  # the number of a worker process
CLIENT_FAILED = "a client failed: "  # in a worker's log, before the error
# In the folder of a case.
HISTORY, LOGS, CONTROL, LOCUST, STORE = "history", "logs", "control", "locust", "store"
ENVIRONMENT = "LOCKBENCH_LOAD"  # names the JSON file of the load for Locust's processes


# Up to this many clients ask for keys of their own as often as the pace says. If there are more,
# each asks less often, because the lock without contention is to be measured on an idle machine.
OWN_CLIENTS_MAX = 32


# Nobody asks for this key before the end. It shows whether the service grants anything at all.
SPARE_KEY = "spare"
# What a service may take to notice the end of a lease or of a session, beside what its declaration
# says (``System.settles_s``): etcd looks for expired leases every half second, ZooKeeper once a
# tick.
NOTICES_S = 1.0


def own_key(label: str) -> str:
    """The key that only the user ``label`` asks for."""
    return f"own-{label}"


def shared_key(place: int, keys: int, workers: int) -> str:
    """The key that the contending user at ``place`` always asks for (0, 1, …; users take turns over
    the workers). Keys have equally many users, give or take one. With two users a key or more, each
    key has users of several workers, so that a fault which freezes a worker meets keys that others
    want."""
    return f"k{(place + place // math.lcm(keys, workers)) % keys}"


@dataclass(frozen=True, slots=True)
class Phases:
    """Lengths in seconds, one after the other."""

    floor_s: float
    own_s: float
    contended_s: float
    rates_s: float = 0.0

    def ends_ns(self, start_ns: int) -> tuple[int, int, int, int]:
        """When each of them ends, if the first begins then."""
        lengths_s = (self.floor_s, self.own_s, self.contended_s, self.rates_s)
        floor, own, contended, rates = (
            start_ns + int(1e9 * after_s) for after_s in itertools.accumulate(lengths_s)
        )
        return floor, own, contended, rates


@dataclass(frozen=True, slots=True)
class Step:
    """A time of the phase ``rates`` at one rate, all rate clients together.

    ``rate`` is arrivals per second, ``share`` that of what the first saturated step carried;
    without either the step is saturated: every client asks again as soon as it has released.
    Nothing is measured during ``warm_s``, which comes before ``measured_s``."""

    warm_s: float
    measured_s: float
    share: float = 0.0
    rate: float = 0.0

    @property
    def saturated(self) -> bool:
        return not (self.share or self.rate)

    @property
    def lasts_s(self) -> float:
        return self.warm_s + self.measured_s


@dataclass(frozen=True, slots=True)
class Rates:
    """The phase ``rates``: its clients, the keys that they share (0: each has its own), how long
    they hold, and the steps, one after the other."""

    clients: int = 0
    keys: int = 0
    hold_s: float = 0.0
    steps: tuple[Step, ...] = ()

    @property
    def lasts_s(self) -> float:
        return sum(step.lasts_s for step in self.steps)

    def windows_ns(self, begin_ns: int) -> list[tuple[int, int, int]]:
        """Of every step: when it begins, when it is measured from, and when it ends."""
        found = []
        for step in self.steps:
            measured_ns = begin_ns + round(1e9 * step.warm_s)
            end_ns = measured_ns + round(1e9 * step.measured_s)
            found.append((begin_ns, measured_ns, end_ns))
            begin_ns = end_ns
        return found


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a hold lasts and how long one asks for a lock."""

    lease_ttl_s: float = 3.0
    wait_s: float = 5.0
    hold_s: float = 0.005
    aimed_hold_s: float = 0.3
    # Rivals ask anew this often, so that some attempt begins under every fault.
    aimed_wait_s: float = 1.0
    # Between two cycles on a shared key. Without it, whoever releases a polled lock takes it again
    # before anybody else asks, and the others starve.
    think_s: float = 0.01
    own_period_s: float = 0.15  # 0: as fast as it can
    client_timeout_s: float = 1.0
    # After a refusal or an unknown outcome, so that a closed door is not hammered.
    retry_pause_s: float = 0.02
    touch_resource: bool = True


def slack_s(system: System, pace: Pace) -> float:
    """How much longer than its lease a key of this lock may stay taken that nobody holds: a request
    that its client gave up may be on its way for as long as one lasts, and then the service has to
    notice, and to let go of what it keeps for longer than a lease."""
    kept_s = (system.kept_leases - 1.0) * pace.lease_ttl_s
    return pace.client_timeout_s + max(NOTICES_S, system.settles_s) + kept_s


@dataclass(frozen=True, slots=True)
class LocustsOwn:
    """What Locust does beside the load, as its users know it: its page on ``web_port``; its CSV
    files and its page of a report, kept in the case's folder; and the listeners of a locustfile,
    which hear every operation. Nothing of it changes the load."""

    web_port: int | None = None
    report: bool = False
    locustfile: str | None = None


NOTHING: Final = LocustsOwn()


@dataclass(frozen=True, slots=True)
class Load:
    """One case's load. Worker 0 is the victim's, 1..workers are the others. The last may run
    on other machines (``elsewhere``): clients that contend, and those of the rates. The solo
    clients and the rivals stay here, with the victim and the nemesis.

    Worker w is client group w + 1; ``nodes[w]`` are the node addresses that it uses.
    """

    lock: str
    keys: int
    clients: int
    solo: int
    rivals: int
    workers: int
    phases: Phases
    pace: Pace
    seed: int
    nodes: tuple[tuple[tuple[str, int], ...], ...]
    resource: tuple[str, int]
    folder: str  # of the case; everything that the load writes is in it
    master_port: int
    workload: str = "mutex"
    locust: LocustsOwn = NOTHING
    rates: Rates = Rates()
    key_prefix: str = ""  # of what a lock is asked for; no history shows it
    # What the lock guards, in place of the resource (``lockbench.stores``), and where each worker
    # reaches its servers.
    store: str = ""
    store_nodes: tuple[tuple[tuple[str, int], ...], ...] = ()
    elsewhere: int = 0
    # By how much the clock of the machine that reads this is ahead of the bench's: for times that
    # are no evidence.
    ahead_ns: int = 0

    @property
    def history(self) -> Path:
        return Path(self.folder, HISTORY)

    @property
    def logs(self) -> Path:
        return Path(self.folder, LOGS)

    @property
    def locust_report(self) -> Path:
        return Path(self.folder, LOCUST)

    @property
    def store_folder(self) -> Path:
        """Of a store on the disk of this machine."""
        return Path(self.folder, STORE)

    @property
    def control(self) -> Path:
        return Path(self.folder, CONTROL)

    @property
    def allotment(self) -> dict[int, dict[str, int]]:
        """Worker number → Locust user class → how many. The victim is alone in its process."""
        share: dict[int, dict[str, int]] = {0: {"VictimUser": 1}}
        here = self.workers - self.elsewhere
        for worker in range(1, self.workers + 1):
            share[worker] = {
                name: len(range(worker - 1, users, among)) if worker <= among else 0
                for name, users, among in (
                    ("ContendedUser", self.clients, self.workers),
                    ("SoloUser", self.solo, here),
                    ("RivalUser", self.rivals, here),
                    ("RateUser", self.rates.clients, self.workers),
                )
            }
        return share

    @property
    def users(self) -> int:
        """All clients: those that contend, the solo ones, the rivals, the victim, and those of
        the rates."""
        return self.clients + self.solo + self.rivals + 1 + self.rates.clients

    def windows_ns(self, start_ns: int) -> list[tuple[int, int, int]]:
        """``Rates.windows_ns`` of a load that began at ``start_ns``."""
        return self.rates.windows_ns(self.phases.ends_ns(start_ns)[2])

    @property
    def rate_keys(self) -> list[str]:
        """What the clients of the rates ask for."""
        if self.rates.keys:
            return [f"r{key}" for key in range(self.rates.keys)]
        return self._labels("rate", "RateUser")

    @property
    def own_period_s(self) -> float:
        """How often a contending client asks for its own key before the contention; 0: as fast as
        it can."""
        return self.pace.own_period_s * max(1.0, self.clients / OWN_CLIENTS_MAX)

    @property
    def slack_s(self) -> float:
        """How much longer than its lease a key may stay taken that nobody holds."""
        return slack_s(find(self.lock), self.pace)

    def quiet_keys(self, solo: int) -> list[str]:
        """What the solo user number ``solo`` asks for in the quiet phase. All of them together:
        every key that was used; of their own keys each that of another one."""
        solos = self._labels("solo", "SoloUser")
        place = solos.index(own_key(f"solo-{solo}"))
        shared = [AIMED_KEY, *(f"k{k}" for k in range(self.keys)), FLOOR_KEY]
        own = [*self._labels("contended", "ContendedUser"), *self.rate_keys]
        mine = [*shared, *own][place :: len(solos)]
        return [*mine, solos[place - 1]]

    def _labels(self, kind: str, user: str) -> list[str]:
        """The own keys of the users of a kind, who are numbered in steps over the workers."""
        return [
            own_key(f"{kind}-{worker + turn * (self.workers + 1)}")
            for worker in range(1, self.workers + 1)
            for turn in range(self.allotment[worker][user])
        ]

    def objects(self) -> dict[str, Object]:
        """Every key of the load with its role and its job, of the kind that the lock is."""
        system = find(self.lock)
        roles = {f"k{k}": "contended" for k in range(self.keys)}
        for kind, users in (("contended", self.clients), ("solo", self.solo)):
            # Users are numbered in steps of the number of worker processes.
            numbers = range(users * (self.workers + 1))
            roles |= {own_key(f"{kind}-{n}"): "own" for n in numbers}
        roles |= dict.fromkeys(self.rate_keys, "rate")
        roles |= {AIMED_KEY: "aimed", FLOOR_KEY: "floor", SPARE_KEY: "floor"}
        asked = find_workload(self.workload)
        more: dict[str, Any] = {
            "lease_ns": int(1e9 * self.pace.lease_ttl_s),
            "slack_ns": int(1e9 * self.slack_s),
            **asked.workload.describes(asked.options),
        }
        return {
            key: Object(kind=system.kind, permits=system.permits, role=role, **more)
            for key, role in roles.items()
        }

    def save(self, path: Path) -> None:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")

    @classmethod
    def read(cls, path: Path) -> Load:
        """Raises OSError, or ValueError for a file that is not one of ours."""
        return msgspec.json.decode(path.read_bytes(), type=cls)
