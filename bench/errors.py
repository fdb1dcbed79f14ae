"""Endings and exit codes: the same words in ``runs/latest/ending``, the same numbers everywhere."""

from __future__ import annotations

from enum import Enum


class Ending(Enum):
    """How a run ended. Ordered by what beats what in a mixed suite: the first wins."""

    SAFETY = ("safety", 1)  # a verdict worse than the lock's expectation
    BENCH = ("bench", 255)  # the bench failed, or a control was not caught
    INCONCLUSIVE = ("inconclusive", 2)  # not exposed, undecided
    REGRESSION = ("regression", 3)
    OK = ("ok", 0)

    def __init__(self, word: str, code: int) -> None:
        self.word = word
        self.code = code

    @classmethod
    def worst(cls, endings: list[Ending]) -> Ending:
        """The one that decides; nothing at all is inconclusive, never ok."""
        if not endings:
            return cls.INCONCLUSIVE
        order = list(cls)
        return min(endings, key=order.index)


BAD_INPUT = 254


class BadInput(Exception):
    """Something that was asked for does not exist, does not fit or cannot work on this machine.

    One sentence that names the thing and the remedy; exit code 254, nothing was started.
    """


class Unfit(BadInput):
    """A lock that cannot be loaded, or not on this topology. Beside other cases it is shown as
    "could not run" and they are run; alone it is bad input."""
