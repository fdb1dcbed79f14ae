# /// script
# requires-python = ">=3.11"
# dependencies = ["etcd3-py==0.1.6", "etcd3gw==2.7.0"]
# ///
"""etcd3-py and etcd3gw: a release whose answer never comes never returns.

    uv run docs/track/etcd-gateway-no-time-limit.py 127.0.0.1:2379

A lock is given back while what etcd answers is lost, as when the server's machine loses its power,
or a firewall forgets the connection. Then answers pass again: the release of a client at its
defaults does not return all the same. That of a client that was made with ``timeout=2`` ends.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import etcd3
import etcd3gw

from plain import Begun, Proxy, Recorder, end, servers

TTL_S = 10
MUTE_S = 5.0
LIMIT_S = 30.0
LIMITED = {"timeout": 2}

logging.disable()
[server], history = servers(__doc__, 1, "one member of etcd 3.6")
recorder = Recorder("lockbench-no-time-limit")


def of_etcd3_py(host: str, port: int, key: str, **limit: int) -> Any:
    """A lock of etcd3-py, by a client of its own."""
    return etcd3.Client(host, port, **limit).Lock(key, lock_ttl=TTL_S)


def of_etcd3gw(host: str, port: int, key: str, **limit: int) -> Any:
    """A lock of etcd3gw, by a client of its own."""
    return etcd3gw.client(host, port, **limit).lock(key, ttl=TTL_S)


def came_of(made: Callable[..., Any], **limit: int) -> str:
    """Of a release while its client hears nothing for ``MUTE_S``."""
    name = f"{made.__name__.removeprefix('of_')}{', timeout=2' if limit else ''}"
    proxy = Proxy(server)
    lock = made(proxy.host, proxy.port, f"{recorder.key}-{name}", **limit)
    acquire = recorder.begin(name, "acquire", name)
    assert lock.acquire(), "nobody else has it"
    acquire.ok("returned")
    time.sleep(1.0)  # a renewal that was under way has its answer
    giving_back = recorder.begin(name, "release", name)
    proxy.mute = True
    begun = Begun(lock.release)
    time.sleep(MUTE_S)
    proxy.mute = False
    came = begun.came(LIMIT_S) or f"had not ended {LIMIT_S:g} s after answers passed again"
    giving_back.unknown(came)
    return came


said, waits = [], []
for library in (of_etcd3_py, of_etcd3gw):
    limited, usual = came_of(library, **LIMITED), came_of(library)
    assert "had not ended" not in limited, "a time limit is of no use either"
    name = library.__name__.removeprefix("of_")
    said.append(f"{name}: release {usual}; with timeout=2 it {limited}")
    waits.append("had not ended" in usual)
end(recorder, history, all(waits), said)
