"""What a lock in a bucket of NATS is expected to do under each fault, and who says so."""

from __future__ import annotations

from lockbench.locks.shared.expectations import (
    BY_MONOTONIC_CLOCK,
    CUT,
    SLOW_LINKS,
    Faults,
    breaks,
    grants_twice,
    holds,
    may_break,
)

_ADR = "https://github.com/nats-io/nats-architecture-and-design/blob/main/adr"
KV_DOC = f"{_ADR}/ADR-8.md"
TTL_DOC = f"{_ADR}/ADR-43.md"
JEPSEN = "https://jepsen.io/analyses/nats-2.12.1"
_CLUSTERING = (
    "https://docs.nats.io/running-a-nats-service/configuration/clustering/jetstream_clustering"
)
_TTL_ENDS = (
    f"{TTL_DOC}: the deadline of a message is its timestamp in the stream and its time to live; "
    "nobody tells the holder, who may still act"
)
_RAFT = (
    f"{_CLUSTERING}: a message is acknowledged by a majority, which has it after a leader is gone; "
    f"{KV_DOC}: a write with an expected revision is accepted only where that is the key's last; "
    f"{JEPSEN}: crashes of processes lose nothing since 2.10.23"
)
_FILES = (
    f"{KV_DOC}: a bucket is a stream, and a stream is files of its server; without them the key is "
    "free, and another stream begins at revision 1"
)
_SERVERS = ("pause", "kill", "restart", "rolling-restart", "reset", "reply-lost")
NATS: Faults = {
    "client-pause": {
        **breaks(_TTL_ENDS, "stale-holder"),
        **may_break(_TTL_ENDS, "lost-update"),
    },
    "client-gc": may_break(_TTL_ENDS, "stale-holder", "lost-update"),
    **dict.fromkeys(("client-kill", *_SERVERS, *CUT, *SLOW_LINKS), holds(_RAFT)),
    "wipe": {**grants_twice(_FILES), **breaks(_FILES, "fence-order")},
    **BY_MONOTONIC_CLOCK,
}
