"""Importing this makes blocking calls gevent's, as Locust does in the workers; before all else.

An answer that is there counts before a time-out that is over: whoever was frozen finds both, and a
client with threads reads the answer. gevent alone raises the time-out, and where it waits by epoll
does not even look: that call ends when a stopped process goes on, poll does not (signal(7)).
"""

from __future__ import annotations

import select
from typing import Any

from gevent import config, monkey, socket

_wait = socket.socket._wait  # noqa: SLF001 - every blocking call of a socket goes through it
_poll = select.poll


def _answers_first(this: Any, watcher: Any, timeout_exc: Any = None) -> None:
    try:
        _wait(this, watcher, timeout_exc)
    except TimeoutError:
        reads = watcher is this._read_event  # noqa: SLF001
        poll = _poll()
        poll.register(this.fileno(), select.POLLIN)
        if not reads or not poll.poll(0):
            raise


config.libev_backend = "poll"
socket.socket._wait = _answers_first  # noqa: SLF001
monkey.patch_all()
