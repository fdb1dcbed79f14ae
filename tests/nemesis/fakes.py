"""Clients of a load that is not there, for playing faults on clusters alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class FakeClients:
    """A victim that holds as soon as it is asked to, and does whatever it is told."""

    left_s: float = 3.0
    grants: bool = True
    let_go_calls: int = 0
    stopped: set[int] = field(default_factory=set)
    dead: set[int] = field(default_factory=set)
    offset_s: float = 0.0
    victim_worker: int = 0
    other_workers: Sequence[int] = (1, 2)

    def hold(self, timeout_s: float) -> int | None:
        return 7 if self.grants else None

    def promise_left_s(self) -> float:
        return self.left_s

    def let_go(self) -> None:
        self.let_go_calls += 1

    def stop_before_acquire(self, timeout_s: float) -> bool:
        return True

    def go_on(self) -> None: ...

    def asking(self) -> bool:
        return True

    def occupy(self, timeout_s: float) -> bool:
        return True

    def vacate(self) -> None: ...

    def extend(self) -> None: ...

    def group(self, worker: int) -> int:
        return worker + 1

    def freeze(self, workers: Sequence[int]) -> None:
        self.stopped |= set(workers)

    def thaw(self, workers: Sequence[int]) -> None:
        self.stopped -= set(workers)

    def frozen(self, worker: int) -> bool:
        return worker in self.stopped

    def kill(self, workers: Sequence[int]) -> None:
        self.dead |= set(workers)

    def killed(self, worker: int) -> bool:
        return worker in self.dead

    def shift_clock(self, offset_s: float) -> None:
        self.offset_s = offset_s

    def clock_offset_s(self) -> float:
        return self.offset_s
