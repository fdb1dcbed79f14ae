"""How PostgreSQL's servers are probed and asked for their roles, whoever has started them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from lockbench.clusters.base import HARNESS
from lockbench.clusters.pods.linked import LinkedCluster
from lockbench.clusters.postgres.protocol import Session
from lockbench.clusters.wire import PROBE_FAILURES, Address, ProbeFailed

ASK_LIMIT_S = 0.5


class PostgresServers(LinkedCluster):
    """A primary and its replicas. ``Replicated``."""

    kind = "postgres"

    def primary(self) -> int | None:
        """Of the nodes that take writes, the one that was promoted last."""
        writable = {node: line for node, line in self._timelines().items() if line}
        return max(writable, key=lambda node: writable[node]) if writable else None

    def replicas(self) -> Sequence[int]:
        """The nodes that only replay."""
        return [node for node, line in self._timelines().items() if line == 0]

    # --- probes ---

    def check_serves(self, address: Address, limit_s: float, *, read: bool) -> None:
        """A primary's transaction, that is then found committed; a replica's answer."""
        with Session(address, limit_s) as session:
            written = write(session)
            if written is None or not read:
                return
            found = session.query(f"SELECT pg_xact_status('{written}'::xid8)")
            if found != [["committed"]]:
                raise ProbeFailed(f"transaction {written} is {found}")

    def check_answer(self, address: Address, limit_s: float) -> None:
        """A session is accepted, which is refused while data is being recovered."""
        with Session(address, limit_s):
            pass

    @contextmanager
    def pinger(self, address: Address, limit_s: float) -> Iterator[Callable[[], object]]:
        with Session(address, limit_s) as session:
            yield lambda: session.query("")

    def _timelines(self) -> Mapping[int, int | None]:
        return dict(zip(self.nodes, self._each(self.nodes, self._timeline), strict=True))

    def _timeline(self, node: int) -> int | None:
        """Of a node that takes writes, its timeline; 0: it only replays; None: no answer."""
        try:
            with Session(self.address(HARNESS, node), ASK_LIMIT_S) as session:
                ((replays,),) = session.query("SELECT pg_is_in_recovery()")
                if replays == "t":
                    return 0
                ((name,),) = session.query("SELECT pg_walfile_name(pg_current_wal_lsn())")
        except PROBE_FAILURES:
            return None
        return int(str(name)[:8], 16)


def write(session: Session) -> str | None:
    """Commit something on a primary and return the transaction's id; on a replica, do nothing."""
    if session.query("SELECT pg_is_in_recovery()") == [["t"]]:
        return None
    # It assigns an id and writes to the log, and so waits for disk and replica as any commit does.
    ((written, _),) = session.query(
        "SELECT pg_current_xact_id(), pg_logical_emit_message(true, 'lockbench', 'probe')"
    )
    return written
