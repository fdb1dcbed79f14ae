"""How ZooKeeper's servers are probed and asked who leads, whoever has started them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lockbench.clusters.base import HARNESS
from lockbench.clusters.pods.linked import LinkedCluster
from lockbench.clusters.wire import PROBE_FAILURES, Address, ProbeFailed
from lockbench.clusters.zookeeper import protocol as jute

ASK_LIMIT_S = 0.5


@dataclass(frozen=True, slots=True)
class ServerState:
    """What a server says of itself."""

    leads: bool
    epoch: int
    followers_synced: int


class ZooKeeperServers(LinkedCluster):
    """Servers of one ensemble, or one alone. ``Led``."""

    kind = "zookeeper"

    def leader(self) -> int | None:
        """The node that leads a majority.

        After an unpause two can call themselves leader. The later epoch is the true one: it took a
        quorum's votes. It must also be followed by a majority, so one that was cut off is not named
        even while nobody else leads.
        """
        reports = dict(zip(self.nodes, self._each(self.nodes, self._report), strict=True))
        known = {node: report for node, report in reports.items() if report is not None}
        claims = {node: report.epoch for node, report in known.items() if report.leads}
        if not claims:
            return None
        first = max(claims, key=lambda node: claims[node])
        behind = [r for r in known.values() if not r.leads and r.epoch <= claims[first]]
        majority = self.plan.size // 2 + 1
        followed = min(len(behind), known[first].followers_synced) + 1
        return first if followed >= majority else None

    def check_serves(self, address: Address, limit_s: float, *, read: bool) -> None:
        """Open and end a session, which is a write; in it make an ephemeral node and read it."""
        path, value = f"/lockbench-probe-{secrets.token_hex(8)}", secrets.token_hex(8).encode()
        with jute.Session(address, limit_s, session_ms=self._session_ms) as session:
            if read:
                session.create_ephemeral(path, value)
                if (found := session.get(path)) != value:
                    raise ProbeFailed(f"wrote {value!r} and read {found!r}")
            session.end()

    @contextmanager
    def pinger(self, address: Address, limit_s: float) -> Iterator[Callable[[], object]]:
        """The heartbeat of a session."""
        with jute.Session(address, limit_s, session_ms=self._session_ms) as session:
            yield session.ping

    @property
    def _session_ms(self) -> int:
        return round(1000 * self.plan.lease_ttl_s)

    def _report(self, node: int) -> ServerState | None:
        """None when it does not answer, or answers that it does not serve."""
        try:
            said = jute.four_letters(self.address(HARNESS, node), "srvr", ASK_LIMIT_S)
            leads = "Mode: leader" in said or "Mode: standalone" in said
            if not leads and "Mode: follower" not in said:
                return None
            epoch = int(after(said, "Zxid: "), 16) >> 32
            synced = self._synced(node) if leads else 0
        except PROBE_FAILURES:
            return None
        return ServerState(leads, epoch, synced)

    def _synced(self, node: int) -> int:
        """How many follow this leader and have what it has. Raises OSError or ValueError."""
        said = jute.four_letters(self.address(HARNESS, node), "mntr", ASK_LIMIT_S)
        return round(float(after(said, "zk_synced_followers\t")))


def after(text: str, label: str) -> str:
    """The word after a label; ValueError where there is none."""
    if label not in text:
        raise ValueError(f"no {label!r} in the answer")
    return text.partition(label)[2].split(maxsplit=1)[0]
