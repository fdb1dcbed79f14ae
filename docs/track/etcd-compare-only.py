# /// script
# requires-python = ">=3.11"
# dependencies = []
# ///
"""etcd: a transaction of comparisons alone is answered from what that server has heard so far.

    python docs/track/etcd-compare-only.py 127.0.0.1:2379 127.0.0.1:22379 127.0.0.1:32379

A key is written through the leader, and after its answer a follower is asked, in a transaction,
whether the key is there; then it is deleted, and asked for again. Once with no operation in the
transaction, once with a range of the same key, which changes nothing.
"""

from __future__ import annotations

import base64
import http.client
import json

from plain import Recorder, end, servers

KEY = "lockbench:compare-only"
TIMES = 200
NAME = base64.b64encode(KEY.encode()).decode()
THERE = {"key": NAME, "target": "CREATE", "result": "GREATER", "create_revision": 0}
RANGE = {"request_range": {"key": NAME}}  # linearizable, as every range is unless it says otherwise


class Server:
    """One server's JSON gateway, by one connection."""

    def __init__(self, host: str, port: int) -> None:
        self._connection = http.client.HTTPConnection(host, port, timeout=10)

    def ask(self, path: str, body: dict[str, object]) -> dict[str, object]:
        """The answer; an error of the server is raised."""
        self._connection.request("POST", f"/v3/{path}", json.dumps(body))
        answer = self._connection.getresponse()
        said = json.loads(answer.read())
        if answer.status != http.client.OK:
            raise RuntimeError(f"{path}: {said}")
        return dict(said)


def is_there(server: Server, operations: list[dict[str, object]]) -> int:
    """1 or 0, as a transaction says that compares the key and then does the operations."""
    asked = {"compare": [THERE], "success": operations, "failure": operations}
    return int(bool(server.ask("kv/txn", asked).get("succeeded")))


addresses, history = servers(__doc__, 3, "the three servers of one etcd")
every = [Server(*address) for address in addresses]
status = [server.ask("maintenance/status", {}) for server in every]
leads = [said["leader"] == dict(said["header"])["member_id"] for said in status]  # type: ignore[call-overload]
leader, follower = every[leads.index(True)], every[leads.index(False)]
print(f"etcd {status[0]['version']}")


def pair(value: int, operations: list[dict[str, object]]) -> tuple[int, Recorder]:
    """The key is written (1) or deleted (0); what a follower says then, and both operations."""
    recorder = Recorder(KEY, initial=1 - value, quiet=True)
    write = recorder.begin("A", "write", f"write-{value}")
    body = {"key": NAME, "value": NAME} if value else {"key": NAME}
    leader.ask("kv/put" if value else "kv/deleterange", body)
    write.ok("answered", value=value)
    read = recorder.begin("B", "read", f"read-{value}")
    said = is_there(follower, operations)
    read.ok(str(said), value=said)
    return said, recorder


def stale(operations: list[dict[str, object]]) -> tuple[dict[int, int], Recorder | None]:
    """How often each value was not what a follower said, and the first time."""
    found = {1: 0, 0: 0}
    first = None
    for _ in range(TIMES):
        for value in found:
            said, recorder = pair(value, operations)
            if said != value:
                found[value] += 1
                first = first or recorder
    return found, first


leader.ask("kv/deleterange", {"key": NAME})
alone, shown = stale([])
ranged, _ = stale([RANGE])
end(
    shown or pair(1, [])[1],
    history,
    shown is not None and not any(ranged.values()),
    [
        f"{what}: of {TIMES} times each, a key that was there was said to be missing {found[1]} "
        f"times, a key that was gone to be there {found[0]} times"
        for what, found in (("comparisons alone", alone), ("with a range", ranged))
    ],
)
