"""What a lease on Redis is expected to do under each fault, and who says so.

``LEASE`` is a key with a time to live and an owner, on one node with an append-only file that is
synced once a second. Recipes that do more, or less, say what they change with ``but``.
"""

from __future__ import annotations

from collections.abc import Mapping

from locks.base import Expectation

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
CONSEQUENCE = "two holders at once may or may not interleave their read-modify-writes"
LATE = (
    f"{LOCK_DOC}#correct-implementation-with-a-single-instance: a command that runs late carries "
    "the token of its own hold: it takes a free key for one time to live, or changes nothing"
)
LEFT_BEHIND = (
    f"{LOCK_DOC}: 'Deadlock free. Eventually it is always possible to acquire a lock, even if the "
    "client that locked a resource crashes'; until its time to live ends, nobody else is let in"
)

Faults = Mapping[str, Mapping[str, Expectation]]
# Where nothing is listed because no lock here minds; what breaks by contention alone breaks there.
UNMINDED = (
    "none",
    "bandwidth",
    "client-clock-jump",
    "jitter",
    "latency",
    "partition-47ms",
    "slicer",
)

# The holder sleeps through its time to live and acts when it wakes. Whether it also loses an update
# depends on whether it slept between its read and its write.
PAUSED_HOLDER = {
    "stale-holder": Expectation("breaks", KLEPPMANN, "documented-limit", tries=3),
    "lost-update": Expectation("may-break", KLEPPMANN, "documented-limit"),
}
# A restart that may have forgotten the newest write (see PERSISTENCE_DOC): a race, seldom lost.
KILLED = {
    "double-grant": Expectation("may-break", PERSISTENCE_DOC, "documented-limit"),
    "lost-update": Expectation("may-break", CONSEQUENCE, "documented-limit"),
}
# The first holder still trusts its promise when the emptied server grants the key again. Its own
# release finds a foreign token and is told not-held; its own acts lie within its promise. So
# neither wrong-release nor stale-holder follows.
WIPED = {
    "double-grant": Expectation("breaks", LOCK_DOC, "documented-limit", tries=3),
    "lost-update": Expectation("may-break", CONSEQUENCE, "documented-limit"),
}
# The server believes the time to live to be over; the holder's own clock knows better.
CLOCK_JUMPED = {
    "double-grant": Expectation("breaks", CLOCK_DOC, "documented-limit", tries=3),
    "lost-update": Expectation("may-break", CONSEQUENCE, "documented-limit"),
}

# A clock that runs wrong may reach the end of the time to live too early.
CLOCK_WRONG = {
    "double-grant": Expectation("may-break", CLOCK_DOC, "documented-limit"),
    "lost-update": Expectation("may-break", CONSEQUENCE, "documented-limit"),
}
# Short sleeps make a holder late only near the end of its time to live.
NAPPING_HOLDER = {
    "stale-holder": Expectation("may-break", KLEPPMANN, "documented-limit"),
    "lost-update": Expectation("may-break", KLEPPMANN, "documented-limit"),
}
_MONOTONIC = "promises are counted by the monotonic clock, which nobody sets (locks.base)"

LEASE: Faults = {
    "client-pause": PAUSED_HOLDER,
    "client-gc": NAPPING_HOLDER,
    "client-clock-jump": {"double-grant": Expectation("holds", _MONOTONIC)},
    "client-kill": {"double-grant": Expectation("holds", LEFT_BEHIND)},
    "pause": {"double-grant": Expectation("holds", LATE)},
    "partition-drop": {"double-grant": Expectation("holds", LATE)},
    "partition-stall": {"double-grant": Expectation("holds", LATE)},
    "partition-reject": {"double-grant": Expectation("holds", LATE)},
    "reset": {"double-grant": Expectation("holds", LATE)},
    "reply-lost": {"double-grant": Expectation("holds", LEFT_BEHIND)},
    "kill": KILLED,
    "power-loss": KILLED,
    "rolling-restart": KILLED,
    "restart": {"double-grant": Expectation("holds", DELAY_DOC)},
    "wipe": WIPED,
    "clock-jump": CLOCK_JUMPED,
    "clock-drift": CLOCK_WRONG,
    "clock-strobe": CLOCK_WRONG,
}


# An answer may get lost after its effect, and the data stays.
ANSWERS_LOST = (
    "pause",
    "partition-drop",
    "partition-stall",
    "partition-reject",
    "reset",
    "reply-lost",
)
RESTARTED = ("kill", "restart", "rolling-restart", "power-loss")


def no_lease(never_ends: str) -> Faults:
    """A key without a time to live, which ``never_ends`` is the source for: nobody loses it by
    being late, and nobody gets it from the dead. Only a server that forgets gives it away."""
    holds = {"double-grant": Expectation("holds", never_ends)}
    # Of an acquire or a release that was applied and whose answer is missing the key stays.
    stays = {"leaked-lock": Expectation("may-break", never_ends, "documented-limit")}
    kept = {"leaked-lock": Expectation("breaks", never_ends, "documented-limit", tries=3)}
    forgets = {
        "double-grant": Expectation("may-break", PERSISTENCE_DOC, "documented-limit"),
        "lost-update": Expectation("may-break", LOCK_DOC, "documented-limit"),
    }
    clocks = ("client-clock-jump", "clock-jump", "clock-drift", "clock-strobe")
    return {
        **dict.fromkeys(clocks, holds),
        **dict.fromkeys(("client-pause", "client-gc", *ANSWERS_LOST), holds | stays),
        "client-kill": holds | kept,
        **dict.fromkeys(RESTARTED, forgets | stays),
        "wipe": WIPED | stays,
    }


def but(usual: Faults, **changes: Mapping[str, Expectation]) -> Faults:
    """``usual`` with the verdicts of ``changes`` in place of or beside its own, by fault (its name
    with ``_`` for ``-``)."""
    changed = {fault: dict(verdicts) for fault, verdicts in usual.items()}
    for name, verdicts in changes.items():
        changed.setdefault(name.replace("_", "-"), {}).update(verdicts)
    return changed


def everywhere(usual: Faults, verdicts: Mapping[str, Expectation], *others: str) -> Faults:
    """``usual`` with these verdicts under each of its faults and under ``others``."""
    return {
        fault: {**usual.get(fault, {}), **verdicts} for fault in dict.fromkeys([*others, *usual])
    }
