"""What can go wrong at one event of a lock's traffic.

Each fault names the kinds of event that it fits, what the link does to the event, what else is done
while the event is held, and under which faults of the nemesis a declaration speaks of the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from lockbench.explore.link import Kind, Strike

# What is done while the event is held. client-killed: and the event passes; client-gone: and it
# does not. Of servers: the event passes when the server has been struck.
Act = Literal[
    "",
    "client-frozen",
    "client-killed",
    "client-gone",
    "server-frozen",
    "server-killed",
    "majority-frozen",
    "majority-killed",
    "leader-changed",
    "server-wiped",
    "clock-jumped",
]
# Those that forget what they have just confirmed: the event passes before they are struck.
FORGETS: Final[frozenset[Act]] = frozenset({"server-wiped", "clock-jumped"})
# At the server of the event, and at so many others that a majority is struck at once.
OF_MAJORITIES: Final[frozenset[Act]] = frozenset({"majority-frozen", "majority-killed"})
FREEZES: Final[frozenset[Act]] = frozenset({"server-frozen", "majority-frozen"})
ENDS: Final[frozenset[Act]] = frozenset(
    {"server-killed", "majority-killed", "leader-changed", "server-wiped"}
)
OF_CLIENTS: Final[frozenset[Act]] = frozenset({"client-frozen", "client-killed", "client-gone"})
OF_SERVERS: Final[frozenset[Act]] = FORGETS | OF_MAJORITIES | FREEZES | ENDS
# A freeze, or a delivery that is very late, in leases: longer than one, and the margin of a lock.
BEYOND: Final = 1.3
BRIEFLY_S: Final = 0.6


@dataclass(frozen=True, slots=True)
class Fault:
    """``leases``: how late it is, or how long what is frozen stays so; ``seconds``: the same where
    it is no matter of leases. ``like``: faults of ``lockbench.nemesis.faults`` that do the same to
    a lock."""

    name: str
    summary: str
    fits: tuple[Kind, ...]
    strike: Strike
    like: tuple[str, ...]
    leases: float = 0.0
    seconds: float = 0.0
    act: Act = ""

    @property
    def of_servers(self) -> bool:
        """Whether it strikes servers, which all plays share."""
        return self.act in OF_SERVERS


_CUT: Final = ("partition-drop", "partition-stall")
_SLOW: Final = ("latency", "jitter", "bandwidth", "partition-stall")
_FAULTS: Final = (
    Fault("connect-lost", "nothing passes on the new connection", ("connect",), "lost", _CUT),
    Fault("connect-reset", "the new connection is reset", ("connect",), "reset-before", ("reset",)),
    Fault("request-lost", "the request does not arrive", ("request",), "lost", _CUT),
    Fault("reply-lost", "the answer does not arrive", ("reply",), "lost", ("reply-lost", *_CUT)),
    Fault(
        "reset-before",
        "the connection is reset, and it does not arrive",
        ("request", "reply"),
        "reset-before",
        ("reset", "reply-lost"),
    ),
    Fault(
        "reset-after",
        "the answer arrives, then the connection is reset",
        ("reply",),
        "reset-after",
        ("reset",),
    ),
    Fault("end-lost", "the server does not hear that the client has gone", ("end",), "lost", _CUT),
    Fault("late", "it arrives half a lease late", ("request", "reply"), "late", _SLOW, leases=0.5),
    Fault(
        "very-late",
        "it arrives later than a lease",
        ("request", "reply"),
        "late",
        _SLOW,
        leases=BEYOND,
    ),
    Fault(
        "doubled",
        "the connection is reset, and the request arrives later, beside a new connection",
        ("request",),
        "orphaned",
        ("reset", *_SLOW),
        leases=0.5,
    ),
    Fault(
        "doubled-late",
        "the connection is reset, and the request arrives after more than a lease",
        ("request",),
        "orphaned",
        ("reset", *_SLOW),
        leases=BEYOND,
    ),
    Fault(
        "client-frozen",
        "the client is frozen for longer than its lease",
        ("connect", "request", "reply"),
        "held",
        ("client-pause", "client-gc"),
        leases=BEYOND,
        act="client-frozen",
    ),
    Fault(
        "client-paused",
        "the client is frozen for less than it waits for an answer",
        ("reply",),
        "held",
        ("client-pause", "client-gc"),
        seconds=BRIEFLY_S,
        act="client-frozen",
    ),
    Fault(
        "client-killed",
        "the client is killed, and it arrives",
        ("request", "reply"),
        "held",
        ("client-kill",),
        act="client-killed",
    ),
    Fault(
        "client-gone",
        "the client is killed, and it does not arrive",
        ("request",),
        "held",
        ("client-kill",),
        act="client-gone",
    ),
    Fault(
        "server-frozen",
        "the server is frozen for longer than a lease",
        ("request", "reply"),
        "held",
        ("pause",),
        leases=BEYOND,
        act="server-frozen",
    ),
    Fault(
        "server-killed",
        "the server is killed and started again",
        ("request", "reply"),
        "held",
        ("kill", "restart"),
        act="server-killed",
    ),
    Fault(
        "majority-frozen",
        "a majority of the servers is frozen for longer than a lease",
        ("request", "reply"),
        "held",
        ("pause",),
        leases=BEYOND,
        act="majority-frozen",
    ),
    Fault(
        "majority-killed",
        "a majority of the servers is killed and started again",
        ("request", "reply"),
        "held",
        ("kill", "restart"),
        act="majority-killed",
    ),
    Fault(
        "leader-changed",
        "the leader is killed, and another node leads",
        ("request", "reply"),
        "held",
        ("failover", "kill"),
        act="leader-changed",
    ),
    Fault(
        "server-wiped",
        "the server is killed when it has passed, and comes back without its data",
        ("request", "reply"),
        "held",
        ("wipe",),
        act="server-wiped",
    ),
    Fault(
        "clock-jumped",
        "the server's wall clock jumps ahead when it has passed, by five leases",
        ("request", "reply"),
        "held",
        ("clock-jump",),
        leases=1.0,
        act="clock-jumped",
    ),
)
FAULTS: Final = {fault.name: fault for fault in _FAULTS}


def fitting(kind: Kind) -> list[Fault]:
    """The faults that can strike an event of this kind."""
    return [fault for fault in _FAULTS if kind in fault.fits]
