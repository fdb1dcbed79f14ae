"""A cluster for the length of a ``with`` block, as ``lockbench break`` starts it.

>>> with Cluster("etcd", nodes=3) as cluster:
...     client = connect(cluster.addresses)

Guaranteed: inside the block the cluster is up, which means that it has a leader where it needs one
and that a write and a read went through every link of a client. After the block nothing of it is
left. There is no state outside the object; several clusters can stand at once, in one process or in
several. Its methods may be called from several threads, one after the other waits.

Not guaranteed: that anything is left to clear away by itself when the process is killed. The next
cluster of this machine does it.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Self, TypeVar

from lockbench.api.errors import Unavailable
from lockbench.bench.plan import images_of, unknown
from lockbench.clusters import base, images
from lockbench.clusters.engine.docker import Engine, EngineError
from lockbench.clusters.engine.reaper import reap
from lockbench.clusters.registry import topologies
from lockbench.history import op
from lockbench.locks.base import Address
from lockbench.nemesis.by_hand import ByHand, On
from lockbench.nemesis.targets import head_of
from lockbench.results.errors import BadInput
from lockbench.workloads.load import Pace

# The client group of a program; group 0 is the harness, whose links are never cut.
GROUP = 1


T = TypeVar("T")


async def to_its_end(work: Callable[[], T], undo: Callable[[], object]) -> T:
    """In a thread, which cannot be cancelled: whoever is cancelled meanwhile waits for its end, and
    undoes it."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with suppress(Exception):
            await task
            await asyncio.to_thread(undo)
        raise


class Cluster:
    """See the module. ``topology`` is one of ``lockbench list``; ``nodes`` how many servers it
    has, its usual number if None. ``lease_ttl_s`` bounds the leases of services with sessions, and
    is what a fault's length is told in. ``network`` is the base state of the program's links
    (``loopback``, ``rack``, ``az``, ``region``). ``seed`` decides what faults draw. Images that
    are missing are built when it starts; ``say`` is told of each. Raises BadInput for what does not
    exist or fit.
    """

    def __init__(
        self,
        topology: str,
        *,
        nodes: int | None = None,
        lease_ttl_s: float = Pace().lease_ttl_s,
        network: str = "loopback",
        seed: int | str | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        known = topologies()
        if topology not in known:
            raise unknown("topology", topology, known)
        if network not in base.NETWORKS:
            raise unknown("network", network, base.NETWORKS)
        self.topology = known[topology]
        self.size = self.topology.default_size if nodes is None else nodes
        if self.size not in self.topology.sizes:
            sizes = " or ".join(map(str, self.topology.sizes))
            raise BadInput(f"{topology} is made of {sizes} nodes, not of {self.size}")
        self.lease_ttl_s = lease_ttl_s
        self.faults: list[op.Fault] = []
        """What was injected and is over, as a history says it."""
        self.versions: Mapping[str, str] = {}
        """What its images say they have in them, once it was started: package → version."""
        self.started_in_s: float | None = None
        """How long it took to be up, building excepted."""
        self._plan = base.ClusterPlan(
            topology=topology,
            size=self.size,
            groups=GROUP,
            run_id=uuid.uuid4().hex[:12],
            lease_ttl_s=lease_ttl_s,
            log_dir="",
            network=network,
            keeps_records=False,
        )
        self._draws = random.Random(seed)
        self._say = say
        self._logs: tempfile.TemporaryDirectory[str] | None = None
        self._running: base.Cluster | None = None
        self._by_hand: ByHand | None = None
        self._busy = threading.RLock()

    @classmethod
    def planned(cls, plan: base.ClusterPlan, say: Callable[[str], None]) -> Self:
        """The same with links for several groups of clients, as ``lockbench break`` has it."""
        made = cls(plan.topology, nodes=plan.size, lease_ttl_s=plan.lease_ttl_s, say=say)
        made._plan = plan
        return made

    # --- life ---

    def start(self) -> None:
        """Builds what is missing, starts everything and verifies it. Raises Unavailable with
        nothing started, or ClusterError with nothing left."""
        with self._busy:
            if self._running is not None:
                raise BadInput(f"{self.topology.name} is up already: stop it first")
            log_dir = self._prepare()
            began = time.monotonic()
            cluster = self.topology.make(replace(self._plan, log_dir=log_dir))
            try:
                cluster.start()
            except BaseException:
                self._forget_logs()
                raise
            self.started_in_s = time.monotonic() - began
            self._running, self._by_hand = cluster, ByHand(cluster, self.lease_ttl_s)

    def stop(self) -> None:
        """Removes everything, whatever state it is in. Raises ClusterError that names what is
        left."""
        with self._busy:
            cluster, self._running, self._by_hand = self._running, None, None
            left = [] if cluster is None else cluster.stop()
            self._forget_logs()
        if left:
            raise base.ClusterError(f"could not be removed: {', '.join(left)}")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.stop()
        except base.ClusterError:
            if kind is None:
                raise

    async def __aenter__(self) -> Self:
        """The same without holding up the event loop. Who is cancelled meanwhile leaves nothing."""
        await to_its_end(self.start, lambda: self.__exit__(asyncio.CancelledError))
        return self

    async def __aexit__(self, *error: object) -> None:
        kind = error[0]
        assert kind is None or isinstance(kind, type)
        await asyncio.to_thread(self.__exit__, kind)

    # --- what it is ---

    @property
    def addresses(self) -> Sequence[Address]:
        """Host and port of every node, node 1 first. They lead through links that faults cut."""
        return [Address(*at) for at in self._up().addresses(GROUP)]

    @property
    def hosts(self) -> str:
        """The same as many clients take it: ``127.0.0.2:20001,127.0.0.2:20002``."""
        return ",".join(f"{host}:{port}" for host, port in self.addresses)

    @property
    def nodes(self) -> Sequence[str]:
        """The names of its servers, node 1 first."""
        cluster = self._up()
        return [cluster.node_name(node) for node in cluster.nodes]

    @property
    def leader(self) -> str | None:
        """The name of the leader or primary now; None where there is none."""
        cluster = self._up()
        head = head_of(cluster)
        return None if head is None else cluster.node_name(head)

    # --- what is done to it ---

    def verify(self) -> None:
        """The check of its start again, bounded in time. Raises ClusterError."""
        with self._busy:
            self._up().verify()

    def empty(self) -> None:
        """Removes everything that clients have written, sessions included, and verifies. Raises
        ClusterError."""
        with self._busy:
            cluster = self._up()
            cluster.empty()
            cluster.verify()

    def reseed(self, seed: int | str) -> None:
        """What faults draw from now on depends on this seed alone."""
        self._draws = random.Random(seed)

    def begin(self, fault: str) -> On:
        """Injects one fault; ``lockbench.api.faults`` is what people use. Raises what
        ``ByHand.begin`` does."""
        with self._busy:
            self._up()
            assert self._by_hand is not None
            return self._by_hand.begin(fault, self._draws.randrange(2**32))

    def end(self, on: On) -> None:
        """Heals one fault, and keeps the record of it."""
        with self._busy:
            if self._by_hand is None:  # the cluster has gone, and the fault with it
                on.over.set()
                return
            self._by_hand.end(on)
            if on.happened is not None and on.happened not in self.faults:
                self.faults.append(on.happened)

    def running(self) -> tuple[base.Cluster, ByHand]:
        """What the command line works on: the cluster itself, and its faults. Raises BadInput."""
        cluster = self._up()
        assert self._by_hand is not None
        return cluster, self._by_hand

    def _up(self) -> base.Cluster:
        if self._running is None:
            raise BadInput(
                f"{self.topology.name} is not up: use it inside `with Cluster(…)`, or start it"
            )
        return self._running

    def _prepare(self) -> str:
        """All that can be missing on this machine; returns the folder for logs."""
        try:
            with Engine() as engine:
                names = images_of([self.topology])
                images.ensure(names, engine=engine, say=self._say)
                described = images.describe(names, engine=engine).values()
                self.versions = {
                    of: version for it in described for of, version in it.versions.items()
                }
                reap(engine=engine)
            if self._plan.log_dir:
                return self._plan.log_dir
            self._logs = tempfile.TemporaryDirectory(prefix="lockbench-")
        except EngineError as error:
            raise Unavailable(str(error)) from error
        except OSError as error:
            raise Unavailable(
                f"there is no folder for the servers' logs ({error}): set TMPDIR to one that can be"
                " written"
            ) from error
        return self._logs.name

    def _forget_logs(self) -> None:
        if self._logs is not None:
            self._logs.cleanup()
            self._logs = None
