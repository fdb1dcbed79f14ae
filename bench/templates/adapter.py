"""my-lock, as its user drives it. Runs in the environment that requirements.txt pins.

Say here what the defaults are, what ``safe`` sets, and from when on the library counts the promise
of a grant: which file of which version says so.
"""

from __future__ import annotations

from typing import Any

from lockbench_sidecar import Acquired, Client, Freed, Setup, serve


class MyLock(Client):
    """One client of the library."""

    # Errors of the library that mean: the wait is over; it was not held any more. What it raises
    # otherwise is Unknown.
    gave_up = ()
    not_held = ()

    def __init__(self, setup: Setup) -> None:
        """``setup`` has the nodes, a limit for a request, the lease, and ``safe``."""
        self._setup = setup

    def acquire(self, key: str, hold: str, ttl_s: float, wait_s: float) -> Acquired:
        """Answers ``Granted(sent_ns, valid_until_ns, lock=what release needs)``, both in
        time.monotonic_ns() and ``sent_ns`` from just before the request that took it; or
        ``refused(wait_s, "what the library said")``."""
        raise NotImplementedError("say how my-lock acquires")

    def release(self, hold: str, lock: Any) -> Freed:
        """Answers ``Released()``. ``lock`` is what the grant had."""
        raise NotImplementedError("say how my-lock releases")

    def close(self) -> None:
        """Drops the connections."""


if __name__ == "__main__":
    serve("my-lock", MyLock)
