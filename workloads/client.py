"""One client of the load: does lock cycles and records every one of them.

A cycle is: acquire, the workload's job (``lockbench.workloads.base``), release. A job that is
recorded as a whole (``F.JOB``) begins before the lock is asked for and is done when its work is,
under a process number of its own.
"""

from __future__ import annotations

import random
from typing import Final

import gevent

from lockbench.history.op import NULL, F, Type
from lockbench.history.recorder import Handle
from lockbench.stores.base import Away
from lockbench.workloads.base import Job
from lockbench.workloads.caller import OK, Caller, Tell
from lockbench.workloads.load import AIMED_KEY, FLOOR_KEY
from lockbench.workloads.resource import Resource
from lockbench.workloads.session import Session
from lockbench.workloads.use import Keep, Use

# What a fault is aimed at, and what the client costs, is held alone.
ALONE: Final = frozenset({AIMED_KEY, FLOOR_KEY})


class Client(Caller):
    """Used by one greenlet."""

    def __init__(self, session: Session, tell: Tell, number: int = 0) -> None:
        pace = session.load.pace
        super().__init__(session.recorder, session.system, pace, session.connect, tell)
        self._session = session
        self.resource = Resource(session.load.resource)
        self.store = session.guarded_store()
        self.sends_again = session.sends_again
        self._guarded = self.pace.touch_resource and session.system.kind != "semaphore"
        job = self._job = session.asked.workload.job(session.asked.options)
        job.number = number
        self._work = job.work
        # Most jobs have none of these, and a call that does nothing costs a cycle as much.
        self._first = job.first if type(job).first is not Job.first else None
        self._begin = job.begin if type(job).begin is not Job.begin else None
        self._end = job.end if type(job).end is not Job.end else None
        self._timed = session.recorder.new_process() if session.asked.workload.timed else None
        self._may_share = self._shareable is not None or self._job.reads_anyway
        self.hold_for = session.lasting()  # seconds → spends about that time
        self._draws = random.Random(f"{session.load.seed} {self.process}")

    def cycle(
        self, key: str, keep: Keep, *, intended_ns: int = NULL, wait_s: float | None = None
    ) -> bool:
        """One cycle; returns whether the lock was granted. After a refusal or an unknown outcome it
        pauses for the declared time."""
        session = self._session
        session.busy += 1
        session.show_busy(session.busy)
        try:
            if self._first is not None:
                key = self._first(key)
            thing = NULL if self._begin is None else self._begin(self.resource, key)
            whole = None if self._timed is None else self._begun(key, thing, intended_ns)
            reads = self._may_share and self._only_reads(key)
            granted = self.acquire(key, wait_s, intended_ns=intended_ns, reads=reads)
            done = unknown = False
            if granted is not None:
                process = self.process
                use = Use(self, granted, keep, thing=thing, reads=reads, guarded=self._guarded)
                try:
                    done = self._work(use) is not False
                except Away:
                    done = False
                unknown = not done and self.process != process
                self.release(granted.hold)
            if whole is not None:
                self._ended(whole, done=done, unknown=unknown, granted=granted is not None)
            if self._end is not None:
                self._end(self.resource, key, thing, done=done)
        except Exception as error:
            # The resource is out of every fault's reach, so this is the bench's own failure.
            session.count_failed(error)
            raise
        else:
            if not done:
                gevent.sleep(self.pace.retry_pause_s)
            return done
        finally:
            session.busy -= 1
            session.show_busy(session.busy)

    def _begun(self, key: str, thing: int, intended_ns: int) -> Handle:
        assert self._timed is not None
        return self.recorder.invoke(self._timed, F.JOB, key, version=thing, intended_ns=intended_ns)

    def _ended(self, whole: Handle, *, done: bool, unknown: bool, granted: bool) -> None:
        error = None if done else "not-done" if granted else "not-granted"
        outcome = OK if done else Type.INFO if unknown else Type.FAIL
        self.recorder.complete(whole, outcome, error=error)
        if unknown:
            self._timed = self.recorder.new_process()

    def close(self) -> None:
        """Drops the connections, that to the resource too."""
        self.resource.close()
        if self.store is not None:
            self.store.close()
        super().close()

    def _only_reads(self, key: str) -> bool:
        """Drawn for each cycle."""
        return key not in ALONE and self._draws.random() < self._job.reads_share
