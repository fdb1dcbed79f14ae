"""Redisson's locks (https://redisson.pro/docs/data-and-services/locks-and-synchronizers/), behind
the JVM sidecar: one ``RedissonClient`` per server and process at its defaults, and a thread per
client, which is what Redisson takes for an owner.

``redisson-rlock``        ``getLock(key).tryLock(wait, -1)``: the watchdog renews it. Its time,
                          ``lockWatchdogTimeout``, is the lease; with the default of 30 s every
                          fault would last ten times as long.
``redisson-rlock-safe``   the same with the client timeout on every request, and no retries
``redisson-rlock-lease``  with the lease as its lease time, and no watchdog; so have the next four
``redisson-fair``         ``getFairLock``. Its ``unlock`` throws nothing where nobody holds it
``redisson-fenced``       ``getFencedLock(key).tryLockAndGetToken``: a fence from ``INCR``
``redisson-spin``         ``getSpinLock``: polls
``redisson-multilock``    ``RedissonMultiLock`` of one lock on each of five servers: all of them
``redisson-redlock``      the deprecated ``RedissonRedLock`` of the same: most of them. Its
                          ``unlock`` swallows what each of them says
``redisson-rlock-sentinel``, ``redisson-rlock-cluster``  as ``redisson-rlock``, with replicas: a
                          grant is waited for on those that the primary calls connected
                          (``checkLockSyncedSlaves``)
``redisson-rlock-sentinel-unsynced``  without that

The promise is the lease, from when the last answered script that set it was written to a
connection (Redisson 4.7.0):

- one lock: the script that takes it (``RedissonLock.java``, ``tryLockInnerAsync``, and the same of
  ``RedissonFairLock``, ``RedissonFencedLock``, ``RedissonSpinLock``). It sets the lease at the
  server when it answers nil, and is not sent again once it was written
  (``evalWriteSyncedNoRetryAsync``). ``WAIT`` for replicas comes after it and lengthens nothing;
- the watchdog: each renewal that answers with the key (``renewal/LockTask.java``);
- several locks: ``RedissonMultiLock.java``, ``tryLock``, takes them one by one, for twice the wait
  where there is one, and ends with ``expireAsync`` on each that it has
  (``RedissonExpirable.java``), one after the other. That sets the lease again, shorter or longer.
  It answers whether there was a key, whoever's; so it counts where its answer came within the lease
  before it, and else the earlier one stands; where there was none, that lock is over. One that was
  not answered is sent again and may have taken effect both times, so the earlier end counts.
  ``tryLock`` looks at none of these answers. The promise lasts while enough of those that were
  taken do: all, or of ``RedissonRedLock`` most of the servers (``minLocksAmount``).

Redisson tells its user none of this, nor that a lock was lost: a watchdog that finds the key gone
stops without a word.

Does not guarantee: what ``redis-token``, ``redlock`` and ``redis-sentinel`` do not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lockbench.locks.base import ANY, System
from lockbench.locks.redis import cluster as redis_cluster
from lockbench.locks.redis import fence as redis_fence
from lockbench.locks.redis import sentinel as redis_sentinel
from lockbench.locks.redis import sentinel_wait as redis_sentinel_wait
from lockbench.locks.redis.expectations import LEASE, REDLOCK
from lockbench.locks.redis.watchdog import SYSTEM as WATCHDOG
from lockbench.locks.shared.client_container import ContainerLibrary
from lockbench.locks.shared.client_programs import JVM, JVM_IMAGE, LIMIT, THE_LEASE, Program
from lockbench.locks.shared.expectations import (
    ANSWERS_LOST,
    MAY_BE_LATE,
    PAUSED,
    RESTARTED,
    SERVER_CLOCKS,
    UNMOVED,
    Faults,
    confirmed_between,
    holds,
    may_be_late,
    may_break,
    with_changes,
    with_verdicts,
)
from lockbench.locks.shared.library import as_safe

DOC = "https://redisson.pro/docs/data-and-services/locks-and-synchronizers/"
_LATE = (
    "https://github.com/redisson/redisson/blob/master/redisson/src/main/java/org/redisson/"
    "RedissonLock.java: tryLock returns true when the script has set the key, and does not look "
    "how long ago it was sent"
)
_NOT_READ = (
    "https://github.com/redisson/redisson/blob/master/redisson/src/main/java/org/redisson/"
    "RedissonMultiLock.java: tryLock sets the lease of each lock once more when it has them all, "
    "and does not look whether that server still had its key"
)
_KEY_ENDED = dict.fromkeys(SERVER_CLOCKS, may_break(_NOT_READ, "late-grant", kind="defect"))
_SAME_OWNER = (
    "https://github.com/redisson/redisson/blob/master/redisson/src/main/java/org/redisson/"
    "RedissonLock.java: the owner of a key is client and thread, and not the hold. An unlock() "
    "that got no answer in time, and comes to the server after the next tryLock() of the same "
    "thread, ends that hold (docs/track/redisson-late-unlock.md)"
)
_RETRIES_LATER = (
    "https://github.com/redisson/redisson/issues/4822: the reporter saw both sides of a failover "
    "hold a lock"
)
_ACTUAL_SLAVES = may_break(
    "https://github.com/redisson/redisson/blob/master/redisson/src/main/java/org/redisson/config/"
    "Config.java: checkLockSyncedSlaves compares with the 'actual slaves amount', which is what "
    "the primary calls connected; with none connected it grants without any",
    *("double-grant", "lost-update"),
)
_ALL_OF = f"{DOC} (MultiLock): it is acquired when every one of its locks is"
_SWALLOWS = (
    "https://github.com/redisson/redisson/blob/master/redisson/src/main/java/org/redisson/"
    "RedissonMultiLock.java: unlockInner, which is the unlock of RedissonRedLock, swallows what "
    "the unlock of each server throws, and so returns for a lock that is not held"
)

_WAITS_FOR_THE_DEAD = may_break(
    f"{DOC} (Fair Lock): 'if some thread has died then Redisson waits its return for 5 seconds'; "
    "in 4.7.0 it is as long as that thread wanted to wait, or fairLockWaitTimeout, 5 minutes "
    "(docs/track/redisson-fair-dead-waiter.md)",
    "leaked-lock",
    kind="defect",
)

_UNLOCKS_NOTHING = may_break(
    "https://github.com/redisson/redisson/blob/master/redisson/src/main/java/org/redisson/"
    "RedissonFairLock.java: the script of unlock returns 1 where there is no key, so a hold that "
    "is over is released (docs/track/redisson-fair-unlock.md)",
    "false-release",
    kind="defect",
)

OUTCOMES = {
    "tryLock() returned true": "Granted",
    "tryLock(0, …) returned false": "Denied: held",
    "tryLock(wait, …) returned false": "Denied: gave-up",
    "tryLock() threw anything": "Unknown",
    "unlock() returned": "Released",
    "unlock() threw IllegalMonitorStateException": "NotHeld",
    "unlock() threw anything else": "Unknown",
}

_RAISES = {
    "InterruptedException": (
        "https://www.javadoc.io/doc/org.redisson/redisson/latest/org/redisson/api/RLock.html"
    ),
    "IllegalMonitorStateException": DOC,
    # The second is the first's, when a server does not answer in time.
    **dict.fromkeys(
        ("RedisTimeoutException", "RedisResponseTimeoutException"),
        "https://redisson.pro/docs/faq/: What is the cause of RedisTimeoutException?",
    ),
}

_UNCONNECTED = {
    "a_server_that_is_not_there_has_no_effect": (
        "Redisson.create() wants a connection, so there is no client without one"
    )
}
_AT_ITS_DEFAULTS = {
    **_UNCONNECTED,
    "paused_servers_make_a_release_unknown": (
        "at its defaults it waits three seconds for an answer, and tries again"
    ),
}
_LEASED = {
    **_AT_ITS_DEFAULTS,
    "a_hold_lives_on_while_it_is_kept_alive": (
        "with a lease time it has no watchdog, and nothing to extend a lock with"
    ),
}
_ONE_CLASS = "its class is tested as redisson-rlock-safe and redisson-rlock-sentinel"


_WATCHED = Program(
    library="org.redisson:redisson",
    source="RedissonLocks.java",
    call="getLock(key).tryLock(wait, -1, MILLISECONDS)",
    client="a thread; the clients of one process share a RedissonClient per server",
    stands_on=("netty-common", "netty-transport", "netty-handler", "netty-transport-native-epoll"),
    settings={
        "Config.setLockWatchdogTimeout": THE_LEASE,
        "Config.setNettyHook": "a handler that notes when a script is written, and sends nothing",
        **JVM,
    },
    safe={"setTimeout": LIMIT, "setConnectTimeout": LIMIT, "setRetryAttempts": "0"},
)
_MAPPED = {
    "setNatMapper": "what servers call themselves → the same port at the proxy of the client"
}


def _redisson(call: str, **more: str) -> Program:
    return replace(_WATCHED, call=call, settings={**_WATCHED.settings, **more})


def _leased(make: str, ask: str = "tryLock") -> Program:
    return _redisson(f"{make}.{ask}(wait, lease, MILLISECONDS)")


def _behind_sentinels(synced: str) -> Program:
    return _redisson(
        _WATCHED.call,
        setCheckLockSyncedSlaves=synced,
        useSentinelServers="the three Sentinels",
        **_MAPPED,
    )


def _system(
    name: str, topology: str, waits_by: str, program: Program, expectations: Faults, **more: Any
) -> System:
    library = ContainerLibrary(JVM_IMAGE, name, program)
    return System(
        name=name,
        topologies=(topology,),
        family="redis",
        waits_by=waits_by,
        source=DOC,
        connect=library.connect,
        writes_besides="keys and channels whose names begin with redisson_",
        prepare=library.prepare,
        raises=_RAISES,
        expectations={**_released_late(may_be_late(expectations, _LATE), topology), **UNMOVED},
        **{
            "fence": None,
            "outcomes": OUTCOMES,
            "not_owed": _LEASED,
            "recovers_s": _UNANSWERED_S,
            "variant": True,
            **more,
        },
    )


# BaseConfig.java of 4.7.0, timeout: so long it waits for the answer to a request that was sent,
# also if the connection is reset in the meantime, which it does not notice before.
_UNANSWERED_S = 3.0
# There, retryDelay: 1 to 2 s until a request that may take effect twice is sent again. With
# replicas each script is preceded by INFO (CommandAsyncService.java, syncedEval).
_ASKED_AGAIN_S = _UNANSWERED_S + 2.0


# RedissonMultiLock.java of 4.7.0, tryLock: while it asks server after server, each key lives for
# twice the wait; the script that ends it sets the lease. What an attempt that failed could not
# take back blocks the key for so long.
_LEFT_BEHIND_S = 10.0


def _released_late(usual: Faults, topology: str) -> Faults:
    """``usual`` with what an unlock() does that is kept on its way: by a link, or by a server that
    stands still. Connections are served in any order after it. Of several servers one alone lets
    nobody in."""
    let_in = () if topology == "redlock" else ("double-grant", "lost-update")
    late = may_break(_SAME_OWNER, "linearizable", *let_in, kind="defect")
    return with_changes(usual, dict.fromkeys(("partition-stall", "pause"), late))


def _renewed(usual: Faults) -> Faults:
    """``usual`` with what a watchdog changes: work that outlasts a lease which nobody renews."""
    faults = ("wipe", *RESTARTED, "failover", *ANSWERS_LOST, *SERVER_CLOCKS)
    return with_changes(usual, dict.fromkeys(faults, may_break(WATCHDOG.source, "stale-holder")))


_FORGETS = may_break(
    "https://redis.io/docs/latest/operate/oss_and_stack/management/persistence/ with "
    f"{DOC} (MultiLock): one server that comes back without its data is enough for unlock to say "
    "that the lock is not held",
    "linearizable",
)
_BY_MESSAGE = "a message when it is given back, and its time to live"
_POLLS = "polling each lock in turn"

# A watchdog that finds the key gone tells nobody, so a promise does not end before its lease.
_RENEWED = _renewed(WATCHDOG.expectations)
_RLOCK = _system(
    "redisson-rlock",
    "redis",
    _BY_MESSAGE,
    _WATCHED,
    _RENEWED,
    variant=False,
    not_owed=_AT_ITS_DEFAULTS,
    suites={"capacity": (ANY,)},
)

SYSTEMS = (
    _RLOCK,
    as_safe(
        _RLOCK,
        # A client that is stopped meanwhile sees the answer and the timeout at the same moment.
        expectations=with_changes(
            _released_late(_RENEWED, "redis"),
            dict.fromkeys(PAUSED, may_break(_LATE, "late-grant")),
            UNMOVED,
        ),
        recovers_s=0.0,
        not_owed=_UNCONNECTED,
        represents=True,
    ),
    _system(
        "redisson-rlock-lease",
        "redis",
        _BY_MESSAGE,
        _leased("getLock(key)"),
        LEASE,
        untested=_ONE_CLASS,
    ),
    _system(
        "redisson-fair",
        "redis",
        "a queue, and a message to its head",
        _leased("getFairLock(key)"),
        with_verdicts(
            with_changes(
                LEASE,
                dict.fromkeys(("client-kill", *ANSWERS_LOST, *RESTARTED), _WAITS_FOR_THE_DEAD),
            ),
            _UNLOCKS_NOTHING,
            *MAY_BE_LATE,
        ),
    ),
    _system(
        "redisson-fenced",
        "redis",
        _BY_MESSAGE,
        _leased("getFencedLock(key)", "tryLockAndGetToken"),
        redis_fence.SYSTEM.expectations,
        fence="INCR in the script that grants",
        outcomes={
            **OUTCOMES,
            "tryLockAndGetToken() returned a number": "Granted",
            "tryLockAndGetToken(0, …) returned null": "Denied: held",
            "tryLockAndGetToken(wait, …) returned null": "Denied: gave-up",
        },
    ),
    _system(
        "redisson-spin",
        "redis",
        "polling, pauses of 1 to 128 ms",
        _leased("getSpinLock(key)"),
        LEASE,
    ),
    _system(
        "redisson-multilock",
        "redlock",
        _POLLS,
        _leased("new RedissonMultiLock(getLock(key) of each server)"),
        with_changes(
            REDLOCK,
            dict.fromkeys(
                ("wipe", "kill", "power-loss", "rolling-restart", "clock-jump"),
                holds(_ALL_OF, "double-grant", "lost-update"),
            ),
            dict.fromkeys(("wipe", "power-loss"), _FORGETS),
            _KEY_ENDED,
        ),
        settles_s=_LEFT_BEHIND_S,
    ),
    _system(
        "redisson-redlock",
        "redlock",
        _POLLS,
        _leased("new RedissonRedLock(getLock(key) of each server)"),
        with_changes(
            with_verdicts(
                REDLOCK, may_break(_SWALLOWS, "false-release", kind="defect"), *MAY_BE_LATE
            ),
            confirmed_between(REDLOCK, _SWALLOWS, kind="defect"),
            # Of a grant that came late nobody can say since when the key had been another's.
            dict.fromkeys(MAY_BE_LATE, may_break(_SWALLOWS, "linearizable", kind="defect")),
            _KEY_ENDED,
        ),
        settles_s=_LEFT_BEHIND_S,
        variant=False,
        untested="its class stands on that of redisson-multilock, which is tested",
    ),
    _system(
        "redisson-rlock-sentinel",
        "sentinel",
        _BY_MESSAGE,
        _behind_sentinels("true"),
        _renewed(with_changes(redis_sentinel.REPLICATED_LEASE, {"failover": _ACTUAL_SLAVES})),
        settles_s=redis_sentinel_wait.SYSTEM.settles_s,  # it waits for the replica, too
        recovers_s=_ASKED_AGAIN_S,
        not_owed=_AT_ITS_DEFAULTS,
    ),
    _system(
        "redisson-rlock-sentinel-unsynced",
        "sentinel",
        _BY_MESSAGE,
        _behind_sentinels("false"),
        _renewed(redis_sentinel.REPLICATED_LEASE),
        recovers_s=_ASKED_AGAIN_S,
        not_owed=_AT_ITS_DEFAULTS,
        untested=_ONE_CLASS,
    ),
    _system(
        "redisson-rlock-cluster",
        "redis-cluster",
        _BY_MESSAGE,
        _redisson(_WATCHED.call, useClusterServers="every node", **_MAPPED),
        _renewed(
            with_changes(
                redis_cluster.SYSTEM.expectations,
                {"failover": may_break(_RETRIES_LATER, "double-grant", "lost-update")},
            )
        ),
        recovers_s=_ASKED_AGAIN_S,
        not_owed=_AT_ITS_DEFAULTS,
        untested=_ONE_CLASS,
    ),
)
