"""redis-py, imported with the first connection: what is declared here is read by every command."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from lockbench.declarations.lazy import lazy

if TYPE_CHECKING:
    import redis
    from redis import backoff, exceptions, retry
else:
    redis = lazy("redis")
    backoff = lazy("redis.backoff")
    exceptions = lazy("redis.exceptions")
    retry = lazy("redis.retry")

__all__ = ["backoff", "exceptions", "quiet", "redis", "retry"]


@functools.cache
def quiet() -> dict[str, Any]:
    """What keeps a connection from sending more than it is told to, in each redis-py from 5 on."""
    found: dict[str, Any] = {"lib_name": None, "lib_version": None}
    if "driver_info" in inspect.signature(redis.connection.AbstractConnection.__init__).parameters:
        found = {"driver_info": None}
    try:
        from redis.maint_notifications import MaintNotificationsConfig
    except ImportError:  # before 7
        return found
    return found | {"maint_notifications_config": MaintNotificationsConfig(enabled=False)}
