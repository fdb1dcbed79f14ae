# /// script
# requires-python = ">=3.11"
# dependencies = ["pg8000==1.31.6"]
# ///
"""PostgreSQL: a wait for an advisory lock that ran out may have taken the lock.

    uv run docs/track/postgres-advisory-timeout.py 127.0.0.1:5432

A holds the lock and gives it back at about the time at which B's ``lock_timeout`` is over; many
times. Where B is told that it did not get the lock (55P03), it asks whether it has it: an unlock
says true.
"""

from __future__ import annotations

import os
import random
import threading
import time

from pg8000.exceptions import DatabaseError
from pg8000.native import Connection

from plain import Recorder, end, servers

LOCK = 7
TIMEOUT_S = 0.02
AROUND_S = 0.002
TRIES = 2000
NOT_AVAILABLE = "55P03"

[(host, port)], history = servers(__doc__, 1, "PostgreSQL")
user = os.environ.get("PGUSER", "postgres")


def client() -> Connection:
    """A session of its own."""
    return Connection(user, host=host, port=port, database="postgres", ssl_context=False)


recorder = Recorder(str(LOCK), quiet=True)
a, b = client(), client()
b.run(f"SET lock_timeout = {int(1000 * TIMEOUT_S)}")


def waited(hold: str) -> bool:
    """Whether B was granted the lock."""
    waiting = recorder.begin("B", "acquire", hold)
    try:
        b.run(f"SELECT pg_advisory_lock({LOCK})")
    except DatabaseError as error:
        if error.args[0]["C"] != NOT_AVAILABLE:
            raise
        waiting.fail("gave-up", NOT_AVAILABLE)
        return False
    waiting.ok("granted")
    return True


granted = refused = had_it = 0
for number in range(TRIES):
    holding = recorder.begin("A", "acquire", f"a{number}")
    a.run(f"SELECT pg_advisory_lock({LOCK})")
    holding.ok("granted")
    answers: list[bool] = []
    waiter = threading.Thread(target=lambda n=number, to=answers: to.append(waited(f"b{n}")))
    waiter.start()
    time.sleep(TIMEOUT_S + random.uniform(-AROUND_S, AROUND_S))
    releasing = recorder.begin("A", "release", f"a{number}")
    a.run(f"SELECT pg_advisory_unlock({LOCK})")
    releasing.ok("true")
    waiter.join()
    (got,) = answers
    unlocking = recorder.begin("B", "release", f"b{number}")
    had = b.run(f"SELECT pg_advisory_unlock({LOCK})") == [[True]]
    if got:
        unlocking.ok("true")
    granted += got
    refused += not got
    had_it += had and not got
    if had_it:
        break

end(
    recorder,
    history,
    bool(had_it),
    [f"granted {granted} times, refused {refused} times, {had_it} of these with the lock"],
)
