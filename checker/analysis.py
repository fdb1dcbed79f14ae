"""A history with its links and promises."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lockbench.checker.promises import Links, Promises, link, promises
from lockbench.checker.rows import Rows
from lockbench.history.columns import History


@dataclass(frozen=True)
class Analysis:
    """A history, the acquire that each of its rows belongs to, and its promises: what every verdict
    and every sentence is about."""

    history: History
    links: Links
    promises: Promises

    @staticmethod
    def of(history: History) -> Analysis:
        """Works out the rest."""
        links = link(history)
        return Analysis(history, links, promises(history, links))

    @cached_property
    def grant_of(self) -> Rows:
        """For every row, the number of its grant among the promises; -1 without one, and at the
        end, so that -1 may be asked for."""
        found = np.full(len(self.history) + 1, -1, np.intp)
        found[self.promises.row] = np.arange(len(self.promises))
        return found

    def name(self, row: int) -> str:
        """The client of a row."""
        return self.history.client(int(self.history.process[row]))

    def key(self, row: int) -> str:
        return self.history.keys[int(self.history.key[row])] or "the lock"
