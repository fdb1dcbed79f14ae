"""One VersityGW on a folder of its own.

An object is a file with its attributes; a replacement is linked into its place. A conditional
``PUT`` is looked at and done under a lock of the key (``backend/posix/objlock.go`` of v1.8.0).
Nothing is synced, and this version has no setting for it: a loss of power may take away what was
acknowledged. A killed server loses nothing, because the kernel has the files.

The buckets are made by the first probe that finds none.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from lockbench.clusters.base import HARNESS, Topology
from lockbench.clusters.pods.cluster import PodCluster
from lockbench.clusters.pods.launch import Server, http_ok
from lockbench.clusters.versitygw import bucket
from lockbench.clusters.versitygw.protocol import ACCESS, NOT_FOUND, REGION, SECRET, Session
from lockbench.clusters.wire import Address, ProbeFailed

EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - in its pod
# The image's.
DATA: Final = "/lockbench/data"
VERSIONS: Final = "/lockbench/versions"
HEALTH: Final = "/health"
EMPTY_LIMIT_S: Final = 10.0

SETTINGS = {"backend": "posix, with a versioning-dir", "fsync": "never", "keep-alive": "yes"}


class VersityGateway(PodCluster):
    """One node.

    Neither ``Clocked`` nor ``Syncing``: a Go program reads the clock and syncs its files without
    the C library, where ``lockbench.clusters.pods.shim`` stands.
    """

    kind = "versitygw"

    def server(self, node: int) -> Server:
        """The gateway, which knows one user."""
        options = (
            f"--port={EVERYWHERE}:{self.port(node)}",
            f"--region={REGION}",
            f"--health={HEALTH}",
            "--keep-alive",
            "--quiet",
        )
        return Server(
            ["versitygw", *options, "posix", f"--versioning-dir={VERSIONS}", DATA],
            env={"ROOT_ACCESS_KEY": ACCESS, "ROOT_SECRET_KEY": SECRET},
            ready=http_ok(self.port(node), HEALTH, "OK"),
        )

    def check_serves(self, address: Address, limit_s: float, *, read: bool) -> None:
        """Put one and the same object; or one of its own, get it and delete it."""
        path = f"/{bucket.PLAIN}/probe{'-' + secrets.token_hex(8) if read else ''}"
        value = secrets.token_hex(8).encode()
        with Session(address, limit_s) as session:
            answer = session.ask("PUT", path, body=value)
            if answer.status == NOT_FOUND:  # there is no bucket
                bucket.make(session)
                answer = session.ask("PUT", path, body=value)
            bucket.done(answer)
            if not read:
                return
            found = bucket.done(session.ask("GET", path)).body
            if found != value:
                raise ProbeFailed(f"wrote {value!r} and read {found!r}")
            bucket.done(session.ask("DELETE", path), bucket.REMOVED)

    def check_answer(self, address: Address, limit_s: float) -> None:
        with Session(address, limit_s) as session:
            bucket.done(session.ask("GET", HEALTH))

    @contextmanager
    def pinger(self, address: Address, limit_s: float) -> Iterator[Callable[[], object]]:
        with Session(address, limit_s) as session:
            yield lambda: session.ask("GET", HEALTH)

    def remove_everything(self, node: int) -> None:
        """Every object, with all that it was."""
        with Session(self.address(HARNESS, node), EMPTY_LIMIT_S) as session:
            bucket.empty(session)


TOPOLOGY = Topology(
    name="versitygw",
    sizes=(1,),
    default_size=1,
    images=("versitygw",),
    settings=SETTINGS,
    make=VersityGateway,
    quorum=False,
)
