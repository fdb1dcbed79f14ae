"""``redis-token`` with a fence: the script that sets the key also counts a counter up.

Both happen or neither, in the order of the grants, so fences grow with every grant for as long as
the counter is kept. The counter is the key ``<key>:fence`` and has no time to live.

Does not guarantee: what ``redis-token`` does not. A server that lost its data gives out small
fences again, and one that lost its last second repeats some.

Errors mean what ``locks.redis_recipe`` says for scripts.
"""

from __future__ import annotations

from dataclasses import replace

from locks import redis_token
from locks.base import Expectation
from locks.redis_expectations import KLEPPMANN, LEASE, LOCK_DOC, PERSISTENCE_DOC, but
from locks.redis_link import Script
from locks.redis_recipe import SCRIPT_OUTCOMES, SCRIPT_REFUSED, Taken
from locks.redis_token import RedisToken

TAKE = Script.of(
    "if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then "
    "return redis.call('incr', KEYS[2]) else return 0 end",
    keys=2,
)


class RedisFence(RedisToken):
    """One client of the lock."""

    refused = SCRIPT_REFUSED

    def take(self, key: str, token: str, ttl_ms: int) -> Taken | None:
        """Sets the key unless it is there, and counts the grant."""
        fence = self._link.run(TAKE, key, f"{key}:fence", token, ttl_ms)
        return Taken(self._link.sent_ns, fence) if fence else None


FORGETS = f"{LOCK_DOC}: a counter is data, and is lost with the data"
MAY_FORGET = Expectation("may-break", PERSISTENCE_DOC, "documented-limit")

SYSTEM = replace(
    redis_token.SYSTEM,
    name="redis-fence",
    connect=RedisFence,
    fence="INCR in the script that grants",
    source=f"{KLEPPMANN} (fencing tokens); {LOCK_DOC}",
    outcomes=SCRIPT_OUTCOMES,
    expectations=but(
        LEASE,
        kill={"fence-order": MAY_FORGET},
        power_loss={"fence-order": MAY_FORGET},
        restart={"fence-order": MAY_FORGET},
        rolling_restart={"fence-order": MAY_FORGET},
        wipe={"fence-order": Expectation("breaks", FORGETS, "documented-limit", tries=3)},
    ),
)
