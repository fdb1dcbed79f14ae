"""``redis-token`` with a fence: the script that sets the key also counts a counter up.

Both happen or neither, in the order of the grants, so fences grow with every grant for as long as
the counter is kept. The counter is the key ``<key>:fence`` and has no time to live.

Does not guarantee: what ``redis-token`` does not. A server that lost its data gives out small
fences again, and one that lost its last second repeats some.

Errors mean what ``lockbench.locks.redis.recipe`` says for scripts.
"""

from __future__ import annotations

from lockbench.locks.bare import KEY, TOKEN, TTL_MS, Bare
from lockbench.locks.base import ANY
from lockbench.locks.redis import token as redis_token
from lockbench.locks.redis.expectations import KLEPPMANN, LEASE, LOCK_DOC, PERSISTENCE_DOC
from lockbench.locks.redis.link import BARE_CYCLE, Script
from lockbench.locks.redis.recipe import SCRIPT_OUTCOMES, Taken
from lockbench.locks.redis.token import RedisToken
from lockbench.locks.shared.expectations import RESTARTED, breaks, may_break, with_changes

TAKE = Script.of(
    "if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then "
    "return redis.call('incr', KEYS[2]) else return 0 end",
    keys=2,
)


class RedisFence(RedisToken):
    """One client of the lock."""

    by_script = True

    def take(self, key: str, token: str, ttl_ms: int) -> Taken | None:
        """Sets the key unless it is there, and counts the grant."""
        fence = self._link.run(TAKE, key, f"{key}:fence", token, ttl_ms)
        return Taken(self._link.sent_ns, fence) if fence else None


SYSTEM = redis_token.SYSTEM.derived(
    name="redis-fence",
    elsewhere=True,
    suites={"capacity": (ANY,)},
    connect=RedisFence,
    fence="INCR in the script that grants",
    source=f"{KLEPPMANN} (fencing tokens); {LOCK_DOC}",
    outcomes=SCRIPT_OUTCOMES,
    bare=(Bare("redis", (TAKE.called(KEY, f"{KEY}:fence", TOKEN, TTL_MS), *BARE_CYCLE[1:])),),
    expectations=with_changes(
        LEASE,
        dict.fromkeys(RESTARTED, may_break(PERSISTENCE_DOC, "fence-order")),
        {
            "wipe": breaks(
                f"{LOCK_DOC}: a counter is data, and is lost with the data", "fence-order"
            )
        },
    ),
)
