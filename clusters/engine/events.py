"""What happens to the containers of a run while they are watched: the engine's own events.

Everything that an ``Engine`` of ours does to a container it notes before it does it (``Act``). What
is left when these are taken away was done by somebody else, or by the container itself.

Guarantees: an event between construction and ``close`` is found, or ``lost`` says that it may have
been missed. What was dead, paused or gone at construction, and not by our doing, is found too. What
makes no event is not seen, such as a signal to a process from the host.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from lockbench.clusters.engine import owner
from lockbench.clusters.engine.docker import (
    Act,
    Container,
    ContainerState,
    Engine,
    EngineError,
    Event,
    EventStream,
)

# What ends, stops or changes a container. The engine tells of much else, as of commands in it.
STRIKING: Final = frozenset(
    {
        "die", "kill", "oom", "stop", "start", "restart", "pause", "unpause", "destroy", "update",
        "rename", "connect", "disconnect",
    }
)  # fmt: skip
LOG_LINES: Final = 3
# The engine's answer to what it remembers, at the end.
PATIENCE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Running:
    """A container of the run. ``pid`` is its first process on this host; 0 while there is none.
    ``name`` is as in its log's name: ``redis-1``."""

    name: str
    pid: int
    addresses: tuple[str, ...]
    of_client: bool


@runtime_checkable
class Contained(Protocol):
    """A cluster whose servers run in containers."""

    def acts(self) -> Sequence[Act]:
        """What was done to its containers from here, in order."""


def unexplained(events: Iterable[Event], acts: Iterable[Act]) -> list[Event]:
    """The events, in the order of time, that no act of ours made. Each act makes one event of each
    of its actions, at the earliest when it was noted."""
    due: dict[tuple[str, str], list[int]] = defaultdict(list)
    for act in acts:
        for action in () if act.refused else act.actions:
            due[act.container_id, action].append(act.at_ns)
    left = []
    for event in sorted(events, key=lambda event: event.at_ns):
        mine = due[event.container_id, event.action]
        if mine and min(mine) <= event.at_ns:
            mine.remove(min(mine))
        else:
            left.append(event)
    return left


@runtime_checkable
class Spread(Protocol):
    """A cluster some of whose servers may run on engines of other hosts."""

    def engines_elsewhere(self) -> Sequence[Engine]:
        """These engines."""


class ContainerWatch:
    """Watches one engine from its construction on; what was done to those of other hosts is not
    looked for there. ``excused`` are events whose other cause is known, such as the death of the
    process that a client container belongs to."""

    def __init__(
        self,
        run_id: str,
        acts: Callable[[], Sequence[Act]],
        excused: Callable[[Event], bool] = lambda _: False,
        engine: Engine | None = None,
    ) -> None:
        self._engine = engine or Engine()
        self.host = self._engine.host
        self._run_id = run_id
        self._all_acts = acts
        self._excused = excused
        self._since_ns = time.time_ns()
        self._events: dict[tuple[str, str, int], Event] = {}
        self._stream: EventStream | None = None
        self._closing = False
        self.lost: str | None = None
        self.running: Mapping[str, Running] = {}
        """By id. What was started anew appears a moment later."""
        with suppress(EngineError):
            self._note_what_was_struck(self._look())
        self._reader = threading.Thread(target=self._read, name="events", daemon=True)
        self._reader.start()

    def unexplained(self) -> list[Event]:
        """What happened to containers of this run, and nobody here did."""
        known = {act.container_id for act in self._acts()}
        ours = [
            event
            for event in list(self._events.values())
            if event.attributes.get(owner.RUN) == self._run_id or event.container_id in known
        ]
        left = unexplained(ours, list(self._acts()))
        return [event for event in left if not self._excused(event)]

    def name_of(self, event: Event) -> str:
        """As in its log's name."""
        there = self.running.get(event.container_id)
        return there.name if there else _short(event.name, event.attributes)

    def last_words(self, event: Event) -> list[str]:
        """The end of its log; none where it is gone, as a client container at once."""
        with suppress(EngineError):
            said = self._engine.last_words(Container(event.container_id, event.name), LOG_LINES)
            return [line for line in said.splitlines() if line.strip()]
        return []

    def close(self, *, ask: bool = True) -> None:
        """Stop watching; with ``ask``, after a last question to the engine. Never raises; takes
        some seconds where the engine does not answer."""
        last = threading.Thread(target=self._remembered, name="last events", daemon=True)
        if ask:
            last.start()
            last.join(PATIENCE_S)
        if last.is_alive():
            self._lose("the engine does not answer")
        self._closing = True
        if self._stream is not None:
            self._stream.close()
        self._reader.join(PATIENCE_S if ask else 0.0)

    def _acts(self) -> list[Act]:
        """Those on this engine."""
        return [act for act in self._all_acts() if act.host == self.host]

    def _read(self) -> None:
        try:
            self._stream = self._engine.events(self._since_ns)
            for event in self._stream:
                self._note(event)
            self._lose("the engine went away")
        except EngineError as error:
            self._lose(str(error))

    def _remembered(self) -> None:
        """Catch what is still on its way through the stream."""
        try:
            for event in self._engine.events(self._since_ns, time.time_ns()):
                self._note(event)
        except EngineError as error:
            self._lose(str(error))

    def _note(self, event: Event) -> None:
        if event.action not in STRIKING:
            return
        self._events[event.container_id, event.action, event.at_ns] = event
        if event.action == "start" and event.attributes.get(owner.RUN) == self._run_id:
            with suppress(EngineError):
                self._look()

    def _look(self) -> Mapping[Container, ContainerState]:
        """Note which containers of the run there are, and return them. Raises EngineError."""
        asked = self._engine.containers({owner.RUN: self._run_id})
        states = ((container, self._engine.state(container)) for container in asked)
        there = {container: state for container, state in states if state is not None}
        found = {
            container.id: Running(
                name=_short(container.name, state.labels),
                pid=state.pid,
                addresses=tuple(state.addresses.values()),
                of_client=state.labels.get(owner.CLUSTER) == owner.CLIENTS,
            )
            for container, state in there.items()
        }
        self.running = {**self.running, **found}  # what is gone keeps its name
        return there

    def _note_what_was_struck(self, there: Mapping[Container, ContainerState]) -> None:
        """Before anybody looked: the stream does not tell of it."""
        for container, state in there.items():
            if state.paused or not state.running:
                how = "pause" if state.paused else "die"
                self._note(Event(container.id, container.name, how, self._since_ns, state.labels))
        started = {act.container_id for act in self._acts() if "start" in act.actions}
        for gone in started - {container.id for container in there}:
            self._note(Event(gone, gone[:12], "destroy", self._since_ns, {}))

    def _lose(self, why: str) -> None:
        if not self._closing and self.lost is None:
            self.lost = why


def _short(name: str, labels: Mapping[str, str]) -> str:
    return name.removeprefix(f"lockbench-{labels.get(owner.CLUSTER, '')}-")
