"""Redlock: a majority of independent Redis nodes.

https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/#the-redlock-algorithm

Acquire asks all nodes at once for ``SET key token NX PX ttl`` and stops listening at a majority, or
when none can be reached any more. Without a majority, or with one that came too late, the token is
deleted again wherever it may be. Waiting is polling with jittered pauses, as in ``redis-token``.

The promise is the algorithm's, ttl - elapsed - drift, where drift is 1 % of the ttl and 2 ms: when
the first SET of the round was sent (what comes before, to connect and to load scripts, is no part
of it), plus ttl, minus drift. The nodes keep it for longer. Each keeps the token for a ttl from
when it ran SET, so with ``a`` acknowledgements of ``n`` nodes, all of them after the first SET was
sent, nobody else can have a majority until ``a - (n - quorum)`` of these have ended; with a bare
majority that is the first one. Extend by the same reckoning, from its first script.

A node that does not answer delays nobody (``lockbench.locks.redis.redlock_nodes``): its answer is
read when it comes. Release and clean-up go to it too, on the connection that the SET went, so a SET
that runs late is followed at once by its deletion. If that connection has broken, the clean-up of a
try goes on the next one. Every try has a token of its own: a deletion that is still under way
cannot hit the next try.

Does not guarantee: anything once a majority has lost its data, unless restarts are delayed by more
than the ttl; that a holder stops when its time is over; a fence.

A hold exists when a majority of nodes has its token. So this is what the answers mean (``OUTCOMES``
holds the same as data):

- Acquire. A node *may have* the token if SET was sent to it and neither SET was refused nor the
  deletion that followed acknowledged; a broken connection after SET leaves it at that. If fewer
  than a majority may have it, no majority ever can: certainly not held, Denied. What a minority may
  keep hinders others for a ttl at most and lets nobody in. Otherwise Unknown. An error reply to SET
  is a refusal. No SET sent to any node: no effect.
- Release. Deleted by a majority: the hold existed and is gone. Not there on so many that no
  majority can have had it: NotHeld. Neither, because some do not answer: Unknown.
- Extend, by the same count; extended by a majority after the new promise has ended: Unknown.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import hiredis

from lockbench.locks.bare import Bare
from lockbench.locks.base import (
    ANY,
    Acquired,
    Address,
    Backoff,
    BackoffStyle,
    Deadline,
    Denied,
    Extended,
    Freed,
    Granted,
    Hold,
    NotHeld,
    Observer,
    Released,
    System,
    Unknown,
    token_of,
)
from lockbench.locks.redis.expectations import LOCK_DOC, REDLOCK
from lockbench.locks.redis.link import BARE_CYCLE, DELETE_OWN, EXTEND_OWN, Script
from lockbench.locks.redis.recipe import PARAMETERS, POLL_MAX_S, POLL_MIN_S, WAITS_BY
from lockbench.locks.redis.redlock_nodes import Nodes, Question
from lockbench.locks.shared.tenures import redis_entry

NO_MAJORITY = "gave-up: no majority answered"
NODE_TIMEOUT_SHARE = 0.1  # of the ttl: how long nodes are waited for, if a majority needs them


class Handle(NamedTuple):
    """What a hold needs to be given back."""

    token: str
    asked: set[int]  # the nodes that SET was sent to; no other can have the token


class Redlock:
    """One client of the lock."""

    def __init__(
        self,
        nodes: Sequence[Address],
        *,
        timeout_s: float,
        ttl_s: float,
        observer: Observer,  # nothing happens in the background
        backoff: BackoffStyle = "jitter",
    ) -> None:
        self._backoff: BackoffStyle = backoff
        self._limit_s = min(timeout_s, NODE_TIMEOUT_SHARE * ttl_s)
        self._all = set(range(len(nodes)))
        self._quorum = len(nodes) // 2 + 1
        scripts = [Question("SCRIPT", "LOAD", script.text) for script in (DELETE_OWN, EXTEND_OWN)]
        self._nodes = Nodes(nodes, timeout_s=timeout_s, greeting=scripts)

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        """Tries until a majority grants or the wait is over."""
        deadline = Deadline(wait_s)
        backoff = Backoff(POLL_MIN_S, POLL_MAX_S, self._backoff)
        unsure: Unknown | None = None
        tries = 0
        while True:
            last = deadline.over()
            answer = self._try(key, hold_id, f"{token_of(hold_id)}.{tries}", ttl_s)
            if isinstance(answer, Granted):
                return answer
            if isinstance(answer, Unknown):
                unsure = answer
            elif wait_s > 0 and not answer.reason.startswith("gave-up"):
                answer = Denied(f"gave-up: {answer.reason}")
            if last:
                return unsure or answer
            tries += 1
            backoff.pause(deadline.left_s())

    def release(self, hold: Hold) -> Freed:
        """Deletes the token from all nodes, behind whatever was sent there before."""
        question = _script(DELETE_OWN, hold)
        said = self._vote(question, hold)
        # Who is not connected just now hears of it on its next connection.
        self._nodes.tell(question, hold.handle.asked - question.asked)
        if said is None:
            return Unknown("release: no majority answered")
        return Released() if said else NotHeld()

    def extend(self, hold: Hold, ttl_s: float) -> Extended:
        """Starts the time to live again on a majority."""
        ttl_ms = int(ttl_s * 1000)
        question = _script(EXTEND_OWN, hold, ttl_ms)
        said = self._vote(question, hold)
        valid_until_ns = _valid_until_ns(question.sent_ns, ttl_ms)
        if said is None or (said and time.monotonic_ns() >= valid_until_ns):
            return Unknown("extend: no majority answered in time")
        return Granted(hold, None, question.sent_ns, valid_until_ns) if said else NotHeld()

    def close(self) -> None:
        self._nodes.close()

    def _try(self, key: str, hold_id: int, token: str, ttl_s: float) -> Acquired:
        ttl_ms = int(ttl_s * 1000)
        ask = Question("SET", key, token, "NX", "PX", ttl_ms)
        hold = Hold(hold_id, key, Handle(token, ask.asked))
        self._nodes.drain()
        among = {number for number in self._all if not self._nodes.nodes[number].full}

        def decided(hoped_for: set[int]) -> bool:
            granted = len(_granted(ask))
            return granted >= self._quorum or granted + len(hoped_for) < self._quorum

        self._nodes.ask(ask, among, decided, self._limit_s)
        valid_until_ns = _valid_until_ns(ask.sent_ns, ttl_ms)
        granted = len(_granted(ask))
        if granted >= self._quorum and time.monotonic_ns() < valid_until_ns:
            return Granted(hold, None, ask.sent_ns, valid_until_ns)
        return self._undo(hold, ask)

    def _undo(self, hold: Hold, ask: Question) -> Acquired:
        """Deletes the token wherever it may be; waits for that while a majority may have it."""
        delete = _script(DELETE_OWN, hold)
        refused = {n for n, answer in ask.answers.items() if not _is_grant(answer)}

        def may_have() -> set[int]:
            # An owed SET may be answered while its deletion is waited for.
            said_no = {n for n, answer in ask.answers.items() if not _is_grant(answer)}
            return ask.asked - said_no - set(_numbers(delete))

        def harmless(_: set[int]) -> bool:
            return len(may_have()) < self._quorum

        if not harmless(set()):
            self._nodes.ask(delete, ask.asked - refused - ask.lost, harmless, self._limit_s)
        self._nodes.tell(delete, ask.asked - refused - delete.asked)
        if not harmless(set()):
            return Unknown(f"{len(may_have())} of {len(self._all)} nodes may have granted")
        if not ask.asked:
            return Denied("no-effect: no node is connected")
        if sum(answer is None for answer in ask.answers.values()) >= self._quorum:
            return Denied("held")
        granted = len(_granted(ask))
        # An error says nothing about the key.
        if granted + sum(answer is None for answer in ask.answers.values()) < self._quorum:
            return Denied(NO_MAJORITY)
        return Denied(f"gave-up: granted by {granted}, refused by {len(refused)}")

    def _vote(self, question: Question, hold: Hold) -> bool | None:
        """What a majority answers to a script: it was done (True), it could not (False). A node
        that was never asked for the hold has nothing to say but no."""
        asked: set[int] = hold.handle.asked

        never_asked = len(self._all - asked)

        def tally() -> tuple[int, int]:
            numbers = _numbers(question).values()
            done = sum(map(bool, numbers))
            return done, len(numbers) - done + never_asked

        def decided(_: set[int]) -> bool:
            done, not_there = tally()
            return done >= self._quorum or not_there > len(self._all) - self._quorum

        self._nodes.ask(question, asked, decided, self._limit_s)
        done, not_there = tally()
        if done >= self._quorum:
            return True
        return False if not_there > len(self._all) - self._quorum else None


def _valid_until_ns(sent_ns: int, ttl_ms: int) -> int:
    drift_ns = ttl_ms * 10_000 + 2_000_000  # 1 % and 2 ms
    return sent_ns + ttl_ms * 1_000_000 - drift_ns


def _script(script: Script, hold: Hold, *arguments: int) -> Question:
    """By its name: the greeting of each connection has loaded the text."""
    return Question("EVALSHA", script.sha, 1, hold.key, hold.handle.token, *arguments)


def _is_grant(answer: Any) -> bool:
    return bool(answer == b"OK")


def _granted(ask: Question) -> list[int]:
    return [number for number, answer in ask.answers.items() if _is_grant(answer)]


def _numbers(question: Question) -> dict[int, int]:
    """What the script returned, by node. An error reply says nothing about the key."""
    return {
        number: int(answer)
        for number, answer in question.answers.items()
        if not isinstance(answer, hiredis.ReplyError)
    }


SYSTEM = System(
    name="redlock",
    topologies=("redlock",),
    suites={"quick": (ANY,)},
    family="redis",
    fence=None,
    waits_by=WAITS_BY,
    source=f"{LOCK_DOC}#the-redlock-algorithm",
    connect=Redlock,
    outcomes={
        "acquire: no node connected": "Denied: no-effect",
        "acquire: majority refuses": "Denied: held",
        "acquire: majority replies with errors": "Denied: gave-up",
        "acquire: split, one closes": "Denied: gave-up",
        "acquire: minority silent, rest split": "Denied: gave-up",
        "acquire: majority silent": "Unknown",
        "acquire: majority closes": "Unknown",
        "acquire: majority too late, deleted": "Denied: gave-up",
        "release: majority closes": "Unknown",
        "release: majority silent": "Unknown",
        "release: majority replies with errors": "Unknown",
        "release: majority has forgotten": "NotHeld",
        "release: minority silent": "Released",
    },
    elsewhere=True,
    expectations=REDLOCK,
    parameters=PARAMETERS,
    entry=redis_entry,
    bare=(Bare("redlock", BARE_CYCLE),),
)
