"""What is still to be played, and what of it is played together next.

Together are those that strike no server, and those that do the same to the same servers, whose
events come at about the same time: they share the strike. Where clients may ask any server, the one
is struck at which most of the events are (``lockbench.explore.servers.Blow``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from lockbench.explore.servers import LED
from lockbench.explore.trial import Trial
from lockbench.explore.trials import act_of, at_s_of, servers_of

OUTNUMBERED_MAX: Final = 3


class _Group(NamedTuple):
    """``act``: what is done to the servers; empty where nothing is. ``servers``: empty also where
    the strike itself says which."""

    which: int  # of the lists that share no strike
    act: str
    servers: tuple[int, ...]


class Pending:
    """``lists``: those of different ones share no strike. ``interchangeable``, ``of_one_quorum``:
    as of ``lockbench.explore.trial.Setting``."""

    def __init__(
        self,
        *lists: Sequence[Trial],
        interchangeable: Sequence[int] = (),
        of_one_quorum: bool = False,
    ) -> None:
        self._interchangeable: Final = interchangeable
        self._of_one_quorum: Final = of_one_quorum
        self._groups: dict[_Group, list[Trial]] = {}
        self._taken: Counter[Trial] = Counter()
        self.add(*lists)

    def add(self, *lists: Sequence[Trial]) -> None:
        """More of them, the first to the first list, and so on."""
        for which, trials in enumerate(lists):
            for trial in trials:
                servers = sorted(servers_of(trial, self._interchangeable))
                act = act_of(trial)
                if act == LED or (len(servers) == 1 and self._may_be_anywhere(trial)):
                    servers = []
                group = _Group(which if act else 0, act, tuple(servers))
                self._groups.setdefault(group, []).append(trial)

    def take(self, alone: int, sharing: int, *, last: bool = True) -> Sequence[Trial]:
        """Some that are played together; none when nothing is left. First those that strike no
        server, and of them those whose plays last longest; then those of which the most parts are
        left; then those that change the leader: another node may be the primary from then on.
        ``alone``, ``sharing``: how many there may be of those that strike no server, and of
        others. ``last``: nothing else will be added, so these may be begun."""

        def parts(group: _Group) -> float:
            return len(self._groups[group]) / (sharing if group.act else alone)

        groups = [group for group in self._groups if last or group.act != LED]
        if not groups:
            return ()
        group = max(groups, key=lambda group: (group.act != LED, not group.act, parts(group)))
        trials = sorted(self._groups[group], key=at_s_of if group.act else _last_first)
        count = math.ceil(len(trials) / math.ceil(parts(group)))
        self._taken.update(trials[:count])
        self._groups[group] = trials[count:]
        if count == len(trials):
            del self._groups[group]
        return trials[:count]

    def _may_be_anywhere(self, trial: Trial) -> bool:
        """Whether its event may be at any server: not once it was played so often, for those whose
        events are elsewhere may outnumber it each time."""
        return self._of_one_quorum and self._taken[trial] < OUTNUMBERED_MAX


def _last_first(trial: Trial) -> float:
    return -min((strike.place.at_s for strike in trial.strikes), default=0.0)
