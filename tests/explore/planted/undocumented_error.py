"""A library behind a sidecar tells its user of an answer that is missing, by an error.

``wrong-undocumented-error`` raises an error that its documentation does not name. Shown where the
answer to an acquire is lost. raises.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

from lockbench.locks.base import Address, Observer
from lockbench.locks.redis import token as redis_token
from lockbench.locks.shared.library import python_path
from lockbench.locks.shared.sidecar import Sidecar, SidecarLock, shared

# Its program, given what it raises.
LIBRARY = """
import sys
import time

import redis
from lockbench_sidecar import Client, Denied, Granted, NotHeld, Released, refused, serve
from redis.backoff import NoBackoff
from redis.retry import Retry

DELETE_OWN = '''
if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end
return 0
'''


class NoAnswer(Exception):
    pass


class Library(Client):
    def __init__(self, setup):
        ((host, port),) = setup.nodes
        limit_s = setup.timeout_s
        self._redis = redis.Redis(
            host,
            port,
            socket_timeout=limit_s,
            socket_connect_timeout=limit_s,
            retry=Retry(NoBackoff(), 0),
        )

    def acquire(self, key, hold, ttl_s, wait_s):
        over_s = time.monotonic() + wait_s
        try:
            self._redis.ping()
        except redis.RedisError as error:
            return Denied(f"no-effect: {error}")
        while True:
            sent_ns = time.monotonic_ns()
            if self._answered("SET", key, hold, "NX", "PX", int(1000 * ttl_s)):
                until_ns = sent_ns + int(1e9 * ttl_s)
                if time.monotonic_ns() < until_ns:
                    return Granted(sent_ns, until_ns, lock=key)
                self._answered("EVAL", DELETE_OWN, 1, key, hold)
                return Denied("gave-up: it was granted too late")
            if time.monotonic() > over_s:
                return refused(wait_s, "it is held")
            time.sleep(0.05)

    def release(self, hold, lock):
        return Released() if self._answered("EVAL", DELETE_OWN, 1, lock, hold) else NotHeld()

    def close(self):
        self._redis.close()

    def _answered(self, *command):
        try:
            return self._redis.execute_command(*command)
        except redis.RedisError as error:
            raise ERROR("no answer") from error


ERROR = {"NoAnswer": NoAnswer, "LookupError": LookupError}[sys.argv[1]]
serve("redis", Library)
"""


def _connect(
    error: str,
    nodes: Sequence[Address],
    *,
    timeout_s: float,
    ttl_s: float,
    observer: Observer,
) -> SidecarLock:
    command = [sys.executable, "-P", "-c", LIBRARY, error]
    environment = {"PYTHONPATH": python_path()}
    sidecar = shared(error, lambda: Sidecar(error, command, environment))
    return SidecarLock(
        sidecar, nodes, timeout_s=timeout_s, ttl_s=ttl_s, observer=observer, safe=True
    )


RIGHT = redis_token.SYSTEM.derived(
    name="right-undocumented-error",
    connect=partial(_connect, "NoAnswer"),
    parameters={},
    not_owed={"a_hold_lives_on_while_it_is_kept_alive": "the library has no extend"},
    raises={"NoAnswer": "its documentation"},
)
WRONG = RIGHT.derived(name="wrong-undocumented-error", connect=partial(_connect, "LookupError"))
SYSTEMS = (RIGHT, WRONG)
