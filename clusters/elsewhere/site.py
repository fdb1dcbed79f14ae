"""The file that names a cluster of somebody else (``--cluster FILE``), read and checked.

    topology = "redis"                      # one of ``Topology``
    nodes = ["db1.example:6379"]
    prefix = "lockbench:"                   # of every key; nothing may be under it
    user = "bench"
    password-env = "REDIS_PASSWORD"         # or password-file = "password.txt"
    [tls]
    ca = "ca.pem"                           # whom to trust; without it whom this machine trusts
    certificate = "client.pem"
    key = "client.key"
    [hands]                                 # what the nemesis may do there, each with its opposite
    pause = "ssh {host} systemctl kill -s STOP redis"
    resume = "ssh {host} systemctl kill -s CONT redis"
    cut = "ssh {host} ./cut {peer-host}"    # what the peer sends does not reach the host
    join = "ssh {host} ./join {peer-host}"

Guarantees: a key that is not known is refused, so a misspelt one changes nothing unseen; a password
stands in a file of its own or in the environment, never in this file; whatever holds one shows it
neither in its ``repr`` nor in JSON. Files are named from where this one lies.
"""

from __future__ import annotations

import os
import re
import shlex
import ssl
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from typing import Final, Literal

import msgspec

from lockbench.history.files import TOML_BYTES_MAX, BadFile, read_text, toml_of

SECRET_BYTES_MAX: Final = 4096
PORT_MAX: Final = 65535
HAND_LIMIT_S_MAX: Final = 60.0

Topology = Literal["redis", "redlock", "sentinel", "redis-cluster", "etcd", "postgres", "zookeeper"]
# Under which names the locks of a system write; a prefix begins with it. PostgreSQL's have a table.
ROOTS: Final[Mapping[Topology, str]] = {"etcd": "lockbench/"}
# Where clients cannot leave the prefix, whatever they write.
CONFINED: Final[frozenset[Topology]] = frozenset({"zookeeper"})
PREFIXES: Final[Mapping[Topology, str]] = {
    "redis": "lockbench:",
    "redlock": "lockbench:",
    "sentinel": "lockbench:",
    "redis-cluster": "lockbench:",
    "etcd": "lockbench/",
    "postgres": "lockbench:",
    "zookeeper": "/lockbench",
}
# What is done to a node, and what undoes it.
Verb = Literal["pause", "kill", "cut"]
OPPOSITES: Final[Mapping[Verb, str]] = {"pause": "resume", "kill": "start", "cut": "join"}
# What is done to a node and its peer: what the peer sends does not reach the node.
OF_TWO: Final = frozenset({"cut", "join"})
# Whose servers talk to each other, and elect another where one is cut off.
JOINED: Final[frozenset[Topology]] = frozenset({"sentinel", "redis-cluster", "etcd", "zookeeper"})
PLACES: Final = ("host", "port", "name", "node")
PEER_PLACES: Final = tuple(f"peer-{place}" for place in PLACES)

# What a command is run for: a node, or a node and its peer.
Whom = int | tuple[int, int]


class SiteError(Exception):
    """The file, or what it says of the cluster, is wrong: one sentence, with the remedy."""


class Secret:
    """A text that is shown nowhere by accident."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the one place that sends it."""
        return self._text

    def hidden_in(self, text: str) -> str:
        """A text that others have written, without the secret in it."""
        return text.replace(self._text, "***") if self._text else text

    def __repr__(self) -> str:
        return "Secret(***)"

    def __reduce__(self) -> str:
        raise TypeError("a secret is not written down")


class Tls(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """How the servers prove who they are, and we do. Without ``ca`` whoever this machine trusts is
    trusted. ``server_name``: what their certificates say, where that is not the host's name."""

    ca: str = ""
    certificate: str = ""
    key: str = ""
    server_name: str = ""


class Hands(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """Commands, as a shell would split them, without a shell; each is given ``limit_s`` seconds."""

    pause: str = ""
    resume: str = ""
    kill: str = ""
    start: str = ""
    cut: str = ""
    join: str = ""
    limit_s: float = 10.0

    def command(self, verb: str) -> str:
        """What does it; empty where there is none."""
        return str(getattr(self, verb))

    @property
    def verbs(self) -> Sequence[Verb]:
        """What can be done, and undone."""
        return [verb for verb in OPPOSITES if self.command(verb)]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    topology: Topology
    nodes: list[str]
    sentinels: list[str] = []
    master: str = ""
    prefix: str = ""
    user: str = ""
    password_env: str = ""
    password_file: str = ""
    database: str = "postgres"
    tls: Tls | None = None
    hands: Hands = Hands()


@dataclass(frozen=True)
class Node:
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Site:
    """A cluster of somebody else. ``password`` None: none is given."""

    file: Path
    text: str = field(repr=False)  # of the file, which holds no password
    topology: Topology
    nodes: tuple[Node, ...]  # Sentinels last
    sentinels: int  # how many of them
    master: str  # what the Sentinels call the primary
    prefix: str
    user: str
    password: Secret | None
    password_env: str
    database: str
    tls: Tls | None
    hands: Hands

    @property
    def key_prefix(self) -> str:
        """How the names of keys begin that a lock is given: what the lock itself puts before them
        belongs to the prefix, too."""
        if self.topology in CONFINED:
            return ""
        return self.prefix.removeprefix(ROOTS.get(self.topology, ""))

    @property
    def without_tls(self) -> str:
        """What may explain a failure, for the end of a sentence; empty where there is TLS."""
        return "" if self.tls else f" (without TLS: {self.file.name} has no table [tls])"

    def hidden(self, text: str) -> str:
        """A text that a server or a command has written, without the password in it."""
        return text if self.password is None else self.password.hidden_in(text)

    def context(self) -> ssl.SSLContext | None:
        """How connections are encrypted; None: they are not. Raises SiteError."""
        if self.tls is None:
            return None
        folder = self.file.parent
        context = ssl.create_default_context()
        what, name = "the CA", self.tls.ca
        try:
            if self.tls.ca:
                context = ssl.create_default_context(cafile=str(folder / self.tls.ca))
            if self.tls.certificate:
                what, name = "the client's certificate and key", self.tls.certificate
                # A password is asked for nowhere: openssl would ask at the terminal.
                context.load_cert_chain(
                    folder / self.tls.certificate,
                    folder / self.tls.key if self.tls.key else None,
                    password=lambda: b"",
                )
        except (OSError, ValueError) as error:  # the latter of a name with a null in it
            said = getattr(error, "strerror", None) or str(error)
            raise SiteError(f"{self.file}: {what} in {name} cannot be read: {said}") from error
        return context

    def everybody(self, verb: str) -> Sequence[Whom]:
        """All that the command of a verb can be run for."""
        nodes = range(1, len(self.nodes) + 1)
        return list(permutations(nodes, 2)) if verb in OF_TWO else list(nodes)

    def words(self, verb: str, whom: Whom) -> list[str]:
        """The command of a verb for a node, or for a node and its peer."""
        node, *peers = (whom,) if isinstance(whom, int) else whom
        places = dict(zip(PLACES, self._place(node), strict=True))
        for peer in peers:
            places |= dict(zip(PEER_PLACES, self._place(peer), strict=True))
        return [word.format(**places) for word in shlex.split(self.hands.command(verb))]

    def called(self, whom: Whom) -> str:
        """For a sentence."""
        nodes = (whom,) if isinstance(whom, int) else whom
        return " and ".join(str(self.nodes[node - 1]) for node in nodes)

    def _place(self, node: int) -> tuple[str, int, str, int]:
        """What stands for ``PLACES``."""
        at = self.nodes[node - 1]
        return at.host, at.port, f"{self.topology}-{node}", node


def read(path: Path, text: str | None = None) -> Site:
    """A cluster's file, or what was read of it before: what is agreed to is what is done. Raises
    SiteError."""
    try:
        text = read_text(path, most=TOML_BYTES_MAX) if text is None else text
        document = toml_of(path, text)
    except BadFile as error:
        raise SiteError(str(error)) from error
    if "password" in document:
        raise SiteError(
            f"{path}: a password does not belong in this file: name the variable that holds it"
            " (password-env) or a file of its own (password-file)"
        )
    try:
        file = msgspec.convert(document, _File)
    except msgspec.ValidationError as error:
        raise SiteError(f"{path}: {error}") from None
    _check(path, file)
    return Site(
        file=path.resolve(),
        text=text,
        topology=file.topology,
        nodes=tuple(_node(path, text) for text in (*file.nodes, *file.sentinels)),
        sentinels=len(file.sentinels),
        master=file.master,
        prefix=file.prefix or PREFIXES[file.topology],
        user=file.user,
        password=_password(path, file),
        password_env=file.password_env,
        database=file.database,
        tls=file.tls,
        hands=file.hands,
    )


def _check(path: Path, file: _File) -> None:
    _check_prefix(path, file)
    _check_user(path, file)
    _check_sentinels(path, file)
    nodes = [*file.nodes, *file.sentinels]
    if len(set(nodes)) != len(nodes):
        raise SiteError(f"{path}: a node is named twice")
    if file.tls is not None and file.tls.key and not file.tls.certificate:
        raise SiteError(f"{path}: [tls] has a key and no certificate")
    if not 0 < file.hands.limit_s <= HAND_LIMIT_S_MAX:
        raise SiteError(
            f"{path}: [hands] limit-s is {file.hands.limit_s:g}; it has to be more than 0 and at"
            f" most {HAND_LIMIT_S_MAX:g}"
        )
    for verb, opposite in OPPOSITES.items():
        for one, other in ((verb, opposite), (opposite, verb)):
            if file.hands.command(one) and not file.hands.command(other):
                raise SiteError(f"{path}: [hands] has {one} without {other}, its opposite")
            _check_command(path, one, file.hands.command(one))
    if file.hands.cut and file.topology not in JOINED:
        raise SiteError(
            f"{path}: [hands] cut is for servers that elect another when one is cut off:"
            f" {', '.join(sorted(JOINED))}, and not {file.topology}"
        )


def _check_sentinels(path: Path, file: _File) -> None:
    asked = file.topology == "sentinel"
    for name, given in (("sentinels", file.sentinels), ("master", file.master)):
        if asked and not given:
            raise SiteError(f"{path}: topology sentinel needs {name}")
        if given and not asked:
            raise SiteError(f"{path}: {name} is for topology sentinel, and not {file.topology}")


def _check_prefix(path: Path, file: _File) -> None:
    root = ROOTS.get(file.topology, "")
    if file.prefix and not file.prefix.startswith(root):
        raise SiteError(
            f"{path}: the locks of {file.topology} keep their keys under {root}: begin the prefix"
            " with it"
        )
    if not re.fullmatch(r"[ -~]{0,100}", file.prefix):
        raise SiteError(f"{path}: the prefix is longer than 100 characters, or has odd ones in it")
    if file.topology == "zookeeper" and not re.fullmatch(r"|(/[^/]+)+", file.prefix):
        raise SiteError(f"{path}: the prefix of a zookeeper is the path of a node, as /lockbench")


def _check_user(path: Path, file: _File) -> None:
    given = file.password_env or file.password_file
    if file.password_env and file.password_file:
        raise SiteError(f"{path}: password-env and password-file both say where the password is")
    if file.user and not given and file.topology != "postgres":
        raise SiteError(f"{path}: the user {file.user} has no password-env and no password-file")
    if file.topology == "zookeeper" and given and not file.user:
        raise SiteError(f"{path}: the password has no user, and a zookeeper lets in users")


def _check_command(path: Path, verb: str, command: str) -> None:
    try:
        words = shlex.split(command)
        named = [name for word in words for _, name, _, _ in string.Formatter().parse(word)]
    except ValueError as error:
        raise SiteError(f"{path}: [hands] {verb}: {error}") from None
    places = (*PLACES, *PEER_PLACES) if verb in OF_TWO else PLACES
    odd = sorted({name for name in named if name is not None and name not in places})
    if odd:
        known = ", ".join(f"{{{place}}}" for place in places)
        raise SiteError(f"{path}: [hands] {verb} names {{{odd[0]}}}; it may name {known}")
    if command and verb in OF_TWO and not {*PEER_PLACES}.intersection(named):
        raise SiteError(
            f"{path}: [hands] {verb} is run for two servers, and names only one: say from whom"
            " ({peer-host})"
        )


def _node(path: Path, text: str) -> Node:
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%]+)\]|([A-Za-z0-9_][A-Za-z0-9._-]*)):(\d{1,5})", text)
    if not found or not 0 < int(found[3]) <= PORT_MAX:
        raise SiteError(f"{path}: a node is written HOST:PORT, and not {text!r}")
    return Node(found[1] or found[2], int(found[3]))


def _password(path: Path, file: _File) -> Secret | None:
    if file.password_env:
        text = os.environ.get(file.password_env, "")
        if not text:
            raise SiteError(
                f"{path}: the password is to be in the variable {file.password_env}, which is empty"
            )
        return _secret(path, text)
    if file.password_file:
        try:
            text = read_text(path.parent / file.password_file, most=SECRET_BYTES_MAX)
        except BadFile as error:
            raise SiteError(f"{path}: its password-file: {error}") from None
        text = text.removesuffix("\n")
        if not text:
            raise SiteError(f"{path}: its password-file {file.password_file} is empty")
        return _secret(path, text)
    return None


def _secret(path: Path, text: str) -> Secret:
    if "\0" in text or "\n" in text:
        raise SiteError(f"{path}: the password has a line's end or a null in it")
    return Secret(text)
