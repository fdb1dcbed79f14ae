"""ShedLock's lock provider for JDBC (https://github.com/lukas-krecan/ShedLock), used directly,
behind the JVM sidecar: ``JdbcTemplateLockProvider`` with ``usingDbTime``, which its page strongly
recommends, on a pool of HikariCP's per process.

``shedlock-postgres``, ``shedlock-mariadb``  every client has a ``locked_by`` of its own, as if it
                             were on a host of its own
``shedlock-postgres-one-host``  a control: ``locked_by`` as it comes, the host's name, which is the
                             same for all clients here

A lock is a row: ``lock()`` inserts it, or takes it over where its time has run out. ``unlock()``
ends the time of the row that has the own ``locked_by``, and does not say whether there was one.
ShedLock skips what is locked and does not wait; whoever waits here asks again every 50 ms.

The promise is ``lockAtMostFor``, from before the first statement of ``lock()`` was sent, minus a
millisecond: PostgreSQL counts it from the beginning of the transaction
(``PostgresSqlServerTimeStatementsSource.java``), MariaDB from that of the statement, cut to
milliseconds (``MySqlServerTimeStatementsSource.java``; ShedLock 7.10.1). An ``extend()`` that found
the row sets it anew. ShedLock tells no fence and no loss.

Does not guarantee: what ``postgres-lease-row`` does not. A grant whose answer came late is handed
out all the same. Where the answer to its commit is lost, ``lock()`` returns nothing and may have
the lock (docs/track/shedlock-lost-commit.md).
"""

from __future__ import annotations

from dataclasses import replace

from lockbench.locks.base import ANY, Expectation, System
from lockbench.locks.mariadb import expectations as mariadb
from lockbench.locks.postgres import expectations as postgres
from lockbench.locks.shared.client_container import ContainerLibrary
from lockbench.locks.shared.client_programs import JVM, JVM_IMAGE, LIMIT, THE_LEASE, Program
from lockbench.locks.shared.expectations import (
    MAY_BE_LATE,
    PAUSED,
    UNMOVED,
    Faults,
    breaks,
    confirmed_between,
    may_break,
    with_changes,
    with_verdicts,
)

DOC = "https://github.com/lukas-krecan/ShedLock#jdbctemplate"
_SOURCE = "https://github.com/lukas-krecan/ShedLock/blob/master"
_LATE = (
    f"{_SOURCE}/shedlock-core/src/main/java/net/javacrumbs/shedlock/support/"
    "StorageBasedLockProvider.java: lock() returns a lock when the statement has changed a row, "
    "and does not look how long ago it was sent"
)
_UNSAID = (
    "https://github.com/lukas-krecan/ShedLock/issues/1986: unlock() returns nothing, whether it "
    "found a row of its own or not"
)
_ONE_HOST = (
    "https://github.com/lukas-krecan/ShedLock/issues/317: locked_by is the host's name, so two on "
    "one host are one owner, 'resulting in incorrect behavior'"
)
# What comes late, an unlock or an extend, is done to the row of whoever has the lock by then.
_OF_ANOTHER = may_break(
    _ONE_HOST, "wrong-release", "wrong-extend", "double-grant", "linearizable", kind="control"
)
_NOTHING_OF_ITS_OWN = {
    ANY: Expectation("n/a", "the owner's name has no say in it: shedlock-postgres shows it")
}
_AT_MOST = (
    f"{DOC}: a task that takes longer than lockAtMostFor 'may be executed again and the results "
    "will be unpredictable (more processes will hold the lock)'"
)


def _of(rows: Faults) -> Faults:
    """Of a row in this database, as ShedLock uses it."""
    late = {fault: may_break(_LATE, "late-grant") for fault in MAY_BE_LATE if fault in rows}
    return with_changes(
        with_verdicts(rows, may_break(_UNSAID, "false-release")),
        confirmed_between(rows, _UNSAID),
        late,
        # The false release of a grant that came late.
        dict.fromkeys(PAUSED, may_break(_UNSAID, "linearizable")),
        {"client-pause": breaks(_AT_MOST, "stale-holder")},
        UNMOVED,
    )


_EXPECTATIONS = _of(postgres.LEASE_ROW)

# unlock() writes the present. Where the database's clock is set back after that, nobody gets what
# was given back until it is there again (``clock-jump`` is 10 s).
_SET_BACK_S = 11.0

OUTCOMES = {
    "lock() returned a lock": "Granted",
    "lock() returned nothing, at once": "Denied: held",
    "lock() returned nothing until the wait was over": "Denied: gave-up",
    "the table could not be made": "Denied: no-effect",
    "lock() threw anything": "Unknown",
    "unlock() returned": "Released",
    "unlock() threw anything": "Unknown",
    "extend() returned a lock": "Granted",
    "extend() returned nothing": "NotHeld",
    "extend() threw anything": "Unknown",
}

_SPRING = "https://docs.spring.io/spring-framework/docs/current/javadoc-api/org/springframework"
# Of the JdbcTemplate, and the transactions, that its user gives it.
_RAISES = {
    **dict.fromkeys(
        (
            "CannotAcquireLockException",
            "CannotGetJdbcConnectionException",
            "ConcurrencyFailureException",
            "DataAccessResourceFailureException",
            "PessimisticLockingFailureException",
            "QueryTimeoutException",
            "RecoverableDataAccessException",
            "TransientDataAccessResourceException",
            "UncategorizedSQLException",
        ),
        f"{_SPRING}/jdbc/core/JdbcTemplate.html: DataAccessException",
    ),
    **dict.fromkeys(
        (
            "CannotCreateTransactionException",
            "TransactionSystemException",
            "TransactionTimedOutException",
            "UnexpectedRollbackException",
        ),
        f"{_SPRING}/transaction/PlatformTransactionManager.html: TransactionException",
    ),
}

_PROGRAM = Program(
    library="net.javacrumbs.shedlock:shedlock-provider-jdbc-template",
    source="ShedLocks.java",
    call="provider.lock(new LockConfiguration(now, key, lease, ZERO))",
    client="a thread with a provider of its own; the clients of one process share a pool",
    stands_on=(
        "shedlock-core",
        "shedlock-sql-support",
        "org.springframework:spring-jdbc",
        "com.zaxxer:HikariCP",
        "org.postgresql:postgresql",
    ),
    settings={
        "usingDbTime": "on",
        "withLockedByValue": "a random one per client",
        "LockConfiguration": f"lockAtMostFor: {THE_LEASE}; lockAtLeastFor: none",
        **JVM,
    },
    beside=f"asks again every 50 ms while it waits; a connection and an answer within {LIMIT}",
)


def _container(name: str, program: Program = _PROGRAM) -> ContainerLibrary:
    return ContainerLibrary(JVM_IMAGE, name, program, extends=True)


_POSTGRES = _container("shedlock-postgres")
_MARIADB = _container(
    "shedlock-mariadb",
    replace(_PROGRAM, stands_on=(*_PROGRAM.stands_on[:-1], "org.mariadb.jdbc:mariadb-java-client")),
)
_ONE = _container(
    "shedlock-postgres-one-host",
    replace(
        _PROGRAM,
        settings={k: v for k, v in _PROGRAM.settings.items() if k != "withLockedByValue"},
    ),
)

_SYSTEM = System(
    name="shedlock-postgres",
    topologies=("postgres",),
    family="postgres",
    fence=None,
    waits_by="polling, every 50 ms, by its user",
    source=DOC,
    connect=_POSTGRES.connect,
    prepare=_POSTGRES.prepare,
    outcomes=OUTCOMES,
    raises=_RAISES,
    writes_besides="the table shedlock",
    pace={"lease_ttl_s": 7.0},  # a server that was killed recovers for seconds
    expectations=_EXPECTATIONS,
    not_owed={
        "a_server_that_is_not_there_has_no_effect": (
            "lock() throws, whether anything was sent or not"
        )
    },
    late_release="Released",  # unlock() does not say what it found
    settles_s=_SET_BACK_S,
)

SYSTEMS = (
    _SYSTEM,
    _SYSTEM.derived(
        name="shedlock-postgres-one-host",
        connect=_ONE.connect,
        prepare=_ONE.prepare,
        variant=True,
        untested="its class is tested as shedlock-postgres",
        expectations={
            **with_changes(
                _EXPECTATIONS,
                {fault: _OF_ANOTHER for fault in MAY_BE_LATE if fault in _EXPECTATIONS},
                {"client-pause": breaks(_ONE_HOST, "wrong-release", kind="control")},
            ),
            **dict.fromkeys(("failover", "reply-lost"), _NOTHING_OF_ITS_OWN),
        },
    ),
    _SYSTEM.derived(
        name="shedlock-mariadb",
        topologies=("mariadb",),
        family="mariadb",
        connect=_MARIADB.connect,
        prepare=_MARIADB.prepare,
        variant=True,
        expectations=_of(mariadb.LEASE_ROW),
    ),
)
