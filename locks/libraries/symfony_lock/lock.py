"""Symfony's Lock component 6.4 over phpredis and PDO, behind the PHP sidecar.

``symfony-redis``       ``RedisStore``: a sorted set with a time to live and a token, by scripts
``symfony-redis-kept``  the same, with a limit for answers; a connection is kept after errors
``symfony-postgresql``  ``PostgreSqlStore``: an advisory lock of the session
``symfony-pdo``         ``PdoStore`` on PostgreSQL: a row with a token and an expiry

https://symfony.com/doc/6.4/components/lock.html. All are ``LockFactory::createLock(key, lease)``,
``acquire()`` and ``release()``. ``acquire(true)`` waits without a limit: for Redis and the row it
tries every 90 to 110 ms, which the program does itself until the wait is over; the advisory lock is
waited for in the server, under a ``lock_timeout``. A client that a call has failed for connects
anew, as the next request of an application would; that of ``symfony-redis-kept`` does not, as a
worker that has one ``Redis`` object for all of its jobs.

What the sources do, which decides what they promise (``Lock.php``, ``Key.php``, ``Store/*.php``):

- ``acquire`` first saves the key for the store's own time, 300 s by default (``initialTtl``), and
  then sets the lease with a second request. A key whose first answer is lost stays for those 300 s.
  Where the second is lost, the ``Lock`` tries to release the key when it is destroyed.
- ``getRemainingLifetime()`` counts from before a request was sent, and a lock that is over when the
  answer comes is refused (``LockExpiredException``). That is the promise. The clock is
  ``microtime()``, which is set with the machine's.
- phpredis reads the answer to a script that came too late as that of the next script. An
  ``acquire()`` asks twice, so after one late answer it is refused, and after two it returns true
  for a lock that another client holds.
- ``RedisStore`` compares whole milliseconds of the server's clock, cut off on acquiring: a key may
  end up to a millisecond before its lease does.
- ``PdoStore`` writes ``now + lease`` into a column of integers, which PostgreSQL rounds to the
  second: a row may end up to half a second before its lease does.
- ``release()`` of the two that expire returns in silence where there was nothing to release.
- ``PostgreSqlStore`` has no time, and nobody tells the holder that its session is gone.
- Its key is CRC-32 of the name, so two names of many share a lock.

phpredis waits 60 s for an answer by default, libpq for ever; neither sends anything again.
``symfony-redis-safe`` has the client timeout for connecting and for answers, and the lease as
``initialTtl``.

Does not guarantee: what ``redis-token``, ``postgres-advisory`` and ``postgres-lease-row`` do not.
None offers a fence.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lockbench.locks.base import System
from lockbench.locks.postgres.expectations import LEASE_ROW, POSTGRES
from lockbench.locks.redis.expectations import LEASE
from lockbench.locks.shared.client_container import ContainerLibrary
from lockbench.locks.shared.client_programs import LIMIT, PHP_IMAGE, THE_LEASE, Program
from lockbench.locks.shared.expectations import (
    ANSWERS_LOST,
    CUT,
    RESTARTED,
    UNMOVED,
    Faults,
    breaks,
    grants_twice,
    may_break,
    may_grant_twice,
    silent_release,
    with_changes,
    with_verdicts,
)
from lockbench.locks.shared.library import as_safe

DOC = "https://symfony.com/doc/6.4/components/lock.html"
SOURCE = "https://github.com/symfony/symfony/blob/6.4/src/Symfony/Component/Lock"
_SILENT = (
    f"{SOURCE}/Lock.php: release() deletes what has this token and fails only where that is still "
    "there, so it returns for a lock that has expired as for one that was held (symfony#57970)"
)
_INITIAL = (
    f"{SOURCE}/Lock.php: acquire() saves the key for the store's initialTtl, by default 300 s, and "
    "sets the lease by a second request; where that is not made, the key stays (symfony#35725)"
)
_CUT_OFF = (
    f"{SOURCE}/Store/RedisStore.php: now is the server's time in whole milliseconds, cut off, and "
    "what is not above it is removed; so a key may end a millisecond before its lease"
)
_WRONG_ANSWER = (
    "https://github.com/phpredis/phpredis/blob/6.2.0/library.c: redis_read_reply_type() throws "
    "where no answer came in time, and leaves the connection open for the next script to read it"
)
_ROUNDED = (
    f"{SOURCE}/Store/PdoStore.php: key_expiration is an INTEGER, to which PostgreSQL rounds now + "
    "lease; so a row may end half a second before getRemainingLifetime() says"
)
_TAKES_OVER = (
    f"{SOURCE}/Store/PdoStore.php: putOffExpiration() updates a row that has this token or has "
    "expired by the server's clock, whoever holds it"
)
_NOT_TOLD = (
    f"{DOC}#postgresqlstore-1: 'If the TCP connection is lost, the PostgreSQL may release locks "
    "without notifying the application'"
)
_RESTARTS = (
    f"{DOC}#postgresqlstore-1: 'If the PostgreSQL service or the machine hosting it restarts, "
    "every lock would be lost without notifying the running processes'"
)
_PREPARES = (
    "https://github.com/php/php-src/blob/PHP-8.4/ext/pdo_pgsql/pgsql_statement.c: a statement is "
    "prepared by a request of its own (PQprepare) before it is executed"
)
# Under these a request of an acquire may be the last one.
_INTERRUPTED = ("client-kill", "client-gc", "client-pause", "wipe", "failover", *ANSWERS_LOST)


def _saved_for_long(usual: Faults) -> Faults:
    faults = [fault for fault in (*_INTERRUPTED, *RESTARTED) if fault in usual]
    return with_changes(usual, dict.fromkeys(faults, may_break(_INITIAL, "leaked-lock")))


# Under these an answer may come after the client timeout, on a connection that is still open.
_LATE = ("pause", "partition-stall")
_REDIS = {
    **with_changes(
        silent_release(LEASE, _SILENT),
        {"client-pause": may_break(_CUT_OFF, "double-grant", kind="defect")},
    ),
    **UNMOVED,
}
_ROW = {
    **with_changes(
        with_verdicts(
            _saved_for_long(silent_release(LEASE_ROW, _SILENT)),
            may_break(_ROUNDED, "double-grant", "lost-update", "linearizable", kind="defect"),
        ),
        {"clock-jump": may_break(_TAKES_OVER, "wrong-extend")},
    ),
    **UNMOVED,
}
_SESSION_ENDS = (*CUT, "reset", "kill", "restart", "rolling-restart")
_ADVISORY = {
    **POSTGRES,
    **dict.fromkeys(_SESSION_ENDS, may_grant_twice(_NOT_TOLD)),
    "failover": grants_twice(_RESTARTS),
    **UNMOVED,
}

_ACQUIRE = Program(
    library="php-symfony-lock",
    source="symfony_lock.php",
    call="(new LockFactory(store))->createLock(key, lease)->acquire()",
    client="a process with a connection and a store of its own",
)
_LIMITS = {
    "RedisStore.initialTtl": THE_LEASE,
    "Redis.connect.timeout": LIMIT,
    "Redis.connect.read_timeout": LIMIT,
}
_ON_REDIS = Program(
    library=_ACQUIRE.library,
    source=_ACQUIRE.source,
    call=_ACQUIRE.call,
    client=_ACQUIRE.client,
    stands_on=("php-redis",),
    safe=_LIMITS | {"Redis.OPT_MAX_RETRIES": "0"},
)
_ON_REDIS_KEPT = replace(
    _ON_REDIS,
    client="a process with a store and a Redis object that it keeps, whatever fails",
    settings=_LIMITS,
    safe={},
)
_ON_POSTGRES = Program(
    library=_ACQUIRE.library,
    source=_ACQUIRE.source,
    call=_ACQUIRE.call,
    client=_ACQUIRE.client,
    stands_on=("php-pgsql", "libpq5"),
    settings={"target_session_attrs": "read-write"},
)
_ADVISORY_ON_POSTGRES = Program(
    library=_ACQUIRE.library,
    source=_ACQUIRE.source,
    call="(new LockFactory(store))->createLock(key, lease)->acquire(true)",
    client=_ACQUIRE.client,
    stands_on=_ON_POSTGRES.stands_on,
    settings={**_ON_POSTGRES.settings, "SET lock_timeout": "the wait"},
)
_OUTCOMES = {
    "new Redis or PDO: not connected": "Denied: no-effect",
    "acquire() returned true": "Granted",
    "acquire() returned false, one try": "Denied: held",
    "acquire() returned false, the wait is over": "Denied: gave-up",
    "acquire() threw LockAcquiringException": "Unknown",
    "release() returned": "Released",
    "release() of what this client does not hold": "NotHeld",
    "release() threw LockReleasingException": "Unknown",
    "anything else thrown": "Unknown",
}
_REFRESH = {
    "refresh() returned": "Granted",
    "refresh() threw LockConflictedException": "NotHeld",
    "refresh() threw LockAcquiringException": "Unknown",
}
_RAISES = dict.fromkeys(
    ("LockAcquiringException", "LockConflictedException", "LockReleasingException"),
    "https://github.com/symfony/symfony/blob/6.4/src/Symfony/Component/Lock/LockInterface.php",
)
_WAITS_FOR_EVER = {
    "paused_servers_make_a_release_unknown": "libpq waits for an answer as long as it takes"
}


def _system(name: str, program: Program, *, extends: bool = True, **more: Any) -> System:
    library = ContainerLibrary(PHP_IMAGE, name, program, extends=extends)
    return System(
        name=name,
        fence=None,
        connect=library.connect,
        prepare=library.prepare,
        raises=_RAISES,
        **{
            "outcomes": _OUTCOMES | _REFRESH,
            "waits_by": "polling, every 100 ms",
            "late_release": "Released",
            **more,
        },
    )


_SYMFONY_REDIS = _system(
    "symfony-redis",
    _ON_REDIS,
    topologies=("redis",),
    family="redis",
    source=f"{DOC}#redisstore",
    gives_up_s=125.0,  # default_socket_timeout of PHP, 60 s, for each
    # Aimed at the first answer of an acquire.
    expectations=with_changes(
        _saved_for_long(_REDIS), {"reply-lost": breaks(_INITIAL, "leaked-lock")}
    ),
)

SYSTEMS = (
    _SYMFONY_REDIS,
    as_safe(_SYMFONY_REDIS, expectations=_REDIS, gives_up_s=System.gives_up_s, represents=True),
    _system(
        "symfony-redis-kept",
        _ON_REDIS_KEPT,
        topologies=("redis",),
        family="redis",
        source=f"{DOC}#redisstore",
        expectations=with_changes(
            _REDIS, dict.fromkeys(_LATE, may_grant_twice(_WRONG_ANSWER, kind="defect"))
        ),
    ),
    _system(
        "symfony-postgresql",
        _ADVISORY_ON_POSTGRES,
        extends=False,
        topologies=("postgres",),
        family="postgres",
        source=f"{DOC}#postgresqlstore",
        waits_by="the server's queue",
        outcomes={
            **_OUTCOMES,
            "acquire(true) threw LockAcquiringException for lock_not_available": "Denied: gave-up",
            "acquire(true) threw LockConflictedException": "Denied: held",
        },
        expectations=_ADVISORY,
        limited=False,
        asks_first=_PREPARES,
        not_owed=_WAITS_FOR_EVER,
    ),
    _system(
        "symfony-pdo",
        _ON_POSTGRES,
        topologies=("postgres",),
        family="postgres",
        source=f"{DOC}#pdostore",
        pace={"lease_ttl_s": 7.0},  # a server that was killed recovers for seconds
        expectations=_ROW,
        asks_first=_PREPARES,
        not_owed={
            **_WAITS_FOR_EVER,
            "a_frozen_holder_loses_it_after_its_promise_and_not_before": (
                "its row ends up to half a second before its promise"
            ),
        },
    ),
)
