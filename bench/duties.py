"""What a lock owes to its users, without any fault: one function for each duty.

A duty is given a ``Desk``, a lock on a real cluster, and raises ``Breach`` where the lock does not
do what its contract says (``lockbench.locks.base``). What a declaration says of its lock is part of
that contract: ``late_release``, ``gives_up_s``, and the expectations of a control.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, TypeVar

from lockbench.bench.client_process import ClientProcess
from lockbench.bench.judge import MAY, expectation
from lockbench.checker.rows import FOREVER
from lockbench.clusters.base import Cluster, Pausable
from lockbench.locks.base import (
    Acquired,
    Address,
    Denied,
    Extendable,
    Freed,
    Granted,
    Hold,
    Lock,
    NoObserver,
    NotHeld,
    Observer,
    Released,
    System,
    Unknown,
    new_hold_id,
    token_of,
)
from lockbench.locks.shared import sidecar

GROUP: Final = 1
LEASE_S: Final = 2.0
# A lease that ends in no duty, whatever else the machine does. Locks whose grants have no lease of
# their own are kept alive by their clients.
LONG_S: Final = 60.0

STAYS_LOCKED: Final = "as declared, it stays locked for ever"

T = TypeVar("T")


class Breach(AssertionError):
    """The lock did not do what it owes; a sentence that says what it did instead."""


class NotTriable(Exception):
    """A duty that cannot be tried on this cluster; a sentence that says why."""


@dataclass(frozen=True)
class Running:
    """A cluster as a duty sees it; ``cluster`` is None where another process has started it."""

    nodes: list[Address]
    cluster: Cluster | None


@dataclass
class Desk:
    """A lock on its cluster, a fresh key, and clients that are closed at the end. ``lock`` is the
    name that ``lockbench.locks.registry.find`` takes."""

    system: System
    lock: str
    running: Running
    lease_s: float = LEASE_S
    timeout_s: float = LEASE_S / 2
    key: str = field(default_factory=lambda: f"test-{token_of(new_hold_id())}")
    open: ExitStack = field(default_factory=ExitStack)

    @property
    def patience_s(self) -> float:
        """A dead holder's lock is free by then, an election over."""
        return 4 * self.lease_s

    def client(self, observer: Observer | None = None) -> Lock:
        """One more."""
        lock = self.system.connect(
            self.running.nodes,
            timeout_s=self.timeout_s,
            ttl_s=self.lease_s,
            observer=observer or NoObserver(),
        )
        self.open.callback(lock.close)
        return lock

    def remote(self) -> ClientProcess:
        """One more, in a process of its own."""
        client = ClientProcess(
            self.lock, self.running.nodes, timeout_s=self.timeout_s, ttl_s=self.lease_s
        )
        self.open.callback(client.kill)
        return client

    def take(self, lock: Lock, wait_s: float = 0.0, ttl_s: float | None = None) -> Acquired:
        """Asks for the key."""
        return lock.acquire(
            self.key, hold_id=new_hold_id(), ttl_s=ttl_s or self.lease_s, wait_s=wait_s
        )

    def granted(self, lock: Lock, ttl_s: float | None = None) -> Granted:
        """Asks for the key as long as it may take until it is free. Raises Breach."""
        answer = self._in_time(
            lambda: self.take(lock, self.patience_s, ttl_s), lambda it: isinstance(it, Unknown)
        )
        if not isinstance(answer, Granted):
            raise Breach(f"a free key was not granted within {self.patience_s:g} s: {answer}")
        return answer

    def granted_to(self, remote: ClientProcess) -> dict[str, Any]:
        """The same for another process; its answer. Raises Breach."""
        answer = self._in_time(
            lambda: remote.acquire(self.key, self.patience_s), lambda it: it["said"] == "Unknown"
        )
        _require(answer["said"] == "Granted", f"another process asks for a free key: {answer}")
        return answer

    def _in_time(self, ask: Callable[[], T], is_unknown: Callable[[T], bool]) -> T:
        """Asks again where an answer was too late, as it may be on a busy machine."""
        until = time.monotonic() + self.patience_s
        while is_unknown(answer := ask()) and time.monotonic() <= until:
            pass
        return answer

    def denied(self, lock: Lock, wait_s: float = 0.0) -> None:
        """Asks for the key, which is held. Raises Breach."""
        answer = self.take(lock, wait_s)
        if not isinstance(answer, Denied):
            raise Breach(f"a key that is held was not denied: {answer}")


@dataclass(frozen=True)
class Duty:
    """One thing that is owed. ``name`` is what ``not_owed`` of a declaration calls it. ``hold_to``
    returns a sentence where the lock does something else, just as its declaration says."""

    name: str
    hold_to: Callable[[Desk], str | None]

    @property
    def sentence(self) -> str:
        """The name in words."""
        return self.name.replace("_", " ")


def a_grant_is_promised_for_about_a_lease(desk: Desk) -> None:
    """Neither much more nor nothing."""
    lock = desk.client()
    before_ns = time.monotonic_ns()
    grant = desk.granted(lock)
    _require(grant.hold.key == desk.key, f"the grant is one of {grant.hold.key!r}")
    if desk.system.limited != (grant.valid_until_ns is not None):
        said = "limited" if desk.system.limited else "unlimited"
        raise Breach(
            f"its grants are declared {said}, and valid_until_ns is {grant.valid_until_ns}"
        )
    if grant.valid_until_ns is not None:
        left_s = (grant.valid_until_ns - time.monotonic_ns()) / 1e9
        _require(left_s > 0, f"the promise had ended {-left_s:.3f} s before it was given")
        most_s = 1.5 * (desk.lease_s + 1)
        promised_s = (grant.valid_until_ns - before_ns) / 1e9
        _require(promised_s < most_s, f"{promised_s:.1f} s are promised of {desk.lease_s:g} s")
    _given_back(lock.release(grant.hold), grant.valid_until_ns)


def a_try_is_denied_while_held(desk: Desk) -> None:
    """With ``held`` as the reason; and granted after the release."""
    holder, other = desk.client(), desk.client()
    grant = desk.granted(holder, LONG_S)
    answer = desk.take(other)
    held = isinstance(answer, Denied) and answer.reason.startswith("held")
    _require(held, f"a try of a key that is held: {answer}")
    _given_back(holder.release(grant.hold), grant.valid_until_ns)
    desk.granted(other)


def a_try_of_a_free_key_is_granted(desk: Desk) -> None:
    """At the first try, once there is a connection."""
    lock = desk.client()
    desk.granted(lock)
    desk.key = f"{desk.key}-2"
    answer = desk.take(lock)
    _require(isinstance(answer, Granted), f"a try of a free key: {answer}")


def a_released_hold_is_not_held(desk: Desk) -> None:
    """A second release says so."""
    lock = desk.client()
    grant = desk.granted(lock)
    _given_back(lock.release(grant.hold), grant.valid_until_ns)
    again = lock.release(grant.hold)
    _require(isinstance(again, NotHeld), f"a second release of a hold: {again}")


def keys_do_not_touch_each_other(desk: Desk) -> None:
    """One that is held leaves the next one free, even below it."""
    lock = desk.client()
    desk.granted(lock, LONG_S)
    desk.key = f"{desk.key}/x"
    desk.granted(lock)


def a_key_does_not_touch_those_that_begin_with_it(desk: Desk) -> None:
    """Those that are held leave the shorter one free."""
    lock, key = desk.client(), desk.key
    for longer in ("0", "/x"):
        desk.key = key + longer
        desk.granted(lock, LONG_S)
    desk.key = key
    desk.granted(lock)


def a_waiter_gets_it_after_the_release(desk: Desk) -> None:
    """And does not sleep until the end of its wait."""
    holder, waiter = desk.client(), desk.client()
    grant = desk.granted(holder, LONG_S)
    waited: list[Acquired] = []
    thread = threading.Thread(
        target=lambda: waited.append(desk.take(waiter, LONG_S / 2, LONG_S)), daemon=True
    )
    thread.start()
    time.sleep(0.3)
    _require(not waited, f"it did not wait: {waited}")
    _given_back(holder.release(grant.hold), grant.valid_until_ns)
    thread.join(LONG_S / 4)
    _require(bool(waited), f"{LONG_S / 4:g} s after the release the waiter still waits")
    _require(isinstance(waited[0], Granted), f"a wait for a key that was given back: {waited[0]}")


def a_wait_that_ran_out_leaves_nothing_behind(desk: Desk) -> None:
    """It is denied with ``gave-up``, not before its time, and the key can be had afterwards."""
    holder, waiter, third = desk.client(), desk.client(), desk.client()
    grant = desk.granted(holder, LONG_S)
    began = time.monotonic()
    answer = desk.take(waiter, 0.3, LONG_S)
    took_s = time.monotonic() - began
    gave_up = isinstance(answer, Denied) and answer.reason.startswith("gave-up")
    _require(gave_up, f"a wait that ran out: {answer}")
    _require(took_s >= 0.3, f"a wait of 0.3 s was given up after {took_s:.3f} s")
    _require(took_s < LONG_S, f"a wait of 0.3 s took {took_s:.0f} s")
    _given_back(holder.release(grant.hold), grant.valid_until_ns)
    desk.granted(third)


def fences_grow(desk: Desk) -> None:
    """With every grant of a key; there are none where none are declared."""
    locks = [desk.client(), desk.client()]
    fences = []
    for turn in range(6):
        lock = locks[turn % 2]
        grant = desk.granted(lock)
        fences.append(grant.fence)
        lock.release(grant.hold)
    if desk.system.fence is None:
        _require(fences == [None] * 6, f"no fence is declared, and the grants have {fences}")
    else:
        numbers = [fence for fence in fences if fence is not None]
        grow = numbers == sorted(set(numbers)) and len(numbers) == 6
        _require(grow, f"the fences of six grants are {fences}")


def no_two_promises_overlap_under_contention(desk: Desk) -> None:
    """Each promise from its grant to its release, or to its end if that came first."""
    promises: list[tuple[int, int]] = []
    raised: list[Exception] = []
    began = time.monotonic()

    def enough() -> bool:
        took_s = time.monotonic() - began
        return took_s > 1.5 and (len(promises) > 20 or took_s > 20)

    def contend(lock: Lock) -> None:
        while not enough():
            answer = desk.take(lock, 1)
            if not isinstance(answer, Granted):
                continue
            began_ns = time.monotonic_ns()
            time.sleep(0.002)
            ended_ns = min(time.monotonic_ns(), answer.valid_until_ns or FOREVER)
            if began_ns < ended_ns:  # else it came too late to be a hold
                promises.append((began_ns, ended_ns))
            lock.release(answer.hold)

    def work() -> None:
        try:
            with closing(desk.client()) as lock:
                contend(lock)
        except Exception as error:  # noqa: BLE001 - whatever a lock raises breaks the promise
            raised.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    if raised:
        raise raised[0]
    hang = sum(thread.is_alive() for thread in threads)
    _require(not hang, f"{hang} of five clients had not ended after 30 s")
    promises.sort()
    _require(len(promises) > 20, f"five clients were granted it {len(promises)} times in 20 s")
    for (_, ended_ns), (began_ns, _) in pairwise(promises):
        over_ms = (ended_ns - began_ns) / 1e6
        _require(over_ms <= 0, f"two held it at the same time, for {over_ms:.1f} ms")


def a_frozen_holder_loses_it_after_its_promise_and_not_before(desk: Desk) -> str | None:
    """And learns so when it gives it back, without ending the hold of the next one."""
    remote, local = desk.remote(), desk.client()
    desk.granted(local)  # connections are up
    desk.key = f"{desk.key}-2"
    mine = desk.granted_to(remote)
    remote.freeze()
    if not desk.system.limited:
        desk.denied(local, desk.lease_s)
        remote.thaw()
        said = remote.release(desk.key)
        _require(said == "Released", f"a release after the freeze: {said}")
        return "as declared, its grants do not end by themselves"
    grant = desk.granted(local, LONG_S)
    _require_over(mine["valid_until_ns"])
    remote.thaw()
    time.sleep(0.5)  # a client may need a moment to notice that its connection is gone
    late = remote.release(desk.key)
    locally = local.release(grant.hold)
    wanted = desk.system.late_release
    _require(late == wanted, f"a release of a hold that has ended: {late}, not {wanted}")
    if expectation(desk.system, "client-pause", "wrong-release").expected == "breaks":
        _require(isinstance(locally, NotHeld), f"the late release did not end it: {locally}")
        return "as declared, a release that comes too late ends the next hold"
    if expectation(desk.system, "none", "late-grant").expected != "breaks":
        _given_back(locally, grant.valid_until_ns)
    return None if late == "NotHeld" else f"as declared, a release that comes too late is {late}"


def a_killed_holder_leaves_the_lock_free_after_its_lease(desk: Desk) -> str | None:
    """And not before."""
    remote, local = desk.remote(), desk.client()
    mine = desk.granted_to(remote)
    remote.kill()
    if expectation(desk.system, "client-kill", "leaked-lock").expected == "breaks":
        desk.denied(local, desk.lease_s)
        return STAYS_LOCKED
    desk.granted(local)
    _require_over(mine["valid_until_ns"])
    return None


def a_hold_lives_on_while_it_is_kept_alive(desk: Desk) -> None:
    """By heartbeats where the client sends them, else by extending it."""
    listener = _Listener()
    lock, other = desk.client(listener), desk.client()
    grant = desk.granted(lock)
    until = time.monotonic() + 1.5 * desk.lease_s
    while time.monotonic() < until:
        time.sleep(desk.lease_s / 4)
        if isinstance(lock, Extendable):
            again = lock.extend(grant.hold, desk.lease_s)
            if not isinstance(again, Granted) or again.valid_until_ns is None:
                raise Breach(f"an extend of a hold: {again}")
            listener.until_ns.append(again.valid_until_ns)
    _require(not listener.wrong, "; ".join(listener.wrong))
    if desk.system.limited:
        _require(bool(listener.until_ns), "nothing extended it, and it has no extend")
        _require(listener.until_ns[-1] > time.monotonic_ns(), "its last promise has ended")
    desk.denied(other)
    until_ns = listener.until_ns[-1] if listener.until_ns else grant.valid_until_ns
    _given_back(lock.release(grant.hold), until_ns)


def a_server_that_is_not_there_has_no_effect(desk: Desk) -> None:
    """An acquire that cannot have been sent is denied, not unknown."""
    nodes = [Address("127.0.0.1", 9)] * len(desk.running.nodes)
    with _fresh_sidecars():
        lock = desk.system.connect(nodes, timeout_s=0.2, ttl_s=desk.lease_s, observer=NoObserver())
        with closing(lock):
            answer = desk.take(lock, 0.3)
    reasons = ("no-effect", "gave-up: no-effect")
    said_so = isinstance(answer, Denied) and answer.reason.startswith(reasons)
    _require(said_so, f"an acquire where no server listens: {answer}")


def closing_twice_and_closing_unused(desk: Desk) -> None:
    """Neither raises."""
    used, unused = desk.client(), desk.client()
    desk.granted(used)
    for lock in (used, used, unused, unused):
        lock.close()


def paused_servers_make_a_release_unknown(desk: Desk) -> str | None:
    """And an acquire unknown or without effect; both within bounds. Afterwards it goes on."""
    cluster = desk.running.cluster
    if cluster is None:
        raise NotTriable("the cluster belongs to another process")
    if not isinstance(cluster, Pausable):
        raise NotTriable("the servers of this topology cannot be paused")
    lock, other = desk.client(), desk.client()
    desk.granted(other)
    desk.key = f"{desk.key}-2"
    # It must not have ended when it is given back.
    grant = desk.granted(lock, max(desk.lease_s, LEASE_S))
    cluster.pause(cluster.nodes)
    try:
        began = time.monotonic()
        freed = lock.release(grant.hold)
        _require(isinstance(freed, Unknown), f"a release while its servers are frozen: {freed}")
        answer = desk.take(other)
        nothing_sent = isinstance(answer, Denied) and answer.reason.startswith("no-effect")
        known = isinstance(answer, Unknown) or nothing_sent
        _require(known, f"an acquire while its servers are frozen: {answer}")
        other.close()
        took_s, limit_s = time.monotonic() - began, desk.system.gives_up_s
        _require(took_s < limit_s, f"frozen servers kept it for {took_s:.0f} s, not {limit_s:g} s")
    finally:
        cluster.unpause(cluster.nodes)
    cluster.verify()
    if expectation(desk.system, "pause", "leaked-lock").expected in MAY:
        if isinstance(desk.take(lock, desk.lease_s), Granted):
            return None
        desk.denied(lock)
        return STAYS_LOCKED
    desk.granted(lock)
    return None


# The one that may leave servers frozen comes last.
DUTIES: Final = tuple(
    Duty(hold_to.__name__, hold_to)
    for hold_to in (
        a_grant_is_promised_for_about_a_lease,
        a_try_is_denied_while_held,
        a_try_of_a_free_key_is_granted,
        a_released_hold_is_not_held,
        keys_do_not_touch_each_other,
        a_key_does_not_touch_those_that_begin_with_it,
        a_waiter_gets_it_after_the_release,
        a_wait_that_ran_out_leaves_nothing_behind,
        fences_grow,
        no_two_promises_overlap_under_contention,
        a_frozen_holder_loses_it_after_its_promise_and_not_before,
        a_killed_holder_leaves_the_lock_free_after_its_lease,
        a_hold_lives_on_while_it_is_kept_alive,
        a_server_that_is_not_there_has_no_effect,
        closing_twice_and_closing_unused,
        paused_servers_make_a_release_unknown,
    )
)


class _Listener:
    """An observer that keeps the promise as the checker would."""

    def __init__(self) -> None:
        self.until_ns: list[int] = []
        self.wrong: list[str] = []

    def extended(
        self, hold: Hold, *, sent_ns: int, acknowledged_ns: int, valid_until_ns: int
    ) -> None:
        """Each comes before the last promise has ended."""
        if self.until_ns and acknowledged_ns > self.until_ns[-1]:
            self.wrong.append("a renewal was acknowledged after the promise had ended")
        if not sent_ns <= acknowledged_ns <= time.monotonic_ns():
            self.wrong.append("a renewal was told in times that are out of order")
        self.until_ns.append(valid_until_ns)

    def lost(self, hold: Hold, *, alive_ns: int | None = None) -> None:
        """Nothing is to be lost."""
        self.wrong.append("it was announced as lost")


@contextmanager
def _fresh_sidecars() -> Iterator[None]:
    """Of jetcd a process has one client, made for the servers that it is first told of."""
    sidecar.close_shared()
    try:
        yield
    finally:
        sidecar.close_shared()


def _require(true: bool, otherwise: str) -> None:
    if not true:
        raise Breach(otherwise)


def _given_back(answer: Freed, valid_until_ns: int | None) -> None:
    """Raises NotTriable where the machine was slower than the lease: nothing is owed then."""
    over = valid_until_ns is not None and time.monotonic_ns() > valid_until_ns
    if isinstance(answer, NotHeld) and over:
        raise NotTriable("the machine was too slow: the promise ended before the release")
    _require(isinstance(answer, Released), f"a release of one's own hold: {answer}")


def _require_over(valid_until_ns: int | None) -> None:
    left_s = ((valid_until_ns or 0) - time.monotonic_ns()) / 1e9
    _require(left_s <= 0, f"it was granted again {left_s:.3f} s before the promise ended")
