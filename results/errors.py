"""Endings and exit codes: the same words in ``runs/latest/ending``, the same numbers everywhere.
``CODES`` is every number that the command line ends with."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final


class Ending(Enum):
    """How a run ended. Ordered by what beats what in a mixed suite: the first wins."""

    SAFETY = ("safety", 1)  # a verdict worse than the lock's expectation
    REGRESSION = ("regression", 3)  # of numbers
    BENCH = ("bench", 255)  # the bench failed, or a control was not caught
    INCONCLUSIVE = ("inconclusive", 2)  # not exposed, undecided
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


def worst_first(endings: Iterable[str]) -> tuple[str, ...]:
    """What occurred, each once, the worst first; ok only where nothing else is. They are a set:
    what could not be decided hides nothing that was found."""
    found = {word for word in endings if word != Ending.OK.word}
    return tuple(e.word for e in Ending if e.word in found) or (Ending.OK.word,)


def endings_named(text: str) -> list[str]:
    """The endings that a list with commas names, at least one; ``ok`` fails nothing. Raises
    BadInput."""
    known = [ending.word for ending in Ending if ending != Ending.OK]
    found = [word.strip() for word in text.split(",") if word.strip()]
    for word in found:
        if word not in known:
            raise BadInput(f"no ending is called {word!r}: they are {', '.join(known)}")
    if not found:
        raise BadInput(f"name an ending that fails the job: {', '.join(known)}")
    return found


def exit_code(endings: Sequence[str], fail_on: Collection[str]) -> int:
    """That of the worst ending which is to fail; 0 without one."""
    codes = {ending.word: ending.code for ending in Ending}
    return next((codes[word] for word in worst_first(endings) if word in fail_on), 0)


BAD_INPUT: Final = 254
FAILED: Final = Ending.BENCH.code
INTERRUPTED: Final = Ending.BENCH.code
# 128 + SIGPIPE: what a shell shows of every program whose reader has gone.
OUTPUT_GONE: Final = 141
CODES: Final[Mapping[int, str]] = {
    Ending.OK.code: "as expected; `check`: valid",
    Ending.SAFETY.code: "a promise broke that was expected to hold, or under a fault of which "
    "nothing is declared; `check`: invalid",
    Ending.INCONCLUSIVE.code: "inconclusive; a lock of your own that declares nothing broke what "
    "no lease can prevent; `check`: unknown",
    Ending.REGRESSION.code: "something got slower (`regress`, the nightly job), "
    "or breaks more often (also `compare`)",
    OUTPUT_GONE: "the output could not be written: its reader has gone, or its disk is full",
    BAD_INPUT: "bad input, and nothing was started",
    FAILED: "the bench failed or was interrupted, a case could not run or was disturbed from "
    "outside, or a control was not caught",
}


class BadInput(Exception):
    """Something that was asked for does not exist, does not fit or cannot work on this machine.

    One sentence that names the thing and the remedy; exit code 254, nothing was started.
    """


class Failed(Exception):
    """The run could not go on, for a reason that one sentence says; what was found out is kept.

    Exit code 255, and ``bench`` in its folder unless something worse was found."""


class Unfit(BadInput):
    """A lock that cannot be loaded, or not on this topology. Beside other cases it is shown as
    "could not run" and they are run; alone it is bad input."""
