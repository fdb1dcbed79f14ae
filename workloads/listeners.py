"""A user's own locustfile in a process of a bench: its listeners hear what happens.

Its users are not started: what the load is, the case says.
"""

from __future__ import annotations

from locust.util.load_locustfile import load_locustfile

from lockbench.workloads.load import LocustsOwn


def load(locust: LocustsOwn) -> None:
    """Imports it, if there is one. Raises whatever it raises."""
    if locust.locustfile is not None:
        load_locustfile(locust.locustfile)
