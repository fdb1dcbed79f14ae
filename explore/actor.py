"""A client of a lock in a process of its own, which does one thing after the other as it is told.

It can be frozen and killed, with the sidecars that it has started. Every call is recorded as those
of the load are (``lockbench.workloads.caller``); what it renews in the background goes on between
the orders.
"""

from lockbench.explore import patched  # isort: skip  # noqa: F401 - first, for what it does

import logging
import os
import random
import socket
from pathlib import Path
from time import monotonic_ns

import msgspec

from lockbench.explore.orders import (
    ENVIRONMENT,
    Acquire,
    Answer,
    Claim,
    Close,
    Extend,
    Open,
    Order,
    Release,
    Start,
    Touch,
)
from lockbench.history.op import F, Type
from lockbench.history.recorder import Recorder
from lockbench.locks.base import Address, Backoff, Granted, Hold, Lock, Observer
from lockbench.locks.registry import find
from lockbench.locks.shared.library import library_of
from lockbench.locks.shared.sidecar import close_shared, failures
from lockbench.workloads.caller import Caller

log = logging.getLogger("lockbench.actor")

SEGMENT_RECORDS = 256
CLAIM_WAIT_S = 0.5
# Between the tries of a wait, of all plays alike: the k-th event is then the same message.
PAUSE_S = 0.15


class Actor:
    """What a process is between the orders."""

    def __init__(self) -> None:
        self._caller: Caller | None = None
        self._recorder: Recorder | None = None
        self._holds: list[Hold] = []

    def do(self, order: Order) -> Answer:
        """Does what it is told. A client that was never opened is a mistake of the bench."""
        match order:
            case Start(lock=lock):
                self._start(lock)
            case Open():
                self._open(order)
            case Close(sidecars=sidecars):
                self._close(sidecars=sidecars)
            case _:
                assert self._caller is not None
                return self._call(self._caller, order)
        return Answer()

    def _call(self, caller: Caller, order: Acquire | Extend | Touch | Release | Claim) -> Answer:
        match order:
            case Acquire(key=key, wait_s=wait_s, reads=reads):
                return self._noted(caller.acquire(key, wait_s, reads=reads))
            case Extend():
                if self._holds:
                    caller.extend(self._holds[-1])
            case Touch():
                if self._holds:
                    caller.touch(self._holds[-1])
            case Release():
                if self._holds:
                    caller.release(self._holds.pop())
            case Claim():
                return self._claim(caller, order)
        return Answer()

    def _start(self, lock: str) -> None:
        if library := library_of(find(lock)):
            library.started()

    def _open(self, order: Open) -> None:
        if order.seed is not None:
            random.seed(order.seed)
        system = find(order.lock)
        nodes = [Address(*node) for node in order.nodes]

        def connect(observer: Observer) -> Lock:
            return system.connect(
                nodes,
                timeout_s=order.pace.client_timeout_s,
                ttl_s=order.pace.lease_ttl_s,
                observer=observer,
            )

        self._holds.clear()
        if failures():  # of an earlier play
            close_shared()
        self._recorder = Recorder(Path(order.folder), order.number, segment_records=SEGMENT_RECORDS)
        self._caller = Caller(self._recorder, system, order.pace, connect, lambda _: None)

    def _close(self, *, sidecars: bool) -> None:
        """A client that could not be made has recorded nothing."""
        if self._caller is not None:
            self._caller.close()
        assert self._recorder is not None
        self._recorder.close()
        self._caller = None
        if not sidecars:
            close_shared()

    def _noted(self, granted: Granted | None) -> Answer:
        if granted is not None:
            self._holds.append(granted.hold)
        return Answer(granted=granted is not None)

    def _claim(self, caller: Caller, order: Claim) -> Answer:
        assert self._recorder is not None
        mark = self._recorder.invoke(caller.process, F.QUIET, order.key)
        self._recorder.complete(mark, Type.OK)
        patience_ns = caller.lease_ns + int(1e9 * order.slack_s)
        since_ns = began_ns = monotonic_ns()
        while True:
            last = monotonic_ns() > min(since_ns, began_ns + patience_ns) + patience_ns
            process = caller.process
            if caller.take_all(order.key, CLAIM_WAIT_S):
                return Answer(granted=True)
            if last:
                caller.take_all(order.spare, CLAIM_WAIT_S)
                return Answer()
            if caller.process != process:
                # An answer is missing: what was asked for may be held by this client itself.
                since_ns = monotonic_ns()


def main() -> None:
    """The whole life of the process."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    decoder = msgspec.json.Decoder(Order)
    actor = Actor()
    Backoff.every_s = PAUSE_S
    with socket.socket(socket.AF_UNIX) as channel:
        channel.connect(os.environ[ENVIRONMENT])
        with channel.makefile("rwb") as lines:
            for line in lines:
                try:
                    answer = actor.do(decoder.decode(line))
                except Exception as error:  # the bench tells it
                    log.exception("the order %s failed", line)
                    answer = Answer(failed=f"{type(error).__name__}: {error}")
                lines.write(msgspec.json.encode(answer) + b"\n")
                lines.flush()
    # Connections are left to the kernel.
    logging.shutdown()
    os._exit(0)
