"""The Locust users of every workload. Each lives through the phases of
``lockbench.workloads.load``.

They work under Lockbench's own master and workers and under plain ``locust -f`` alike.
"""

from __future__ import annotations

import random
import resource as rusage
from collections.abc import Callable
from time import monotonic_ns

import gevent
from locust import User, events, task
from locust.env import Environment
from locust.runners import WorkerRunner

from lockbench.history.op import NULL, F, Type
from lockbench.locks.base import Granted
from lockbench.locks.shared import sidecar
from lockbench.workloads.arrivals import Arrivals
from lockbench.workloads.client import Client
from lockbench.workloads.load import AIMED_KEY, FLOOR_KEY, SPARE_KEY, own_key, shared_key
from lockbench.workloads.locuststats import LocustStats
from lockbench.workloads.session import POLL_S, Session
from lockbench.workloads.without import WayClient

# A hold that the victim keeps for a fault ends this long before its promise does: on a busy machine
# it may have to wait so long for a processor, and its last write must not come too late by that.
RELEASE_BEFORE_END_S = 0.5
# After it goes on from where it stood, the victim is alone with its request for this long.
ALONE_NS = 200_000_000
# The leases of others may be longer than this client's by this much, because those of a session
# are counted from its last heartbeat.
OTHERS_LONGER_S = 0.5
# Longer than nothing, so that all others that can go on do so first (``gevent.sleep``).
NEXT_TURN_S = 1e-9
# Its multiples, modulo one, are evenly spread.
GOLDEN = 0.618034


_sessions: list[Session] = []
told: list[LocustStats] = []


def stats(environment: Environment, here: Session) -> LocustStats:
    """What tells Locust's statistics in this process, made at first use."""
    if not told:
        told.append(LocustStats(environment, here.load.lock, ours=here.started_by_bench))
    return told[0]


def session(environment: Environment | None = None) -> Session:
    """The session of this process, made at first use. Plain Locust numbers its workers itself."""
    if not _sessions:
        runner = None if environment is None else environment.runner
        if environment is not None and isinstance(runner, WorkerRunner):
            processes = getattr(environment.parsed_options, "processes", None)
            _sessions.append(Session.here(runner.worker_index + 1, processes))
        else:
            _sessions.append(Session.here(processes=1))
    return _sessions[0]


def _close(**_: object) -> None:
    if _sessions:
        _sessions[0].recorder.close()


# Not ``quitting``: on a signal that comes before the users are stopped.
events.quit.add_listener(_close)  # type: ignore[no-untyped-call]


class LockUser(User):
    """Connects, waits for the start, lives through its phases, then idles until it is stopped."""

    abstract = True
    kind = ""
    connected = False

    def on_start(self) -> None:
        self.connect()
        self.session.wait_for_start()

    def on_stop(self) -> None:
        """A user that is stopped inside a hold is there no longer. Closes the connections under
        plain Locust, where others go on. At the end of a bench's load the kernel is quicker. A user
        that is stopped while it connects has none."""
        if not self.connected:
            return
        self.stats.flush()
        self.client.stopped()
        if not self.session.started_by_bench:
            self.client.close()

    def wait_time(self) -> float:
        """Between two cycles with contention: what the pace says. A locustfile may say otherwise,
        as for every user of Locust (``PaymentUser.wait_time = between(1, 2)``)."""
        return self.session.load.pace.think_s

    def connect(self) -> None:
        """Makes the client; an error counts as a user that could not connect."""
        self.session = session(self.environment)
        self.stats = stats(self.environment, self.session)
        self.number = self.session.number(self.kind)
        self.label = f"{self.kind}-{self.number}"
        try:
            without = self.session.system.kind == "none"
            kind_of_client = WayClient if without else Client
            self.client = kind_of_client(self.session, self.stats.untold.append, self._place())
        except Exception as error:
            self.session.count_failed(error)
            raise
        self.connected = True
        self.session.progress[self.label] = 0
        self.session.page.ready += 1

    @task
    def live(self) -> None:
        self.floor(self.session.phase_end_ns(1))
        self.session.sleep_until(self.session.phase_end_ns(1))
        self.own(self.session.phase_end_ns(2))
        self.session.sleep_until(self.session.phase_end_ns(2))
        self.contended(self.session.phase_end_ns(3))
        self.rates()
        # Without waking now and then: every wake-up is in the way of those who are measured.
        self.session.sleep_until(self.session.phase_end_ns(4))
        self.quiet()
        while True:
            gevent.sleep(60)

    def floor(self, end_ns: int) -> None:
        """Alone: only the victim does something here."""

    def own(self, end_ns: int) -> None:
        """Without contention."""

    def contended(self, end_ns: int) -> None:
        """With contention and faults."""

    def rates(self) -> None:
        """At stated rates: only the clients of the rates do something here."""

    def quiet(self) -> None:
        """When the load is over: only the solo users do something here."""

    def cycle(self, key: str, hold_s: float) -> None:
        self.count(self.client.cycle(key, self.client.hold_for(hold_s)))

    def count(self, granted: bool) -> None:
        self.session.progress[self.label] += granted

    def paced(self, key: str, end_ns: int, period_s: float) -> None:
        """Cycles with an intended start every ``period_s``; what was missed is caught up with, so
        that an outage shows in the times from the intended start. What has no time before the end
        of the phase is in no figure."""
        pace = self.session.load.pace
        period_ns = int(period_s * 1e9)
        if period_ns == 0:
            while monotonic_ns() < end_ns:
                self.cycle(key, pace.hold_s)
            return
        # Spread over one period, so that the clients do not march in step.
        intended_ns = monotonic_ns() + int(period_ns * (self.number * GOLDEN % 1))
        while intended_ns < end_ns and monotonic_ns() < end_ns:
            self.session.sleep_until(intended_ns)
            self.count(
                self.client.cycle(key, self.client.hold_for(pace.hold_s), intended_ns=intended_ns)
            )
            intended_ns += period_ns

    def _place(self) -> int:
        """Numbers go worker by worker in steps; this counts the users of all workers in a row."""
        workers = self.session.load.workers
        return self.number // (workers + 1) * workers + self.number % (workers + 1) - 1


class ContendedUser(LockUser):
    """Own key first, then the shared keys as fast as it can."""

    weight = 8
    kind = "contended"

    def own(self, end_ns: int) -> None:
        self.paced(own_key(self.label), end_ns, self.session.load.own_period_s)

    def contended(self, end_ns: int) -> None:
        self._draws = random.Random(f"{self.session.load.seed} {self.label}")
        self._weights = [1 / (place + 1) for place in range(self.session.load.keys)]
        arrivals = self.session.arrivals
        if arrivals is not None:
            self._arriving(arrivals, end_ns)
            return
        pace = self.session.load.pace
        while monotonic_ns() < end_ns:
            self.cycle(self._key(), pace.hold_s)
            gevent.sleep(self.wait_time())

    def _arriving(self, arrivals: Arrivals, end_ns: int) -> None:
        """Serves what arrives; what is still waiting at the end of the phase is never begun."""
        pace = self.session.load.pace
        while (intended_ns := arrivals.take()) < end_ns:
            self.session.sleep_until(intended_ns)
            if monotonic_ns() >= end_ns:
                return
            arrivals.begun += 1
            keep = self.client.hold_for(pace.hold_s)
            self.count(self.client.cycle(self._key(), keep, intended_ns=intended_ns))

    def _key(self) -> str:
        """One of its own for good, or one drawn each time (Zipf: the n-th key with weight 1/n)."""
        load, spread = self.session.load, self.session.asked.options.get("spread", "even")
        if spread == "even":
            return shared_key(self._place(), load.keys, load.workers)
        if spread == "uniform":
            return f"k{self._draws.randrange(load.keys)}"
        return f"k{self._draws.choices(range(load.keys), self._weights)[0]}"


class SoloUser(LockUser):
    """Goes on with its own key while others contend: shows an outage without contention."""

    weight = 1
    kind = "solo"

    def own(self, end_ns: int) -> None:
        self.paced(own_key(self.label), end_ns, self.session.load.pace.own_period_s)

    contended = own

    def quiet(self) -> None:
        """Asks for its share of all keys, round by round, until each was granted or was refused
        for longer than anybody can have held it. Then for one that nobody else asks for."""
        here, client = self.session, self.client
        if not isinstance(client, Client):
            return
        while not here.control.quiet:
            gevent.sleep(POLL_S)
        wait_s = here.load.pace.aimed_wait_s
        keys = here.load.quiet_keys(self.number)
        for key in keys:
            here.recorder.complete(here.recorder.invoke(client.process, F.QUIET, key), Type.OK)
        since_ns = began_ns = monotonic_ns()
        patience_ns = client.lease_ns + int(1e9 * (here.load.slack_s + OTHERS_LONGER_S))
        while keys:
            now_ns = monotonic_ns()
            last = now_ns > min(since_ns + patience_ns, began_ns + 2 * patience_ns)
            process = client.process
            keys = [key for key in keys if not client.take_all(key, wait_s)]
            if last:
                client.take_all(SPARE_KEY, wait_s)
                break
            if client.process != process:
                # An answer is missing: what was asked for may be held by this client itself.
                since_ns = monotonic_ns()
        here.page.quieted += 1


class RateUser(LockUser):
    """Takes a lock, holds it for the stated time and releases it, as fast as it can or as jobs
    arrive; it does nothing else."""

    weight = 1
    kind = "rate"

    def rates(self) -> None:
        here = self.session
        self._draws = random.Random(f"{here.load.seed} {self.label}")
        windows = here.load.windows_ns(here.control.start_ns)
        steps = zip(here.load.rates.steps, windows, strict=True)
        for number, (step, (begin_ns, _, end_ns)) in enumerate(steps):
            here.sleep_until(begin_ns)
            if step.saturated:
                while monotonic_ns() < end_ns:
                    self._take(NULL)
                continue
            arrivals = here.arrivals_of(number)
            while (intended_ns := arrivals.take()) < end_ns:
                here.sleep_until(intended_ns)
                if monotonic_ns() < end_ns:
                    self._take(intended_ns)
                else:
                    assert isinstance(self.client, Client)
                    self.client.not_begun(self._key(), intended_ns)

    def _take(self, intended_ns: int) -> None:
        client, here = self.client, self.session
        assert isinstance(client, Client)
        here.count_busy(1)
        try:
            granted = client.acquire(self._key(), intended_ns=intended_ns)
            self.count(granted is not None)
            if granted is None:
                gevent.sleep(here.load.pace.retry_pause_s)
                return
            here.page.carried += 1
            if hold_s := here.load.rates.hold_s:
                gevent.sleep(hold_s)
            client.release(granted.hold)
        finally:
            here.count_busy(-1)
            # On a busy machine answers are there before they are waited for, and a client that
            # never waits lets no other one run.
            gevent.sleep(NEXT_TURN_S)

    def _key(self) -> str:
        keys = self.session.load.rates.keys
        return f"r{self._draws.randrange(keys)}" if keys else own_key(self.label)


class RivalUser(LockUser):
    """Contends with the victim for the aimed key, with long holds."""

    weight = 1
    kind = "rival"

    def contended(self, end_ns: int) -> None:
        pace = self.session.load.pace
        while monotonic_ns() < end_ns:
            while self._stands_back():
                gevent.sleep(POLL_S)
            self.session.page.rivals += 1
            try:
                self.count(self.client.cycle(AIMED_KEY, self._keep, wait_s=pace.aimed_wait_s))
            finally:
                self.session.page.rivals -= 1
            gevent.sleep(self.wait_time())

    def _stands_back(self) -> bool:
        """Whether to leave the key alone, because the nemesis waits for the victim's grant, or for
        its request to be alone. Many locks are unfair: a fault that waited for luck would begin at
        any time."""
        control = self.session.control
        if control.occupy:
            return False
        alone = control.gate or monotonic_ns() < control.opened_ns + ALONE_NS
        return alone or (control.aim and not control.held)

    def _keep(self, granted: Granted) -> None:
        control, pace = self.session.control, self.session.load.pace
        if not control.occupy:
            gevent.sleep(pace.aimed_hold_s)
            return
        control.occupied = granted.hold.id
        _while_promised(lambda: control.occupy, granted)
        control.occupied = 0


class VictimUser(LockUser):
    """Measures the client's own cost in the floor phase; holds what the nemesis aims at."""

    fixed_count = 1
    kind = "victim"

    def floor(self, end_ns: int) -> None:
        begin = _cpu_ns()
        while monotonic_ns() < end_ns:
            self.count(self.client.cycle(FLOOR_KEY, no_hold))
        self.session.control.floor_cpu_ns = _cpu_ns() - begin

    def contended(self, end_ns: int) -> None:
        while monotonic_ns() < end_ns:
            self._stop_before_acquire()
            self.session.control.asking = True
            self.count(self.client.cycle(AIMED_KEY, self._keep))
            self.session.control.asking = False

    def _stop_before_acquire(self) -> None:
        control = self.session.control
        while control.gate:
            control.stopped_before_acquire = True
            gevent.sleep(POLL_S)
        control.stopped_before_acquire = False

    def _keep(self, granted: Granted) -> None:
        control, pace = self.session.control, self.session.load.pace
        control.asking = False
        if not control.aim:
            gevent.sleep(pace.aimed_hold_s)
            return
        until_ns = granted.valid_until_ns or 0
        control.held_until_ns = until_ns
        control.held = granted.hold.id
        extends = control.extends

        def wanted() -> bool:
            nonlocal extends
            if control.extends != extends:
                extends = control.extends
                self.client.extend(granted.hold)
            return control.aim

        _while_promised(wanted, granted)
        control.held = 0


def _while_promised(wanted: Callable[[], bool], granted: Granted) -> None:
    """Returns when it is not wanted any longer, or shortly before the promise ends."""
    until_ns = granted.valid_until_ns
    limit_ns = None if until_ns is None else until_ns - int(RELEASE_BEFORE_END_S * 1e9)
    while wanted() and (limit_ns is None or monotonic_ns() < limit_ns):
        gevent.sleep(POLL_S)


def no_hold(_: Granted) -> None:
    """The floor is the lock's and the client's cost alone."""


def _cpu_ns() -> int:
    """Of this process, and of the sidecars that work for it."""
    used = rusage.getrusage(rusage.RUSAGE_SELF)
    return int((used.ru_utime + used.ru_stime) * 1e9) + sidecar.cpu_ns()


USERS: tuple[type[LockUser], ...] = (ContendedUser, SoloUser, RivalUser, VictimUser, RateUser)
