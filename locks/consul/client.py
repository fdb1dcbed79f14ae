"""How the Consul locks speak to a server: py-consul, one request a call."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lockbench.declarations.lazy import lazy
from lockbench.locks.base import Address

if TYPE_CHECKING:
    import consul
    import requests
    from consul import callback
else:
    callback = lazy("consul.callback")
    consul = lazy("consul")
    requests = lazy("requests")


def errors() -> tuple[type[Exception], ...]:
    """What a request ends with that was refused or that nobody answered."""
    return consul.ConsulException, requests.RequestException


def unknown_session(error: Exception) -> bool:
    """Whether the server says that the session of the request does not exist."""
    return isinstance(error, consul.NotFound) or "invalid session" in str(error)


def client_of(node: Address, timeout_s: float) -> Any:
    """One endpoint, one connection, no retries, nothing taken from the environment: py-consul would
    read a token there, and requests proxy settings and .netrc."""
    client = consul.Consul(
        node.host, node.port, scheme="http", verify=True, connections_timeout=timeout_s
    )
    client.token = None
    client.http.session.trust_env = False
    once = requests.adapters.HTTPAdapter(pool_connections=1, pool_maxsize=1, max_retries=0)
    client.http.session.mount("http://", once)
    return client


def close(client: Any) -> None:
    """py-consul's own ``close`` does nothing."""
    client.http.session.close()


def create_session(client: Any, *, ttl_s: float, lock_delay_s: float, behavior: str) -> str:
    """The id of a session that is bound to no health check. Not by py-consul's ``create``, which
    refuses a TTL below Consul's default minimum of 10 s, and fractions of a second."""
    wanted = {
        "NodeChecks": [],
        "TTL": f"{ttl_s}s",
        "LockDelay": f"{lock_delay_s}s",
        "Behavior": behavior,
    }
    made: str = client.http.put(
        callback.CB.json(is_id=True), "/v1/session/create", data=json.dumps(wanted)
    )
    return made
