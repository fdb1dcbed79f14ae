"""One client of a way to do without a lock (``lockbench.locks.without``): does jobs and records
every try.

A try is an effect: done (``value`` is its place), refused because it was done before, certainly not
done because somebody else was first, or unknown. After the last two it is tried again, with the
same number, until the wait is over: what the job asks for is delivered at least once, and the way
has to see to it that it is done once.
"""

from __future__ import annotations

from functools import partial
from time import monotonic_ns

from lockbench.history.op import NULL, F, Type
from lockbench.locks.base import Backoff, Deadline, Granted, Hold, NoObserver, Unknown, new_hold_id
from lockbench.locks.without.base import Conflict, Done, DoneAlready, Outcome, Thinking, Way
from lockbench.workloads.caller import Tell
from lockbench.workloads.resource import Resource
from lockbench.workloads.session import Session
from lockbench.workloads.use import Keep, Lasting

RETRY_MIN_S = 0.002
RETRY_MAX_S = 0.05


class WayClient:
    """Used by one greenlet, like ``lockbench.workloads.client.Client``."""

    def __init__(self, session: Session, tell: Tell, number: int = 0) -> None:
        self._session = session
        self._recorder = session.recorder
        self._pace = session.load.pace
        self._tell = tell
        self._process = session.recorder.new_process()
        self._whole = session.recorder.new_process()
        self._resource = Resource(session.load.resource)
        way = session.connect(NoObserver())
        assert isinstance(way, Way)
        self._way: Way = way
        self._job = session.asked.workload.job(session.asked.options)
        self._job.number = number
        self.hold_for = session.lasting()

    def cycle(
        self, key: str, keep: Keep, *, intended_ns: int = NULL, wait_s: float | None = None
    ) -> bool:
        """One job; returns whether it is known to be done."""
        self._session.count_busy(+1)
        try:
            message = self._job.begin(self._resource, key)
            by = new_hold_id()
            # A job without numbers of its own does a new thing each time.
            thing = by if message == NULL else message
            began_ns = monotonic_ns()
            whole = self._recorder.invoke(
                self._whole, F.JOB, key, version=thing, intended_ns=intended_ns, invoke_ns=began_ns
            )
            outcome, error = self._until_done(key, thing, by, keep, wait_s)
            done = outcome is Type.OK
            self._recorder.complete(whole, outcome, error=error)
            if outcome is Type.INFO:
                self._whole = self._recorder.new_process()
            self._job.end(self._resource, key, message, done=done)
            self._tell(("job", began_ns, monotonic_ns(), error))
        except Exception as error:
            # The broker is out of every fault's reach, so this is the bench's own failure.
            self._session.count_failed(error)
            raise
        else:
            return done
        finally:
            self._session.count_busy(-1)

    def extend(self, hold: Hold) -> None:
        """There is nothing to extend."""

    def stopped(self) -> None:
        """It holds nothing."""

    def close(self) -> None:
        self._resource.close()
        self._way.close()

    def _until_done(
        self, key: str, thing: int, by: int, keep: Keep, wait_s: float | None
    ) -> tuple[Type, str | None]:
        """Ok, fail (certainly not done) or info (after a try of unknown outcome), and why."""
        deadline = Deadline(self._pace.wait_s if wait_s is None else wait_s)
        backoff = Backoff(RETRY_MIN_S, RETRY_MAX_S)
        work = self._work(key, by, keep)
        worst = Type.FAIL
        while True:
            outcome = self._try(key, thing, by, work)
            if isinstance(outcome, Unknown):
                worst = Type.INFO
            match outcome:
                case Done() | DoneAlready():
                    return Type.OK, None
                case Conflict(reason=reason) | Unknown(reason=reason):
                    if deadline.over():
                        return worst, f"gave-up: {reason}"
            backoff.pause(deadline.left_s())

    def _try(self, key: str, thing: int, by: int, work: Thinking) -> Outcome:
        handle = self._recorder.invoke(self._process, F.EFFECT, key, hold=by, version=thing)
        outcome = self._way.do(key, thing, by=by, work=work)
        match outcome:
            case Done(place=place):
                self._recorder.complete(handle, Type.OK, value=place)
            case DoneAlready():
                self._recorder.complete(handle, Type.FAIL, error="no-effect: done already")
            case Conflict(reason=reason):
                self._recorder.complete(handle, Type.FAIL, error=reason)
            case Unknown(reason=reason):
                self._recorder.complete(handle, Type.INFO, error=reason)
                self._process = self._recorder.new_process()
        return outcome

    def _work(self, key: str, by: int, keep: Keep) -> Thinking:
        """The work of a job. What the nemesis aims at takes it for a hold without limit."""
        if isinstance(keep, Lasting):
            return Thinking(keep.spend, keep.seconds)
        return Thinking(partial(keep, Granted(Hold(by, key), None, monotonic_ns(), None)))
