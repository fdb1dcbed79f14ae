"""Redis, or Valkey, elsewhere: single primaries, one or several; with Sentinels; as a cluster."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence

import hiredis

from lockbench.clusters.elsewhere import claim
from lockbench.clusters.elsewhere.announced import Announced
from lockbench.clusters.elsewhere.place import (
    ASK_LIMIT_S,
    CLAIM_LIMIT_S,
    LOOK_LIMIT_S,
    Place,
    Refused,
    Side,
    Talk,
    Where,
)
from lockbench.clusters.elsewhere.site import Site, SiteError
from lockbench.clusters.redis import protocol as resp
from lockbench.clusters.redis.sentinel import MASTER_NAME, seen_by
from lockbench.clusters.wire import Address, Line, ProbeFailed

# Sentinel waits eight seconds before it makes a replica of a primary that is back (its
# SENTINEL_PUBLISH_PERIOD * 4, after up to ten seconds until it asks it again).
SETTLE_LIMIT_S = 25.0
SETTLE_POLL_S = 0.25
SCANNED_AT_ONCE = "1000"
INFO = ("CLUSTER", "INFO")
DELETE_OWN = (
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"
)
SPECIAL = str.maketrans({char: f"\\{char}" for char in "\\*?[]^-"})


class RedisPlace(Place):
    """Single primaries, one or several."""

    sizes: Sequence[int] = (1, 3, 5, 7)
    # It reads lines, up to the first zero: processInlineBuffer in src/networking.c.
    in_clear = b"PING\r\n"

    async def enter(self, site: Site, server: Side, client: Side, where: Where) -> Talk:
        """AUTH, whose answer is kept from the client."""
        refused = await _refusal(site, server)
        if refused:
            who = f" of the user {site.user}" if site.user else ""
            raise Refused(f"does not take the password{who}: {refused}")
        return Talk(client, server)

    def identify(self, site: Site, at: Sequence[Address]) -> str:
        """Primaries, of which none is another one by another name."""
        told = _told(site, at)
        for node, said in told.items():
            _check_mode(site, node, said, "standalone")
            if said.get("role") != "master":
                raise SiteError(
                    f"{node} is a replica of {said.get('master_host')}:{said.get('master_port')}:"
                    f" name its primary in {site.file.name}"
                )
        return _version(told)

    def count(self, site: Site, at: Address) -> int:
        return sum(len(names) for names in _under(site, at))

    def clear(self, site: Site, at: Address) -> None:
        for names in _under(site, at):
            with Line(at, ASK_LIMIT_S) as line:
                resp.ask(line, "DEL", *names)

    def claim(self, site: Site, at: Address, word: str) -> str:
        made = resp.ask_once(at, ASK_LIMIT_S, "SET", site.prefix + claim.NAME, word, "NX")
        return word if made else self.claimed(site, at)

    def claimed(self, site: Site, at: Address) -> str:
        return str(resp.ask_once(at, CLAIM_LIMIT_S, "GET", site.prefix + claim.NAME) or "")

    def give_back(self, site: Site, at: Address, word: str) -> None:
        key = site.prefix + claim.NAME
        resp.ask_once(at, ASK_LIMIT_S, "EVAL", DELETE_OWN, "1", key, word)


class ReplicatedPlace(RedisPlace):
    """Servers that tell clients of one another, and of which some are replicas."""

    def __init__(self) -> None:
        self._nodes: Mapping[Address, int] = {}

    def learn(self, site: Site, at: Mapping[int, Address]) -> None:
        self._nodes = self._announced(site, at)

    def count(self, site: Site, at: Address) -> int:
        return super().count(site, at) if _takes_writes(at) else 0

    def clear(self, site: Site, at: Address) -> None:
        if _takes_writes(at):
            super().clear(site, at)

    @abstractmethod
    def _announced(self, site: Site, at: Mapping[int, Address]) -> Mapping[Address, int]:
        """Which node they mean by each address that they tell clients. Raises SiteError, OSError
        or ProbeFailed."""


class SentinelPlace(ReplicatedPlace):
    """A primary and replicas, and Sentinels that say which is which. Sentinels are asked by the
    primary's name in our own clusters, which the relay puts in the place of the file's."""

    sizes = (5, 6, 7, 8)  # of which three are Sentinels

    async def enter(self, site: Site, server: Side, client: Side, where: Where) -> Talk:
        """A Sentinel that asks for no password, or for another one, says so to who asks it."""
        if not _is_sentinel(site, where.node):
            await super().enter(site, server, client, where)
            return Announced(client, server, self._nodes, where.ways, {})
        await _refusal(site, server)
        names = {MASTER_NAME.encode(): site.master.encode()}
        return Announced(client, server, self._nodes, where.ways, names)

    def identify(self, site: Site, at: Sequence[Address]) -> str:
        """One primary, its replicas, and Sentinels that know them and nobody else. A primary that
        was dead for a while still takes itself for one, until a Sentinel tells it otherwise."""
        for number, (node, said) in enumerate(_told(site, at).items(), 1):
            _check_mode(
                site, node, said, "sentinel" if _is_sentinel(site, number) else "standalone"
            )
        watched = set(self._announced(site, dict(enumerate(at, 1))).values())
        for number, name in enumerate(site.nodes, 1):
            if number not in watched:
                raise SiteError(f"the Sentinels of {site.file.name} do not watch {name}")
        told = _settled(site, at)
        primaries = _primaries(site, told)
        if len(primaries) != 1:
            takes = f"{' and '.join(primaries)} do" if primaries else "none does"
            raise SiteError(f"exactly one node of {site.file.name} has to take writes, and {takes}")
        return _version(told)

    def claim(self, site: Site, at: Address, word: str) -> str:
        return super().claim(site, at, word) if _takes_writes(at) else word

    def claimed(self, site: Site, at: Address) -> str:
        return super().claimed(site, at) if _takes_writes(at) else ""

    def give_back(self, site: Site, at: Address, word: str) -> None:
        if _takes_writes(at):
            super().give_back(site, at, word)

    def _announced(self, site: Site, at: Mapping[int, Address]) -> Mapping[Address, int]:
        """Sentinels say who a node is, and so does it."""
        who, found = dict[str, int](), dict[Address, int]()
        for node, address in at.items():
            if _is_sentinel(site, node):
                who[str(resp.ask_once(address, ASK_LIMIT_S, "SENTINEL", "MYID"))] = node
            else:
                who[_info(site, node, address)["run_id"]] = node
        for node, address in at.items():
            if not _is_sentinel(site, node):
                continue
            for one in _seen_by(site, node, address):
                meant = who.get(one.get("runid", ""))
                host, port = one.get("ip", ""), one.get("port", "")
                if meant is None:
                    raise SiteError(
                        f"the Sentinel {site.nodes[node - 1]} watches {host}:{port}, which is none"
                        f" of the nodes of {site.file.name}, or does not answer"
                    )
                found[host, int(port)] = meant
        return found


class ShardedPlace(ReplicatedPlace):
    """A Redis Cluster: keys are where their slot is, and a claim is a key."""

    sizes = (3, 4, 5, 6, 7, 8, 9)

    async def enter(self, site: Site, server: Side, client: Side, where: Where) -> Talk:
        await super().enter(site, server, client, where)
        return Announced(client, server, self._nodes, where.ways, {})

    def identify(self, site: Site, at: Sequence[Address]) -> str:
        """All nodes of one cluster that serves all slots."""
        told = _told(site, at)
        for node, said in told.items():
            _check_mode(site, node, said, "cluster")
        for at_node, address in zip(site.nodes, at, strict=True):
            if "cluster_state:ok" not in str(resp.ask_once(address, ASK_LIMIT_S, *INFO)):
                raise SiteError(f"{at_node} does not see a whole cluster (CLUSTER INFO)")
        self._announced(site, dict(enumerate(at, 1)))
        return _version(told)

    def clear(self, site: Site, at: Address) -> None:
        """Key by key, as two of them may have different slots."""
        if not _takes_writes(at):
            return
        for names in _under(site, at):
            with Line(at, LOOK_LIMIT_S) as line:
                for name in names:
                    resp.ask(line, "DEL", name)

    def claim(self, site: Site, at: Address, word: str) -> str:
        try:
            return super().claim(site, at, word)
        except ProbeFailed as error:
            if _is_moved(error):
                return word
            raise

    def claimed(self, site: Site, at: Address) -> str:
        try:
            return super().claimed(site, at)
        except ProbeFailed as error:
            if _is_moved(error):
                return ""
            raise

    def give_back(self, site: Site, at: Address, word: str) -> None:
        try:
            super().give_back(site, at, word)
        except ProbeFailed as error:
            if not _is_moved(error):
                raise

    def _announced(self, site: Site, at: Mapping[int, Address]) -> Mapping[Address, int]:
        """Each node knows itself and the others by the same id."""
        who = {
            str(resp.ask_once(address, ASK_LIMIT_S, "CLUSTER", "MYID")): node
            for node, address in at.items()
        }
        found: dict[Address, int] = {}
        for node, address in at.items():
            lines = str(resp.ask_once(address, ASK_LIMIT_S, "CLUSTER", "NODES")).splitlines()
            for name, listed, *_ in map(str.split, lines):
                place, _, rest = listed.partition("@")
                host, _, port = place.rpartition(":")
                if name not in who:
                    raise SiteError(
                        f"the cluster of {site.nodes[node - 1]} has the node {place}, which"
                        f" {site.file.name} does not name: name all of them"
                    )
                called = rest.split(",")[1:2]  # its host's name, where it has one
                found |= {(one, int(port)): who[name] for one in (host, *called) if one}
        return found


async def _refusal(site: Site, server: Side) -> str:
    """What a server says to the password, where it does not take it. Raises OSError, EOFError."""
    if site.password is None:
        return ""
    words = ("AUTH", *([site.user] if site.user else []), site.password.reveal())
    server.writer.write(hiredis.pack_command(words))  # type: ignore[arg-type]  # its stub
    answer = (await server.reader.readline()).decode(errors="replace").strip()
    if not answer:
        raise EOFError
    return "" if answer == "+OK" else answer.removeprefix("-")


def _is_sentinel(site: Site, node: int) -> bool:
    return node > len(site.nodes) - site.sentinels


def _settled(site: Site, at: Sequence[Address]) -> Mapping[str, Mapping[str, str]]:
    """What INFO says once one node alone takes writes, or when it has not come to that."""
    until = time.monotonic() + SETTLE_LIMIT_S
    while True:
        told = _told(site, at)
        if len(_primaries(site, told)) == 1 or time.monotonic() > until:
            return told
        time.sleep(SETTLE_POLL_S)


def _primaries(site: Site, told: Mapping[str, Mapping[str, str]]) -> Sequence[str]:
    """The nodes that take themselves for one, without the Sentinels."""
    data = list(told.items())[: -site.sentinels]
    return [node for node, said in data if said.get("role") == "master"]


def _takes_writes(at: Address) -> bool:
    """Whether a server is a primary. Raises OSError or ProbeFailed."""
    said = str(resp.ask_once(at, ASK_LIMIT_S, "INFO", "replication"))
    return "role:master" in said.split()


def _seen_by(site: Site, node: int, at: Address) -> Iterator[Mapping[str, str]]:
    """The primary, the replicas and the other Sentinels, as a Sentinel sees them."""
    with Line(at, ASK_LIMIT_S) as line:
        try:
            yield from seen_by(line)
        except ProbeFailed as error:
            if "No such master" in str(error):
                raise SiteError(
                    f"the Sentinel {site.nodes[node - 1]} knows no master {site.master}"
                ) from error
            raise


def _is_moved(error: ProbeFailed) -> bool:
    """Whether the key is another node's."""
    return str(error).startswith("MOVED")


def _told(site: Site, at: Sequence[Address]) -> Mapping[str, Mapping[str, str]]:
    """Node → what INFO says. Raises SiteError where two are one, OSError or ProbeFailed."""
    seen: dict[str, str] = {}
    told: dict[str, Mapping[str, str]] = {}
    for number, address in enumerate(at, 1):
        node = str(site.nodes[number - 1])
        told[node] = _info(site, number, address)
        run_id = told[node].get("run_id", node)
        if run_id in seen:
            raise SiteError(f"{seen[run_id]} and {node} are one and the same server")
        seen[run_id] = node
    return told


def _check_mode(site: Site, node: str, said: Mapping[str, str], due: str) -> None:
    # Valkey says it under both names unless it was told not to.
    mode = said.get("redis_mode") or said.get("server_mode", "standalone")
    if mode != due:
        what = f"a Redis {mode.title()}" if mode != "standalone" else "a Redis of its own"
        raise SiteError(f"{node} is {what}, and {site.file.name} says {site.topology}")


def _version(told: Mapping[str, Mapping[str, str]]) -> str:
    """Of the last server, with its name."""
    said = list(told.values())[-1]
    if version := said.get("valkey_version"):
        return f"Valkey {version}"
    return f"Redis {said.get('redis_version', '')}"


def _info(site: Site, node: int, address: Address) -> dict[str, str]:
    try:
        with Line(address, ASK_LIMIT_S) as line:
            said = "\n".join(
                str(resp.ask(line, "INFO", part)) for part in ("server", "replication")
            )
    except ProbeFailed as error:
        if "NOAUTH" in str(error):
            raise SiteError(
                f"{site.nodes[node - 1]} asks for a password: name where it is in {site.file.name}"
                " (password-env or password-file)"
            ) from error
        raise
    return resp.fields(said)


def _under(site: Site, at: Address) -> Iterator[list[str]]:
    """The keys under the prefix, some at a time; each may come twice."""
    until = time.monotonic() + LOOK_LIMIT_S
    pattern = site.prefix.translate(SPECIAL) + "*"
    cursor = "0"
    with Line(at, LOOK_LIMIT_S) as line:
        while True:
            found = resp.items(
                resp.ask(line, "SCAN", cursor, "MATCH", pattern, "COUNT", SCANNED_AT_ONCE)
            )
            cursor = str(found[0])
            names = [str(name) for name in resp.items(found[1])]
            if names := [name for name in names if name != site.prefix + claim.NAME]:
                yield names
            if cursor == "0":
                return
            if time.monotonic() > until:
                raise ProbeFailed(f"it has too many keys to look through in {LOOK_LIMIT_S:g} s")
