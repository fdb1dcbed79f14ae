"""The containers of a cluster of loopback pods: how they are made, started, found and removed.

Every node is two containers that share one network namespace. The *link* container runs Toxiproxy,
owns the namespace and the published ports, and is never restarted; the *server* container joins it.
``127.0.0.1`` and a peer port of node j mean node j inside every pod: a pod's own lead straight to
its server, the others' through this pod's Toxiproxy. So every directed link has a proxy of its own
and nothing bypasses it.

Over several hosts (``ClusterPlan.hosts``) each pod is on an engine of its own. What one pod reaches
by another's address is then a published port of that pod's host, with the same number.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from lockbench.clusters import images
from lockbench.clusters.base import HARNESS, ClusterError, ClusterPlan
from lockbench.clusters.engine import ledger, owner, ports, removal
from lockbench.clusters.engine.docker import (
    Act,
    Container,
    Engine,
    EngineError,
    EngineUnreachable,
    Network,
    Ports,
)
from lockbench.clusters.engine.forward import Forward
from lockbench.clusters.pods import links
from lockbench.clusters.pods.links import PeerPort
from lockbench.clusters.pods.toxiproxy import LinkServer, Listen
from lockbench.clusters.wire import PROBE_FAILURES, Address

START_LIMIT_S = 30.0
POLL_S = 0.01
LOG_LINES = 8

# Inside a pod.
API_PORT = 8474
CLIENT_PORTS = 9000  # a client group g enters at 9000 + g

# What the containers of a pod share, and the library of our images that uses it (``shim``).
SHARED_ENV = {"LOCKBENCH_SHARED": "/dev/shm/lockbench"}  # noqa: S108 - in the pod's own memory
PRELOAD_ENV = {**SHARED_ENV, "LD_PRELOAD": "/usr/local/lib/lockbench-shim.so"}

# Offsets within the cluster's block of ports; 0 marks the block, nodes count from 1.
CLIENT = 0
API = 10
PEERS = 20
GROUPS = 50  # where a client group enters a host
NODES_MAX = 9

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Server:
    """What runs in a server container. No shell is needed in the image, and its own entrypoint is
    not used: images of others bring scripts that change users and configuration."""

    command: Sequence[str]
    files: Mapping[str, bytes] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    ready: Sequence[str] = ()
    """A command that ends with 0, in the server's container, once the server answers. In our own
    images."""


@dataclass(frozen=True)
class Part:
    """One container of a pod, as the engine is asked for it and as a compose file says it
    (``compose``). It has a network, or joins the namespaces of another part, by name."""

    name: str
    image: str
    entrypoint: Sequence[str]
    env: Mapping[str, str]
    network: str = ""
    joins: str = ""
    ports: Ports = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    user: str | None = None
    ready: Sequence[str] = ()
    links: Sequence[Listen] = ()
    """What Toxiproxy is told once it runs."""


@dataclass
class Pod:
    """One node's containers. ``server`` is replaced when the node is wiped. ``ip``: where the
    harness and the other pods reach it past its links."""

    node: int
    link: Container
    links: LinkServer
    ip: str = ""
    server: Container | None = None


class LinkContainers(ABC):
    """One link container per node, each with the Toxiproxy of the links that lead there. What
    appears is labelled with ``id`` and found again by it."""

    kind: str
    """What nodes are called; of servers that are started here, the image's name."""

    peers: tuple[PeerPort, ...] = ()
    """The ports on which servers talk to each other."""

    plan: ClusterPlan

    def __init__(self, plan: ClusterPlan) -> None:
        if not 1 <= plan.size <= NODES_MAX:
            raise ClusterError(f"{plan.topology}: {plan.size} nodes; 1 to {NODES_MAX} are possible")
        self.plan = plan
        self._base = links.base(plan.network)
        self.id = f"{re.sub(r'[^A-Za-z0-9_.]', '-', plan.run_id)}-{secrets.token_hex(3)}"
        self._engine: Engine
        self._ways: list[Forward] = []
        self._of_hosts: dict[int, Engine] = {}
        self._block: ports.Block
        self._pods: dict[int, Pod] = {}
        self._logged: set[str] = set()  # the containers whose logs are saved
        self._given_up = threading.Event()
        self._pool = ThreadPoolExecutor(2 * plan.size + 1, thread_name_prefix="cluster")

    @abstractmethod
    def _launch(self) -> None:
        """Make and start everything."""

    # --- where things are ---

    @property
    def nodes(self) -> Sequence[int]:
        return range(1, self.plan.size + 1)

    def node_name(self, node: int) -> str:
        return f"{self.kind}-{node}"

    def port(self, node: int) -> int:
        """The client port of a node, the same everywhere."""
        return self._block.base + CLIENT + node

    def address(self, group: int, node: int) -> Address:
        """Where a client group reaches a node."""
        if self.plan.hosts:
            return (self.plan.hosts[node - 1].address, self._block.base + GROUPS + group)
        return (host(group), self.port(node))

    def addresses(self, group: int) -> Sequence[Address]:
        if not 0 <= group <= self.plan.groups:
            raise ClusterError(f"there is no client group {group}: 1 to {self.plan.groups} are")
        return [self.address(group, node) for node in self.nodes]

    # --- engines ---

    def _engine_of(self, node: int) -> Engine:
        """The engine that a node is on."""
        return self._of_hosts.get(node) or self._engine

    def _engines(self) -> Sequence[Engine]:
        """Every engine that a node may be on."""
        if self.plan.hosts:
            return list(self._of_hosts.values())
        return [self._engine] if hasattr(self, "_engine") else []

    def engines_elsewhere(self) -> Sequence[Engine]:
        """Those that are not this machine's."""
        return [engine for engine in self._of_hosts.values() if engine is not self._engine]

    def acts(self) -> Sequence[Act]:
        """What was done to its containers from here."""
        return [act for engine in self._engines() for act in engine.acts]

    # --- ending ---

    def _remove_all(self) -> Sequence[str]:
        """Save the logs and remove everything that carries this cluster's label. The names of what
        is left; a second attempt waits less long. Never raises."""
        again = self._given_up.is_set()
        self._given_up.set()
        # What is still being started must be there before it can be removed.
        self._pool.shutdown(wait=True, cancel_futures=True)

        def remove(engine: Engine) -> Sequence[str]:
            return removal.remove(
                {owner.CLUSTER: self.id},
                limit_s=removal.AGAIN_S if again else removal.CLEARING_S,
                engine=engine,
                each=self._log_and_remove,
                prefix=self._name(""),
            )

        with ThreadPoolExecutor(NODES_MAX, thread_name_prefix="removal") as pool:
            left = [name for names in pool.map(remove, self._engines()) for name in names]
        for way in self._ways:
            way.close()
        for pod in self._pods.values():
            pod.links.close()
        if hasattr(self, "_block"):
            self._block.close()
        return left

    def _log_and_remove(self, engine: Engine, container: Container) -> None:
        """Save what a container has said, once, and remove it, whatever it is doing. EngineError
        when the engine does not do it."""
        if container.id not in self._logged:
            self._save_log(engine, container)
            self._logged.add(container.id)
        engine.remove(container)

    def _save_log(self, engine: Engine, container: Container) -> None:
        folder = Path(self.plan.log_dir)
        name = container.name.removeprefix(self._name(""))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / f"{name}.log").open("ab") as file:
                engine.save_log(container, file)
        except EngineUnreachable:
            raise
        except (EngineError, OSError):
            return  # it has none any more, or the disk is full

    def _last_words(self) -> str:
        """What those say of themselves that were started here, for the message of a start that
        failed."""
        return ""

    # --- small things ---

    def _poll(self, attempt: Callable[[], None], limit_s: float, complaint: str) -> None:
        """Try until it works; ClusterError with the last reason when the time is over."""
        until = time.monotonic() + limit_s
        while True:
            try:
                return attempt()
            except PROBE_FAILURES as error:
                if time.monotonic() > until or self._given_up.is_set():
                    raise ClusterError(f"{complaint}: {error}") from error
            time.sleep(POLL_S)

    @property
    def _groups(self) -> Sequence[int]:
        return range(self.plan.groups + 1)

    def _each(self, items: Iterable[T], work: Callable[[T], R]) -> list[R]:
        """Do it for all at once; when all have ended, raise the first failure."""
        futures: list[Future[R]] = [self._pool.submit(work, item) for item in items]
        wait(futures)
        return [future.result() for future in futures]

    def _image(self, name: str) -> str:
        return self.plan.images.get(name) or images.recipes()[name].ref

    def _name(self, part: str) -> str:
        return f"lockbench-{self.id}-{part}"

    def _labels(self) -> dict[str, str]:
        return owner.labels(self.plan.run_id, self.id)


def http_ok(port: int, path: str, word: str) -> Sequence[str]:
    """A ``Server.ready``: the answer to a request over HTTP has this word in it."""
    request = f"GET {path} HTTP/1.0\\r\\n\\r\\n"
    return says(port, request, word)


def says(port: int, request: str, word: str) -> Sequence[str]:
    """A ``Server.ready``: the answer to this text, as ``printf`` takes it, has this word in it."""
    script = f"exec 3<>/dev/tcp/127.0.0.1/{port}; printf '{request}' >&3; grep -q {word} <&3"
    return ["bash", "-c", script]


class Pods(LinkContainers):
    """The pods of one cluster: a server beside each link container."""

    preloaded: bool = False
    """Whether the servers run with our library (``shim``). Only our own images have it."""

    def __init__(self, plan: ClusterPlan) -> None:
        super().__init__(plan)
        self._networks: dict[int, Network] = {}
        self._paused: set[int] = set()
        self._killed: set[int] = set()

    # --- what a topology says ---

    @abstractmethod
    def server(self, node: int) -> Server:
        """What runs in this node. Ports are known when this is called."""

    @abstractmethod
    def before_linking(self, peer: PeerPort) -> None:
        """Return when the links between nodes on this port may be made; they are refused until
        then. Toxiproxy accepts before it dials, so a server that is not ready yet looks to its
        peers as if it had hung up on them, which some take worse than a refusal."""

    def waves(self) -> Sequence[Sequence[int]]:
        """Which nodes are started together: all, unless some need more time once they run."""
        return [self.nodes]

    # --- where things are ---

    def peer_port(self, which: int, node: int) -> int:
        """The port number ``which`` of ``peers`` of a node, the same in every pod."""
        if self.peers[which].of_clients:
            return self.port(node)
        return self._block.base + PEERS + (NODES_MAX + 1) * which + node

    # --- starting ---

    def _launch(self) -> None:
        self._engine = Engine()
        hosts = [] if self.plan.hosts else [host(group) for group in self._groups]
        offsets = [base + node for base in (CLIENT, API) for node in self.nodes]
        self._block = ports.take(hosts, offsets)
        # Here and not in the pool: they end with the thread that has started them.
        for one in self.plan.hosts:
            self._ways.append(Forward(one, self._log_of_way(one.name)))
        self._each(self._ways, self._reach)
        # In the pool, as all that makes something: an interrupt must not cut off the engine's
        # answer and so leave behind what appears after the clean-up.
        made = self._each(self.nodes if self.plan.hosts else [1], self._create_network)
        self._networks = {node: made[(node - 1) % len(made)] for node in self.nodes}
        for nodes in self.waves():
            self._each(nodes, self._start_pod)
        for which, peer in enumerate(self.peers):
            self.before_linking(peer)
            self._each(self.nodes, partial(self._link_to_peers, which))

    def _reach(self, way: Forward) -> None:
        """A host's engine, with the images that its node needs and without what an earlier case
        has left there."""
        engine = way.engine()
        # An address of this machine can be bound here. Its engine is watched as ever.
        if ports.is_free(way.host.address, 0) and engine.identity() == self._engine.identity():
            engine.close()
            engine = self._engine
        self._of_hosts[self.plan.hosts.index(way.host) + 1] = engine
        of_run = f"lockbench-{self.plan.run_id}-"
        if ledger.names(of_run, way.host.name):
            labels = {owner.RUN: self.plan.run_id}
            left = removal.remove(labels, limit_s=removal.AGAIN_S, engine=engine, prefix=of_run)
            if left:
                raise ClusterError(f"of an earlier case: {removal.left_behind(left)}")
        for name in ("toxiproxy", self.kind):
            images.send(self._image(name), self._engine, engine)

    def _log_of_way(self, name: str) -> Path:
        folder = Path(self.plan.log_dir)
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"forward-{name}.log"

    def attendants(self) -> Sequence[tuple[str, int]]:
        """The commands that lead to the hosts' engines."""
        return [(way.name, way.pid) for way in self._ways if way.pid is not None]

    def _create_network(self, node: int) -> Network:
        return self._engine_of(node).create_network(self._name("net"), labels=self._labels())

    def _start_pod(self, node: int) -> None:
        engine = self._engine_of(node)
        link = self._create_link(node)
        server = self._pool.submit(self._create_server, node, link)
        engine.start(link)
        state = engine.state(link)
        ip = state.addresses.get(self._networks[node].name, "") if state else ""
        if not ip:
            raise ClusterError(f"{link.name} has no address in its network")
        name = f"{self.node_name(node)}-link"
        # Not published here: a port costs the engine a process and rules of the firewall.
        api = (ip, API_PORT)
        if self.plan.hosts:
            ip = self.plan.hosts[node - 1].address
            api = (ip, self._block.base + API + node)
        pod = Pod(node, link, LinkServer(name, *api), ip)
        self._pods[node] = pod
        pod.server = server.result()
        engine.start(pod.server)
        self._poll(pod.links.check_up, START_LIMIT_S, f"{name}: Toxiproxy does not answer")
        pod.links.populate(self._client_links(node))

    def _link_to_peers(self, which: int, node: int) -> None:
        self._pods[node].links.populate(
            self._peer_links(which, node, lambda other: self._pods[other].ip)
        )

    def _client_links(self, node: int) -> list[Listen]:
        here = f"{ports.LOOPBACK}:{self.port(node)}"
        return [
            Listen(
                links.client_link(group),
                f"0.0.0.0:{CLIENT_PORTS + group}",
                here,
                links.Link() if group == HARNESS else self._base,
            )
            for group in self._groups
        ]

    def _peer_links(self, which: int, node: int, host: Callable[[int], str]) -> list[Listen]:
        return [
            Listen(
                links.peer_link(self.peers[which], other),
                f"{ports.LOOPBACK}:{self.peer_port(which, other)}",
                f"{host(other)}:{self.peer_port(which, other)}",
                self._base,
            )
            for other in self.nodes
            if other != node
        ]

    def _link_part(self, node: int) -> Part:
        published = {
            **{CLIENT_PORTS + group: [self.address(group, node)] for group in self._groups},
            **(self._published_besides(node) if self.plan.hosts else {}),
        }
        return Part(
            f"{self.node_name(node)}-link",
            self._image("toxiproxy"),
            ["toxiproxy", "-host=0.0.0.0", f"-port={API_PORT}"],
            {**links.PATIENT_ENV, **SHARED_ENV},
            network=self.kind,
            ports=published,
            ready=http_ok(API_PORT, "/version", "version"),
        )

    def _published_besides(self, node: int) -> Ports:
        """What is reached by a pod's own address where all are on one engine."""
        at = self.plan.hosts[node - 1].address
        inside = [self.port(node)]
        inside += [self.peer_port(which, node) for which in range(len(self.peers))]
        api = {API_PORT: [(at, self._block.base + API + node)]}
        return {**api, **{port: [(at, port)] for port in inside}}

    def _server_part(self, node: int) -> Part:
        runs = self.server(node)
        return Part(
            self.node_name(node),
            self._image(self.kind),
            runs.command,
            {**runs.env, **(PRELOAD_ENV if self.preloaded else {})},
            joins=f"{self.node_name(node)}-link",
            files=runs.files,
            user="0:0",
            ready=runs.ready,
        )

    def parts(self) -> list[Part]:
        """Every container as it runs now, a node's link before its server: with the files as their
        servers have rewritten them, with links that find each other by name, and with a port for
        Toxiproxy, which is not reached by a container's address."""

        def host(node: int) -> str:
            return self._link_part(node).name

        found = []
        for node in self.nodes:
            peers = (self._peer_links(which, node, host) for which in range(len(self.peers)))
            all_links = [*self._client_links(node), *(link for group in peers for link in group)]
            server = self._server_part(node)
            now = {
                path: self._engine_of(node).read_folder(self._server(node), path)[path]
                for path in server.files
            }
            link = self._link_part(node)
            api = {API_PORT: [(ports.LOOPBACK, self._block.base + API + node)]}
            found += [
                replace(link, links=all_links, ports={**link.ports, **api}),
                replace(server, files=now),
            ]
        return found

    def _create_link(self, node: int) -> Container:
        part = self._link_part(node)
        return self._engine_of(node).create_container(
            part.image,
            self._name(part.name),
            entrypoint=part.entrypoint,
            env=part.env,
            network=self._networks[node],
            shares_memory=True,
            ports=part.ports,
            labels=self._labels(),
        )

    def _create_server(self, node: int, link: Container) -> Container:
        if self._given_up.is_set():
            raise ClusterError(f"{self.node_name(node)} is not made again: the cluster is going")
        part = self._server_part(node)
        return self._engine_of(node).create_container(
            part.image,
            self._name(part.name),
            entrypoint=part.entrypoint,
            network_of=link,
            memory_of=link,
            files=part.files,
            env=part.env,
            user=part.user,
            labels=self._labels(),
        )

    def _replace(self, node: int) -> None:
        """A container as new in the place of a killed one: its data is gone from the disk."""
        if node not in self._killed:
            raise ClusterError(f"{self.node_name(node)} runs: kill it before it is wiped")
        pod = self._pods[node]
        self._log_and_remove(self._engine_of(node), self._server(node))
        pod.links.forget_synced()
        pod.server = None
        pod.server = self._create_server(node, pod.link)

    def _server(self, node: int) -> Container:
        pod = self._pods.get(node)
        if pod is None or pod.server is None:
            raise ClusterError(f"{self.plan.topology} has no running node {node}")
        return pod.server

    # --- ending ---

    def _last_words(self) -> str:
        """The end of the servers' logs, for the message of a start that failed."""
        lines = ""
        for pod in self._pods.values():
            with suppress(EngineError):
                if pod.server is not None:
                    said = self._engine_of(pod.node).last_words(pod.server, LOG_LINES).strip()
                    lines += f"\n{self.node_name(pod.node)} said last:\n{said}"
        return lines

    # --- small things ---

    def _peer_address(self, which: int, node: int) -> Address:
        """Where the harness reaches a peer port past all links."""
        return (self._pods[node].ip, self.peer_port(which, node))


def host(group: int) -> str:
    """Where a client group reaches nodes."""
    return f"127.0.0.{1 + group}"
