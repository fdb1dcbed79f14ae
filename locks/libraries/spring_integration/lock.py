"""Spring Integration's JdbcLockRegistry
(https://docs.spring.io/spring-integration/reference/jdbc/lock-registry.html), behind the JVM
sidecar: one registry and one pool of HikariCP's per process, and a thread per client.

``spring-jdbc-postgres``     ``setInsertQuery(… + " ON CONFLICT DO NOTHING")``, which its
                             Javadoc gives for PostgreSQL
``spring-jdbc-mariadb``      at its defaults

A lock is a row: ``tryLock`` takes it over where its time has run out, or inserts it; ``unlock``
deletes it where it is the own process'. Between the threads of a process decides a
``ReentrantLock``. A row whose time has run out and that nobody took is still released, and renewed.
Whoever waits tries again every 100 ms (``idleBetweenTries``). The lease is the time to live of
``tryLock(wait, ttl)``; 10 s else.

The time is that of the client's wall clock (``LocalDateTime.now``, ``DefaultLockRepository.java``),
both when it is set and when it is compared. The fault ``client-clock-jump`` does not reach it here.
The promise is the lease, from before the repository's ``acquire`` or ``renew`` that set it was
called (Spring Integration 7.1.2). It tells no fence and no loss.

Does not guarantee: what ``postgres-lease-row-client-clock`` does not. A grant whose answer came
late is handed out all the same.
"""

from __future__ import annotations

from dataclasses import replace

from lockbench.locks.base import System
from lockbench.locks.mariadb import expectations as mariadb
from lockbench.locks.postgres import expectations as postgres
from lockbench.locks.shared.client_container import ContainerLibrary
from lockbench.locks.shared.client_programs import JVM, JVM_IMAGE, LIMIT, THE_LEASE, Program
from lockbench.locks.shared.expectations import (
    MAY_BE_LATE,
    SERVER_CLOCKS,
    UNMOVED,
    Faults,
    holds,
    may_break,
    with_changes,
)

DOC = "https://docs.spring.io/spring-integration/reference/jdbc/lock-registry.html"
_SOURCE = (
    "https://github.com/spring-projects/spring-integration/blob/main/spring-integration-jdbc/src/"
    "main/java/org/springframework/integration/jdbc/lock"
)
_LATE = (
    f"{_SOURCE}/JdbcLockRegistry.java: tryLock returns true when the statement has changed a row, "
    "and does not look how long ago it was sent"
)
_CLIENTS_CLOCK = (
    f"{_SOURCE}/DefaultLockRepository.java: the time is LocalDateTime.now of the client; no clock "
    "of a server is asked"
)
# A holder that the fault has made slow acts when its time is over, and nobody stops it.
_EXPIRED = (
    f"{_SOURCE}/JdbcLockRegistry.java: 'Lock was released in the store due to expiration. The "
    "integrity of data protected by this lock may have been compromised.'"
)


def _of(rows: Faults) -> Faults:
    """Of a row in this database, as the registry uses it."""
    late = {fault: may_break(_LATE, "late-grant") for fault in MAY_BE_LATE if fault in rows}
    apart = {fault: said for fault, said in rows.items() if fault not in SERVER_CLOCKS}
    slow = {"failover": may_break(_EXPIRED, "stale-holder")} if "failover" in rows else {}
    by_client = dict.fromkeys(SERVER_CLOCKS, holds(_CLIENTS_CLOCK))
    return with_changes(apart, late, slow, by_client, UNMOVED)


OUTCOMES = {
    "tryLock() returned true": "Granted",
    "tryLock(0, …) returned false": "Denied: held",
    "tryLock(wait, …) returned false": "Denied: gave-up",
    "the table could not be made": "Denied: no-effect",
    "tryLock() threw anything": "Unknown",
    "unlock() returned": "Released",
    "unlock() threw ConcurrentModificationException": "NotHeld",
    "unlock() threw anything else": "Unknown",
    "renewLock() returned": "Granted",
    "renewLock() threw IllegalStateException": "NotHeld",
    "renewLock() threw anything else": "Unknown",
}

_RAISES = {
    "CannotAcquireLockException": (
        "https://docs.spring.io/spring-integration/api/org/springframework/integration/jdbc/lock/"
        "JdbcLockRegistry.html"
    ),
    "ConcurrentModificationException": DOC,
    **dict.fromkeys(
        ("InterruptedException", "IllegalMonitorStateException"),
        "https://docs.oracle.com/en/java/javase/21/docs/api/java.base/java/util/concurrent/locks/"
        "Lock.html, which it implements",
    ),
}

_PROGRAM = Program(
    library="org.springframework.integration:spring-integration-jdbc",
    source="SpringLocks.java",
    call="registry.obtain(key).tryLock(wait, lease)",
    client="a thread; the clients of one process share a JdbcLockRegistry and a pool",
    stands_on=(
        "spring-integration-core",
        "org.springframework:spring-jdbc",
        "com.zaxxer:HikariCP",
        "org.postgresql:postgresql",
    ),
    settings={
        "setTransactionManager": "a JdbcTransactionManager",
        "setInsertQuery": "the default and ON CONFLICT DO NOTHING",
        "tryLock": f"time to live: {THE_LEASE}",
        **JVM,
    },
    beside=f"a connection and an answer within {LIMIT}",
)
_PLAIN = replace(
    _PROGRAM, settings={k: v for k, v in _PROGRAM.settings.items() if k != "setInsertQuery"}
)


def _container(name: str, program: Program) -> ContainerLibrary:
    return ContainerLibrary(JVM_IMAGE, name, program, extends=True)


_POSTGRES = _container("spring-jdbc-postgres", _PROGRAM)
_MARIADB = _container(
    "spring-jdbc-mariadb",
    replace(_PLAIN, stands_on=(*_PLAIN.stands_on[:-1], "org.mariadb.jdbc:mariadb-java-client")),
)

_SYSTEM = System(
    name="spring-jdbc-postgres",
    topologies=("postgres",),
    family="postgres",
    fence=None,
    waits_by="polling, every 100 ms",
    source=DOC,
    connect=_POSTGRES.connect,
    prepare=_POSTGRES.prepare,
    outcomes=OUTCOMES,
    raises=_RAISES,
    writes_besides="the table int_lock",
    pace={"lease_ttl_s": 7.0},  # a server that was killed recovers for seconds
    expectations=_of(postgres.LEASE_ROW),
    not_owed={
        "a_server_that_is_not_there_has_no_effect": (
            "tryLock() throws, whether anything was sent or not"
        )
    },
)

SYSTEMS = (
    _SYSTEM,
    _SYSTEM.derived(
        name="spring-jdbc-mariadb",
        topologies=("mariadb",),
        family="mariadb",
        connect=_MARIADB.connect,
        prepare=_MARIADB.prepare,
        variant=True,
        expectations=_of(mariadb.LEASE_ROW),
    ),
)
