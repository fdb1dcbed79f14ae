"""How the etcd lock speaks to the JSON gateway: etcd3gw for requests, a plain socket to watch."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING, Any, NamedTuple

from lockbench.declarations.lazy import lazy
from lockbench.locks.base import Address, Deadline

if TYPE_CHECKING:
    from http import client as http_client

    import etcd3gw
    import requests
    from etcd3gw import exceptions as etcd3gw_errors
else:
    http_client = lazy("http.client")
    etcd3gw = lazy("etcd3gw")
    requests = lazy("requests")
    etcd3gw_errors = lazy("etcd3gw.exceptions")

API = "/v3/"


class Ahead(NamedTuple):
    """The key to wait for, and the revision at which it was seen."""

    name: str  # in base64, as the gateway speaks
    seen_at: int


def wait_for_deletion(node: Address, ahead: Ahead, timeout_s: float, limit_s: float) -> bool:
    """Whether the key was deleted within ``limit_s``. ``timeout_s`` bounds the start of the watch.

    Not etcd3gw's own watch: it posts without a timeout, reads in a pool of two threads per watch,
    and swallows every error there, so that a waiter whose stream broke is never told. A plain
    socket in the waiting greenlet needs no thread and ends when it should.
    """
    connection = http_client.HTTPConnection(node.host, node.port, timeout=timeout_s)
    create = {"key": ahead.name, "start_revision": ahead.seen_at + 1, "filters": ["NOPUT"]}
    until = Deadline(limit_s)
    try:
        connection.request("POST", f"{API}watch", json.dumps({"create_request": create}))
        response = connection.getresponse()
        if connection.sock is None:  # the server closes after this answer, so it is no stream
            raise http_client.HTTPException(f"watch refused: {response.status}")
        while not until.over():
            connection.sock.settimeout(max(0.001, until.left_s()))
            message = json.loads(response.readline() or "{}")
            result = message.get("result", {})
            if result.get("events"):
                return True
            if not result.get("created"):  # cancelled, compacted, or the end of the stream
                raise http_client.HTTPException(f"watch ended: {message}")
    except ValueError as error:
        raise http_client.HTTPException(f"watch answered nonsense: {error}") from error
    except TimeoutError:
        if not until.over():
            raise
    finally:
        connection.close()
    return False


def errors() -> tuple[type[Exception], ...]:
    """What a request ends with that was refused or that nobody answered."""
    return etcd3gw_errors.Etcd3Exception, requests.RequestException


def watch_errors() -> tuple[type[Exception], ...]:
    """What looking, and waiting for a deletion, end with."""
    return *errors(), OSError, http_client.HTTPException


def client_of(node: Address, timeout_s: float) -> Any:
    """One endpoint, one connection, no retries, nothing taken from the environment: requests would
    read proxy settings and .netrc anew for every request."""
    session = requests.Session()
    session.trust_env = False
    once = requests.adapters.HTTPAdapter(pool_connections=1, pool_maxsize=1, max_retries=0)
    session.mount("http://", once)
    return etcd3gw.Etcd3Client(
        host=node.host, port=node.port, timeout=timeout_s, api_path=API, session=session
    )


def encoded(text: str) -> str:
    """As the gateway wants bytes."""
    return b64encode(text.encode()).decode()
