"""What a lock of a Consul session is expected to do under each fault, and who says so."""

from __future__ import annotations

from lockbench.locks.shared.expectations import CUT, SLOW_LINKS, Faults, breaks, holds, may_break

SESSIONS = "https://developer.hashicorp.com/consul/docs/automate/session"
_RAFT = (
    "https://developer.hashicorp.com/consul/docs/concept/consensus: whatever is written has been "
    "agreed to by a quorum of servers, and survives a leader"
)
_FRESH_TTLS = (
    f"{SESSIONS}: a session does not end before its TTL, which starts afresh when the session is "
    "made, when it is renewed, and when another leader takes over"
)
_SESSIONS_END = (
    f"{SESSIONS}: a lock is advisory, and its session can end while its holder still acts; "
    "lock-delay gives the holder time to notice, 'while not a bulletproof method'. In v1.8.7 "
    "(agent/consul/session_ttl.go, createSessionTimer) that is after twice the TTL"
)
_SERVERS = ("pause", "kill", "restart", "rolling-restart", "reset", "reply-lost")
CONSUL: Faults = {
    "client-pause": {
        **breaks(_SESSIONS_END, "stale-holder"),
        **may_break(_SESSIONS_END, "lost-update"),
    },
    "client-gc": may_break(_SESSIONS_END, "stale-holder", "lost-update"),
    **dict.fromkeys(
        ("client-kill", *_SERVERS, *CUT, *SLOW_LINKS), holds(f"{_RAFT}; {_FRESH_TTLS}")
    ),
}
