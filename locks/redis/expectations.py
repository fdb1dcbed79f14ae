"""What a lease on Redis is expected to do under each fault, and who says so.

``LEASE`` is a key with a time to live and an owner, on one node with an append-only file that is
synced once a second; ``REDLOCK`` one on most of several nodes. Recipes that do more, or less, say
what they change with ``with_changes``.
"""

from __future__ import annotations

from lockbench.locks.shared.expectations import (
    ANSWERS_LOST,
    BY_MONOTONIC_CLOCK,
    CUT,
    RESTARTED,
    SERVER_CLOCKS,
    SLOW_LINKS,
    Faults,
    breaks,
    grants_twice,
    holds,
    may_break,
    may_grant_twice,
    with_changes,
)

LOCK_DOC = "https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/"
PERSISTENCE_DOC = (
    "https://redis.io/docs/latest/operate/oss_and_stack/management/persistence/ (everysec may lose "
    "the last second of writes; while a background fsync runs, Redis also holds back write() to "
    "the file, so that a SIGKILL can lose what the page cache never saw)"
)
FSYNC_DOC = (
    f"{LOCK_DOC}#performance-crash-recovery-and-fsync: 'if we want to guarantee the lock safety in "
    "the face of any kind of instance restart, we need to enable fsync=always'"
)
DELAY_DOC = (
    f"{LOCK_DOC}#performance-crash-recovery-and-fsync: a server that comes back after more than "
    "the time to live has nothing left to forget"
)
KLEPPMANN = "https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html"
CLOCK_DOC = (
    f"{LOCK_DOC}#disclaimer-about-consistency: 'Redis is not using monotonic clock for TTL "
    "expiration mechanism. That means that a wall-clock shift may result in a lock being acquired "
    "by more than one process'"
)
LATE = (
    f"{LOCK_DOC}#correct-implementation-with-a-single-instance: a command that runs late carries "
    "the token of its own hold: it takes a free key for one time to live, or changes nothing"
)
LEFT_BEHIND = (
    f"{LOCK_DOC}: 'Deadlock free. Eventually it is always possible to acquire a lock, even if the "
    "client that locked a resource crashes'; until its time to live ends, nobody else is let in"
)

# The holder sleeps through its time to live and acts when it wakes. Whether it also loses an update
# depends on whether it slept between its read and its write.
PAUSED_HOLDER = {**breaks(KLEPPMANN, "stale-holder"), **may_break(KLEPPMANN, "lost-update")}
# Short sleeps make a holder late only near the end of its time to live.
NAPPING_HOLDER = may_break(KLEPPMANN, "stale-holder", "lost-update")
# A restart that may have forgotten the newest write (see PERSISTENCE_DOC): a race, seldom lost.
KILLED = may_grant_twice(PERSISTENCE_DOC)
# The first holder still trusts its promise when the emptied server grants the key again. Its own
# release finds a foreign token and is told not-held; its own acts lie within its promise. So
# neither wrong-release nor stale-holder follows.
WIPED = grants_twice(LOCK_DOC)

LEASE: Faults = {
    "client-pause": PAUSED_HOLDER,
    "client-gc": NAPPING_HOLDER,
    **BY_MONOTONIC_CLOCK,
    "client-kill": holds(LEFT_BEHIND),
    **dict.fromkeys(("pause", "reset", *SLOW_LINKS, *CUT), holds(LATE)),
    "reply-lost": holds(LEFT_BEHIND),
    **dict.fromkeys(("kill", "power-loss", "rolling-restart"), KILLED),
    "restart": holds(DELAY_DOC),
    "wipe": WIPED,
    # The server believes the time to live to be over; the holder's own clock knows better. A clock
    # that only runs wrong may reach that end too early.
    "clock-jump": grants_twice(CLOCK_DOC),
    **dict.fromkeys(("clock-drift", "clock-strobe"), may_grant_twice(CLOCK_DOC)),
}
# A slow link may have a primary replaced that is not dead, and nobody says that it does not.
LEASE_WITH_REPLICAS: Faults = {
    fault: verdicts for fault, verdicts in LEASE.items() if fault not in SLOW_LINKS
}


def no_lease(never_ends: str) -> Faults:
    """A key without a time to live, which ``never_ends`` is the source for: nobody loses it by
    being late, and nobody gets it from the dead. Only a server that forgets gives it away."""
    kept = holds(never_ends)
    # Of an acquire or a release that was applied and whose answer is missing the key stays.
    stays = may_break(never_ends, "leaked-lock")
    kept_or_stays = {**kept, **stays}
    forgets = {
        **may_break(PERSISTENCE_DOC, "double-grant"),
        **may_break(LOCK_DOC, "lost-update"),
        **stays,
    }
    return {
        **dict.fromkeys(("client-clock-jump", *SERVER_CLOCKS, *SLOW_LINKS), kept),
        **dict.fromkeys(("client-pause", "client-gc", *ANSWERS_LOST), kept_or_stays),
        "client-kill": {**kept, **breaks(never_ends, "leaked-lock")},
        **dict.fromkeys(RESTARTED, forgets),
        "wipe": {**WIPED, **stays},
    }


_RESTARTS = (
    f"{LOCK_DOC}#performance-crash-recovery-and-fsync: a restarted node that forgot a grant gives "
    "it away again, unless restarts are delayed by more than the ttl"
)

# The same races as for one Redis; they must be lost on enough nodes at once.
REDLOCK: Faults = with_changes(LEASE, {"wipe": breaks(_RESTARTS, "double-grant")})
