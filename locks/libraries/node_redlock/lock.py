"""The Redlock libraries of Node, over ioredis at its defaults, behind the Node sidecar.

``node-redlock``            ``redlock`` 4.2.0 (https://github.com/mike-marcacci/node-redlock), the
                            last stable version, which ``npm install redlock`` installs
``node-redlock-5``          5.0.0-beta.2, which its README describes, with another API
``node-redlock-5-using``    ``using`` of the same: it extends the lock half a second before its end
                            (``automaticExtensionThreshold``) as long as the routine runs
``sesamecare-redlock``      ``@sesamecare-oss/redlock`` 1.4.0, a derivative of that beta
``sesamecare-redlock-using``  ``using`` of that

All of them ask every server at once with a script, and count as granted what a quorum has set. They
try eleven times, 100 to 300 ms apart; the bench asks again until its wait is over, and a try of the
bench is one (``retryCount: 0``). ioredis has no limit for an answer, sends again what was in flight
when its connection broke, and keeps what it cannot send until 20 connections have failed. The
``-safe`` ones set the client timeout for every command, send nothing again and keep nothing; their
``release`` and ``extend`` are one attempt, and a wait has as many retries as fit.

What differs (``redlock.js`` of 4.2.0; ``src/index.ts`` of 5.0.0-beta.2 and of sesamecare 1.4.0):

- 4.2.0 waits in each attempt for the answer of every server, so one that is silent holds up all of
  them; the others go on with a quorum of yes or of no.
- 4.2.0 looks at the clock before it grants (``lock.expiration > Date.now()``). The others return a
  lock however old its request is (node-redlock#369).
- 4.2.0 deletes its key everywhere after each attempt that failed. The others do so after the last
  one: until then their own key on some servers refuses their own retries, and those of others. On
  five servers, two who ask at once may shut each other out for two seconds.
- In 4.2.0 an extension is such an attempt: one that fails deletes the lock that it was to extend.
- The beta counts ``lock.expiration`` from before its retries, and refuses to extend what it takes
  for expired (node-redlock#299, #296; fixed in #274 and #276, which were never released).
  sesamecare counts it from the attempt.
- A release that finds no key on a quorum is an error; in the two newer ones only after all retries,
  which take two seconds (node-redlock#168).
- ``using`` aborts its ``AbortSignal`` when extensions failed until the time was over. That is told
  as a loss; the routine goes on.

All look at the wall clock (``Date.now()``) for the age of an attempt, for whether a lock may still
be extended, and for when ``using`` extends it: a clock that is set forward by more than is left of
a lock refuses to extend it, one that is set back lets ``using`` sleep through its end. The fault
``client-clock-jump`` does not reach Node.

The promise is what all of them subtract, a hundredth of the time to live and 2 ms, from that time
to live after the attempt that set the key began: before its first command. Each server that set the
key did so later. So ``lock.expiration`` says it, except for the retries of the beta. An extension,
and each of ``using``, likewise.

Does not guarantee: what ``redlock`` does not. They offer no fence.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lockbench.locks.base import System
from lockbench.locks.redis.expectations import REDLOCK
from lockbench.locks.shared.client_container import ContainerLibrary
from lockbench.locks.shared.client_programs import LIMIT, NODE_IMAGE, Program
from lockbench.locks.shared.expectations import (
    ANSWERS_LOST,
    CUT,
    RESTARTED,
    SERVER_CLOCKS,
    UNMOVED,
    Faults,
    may_be_late,
    may_break,
    with_changes,
)
from lockbench.locks.shared.library import as_safe

REPOSITORY = "https://github.com/mike-marcacci/node-redlock"
SESAMECARE = "https://github.com/sesamecare/redlock"
STABLE = "https://www.npmjs.com/package/redlock/v/4.2.0"
_SENT_AGAIN = may_break(
    "https://github.com/redis/ioredis/blob/main/lib/redis/RedisOptions.ts: "
    "autoResendUnfulfilledCommands is true, so a script is sent again when its connection broke; "
    "one that releases then finds no key",
    "linearizable",
    kind="defect",
)
_LATE = (
    "{}/blob/main/src/index.ts: acquire returns a lock when a quorum has set the key, and does not "
    "look how long ago it was asked (node-redlock#369)"
)
_REFUSES = (
    "{}/blob/main/src/index.ts: what a try has set is deleted after the last one, and refuses the "
    "next ones (node-redlock#369); so one of those who wait has to have a quorum of the emptied "
    "servers at once"
)
_UNLOCKS = may_break(
    f"{STABLE}, redlock.js: an attempt to extend that fails is followed by lock.unlock(), as one "
    "to lock is; others are let in, though the time that the lock was granted for is not over",
    *("double-grant", "lost-update", "linearizable"),
    kind="defect",
)
_EARLY = may_break(
    f"{REPOSITORY}/issues/299: expiration counts from before the retries, so a lock that was "
    "waited for is taken for expired, and is not extended, while its key lives",
    "linearizable",
    kind="defect",
)
_TOLD = (
    "{}#usage: when an extension failed, the AbortSignal tells the routine, which goes on until it "
    "looks"
)


def _resent(usual: Faults) -> Faults:
    faults = ("wipe", *RESTARTED, *ANSWERS_LOST)
    return with_changes(usual, dict.fromkeys(faults, _SENT_AGAIN))


def _renewed(usual: Faults, source: str) -> Faults:
    """``usual`` with what follows from extensions: a promise that was lengthened is over when its
    user is told so, and the user may act after that."""
    faults = ("wipe", *RESTARTED, "pause", *CUT, *SERVER_CLOCKS)
    told = may_break(_TOLD.format(source), "stale-holder")
    return with_changes(usual, dict.fromkeys(faults, told))


def _left_behind(source: str) -> Faults:
    """Redlock's, of a library that looks at no clock and leaves behind what a try has set."""
    return with_changes(
        may_be_late(REDLOCK, _LATE.format(source)),
        {"wipe": may_break(_REFUSES.format(source), "double-grant")},
    )


# Of the bench's faults only this one is aimed at an extension.
_OF_STABLE = with_changes(REDLOCK, {"reply-lost": _UNLOCKS})
_OF_BETA = with_changes(_left_behind(REPOSITORY), {"reply-lost": _EARLY})
_OF_SESAMECARE = _left_behind(SESAMECARE)
# ioredis waits for up to 5.2 s between two connections that fail (RedisOptions.ts, retryStrategy).
_RECONNECTS_S = 5.5

_STABLE = Program(
    library="redlock",
    source="node_redlock.js",
    call="new Redlock(clients, options).acquire([key], lease)",
    client="a Redlock over an ioredis client for each server; all clients are in one thread",
    stands_on=("ioredis",),
    settings={"retryCount": "one try: 0"},
    safe={
        "retryCount": "0; of an acquire that waits, as many as fit, 10 at most",
        "ioredis.connectTimeout": LIMIT,
        "ioredis.commandTimeout": LIMIT,
        "ioredis.maxRetriesPerRequest": "0",
        "ioredis.autoResendUnfulfilledCommands": "false",
        "ioredis.enableOfflineQueue": "false",
    },
)
_BETA = replace(_STABLE, library="redlock-5")
_SESAMECARE = replace(_STABLE, library="@sesamecare-oss/redlock")


def _outcomes(acquire: str, refusal: str, **more: str) -> dict[str, str]:
    return {
        f"{acquire} gave a lock": "Granted",
        f"{acquire}: {refusal}, one try, refused by a quorum": "Denied: held",
        f"{acquire}: {refusal}, no quorum can have the key": "Denied: gave-up",
        f"{acquire}: {refusal}, nothing could be sent": "Denied: no-effect",
        f"{acquire}: {refusal}, a quorum may have the key": "Unknown",
        "release() resolved": "Released",
        f"release(): {refusal}, no quorum can have had the key": "NotHeld",
        f"release(): {refusal} otherwise": "Unknown",
        "anything else thrown": "Unknown",
        **more,
    }


def _extending(refusal: str) -> dict[str, str]:
    return {
        "extend() gave a lock": "Granted",
        f"extend(): {refusal}, it has expired": "NotHeld",
        f"extend(): {refusal}, no quorum can have had the key": "NotHeld",
        f"extend(): {refusal} otherwise": "Unknown",
    }


# The error of 4.2.0 that its user can name, and those of the two others.
_RAISED_BY_STABLE = {"LockError": f"{STABLE}, redlock.js: Redlock.LockError"}


def _exported(source: str) -> dict[str, str]:
    return dict.fromkeys(
        ("ExecutionError", "ResourceLockedError"), f"{source}/blob/main/src/index.ts: exported"
    )


def _system(name: str, program: Program, source: str, expectations: Faults, **more: Any) -> System:
    library = ContainerLibrary(NODE_IMAGE, name, program, extends=not name.endswith("-using"))
    return System(
        name=name,
        topologies=("redlock", "redis"),
        family="redis",
        fence=None,
        waits_by="polling, eleven tries with pauses of 100 to 300 ms, again and again",
        source=source,
        connect=library.connect,
        elsewhere=True,
        settles_s=_RECONNECTS_S,
        prepare=library.prepare,
        expectations={**_resent(expectations), **UNMOVED},
        **{
            "outcomes": _outcomes("acquire()", "ExecutionError") | _extending("ExecutionError"),
            "raises": _exported(source),
            **more,
        },
    )


def _using(name: str, program: Program, source: str, expectations: Faults) -> System:
    return _system(
        name,
        replace(
            program,
            call="new Redlock(clients).using([key], lease, settings, routine)",
            settings={
                **program.settings,
                "redlock.extend": "replaced by one that tells of each extension beside it",
            },
        ),
        source,
        _renewed(expectations, source),
        outcomes=_outcomes("using()", "ExecutionError"),
        not_owed={
            "paused_servers_make_a_release_unknown": (
                "at its defaults ioredis waits for an answer as long as it takes"
            ),
            "a_server_that_is_not_there_has_no_effect": (
                "at its defaults ioredis keeps what it cannot send until 20 connections failed"
            ),
        },
        variant=True,
    )


_NODE_REDLOCK = _system(
    "node-redlock",
    _STABLE,
    STABLE,
    _OF_STABLE,
    outcomes=_outcomes("acquire()", "LockError") | _extending("LockError"),
    raises=_RAISED_BY_STABLE,
)
_NODE_REDLOCK_5 = _system("node-redlock-5", _BETA, REPOSITORY, _OF_BETA)
_SESAMECARE_REDLOCK = _system("sesamecare-redlock", _SESAMECARE, SESAMECARE, _OF_SESAMECARE)

SYSTEMS = (
    _NODE_REDLOCK,
    as_safe(_NODE_REDLOCK, expectations={**_OF_STABLE, **UNMOVED}),
    _NODE_REDLOCK_5,
    as_safe(_NODE_REDLOCK_5, expectations={**_OF_BETA, **UNMOVED}, represents=True),
    _using("node-redlock-5-using", _BETA, REPOSITORY, _OF_BETA),
    _SESAMECARE_REDLOCK,
    as_safe(_SESAMECARE_REDLOCK, expectations={**_OF_SESAMECARE, **UNMOVED}),
    _using("sesamecare-redlock-using", _SESAMECARE, SESAMECARE, _OF_SESAMECARE),
)
