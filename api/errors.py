"""What the library raises. Each message is one sentence that says what is wrong and what to do."""

from __future__ import annotations

from lockbench.checker.verdict import Verdict
from lockbench.clusters.base import ClusterError
from lockbench.results.errors import BadInput

__all__ = [
    "BadInput", "BrokenPromise", "ClusterError", "NotHealed", "NotProven", "Unavailable",
    "Undecided",
]  # fmt: skip


class Unavailable(BadInput):
    """This machine has not what a cluster needs: a Docker engine that answers this user, an image
    that can be built, a folder to write into. Nothing was started."""


class NotProven(Exception):
    """A fault was injected and no effect of it was seen, so that a test under it shows nothing. It
    has been healed."""


class NotHealed(Exception):
    """What a fault broke does not serve again: the cluster is of no use any more."""


class Undecided(AssertionError):
    """Nothing can be said of a recording: nothing, or too little, was recorded. Never green."""


class BrokenPromise(AssertionError):
    """More were inside a section at once than it admits.

    ``verdict`` has the operations, ``drawing`` an HTML page that shows them.
    """

    def __init__(self, sentence: str, verdict: Verdict, drawing: str) -> None:
        super().__init__(sentence)
        self.verdict = verdict
        self.drawing = drawing
