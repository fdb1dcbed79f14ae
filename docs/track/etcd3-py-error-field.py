# /// script
# requires-python = ">=3.11"
# dependencies = ["etcd3-py==0.1.6"]
# ///
"""etcd3-py: whatever etcd 3.6 refuses ends in a TypeError, and not in etcd3-py's own error.

    uv run docs/track/etcd3-py-error-field.py 127.0.0.1:2379

A lock is given back whose lease is over, as it is when its holder was held up for too long. etcd
says that it does not find the lease. Then the same with the field ``error`` put into that answer,
where etcd 3.5 and before have it; and a lock whose lease lives on.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from etcd3 import Client
from etcd3.errors import ErrLeaseNotFound

from plain import Recorder, end, servers

NAME = "lockbench-error-field"
TTL_S = 10

logging.disable()
[(host, port)], history = servers(__doc__, 1, "one member of etcd 3.6")
now, before, other = Client(host, port), Client(host, port), Client(host, port)
other.delete_range(f"_locks/{NAME}")
recorder = Recorder(NAME)


def with_error_field(answer: Any, **_: Any) -> None:
    """Puts in what the gateway had in a refusal until etcd 3.6."""
    if answer.status_code >= 400:
        body = answer.json()
        answer._content = json.dumps({"error": body["message"], **body}).encode()


before._session.hooks["response"].append(with_error_field)


def given_back(client: Client, hold: str, *, over: bool) -> Exception | None:
    """What the release of a lock raises whose lease is over, or is not."""
    lock = client.Lock(NAME, lock_ttl=TTL_S)
    acquire = recorder.begin("A", "acquire", hold)
    lock.acquire()
    acquire.ok("returned")
    if over:
        other.lease_revoke(lock.lease.ID)
    release = recorder.begin("A", "release", hold)
    try:
        lock.release()
    except Exception as error:  # noqa: BLE001 - it is what is looked for
        return error
    release.ok("returned")
    return None


refusal = other._session.post(other._url("/kv/lease/revoke"), json={"ID": "1"}).text
alive = given_back(now, "alive", over=False)
assert alive is None, f"a lock that is held cannot be given back either: {alive!r}"
as_before = given_back(before, "as-before", over=True)
assert isinstance(as_before, ErrLeaseNotFound), f"it is not for the field: {as_before!r}"
as_now = given_back(now, "as-now", over=True)
end(
    recorder,
    history,
    isinstance(as_now, TypeError),
    [
        f"etcd says {refusal}",
        f"with the field error, release raises {as_before!r}",
        f"as etcd answers, release raises {as_now!r}",
    ],
)
