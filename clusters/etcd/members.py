"""How etcd's members are probed and asked who leads, through the JSON gateway, whoever has started
them."""

from __future__ import annotations

import base64
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import as_completed
from contextlib import contextmanager

from lockbench.clusters.base import HARNESS
from lockbench.clusters.pods.linked import LinkedCluster
from lockbench.clusters.wire import PROBE_FAILURES, Address, Http, ProbeFailed

STATUS_LIMIT_S = 0.5


class EtcdMembers(LinkedCluster):
    """Members of one etcd cluster. ``Led``."""

    kind = "etcd"
    probes = "lockbench/"  # how the keys of probes begin

    def leader(self) -> int | None:
        """The node that a majority calls leader. One that was cut off has only its own word."""
        votes: Counter[str] = Counter()
        node_of: dict[str, int] = {}
        asked = {self._pool.submit(self._status, node): node for node in self.nodes}
        for answer in as_completed(asked):
            if (status := answer.result()) is None:
                continue
            member, leader = status
            node_of[member] = asked[answer]
            votes[leader] += leader not in {"", "0"}
            for elected, count in votes.items():
                if count > self.plan.size // 2 and elected in node_of:
                    return node_of[elected]
        return None

    def check_serves(self, address: Address, limit_s: float, *, read: bool) -> None:
        """Put one and the same key; or one of its own, read it back by a linearizable range, and
        delete it."""
        name = self.probes + (f"probe/{secrets.token_hex(8)}" if read else "probe")
        key, value = encoded(name), encoded(secrets.token_hex(8))
        with Http(address, limit_s) as http:
            http.post("/v3/kv/put", {"key": key, "value": value})
            if not read:
                return
            found = http.post("/v3/kv/range", {"key": key}).get("kvs", [])
            if [kv.get("value") for kv in found] != [value]:
                raise ProbeFailed(f"wrote {value} and read {found}")
            http.post("/v3/kv/deleterange", {"key": key})

    def check_answer(self, address: Address, limit_s: float) -> None:
        with Http(address, limit_s) as http:
            http.get("/version")

    @contextmanager
    def pinger(self, address: Address, limit_s: float) -> Iterator[Callable[[], object]]:
        with Http(address, limit_s) as http:
            yield lambda: http.get("/version")

    def _status(self, node: int) -> tuple[str, str] | None:
        """A node's own id and the id of whom it calls leader; None when it does not answer."""
        try:
            with Http(self.address(HARNESS, node), STATUS_LIMIT_S) as http:
                status = http.post("/v3/maintenance/status", {})
            return str(status["header"]["member_id"]), str(status.get("leader", ""))
        except (*PROBE_FAILURES, KeyError, TypeError):
            return None


def encoded(text: str) -> str:
    """As the gateway wants bytes."""
    return base64.b64encode(text.encode()).decode()
