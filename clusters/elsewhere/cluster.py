"""A cluster of somebody else: reached through near links, broken by these and by the file's
commands.

A near link is a Toxiproxy on this machine for each node, with a link for each client group:

    client → relay (127.0.0.<1+group>:PORT) → Toxiproxy (the same host, LINK) → HOST:PORT

The harness' own way goes past Toxiproxy. A command of the file is a capability: with ``pause`` and
``resume`` the cluster is ``Pausable``, with ``kill`` and ``start`` it is ``Killable``, with ``cut``
and ``join`` it has links between servers (``CutByCommand``). That a command ended with 0 is its
word that it did it.

Guarantees: nothing is written before it is known that nothing is under the prefix; at the end it is
empty again, and every command was undone, or ``stop`` says what is left
(``lockbench.clusters.elsewhere.keeper``); of two benches with one prefix one is refused
(``lockbench.clusters.elsewhere.claim``).

Does not guarantee: that anybody but Lockbench heeds a claim.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from itertools import chain, permutations
from pathlib import Path
from typing import Any, Final

from lockbench.clusters.base import HARNESS, ClusterError, ClusterPlan, Cut, Edge, Topology
from lockbench.clusters.elsewhere import claim, heard
from lockbench.clusters.elsewhere.keeper import TRIES
from lockbench.clusters.elsewhere.place import place_of
from lockbench.clusters.elsewhere.site import OPPOSITES, Site, SiteError, Whom, read
from lockbench.clusters.engine import ports
from lockbench.clusters.engine.docker import Engine
from lockbench.clusters.etcd.members import EtcdMembers
from lockbench.clusters.pods import links
from lockbench.clusters.pods.launch import API, CLIENT, PEERS, START_LIMIT_S, Pod, host
from lockbench.clusters.pods.linked import PROBE_LIMIT_S, VERIFY_LIMIT_S, LinkedCluster
from lockbench.clusters.pods.toxiproxy import LinkServer, Listen
from lockbench.clusters.postgres.servers import PostgresServers
from lockbench.clusters.redis import protocol as resp
from lockbench.clusters.redis.cluster import ShardedServers
from lockbench.clusters.redis.replicated import ASK_LIMIT_S
from lockbench.clusters.redis.sentinel import SENTINELS, SentinelServers, seen_by
from lockbench.clusters.redis.servers import RedisServers
from lockbench.clusters.wire import PROBE_FAILURES, Address, Line, ProbeFailed
from lockbench.clusters.zookeeper import protocol as jute
from lockbench.clusters.zookeeper.servers import ZooKeeperServers

ELSEWHERE: Final = "-elsewhere"  # ends the names of these topologies
BY_HAND_S: Final = 5.0  # what commands take beside what they are to do
RESTART_LIMIT_S: Final = 20.0
KEEPER_LIMIT_S: Final = 10.0
APART_PAUSE_S: Final = 0.5  # between two looks at whom servers hear
# To look through all keys; beside that, each command may take its time in each of its tries.
END_LIMIT_S: Final = 240.0


class Kept:
    """The keeper of a cluster, as a process of ours. ClusterError when it does not answer."""

    def __init__(self, site: Site, log: Path | None = None) -> None:
        """Raises ClusterError."""
        self._site = site
        self._end_limit_s = END_LIMIT_S + len(OPPOSITES) * TRIES * site.hands.limit_s
        self.undo: set[tuple[str, Whom]] = set()  # what it would be to undo if it were gone
        self._asking = threading.Lock()
        self._over = False
        self._left: list[str] | None = None
        environment = dict(os.environ)
        if site.password is not None and site.password_env:
            environment[site.password_env] = site.password.reveal()
        with ExitStack() as opened:
            said = opened.enter_context(log.open("ab")) if log else subprocess.DEVNULL
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "lockbench.clusters.elsewhere.keeper", str(site.file)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                env=environment,
                start_new_session=True,
            )
        self.ask(text=site.text)

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, **what: object) -> Mapping[str, Any]:
        """One line and its answer. Raises ClusterError."""
        with self._asking:
            try:
                assert self._process.stdin is not None
                self._process.stdin.write(json.dumps(what).encode() + b"\n")
                self._process.stdin.flush()
            except (OSError, ValueError) as error:
                raise ClusterError("the keeper of the cluster ended") from error
            return self._heard()

    def hand(self, verb: str, whom: Sequence[Whom]) -> None:
        """Have a command run for each of these. Raises ClusterError."""
        if not whom:
            return
        if verb in OPPOSITES:
            self.undo |= {(verb, one) for one in whom}
        self.ask(hand=verb, whom=list(whom))
        if verb not in OPPOSITES:
            of = {opposite: it for it, opposite in OPPOSITES.items()}[verb]
            self.undo -= {(of, one) for one in whom}

    def end(self) -> list[str] | None:
        """Let it end. What is left; None: it was gone. Never raises; twice is no error."""
        with suppress(OSError, ValueError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        with self._asking:  # what is under way has its answer first
            self._process.stdin = None
            if not self._over:
                self._left = self._last_word()
                self._over = True
        return self._left

    def _last_word(self) -> list[str] | None:
        try:
            said, _ = self._process.communicate(timeout=self._end_limit_s)
            left = json.loads(said.splitlines()[-1])["left"]
        except (subprocess.TimeoutExpired, ValueError, LookupError, TypeError):
            self._process.kill()
            self._process.wait()
            return None
        return [str(one) for one in left]

    def _heard(self) -> Mapping[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ClusterError("the keeper of the cluster ended")
        answer: Mapping[str, Any] = json.loads(line)
        if "error" in answer:
            raise ClusterError(str(answer["error"]))
        if "left" in answer:  # its last word
            raise ClusterError("the keeper of the cluster ended")
        return answer


class Elsewhere(LinkedCluster):
    """See the module. ``Measurable``, ``Cuttable`` and ``Shapable`` by its near links, ``Attended``
    by its keeper."""

    site: Site
    sees_peers = False
    """Whether ``deaf`` finds anybody."""

    def __init__(self, plan: ClusterPlan, site: Site) -> None:
        super().__init__(plan)
        self.site = site
        self.probes = site.prefix
        self.key_prefix = site.key_prefix
        self._keeper: Kept | None = None
        self._claim = ""
        self._ended = False
        self._handled: set[int] = set()  # whom a command has frozen

    def node_name(self, node: int) -> str:
        """As the file has it."""
        return str(self.site.nodes[node - 1])

    def attendants(self) -> Sequence[tuple[str, int]]:
        return [] if self._keeper is None else [("keeper", self._keeper.pid)]

    # --- life ---

    def _launch(self) -> None:
        self._engine = Engine()
        hosts = [host(group) for group in self._groups]
        offsets = [base + node for base in (CLIENT, API, PEERS) for node in self.nodes]
        self._block = ports.take(hosts, offsets)
        logs = Path(self.plan.log_dir)
        logs.mkdir(parents=True, exist_ok=True)
        self._keeper = Kept(self.site, logs / "keeper.log")
        here = {node: self.address(HARNESS, node) for node in self.nodes}
        self._keeper.ask(open=[(*at, node, None) for node, at in here.items()])
        examine(self.site, here, self._keeper)
        word = claim.new()
        self._keeper.ask(claim=word)
        self._claim = word
        self._each(self.nodes, self._start_links)
        groups = [group for group in self._groups if group != HARNESS]
        self._keeper.ask(
            open=[
                (*self.address(group, node), node, self._near(group, node))
                for group in groups
                for node in self.nodes
            ]
        )

    def stop(self) -> Sequence[str]:
        """Undo every command, empty the prefix, and remove the near links."""
        left: list[str] = []
        try:
            if self._keeper is not None and not self._ended:
                told = self._keeper.end()
                left = told if told is not None else self._end_without_keeper()
                self._ended = True
        finally:
            removed = super().stop()
        return [*left, *removed]

    def empty(self) -> None:
        """What is under the prefix; nothing else there is ours."""
        place = place_of(self.site)

        def clear(node: int) -> None:
            place.clear(self.site, self.address(HARNESS, node))

        self._poll_nodes(self.nodes, clear, VERIFY_LIMIT_S, "was not emptied")

    def _end_without_keeper(self) -> list[str]:
        assert self._keeper is not None
        claims = [self._claim] if self._claim else None
        try:
            return end_all(self.site, self._keeper.undo, claims=claims)
        except ClusterError as error:
            return [str(error)]

    def _start_links(self, node: int) -> None:
        api = self._block.base + API + node
        link = self._engine.create_container(
            self._image("toxiproxy"),
            self._name(f"near-{node}-link"),
            entrypoint=["toxiproxy", f"-host={ports.LOOPBACK}", f"-port={api}"],
            host_network=True,
            labels=self._labels(),
        )
        pod = self._pods[node] = Pod(
            node, link, LinkServer(f"near-{node}-link", ports.LOOPBACK, api)
        )
        self._engine.start(link)
        self._poll(pod.links.check_up, START_LIMIT_S, "a near link: Toxiproxy does not answer")
        pod.links.populate(
            Listen(
                links.client_link(group),
                "{}:{}".format(*self._near(group, node)),
                str(self.site.nodes[node - 1]),
                self._base,
            )
            for group in self._groups
            if group != HARNESS
        )

    def _near(self, group: int, node: int) -> Address:
        """Where the relay finds a group's near link."""
        return (host(group), self._block.base + PEERS + node)

    # --- what it costs ---

    def link_overhead_us(self, rounds: int) -> Mapping[str, float]:
        """``linked``: through relay and near link; ``direct``: through the relay alone, which alone
        has the password."""
        linked, direct = self.address(1, 1), self.address(HARNESS, 1)
        return self._pings_us(rounds, linked=linked, direct=direct)

    # --- commands ---

    def _hand(self, verb: str, whom: Iterable[Whom]) -> None:
        if self._keeper is None:
            raise ClusterError(f"{self.plan.topology} is not started")
        self._keeper.hand(verb, list(whom))

    def deaf(self, pairs: set[frozenset[int]]) -> set[frozenset[int]]:
        """Those of these pairs of which a server now says that it hears nothing of the other."""
        del pairs
        return set()


class PausedByHand(Elsewhere):
    """``Pausable``, by the commands ``pause`` and ``resume``."""

    def pause(self, nodes: Iterable[int]) -> None:
        chosen = list(nodes)
        self._hand("pause", chosen)
        self._handled.update(chosen)

    def unpause(self, nodes: Iterable[int]) -> None:
        chosen = list(nodes)
        self._hand("resume", chosen)
        self._handled.difference_update(chosen)

    def frozen(self, node: int) -> bool:
        """The command's word."""
        return node in self._handled


class KilledByHand(Elsewhere):
    """``Killable``, by the commands ``kill`` and ``start``."""

    def kill(self, nodes: Iterable[int]) -> None:
        self._hand("kill", nodes)

    def restart(self, nodes: Iterable[int]) -> None:
        chosen = list(nodes)
        self._hand("start", chosen)
        self._poll_nodes(
            chosen,
            lambda node: self.check_answer(self.address(HARNESS, node), PROBE_LIMIT_S),
            RESTART_LIMIT_S,
            "does not answer after its restart",
        )


class CutByHand(Elsewhere):
    """``CutByCommand``, by the commands ``cut`` and ``join``. Links of clients are cut as ever."""

    def __init__(self, plan: ClusterPlan, site: Site) -> None:
        super().__init__(plan, site)
        self._severed: set[Edge] = set()
        self._apart: set[frozenset[int]] = set()
        self._looked_at = 0.0

    def edges(self) -> Sequence[Edge]:
        between = [Edge(one, other) for one, other in permutations(self.nodes, 2)]
        return [*between, *super().edges()]

    def cut(self, edges: Iterable[Edge], how: Cut) -> None:
        between, near = _parted(edges)
        self._check(between, how)
        super().cut(near, how)
        self._sever([*between, *(Edge(edge.target, edge.source) for edge in between)])

    def cut_one_way(self, edges: Iterable[Edge], how: Cut) -> None:
        between, near = _parted(edges)
        self._check(between, how)
        super().cut_one_way(near, how)
        self._sever(between)

    def broken_links(self) -> Sequence[str]:
        """By the commands' word where they are between servers."""
        said = [
            f"{self.node_name(edge.target)} hears nothing of {self.node_name(edge.source)}, as the"
            " command for cut says"
            for edge in sorted(self._severed, key=lambda edge: (edge.target, edge.source))
        ]
        return [*said, *super().broken_links()]

    def heal(self) -> None:
        try:
            super().heal()
        finally:
            if self._severed:
                self._hand("join", self._ends(self._severed))
            self._severed, self._apart = set(), set()

    def apart(self, pairs: Iterable[frozenset[int]]) -> bool:
        wanted = set(pairs)
        time.sleep(max(0.0, self._looked_at + APART_PAUSE_S - time.monotonic()))
        self._looked_at = time.monotonic()
        self._apart |= self.deaf(wanted - self._apart)
        return wanted <= self._apart

    def _sever(self, edges: Iterable[Edge]) -> None:
        new = set(edges)
        self._apart -= {frozenset((edge.source, edge.target)) for edge in new}
        self._severed |= new  # before: half done must be undone too
        self._hand("cut", self._ends(new))

    @staticmethod
    def _ends(edges: Iterable[Edge]) -> Sequence[tuple[int, int]]:
        """Who no longer hears, and of whom."""
        return sorted((edge.target, edge.source) for edge in edges)

    @staticmethod
    def _check(between: Sequence[Edge], how: Cut) -> None:
        if between and how != "drop":
            raise ClusterError(f"commands cut servers from each other as drop does, and not {how}")


def _parted(edges: Iterable[Edge]) -> tuple[list[Edge], list[Edge]]:
    """The links between servers, and those of clients."""
    every = list(edges)
    between = [edge for edge in every if min(edge.source, edge.target) > 0]
    return between, [edge for edge in every if edge not in between]


def _nodes(pairs: Iterable[frozenset[int]]) -> list[int]:
    return sorted({node for pair in pairs for node in pair})


class RedisElsewhere(Elsewhere, RedisServers):
    """Independent primaries."""


class SentinelElsewhere(Elsewhere, SentinelServers):
    """A primary, its replicas, and three Sentinels."""

    elects = True
    sees_peers = True

    def __init__(self, plan: ClusterPlan, site: Site) -> None:
        super().__init__(plan, site)
        self._copied = heard.Unchanged()

    def deaf(self, pairs: set[frozenset[int]]) -> set[frozenset[int]]:
        """A Sentinel says since when it has had no answer of whom it pings; a replica has to get
        nothing of what its primary writes."""
        watching = [node for node in _nodes(pairs) if node in self.sentinels]
        data = [pair for pair in pairs if pair.isdisjoint(watching)]
        told = [*self._each(watching, self._unheard), *self._each(data, self._behind)]
        return pairs.intersection(chain.from_iterable(told))

    def _unheard(self, sentinel: int) -> set[frozenset[int]]:
        try:
            with Line(self.address(HARNESS, sentinel), ASK_LIMIT_S) as line:
                unheard = list(filter(heard.is_unheard, seen_by(line)))
            silent = [self._node_at(int(one["port"])) for one in unheard]
        except (*PROBE_FAILURES, KeyError):
            return set()
        return {frozenset((sentinel, node)) for node in silent if node is not None}

    def _behind(self, pair: frozenset[int]) -> set[frozenset[int]]:
        """Something is written at the primary, so that there is something to get. Two replicas have
        nothing to say to each other."""
        try:
            for primary, replica in permutations(pair):
                if self._follows(replica, primary):
                    self.serves(primary, ASK_LIMIT_S)
                    here, there = map(self._replication, (primary, replica))
                    same_s = self._copied.for_s(pair, there["slave_repl_offset"])
                    return {pair} if heard.is_behind(here, there, same_s) else set()
            roles = {self._replication(node)["role"] for node in pair}
        except (*PROBE_FAILURES, KeyError):
            return set()
        return {pair} if roles == {"slave"} else set()

    def _replication(self, node: int) -> Mapping[str, str]:
        """What INFO says of it. Raises OSError or ProbeFailed."""
        said = str(resp.ask_once(self.address(HARNESS, node), ASK_LIMIT_S, "INFO", "replication"))
        return resp.fields(said)


class ShardedElsewhere(Elsewhere, ShardedServers):
    """All nodes of a Redis Cluster."""

    elects = True
    sees_peers = True

    def __init__(self, plan: ClusterPlan, site: Site) -> None:
        super().__init__(plan, site)
        self._pinged = heard.Unchanged()

    def deaf(self, pairs: set[frozenset[int]]) -> set[frozenset[int]]:
        """A node says whose answer to a ping it misses."""
        told = self._each(_nodes(pairs), self._unanswered)
        return pairs.intersection(chain.from_iterable(told))

    def _unanswered(self, node: int) -> set[frozenset[int]]:
        try:
            asked = ("CLUSTER", "NODES")
            said = str(resp.ask_once(self.address(HARNESS, node), ASK_LIMIT_S, *asked))
            silent = map(self._node_at, heard.unanswered(said.splitlines(), node, self._pinged))
            return {frozenset((node, other)) for other in silent if other is not None}
        except PROBE_FAILURES:
            return set()


class EtcdElsewhere(Elsewhere, EtcdMembers):
    """All members of a cluster."""


class ZooKeeperElsewhere(Elsewhere, ZooKeeperServers):
    """All servers of an ensemble, or one alone. Whoever set them up may have allowed no word of
    four letters but ``srvr``, which is allowed unless it was forbidden."""

    def check_answer(self, address: Address, limit_s: float) -> None:
        """Any word, that it does not serve included."""
        if not jute.four_letters(address, "srvr", limit_s):
            raise ProbeFailed("no answer to srvr")

    def _synced(self, node: int) -> int:
        """As many as say that they follow, where it does not tell."""
        with suppress(ValueError):
            return super()._synced(node)
        return len(self.nodes) - 1


class PostgresElsewhere(Elsewhere, PostgresServers):
    """A primary, and its replicas where the file names some."""


KINDS: Final = {
    "redis": RedisElsewhere,
    "redlock": RedisElsewhere,
    "sentinel": SentinelElsewhere,
    "redis-cluster": ShardedElsewhere,
    "etcd": EtcdElsewhere,
    "postgres": PostgresElsewhere,
    "zookeeper": ZooKeeperElsewhere,
}
BY_HAND: Final = {"pause": PausedByHand, "kill": KilledByHand, "cut": CutByHand}


@cache
def known(file: str) -> Site:
    """The cluster of a file, read once. A password's variable is taken out of the environment, so
    that nothing which is started from here on inherits it. Raises SiteError."""
    site = read(Path(file))
    sizes = place_of(site).sizes if site.topology != "redis" else (1,)
    if len(site.nodes) not in sizes:
        raise SiteError(
            f"{file} names {len(site.nodes)} nodes, and {site.topology} is tried with"
            f" {', '.join(map(str, sizes))}"
        )
    if site.sentinels not in {0, len(SENTINELS)}:
        raise SiteError(f"{file} names {site.sentinels} sentinels, and three are tried")
    site.context()
    os.environ.pop(site.password_env, None)
    return site


@cache
def topology(file: str) -> Topology:
    """The declaration of the topology that a file is. Raises SiteError."""
    site = known(file)
    hands = tuple(BY_HAND[verb] for verb in site.hands.verbs)
    kind = type("Elsewhere", (*hands, KINDS[site.topology]), {})
    return Topology(
        name=site.topology + ELSEWHERE,
        sizes=(len(site.nodes),),
        default_size=len(site.nodes),
        images=(),
        settings={"servers": "of somebody else, whose settings are not known here"},
        make=lambda plan: kind(plan, site),
        quorum=site.topology in {"etcd", "zookeeper"},
        fails_over=site.topology in {"sentinel", "redis-cluster"},
        restart_s=BY_HAND_S if site.hands.verbs else 0.0,
    )


def examine(site: Site, at: Mapping[int, Address], keeper: Kept) -> str:
    """The servers' version, where the cluster is what its file says and has nothing under the
    prefix; through the keeper's own ways. Raises SiteError, ClusterError."""
    place = place_of(site)
    try:
        version = place.identify(site, list(at.values()))
        claims = {node: place.claimed(site, address) for node, address in at.items()}
        found = {node: place.count(site, address) for node, address in at.items()}
    except PROBE_FAILURES as error:
        raise _unanswered(site, error, keeper) from error
    except SiteError as error:
        raise ClusterError(str(error)) from error
    for node, word in claims.items():
        if word:
            raise ClusterError(f"{site.nodes[node - 1]} {_in_use(site, word)}")
    for node, count in found.items():
        if count:
            raise ClusterError(_not_empty(site, node, count))
    return version


def _in_use(site: Site, word: str) -> str:
    """What a claim under the prefix means; goes on after a server's name."""
    if claim.is_dead(word):
        return (
            f"has the claim of {claim.told(word)}, which has ended: `lockbench clean --cluster"
            f" {site.file.name}` removes what it has left"
        )
    return (
        f"is in use under {site.prefix!r} by {claim.told(word)}: wait for its end, or choose"
        " another prefix"
    )


def _unanswered(site: Site, error: Exception, keeper: Kept) -> ClusterError:
    """Why a server did not answer as it should: what the relay was told, or the error itself."""
    for node, at in enumerate(site.nodes, 1):
        if why := keeper.ask(why=node)["why"]:
            return ClusterError(f"{at} {why}")
    who = ", ".join(map(str, site.nodes))
    said = site.hidden(str(error)) or type(error).__name__
    clear = "" if site.tls else f" (without TLS: {site.file.name} has no table [tls])"
    return ClusterError(f"{who}: a server does not answer as it should: {said}{clear}")


def _not_empty(site: Site, node: int, count: int) -> str:
    clean = f"`lockbench clean --cluster {site.file.name}` removes what a run has left"
    if site.topology == "postgres":
        return f"{site.nodes[node - 1]} already has tables of Lockbench (lockbench_…): {clean}"
    keys = "a key" if count == 1 else f"{count:,} keys"
    return (
        f"{site.nodes[node - 1]} already has {keys} under {site.prefix!r}: {clean}; if that is not"
        " what it is, choose another prefix"
    )


def look(file: str) -> str:
    """What a look at the cluster says, before anything is written: the servers' version. Raises
    SiteError, ClusterError."""
    site = known(file)
    with _ways(site) as (at, keeper):
        return examine(site, at, keeper)


def claims(file: str) -> set[str]:
    """The claims under the prefix, as far as servers answer. Raises SiteError, ClusterError."""
    site = known(file)
    place, found = place_of(site), set()
    with _ways(site) as (at, _):
        for address in at.values():
            with suppress(*PROBE_FAILURES, SiteError):
                found.add(place.claimed(site, address))
    return found - {""}


def undo(file: str) -> None:
    """Undo every command that the file names, everywhere. Raises SiteError, ClusterError."""
    site = known(file)
    done = {(verb, whom) for verb in site.hands.verbs for whom in site.everybody(verb)}
    if left := end_all(site, done):
        raise ClusterError("; ".join(left))


def left(file: str) -> tuple[int, set[str]]:
    """How much is under the prefix, and whose claims. Raises SiteError, ClusterError."""
    site = known(file)
    place = place_of(site)
    with _ways(site) as (at, keeper):
        try:
            found = {place.claimed(site, address) for address in at.values()} - {""}
            return sum(place.count(site, address) for address in at.values()), found
        except PROBE_FAILURES as error:
            raise _unanswered(site, error, keeper) from error
        except SiteError as error:
            raise ClusterError(str(error)) from error


def clear(file: str, words: Iterable[str]) -> None:
    """Remove what is under the prefix, and these claims. Raises SiteError, ClusterError."""
    if remains := end_all(known(file), (), claims=words):
        raise ClusterError(f"left behind: {'; '.join(remains)}")


def end_all(
    site: Site, undo: Iterable[tuple[str, Whom]], *, claims: Iterable[str] | None = None
) -> list[str]:
    """What a keeper does at its end; ``claims``: those in whose name the prefix is emptied, None:
    it is not. What is left. Raises ClusterError."""
    remains: list[str] | None = []
    with _ways(site) as (_, keeper):
        keeper.ask(undo=list(undo))
        if claims is not None:
            keeper.ask(ours=list(claims))
        remains = keeper.end()
    return ["the keeper of the cluster ended"] if remains is None else remains


@contextmanager
def _ways(site: Site) -> Iterator[tuple[Mapping[int, Address], Kept]]:
    """A keeper with a way to every node, and nothing else."""
    nodes = range(1, len(site.nodes) + 1)
    block = ports.take(used=[CLIENT + node for node in nodes])
    keeper = None
    try:
        keeper = Kept(site)
        at = {node: (ports.LOOPBACK, block.base + CLIENT + node) for node in nodes}
        keeper.ask(open=[(*address, node, None) for node, address in at.items()])
        yield at, keeper
    finally:
        if keeper is not None:
            keeper.end()
        block.close()
