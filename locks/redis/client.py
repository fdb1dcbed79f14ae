"""redis-py, imported with the first connection: what is declared here is read by every command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockbench.declarations.lazy import lazy

if TYPE_CHECKING:
    import redis
    from redis import backoff, exceptions, maint_notifications, retry
else:
    redis = lazy("redis")
    backoff = lazy("redis.backoff")
    exceptions = lazy("redis.exceptions")
    maint_notifications = lazy("redis.maint_notifications")
    retry = lazy("redis.retry")

__all__ = ["backoff", "exceptions", "maint_notifications", "redis", "retry"]
