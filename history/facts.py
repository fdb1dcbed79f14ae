"""What the nemesis saw of a fault: written while it is on, stored with it, read by the checker.

A fact that is not there is not known. Facts that have no name here are kept as they are and read by
nobody.
"""

from __future__ import annotations

import msgspec


class Facts(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Servers are named as the cluster names them (``str``) or by their number (``int``), workers
    by their number. Times in nanoseconds are of the monotonic clock."""

    # Of every fault.
    took_effect: bool | None = None
    healed: bool | None = None
    proven: bool | None = None  # both
    probe: str | None = None  # the last error of asking whether it took effect
    declared_s: float | None = None
    measured_s: float | None = None
    parameters: dict[str, str | float] | None = None
    ends_servers: bool | None = None  # what a server did last may be missing in what it kept

    # Whom it struck, and who led.
    worker: int | None = None
    workers: list[int] | None = None  # if there may be several
    hold: str | None = None  # of the victim, as the history names it
    leader_before: int | None = None
    leader_during: int | None = None
    deciding: list[str] | None = None  # servers that decide by their own data and clock

    # Clients.
    frozen: bool | None = None
    pauses_ms: list[float] | None = None
    of: str | None = None  # the request whose reply was lost

    # Links.
    pairs: list[tuple[int, int]] | None = None  # who no longer hears whom; clients are negative
    links_cut: int | None = None
    links_slowed: int | None = None
    ended: bool | None = None  # whether a connection of our own was; between servers, any
    usual_s: float | None = None  # a write before the fault, the slowest of a few
    took_s_before: float | None = None  # the fastest
    took_s_during: float | None = None

    # Servers.
    killed_nodes: list[int] | None = None  # in turn
    restarted_ns: int | None = None
    restart_delay_s: float | None = None
    away_ns: dict[str, tuple[int, int]] | None = None  # from its kill until it served again
    bytes_lost: dict[str, int] | None = None
    primary_before: str | None = None
    primary_during: str | None = None
    replica: int | None = None
    staged_ns: int | None = None  # when replication was cut, before the fault began
    lagged: bool | None = None  # whether a lock was granted while replication was cut

    # Wall clocks. A move is made between two times, to this many seconds ahead.
    moves: list[tuple[int, int, float]] | None = None
    offset_s: float | None = None  # the furthest move
    read_off_s: float | dict[str, float] | None = None  # as the victim says, or each server
