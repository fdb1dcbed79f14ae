"""Faults as context managers, the same that a case is played with.

>>> with faults.partition(cluster, of="leader") as fault:
...     ...  # ``fault.targets`` are cut off, and this is proven

A fault is proven before the block begins: what it struck was seen not to answer (or whatever the
fault takes away). After the block it is healed, and seen to be. Raises NotProven before the block,
with the fault healed; NotHealed after it; BadInput for a fault that does not exist or that this
cluster cannot have.

``async with`` does the same without holding up the event loop.
"""

from __future__ import annotations

import asyncio
from typing import Literal, Self

from lockbench.api.cluster import Cluster, to_its_end
from lockbench.api.errors import NotHealed, NotProven
from lockbench.clusters.base import Cut
from lockbench.nemesis.base import NemesisError
from lockbench.nemesis.by_hand import On
from lockbench.nemesis.schedule import ScheduleError
from lockbench.results.errors import BadInput

Who = Literal["decisive", "one", "leader", "primary", "replica", "minority", "majority", "all"]
"""Which servers. ``decisive``: the leader or primary; a majority of independent nodes."""
Of = Literal["decisive", "leader", "minority", "majority", "bridge", "ring", "clients"]
"""Who is cut off: see ``lockbench.nemesis.partition``."""
Way = Literal["both", "out", "in"]
"""Which direction is cut, as the cut off side sees it."""


class Injection:
    """One fault; entered once."""

    def __init__(self, cluster: Cluster, text: str) -> None:
        self.text = text
        self._cluster = cluster
        self._on: On | None = None

    @property
    def entered(self) -> bool:
        """Whether it was injected, and proven."""
        return self._on is not None and self._on.proven

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the servers that were struck; empty before, and where it is all links."""
        return () if self._on is None else self._on.arena.names()

    def __enter__(self) -> Self:
        try:
            self._on = on = self._cluster.begin(self.text)
        except (NemesisError, ScheduleError) as error:
            raise BadInput(str(error)) from error
        if not on.proven:
            self._cluster.end(on)
            raise NotProven(
                f"{self.text} of {on.where()} was injected and no effect of it was seen, so a test "
                f"under it would show nothing{_trouble(on)}"
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._on is not None
        self._cluster.end(self._on)
        if self._on.trouble is not None and kind is None:
            raise NotHealed(f"{self.text} of {self._on.where()} {self._on.trouble}")

    async def __aenter__(self) -> Self:
        return await to_its_end(self.__enter__, lambda: self.__exit__(asyncio.CancelledError))

    async def __aexit__(self, *error: object) -> None:
        kind = error[0]
        assert kind is None or isinstance(kind, type)
        await asyncio.to_thread(self.__exit__, kind)


def inject(cluster: Cluster, fault: str) -> Injection:
    """Any fault of ``lockbench list`` by its words there: ``latency:ms=50:on=clients``. With
    ``for=SECONDS`` it heals by itself, at the end of the block at the latest."""
    return Injection(cluster, fault)


def partition(
    cluster: Cluster,
    *,
    of: Of = "decisive",
    how: Cut = "drop",
    way: Way = "both",
) -> Injection:
    """Cuts links. ``how``: what crosses is dropped, held back until the heal (``stall``), or
    refused (``reject``)."""
    return inject(cluster, f"partition-{how}:shape={of}:way={way}")


def pause(cluster: Cluster, *, who: Who = "decisive") -> Injection:
    """Freezes servers; their clocks and leases run on."""
    return inject(cluster, f"pause:who={who}")


def kill(cluster: Cluster, *, who: Who = "decisive") -> Injection:
    """SIGKILL; they are started again with their data."""
    return inject(cluster, f"kill:who={who}")


def latency(cluster: Cluster, *, ms: float) -> Injection:
    """Delays what clients send and are answered."""
    return inject(cluster, f"latency:ms={ms:g}:on=clients")


def _trouble(on: On) -> str:
    return "" if on.trouble is None else f"; it {on.trouble}"


__all__ = [
    "Injection", "inject", "kill", "latency", "partition", "pause",
]  # fmt: skip
