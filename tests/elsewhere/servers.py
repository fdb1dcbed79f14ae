"""Servers that are not Lockbench's: with TLS, users and passwords, on loopback, in containers that
a test starts and removes itself."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import ssl
import subprocess
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http import client
from pathlib import Path
from typing import Any

from lockbench.clusters import images
from lockbench.clusters.elsewhere.site import OF_TWO, OPPOSITES, Verb
from lockbench.clusters.engine import owner, ports
from lockbench.clusters.engine.docker import Container, Engine
from tests.eventually import eventually

PASSWORD = "planted-" + secrets.token_hex(8)
VARIABLE = "FOREIGN_PASSWORD"
USER = "bench"
PREFIX = "team-a:"
HERE = "127.0.0.1"
PEERS = "/lockbench/peers"  # in a container: who the others are
WHOLE = f"{PEERS}-whole"  # there once all of that is
KNOWS = f"until [ -e {WHOLE} ]; do sleep 0.1; done"


# VERB PORT [PEER'S PORT]. Each is safe to repeat, as ``docker start`` is.
HAND = """#!/bin/sh
echo "$@" >> LOG
of() { case $1 in
CASES
esac; }
name=$(of "$2")
case $1 in
resume)
    docker unpause "$name"
    docker inspect --format "{{.State.Paused}}" "$name" | grep -q false;;
cut | join)
    peer=$(docker inspect --format "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}" \
        "$(of "$3")")
    pid=$(docker inspect --format "{{.State.Pid}}" "$name")
    there="nsenter --net=/proc/$pid/ns/net iptables -w"
    while $there -D INPUT -s "$peer" -j DROP; do :; done 2> /dev/null
    [ "$1" = join ] || $there -A INPUT -s "$peer" -j DROP;;
*)
    docker "$1" "$name";;
esac
"""


@dataclass
class Foreign:
    """Servers of one system, and a file that names them."""

    folder: Path
    topology: str
    nodes: list[tuple[str, int]]
    containers: list[Container]
    engine: Engine
    lines: dict[str, str] = field(default_factory=dict)

    def file(self, name: str = "cluster.toml", **changed: str | None) -> Path:
        """A file that names them; ``changed`` are its lines by key, as TOML; None leaves one out.
        What begins with ``[`` are whole tables."""
        named = ", ".join(f'"{host}:{port}"' for host, port in self.nodes)
        lines = {"topology": f'"{self.topology}"', "nodes": f"[{named}]", **self.lines, **changed}
        plain = [f"{key} = {value}" for key, value in lines.items() if value and key[0] != "["]
        tables = [f"{key}\n{value}" for key, value in lines.items() if value and key[0] == "["]
        path = self.folder / name
        path.write_text("\n".join([*plain, *tables]) + "\n")
        return path

    def hands(self, *verbs: Verb) -> str:
        """The table of commands, which are the engine's: ``pause``, ``kill``; and the kernel's for
        ``cut``, in the network namespace of the container."""
        at = self.folder / "hand"
        cases = "\n".join(
            f'"{port}") echo {container.name};;'
            for (_, port), container in zip(self.nodes, self.containers, strict=True)
        )
        at.write_text(HAND.replace("LOG", f"{self.folder}/hands.log").replace("CASES", cases))
        at.chmod(0o755)
        words = [word for verb in verbs for word in (verb, OPPOSITES[verb])]
        ends = {word: "{port} {peer-port}" if word in OF_TWO else "{port}" for word in words}
        return "\n".join(f'{word} = "{at} {word} {ends[word]}"' for word in words)

    def rules(self) -> list[str]:
        """What is cut now, in all of the containers."""
        found: list[str] = []
        for container in self.containers:
            state = self.engine.state(container)
            assert state is not None
            told = ["nsenter", f"--net=/proc/{state.pid}/ns/net", "iptables", "-w", "-S", "INPUT"]
            said = subprocess.run(told, capture_output=True, text=True, check=True).stdout
            found += [line for line in said.splitlines() if "DROP" in line]
        return found


@contextmanager
def certificates(folder: Path) -> Iterator[Path]:
    """A CA of the test's own, a server's certificate for 127.0.0.1, a client's without a name."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test CA")
    for name, extension in (
        ("server", f"subjectAltName=IP:{HERE},DNS:localhost"),
        ("client", "extendedKeyUsage=clientAuth"),
    ):
        subject = ("-subj", "/CN=server" if name == "server" else "/O=client")
        openssl(
            *("req", "-x509", *key, "-CA", "ca.pem", "-CAkey", "ca.key"),
            *("-keyout", f"{name}.key", "-out", f"{name}.pem", *subject, "-addext", extension),
        )
    yield folder


@contextmanager
def _started(
    image: str, runs: Sequence[tuple[Sequence[str], Mapping[str, bytes]]], port: int, up: str
) -> Iterator[tuple[Engine, list[Container], list[tuple[str, int]]]]:
    """Containers of one of our images, each with its command and files, published on loopback."""
    mark = f"foreign-{os.getpid()}-{secrets.token_hex(3)}"
    block = ports.take(used=range(1, len(runs) + 1))
    with Engine() as engine:
        made: list[Container] = []
        try:
            for number, (command, files) in enumerate(runs, 1):
                made.append(
                    engine.create_container(
                        images.recipes()[image].ref,
                        f"{mark}-{number}",
                        entrypoint=command,
                        files=files,
                        user="0:0",
                        ports={port: [(HERE, block.base + number)]},
                        labels=owner.labels(mark, mark),
                    )
                )
                engine.start(made[-1])
            for container in made:
                eventually(partial(_says, engine, container, up), f"{image} does not say {up!r}")
            nodes = [(HERE, block.base + number) for number in range(1, len(runs) + 1)]
            yield engine, made, nodes
        finally:
            for container in made:
                engine.remove(container)
            block.close()


def _says(engine: Engine, container: Container, words: str) -> bool:
    return words in engine.last_words(container, 400)


TLS_FILES = ("ca.pem", "server.pem", "server.key")
TLS_LINES = 'ca = "ca.pem"\ncertificate = "client.pem"\nkey = "client.key"'


def _files(folder: Path) -> dict[str, bytes]:
    return {f"/lockbench/tls/{name}": (folder / name).read_bytes() for name in TLS_FILES}


REDIS = f"""
    port 0
    tls-port 6379
    tls-cert-file /lockbench/tls/server.pem
    tls-key-file /lockbench/tls/server.key
    tls-ca-cert-file /lockbench/tls/ca.pem
    tls-auth-clients yes
    tls-replication yes
    tls-cluster yes
    bind 0.0.0.0
    user default off
    user admin on >{PASSWORD}-admin ~* &* +@all
"""
DATA = f"""
    appendonly yes
    dir /lockbench
    repl-diskless-sync-delay 0
    masteruser admin
    masterauth {PASSWORD}-admin
    user {USER} on >{PASSWORD} ~{PREFIX}* &{PREFIX}* +@all -@admin -@dangerous +info +role
"""
SENTINEL = f"""
    dir /lockbench
    sentinel sentinel-user admin
    sentinel sentinel-pass {PASSWORD}-admin
    user {USER} on >{PASSWORD} &* +ping +info +role +sentinel|myid +sentinel|master
"""
# What Sentinels answer about whom, to whom asks for the primary and by whom it is followed.
SENTINEL = SENTINEL.rstrip() + (
    " +sentinel|get-master-addr-by-name +sentinel|replicas +sentinel|sentinels\n"
)
MASTER = "shop"


def _redis_run(
    folder: Path, *parts: str, image: str = "redis", sentinel: bool = False
) -> tuple[Sequence[str], Mapping[str, bytes]]:
    text = "\n".join(line.strip() for part in parts for line in part.splitlines())
    files = {**_files(folder), "/lockbench/redis.conf": text.encode()}
    command = [f"{image}-server", "/lockbench/redis.conf", *(["--sentinel"] if sentinel else [])]
    return command, files


def as_admin(folder: Path, at: tuple[str, int]) -> Any:
    """A client of redis-py, once the server answers."""
    from redis import Redis

    client = Redis(
        *at,
        username="admin",
        password=f"{PASSWORD}-admin",
        ssl=True,
        ssl_ca_certs=str(folder / "ca.pem"),
        ssl_certfile=str(folder / "client.pem"),
        ssl_keyfile=str(folder / "client.key"),
        decode_responses=True,
    )
    eventually(lambda: _pongs(client), f"{at} does not answer")
    return client


def _pongs(client: Any) -> bool:
    from redis import RedisError

    with suppress(RedisError):
        return bool(client.ping())
    return False


LINES = {
    "prefix": f'"{PREFIX}"',
    "user": f'"{USER}"',
    "password-env": f'"{VARIABLE}"',
    "[tls]": TLS_LINES,
}


@contextmanager
def redis(folder: Path, size: int = 1, image: str = "redis") -> Iterator[Foreign]:
    """Redis that asks for TLS, a client's certificate, and a user who may touch nothing but the
    prefix."""
    with certificates(folder):
        runs = [_redis_run(folder, REDIS, DATA, image=image)] * size
        with _started(image, runs, 6379, "Ready to accept connections") as (engine, made, nodes):
            topology = "redis" if size == 1 else "redlock"
            yield Foreign(folder, topology, nodes, made, engine, dict(LINES))


@contextmanager
def sentinel(folder: Path, image: str = "redis", down_after_ms: int = 60_000) -> Iterator[Foreign]:
    """A primary, a replica and three Sentinels, which call each other by addresses of a network of
    their own, and give up a primary that has been silent for so long."""
    with certificates(folder):
        data = _redis_run(folder, REDIS, DATA, image=image)
        guard = _redis_run(folder, REDIS, SENTINEL, image=image, sentinel=True)
        runs = [data, data, guard, guard, guard]
        with _started(image, runs, 6379, "Running mode=") as (engine, made, nodes):
            _, replica, *sentinels = [as_admin(folder, at) for at in nodes]
            at = _inside(engine, made[0])
            replica.replicaof(at, 6379)
            for one in sentinels:
                one.execute_command("SENTINEL", "MONITOR", MASTER, at, 6379, 2)
                for name, value in (
                    ("auth-user", "admin"),
                    ("auth-pass", f"{PASSWORD}-admin"),
                    ("down-after-milliseconds", str(down_after_ms)),
                    ("failover-timeout", "5000"),
                ):
                    one.execute_command("SENTINEL", "SET", MASTER, name, value)
            for one in sentinels:
                eventually(partial(_sees_all, one), "a Sentinel does not see everybody")
            lines = {"master": f'"{MASTER}"', **LINES}
            foreign = Foreign(folder, "sentinel", nodes, made, engine, lines)
            named = [f'"{host}:{port}"' for host, port in nodes]
            foreign.lines["nodes"] = f"[{', '.join(named[:2])}]"
            foreign.lines["sentinels"] = f"[{', '.join(named[2:])}]"
            yield foreign


def _sees_all(sentinel: Any) -> bool:
    said = dict(pairs(sentinel.execute_command("SENTINEL", "MASTER", MASTER)))
    found = sentinel.execute_command("SENTINEL", "REPLICAS", MASTER)
    ready = [one for one in found if dict(pairs(one)).get("master-link-status") == "ok"]
    return said["flags"] == "master" and said["num-other-sentinels"] == "2" and bool(ready)


def pairs(said: Any) -> Any:
    """Names and values, of an answer in any version of the protocol."""
    return said.items() if isinstance(said, dict) else zip(said[::2], said[1::2], strict=True)


@contextmanager
def redis_cluster(
    folder: Path, image: str = "redis", *, replicas: bool = False
) -> Iterator[Foreign]:
    """Three primaries that share the slots, each with a replica or none, which call each other by
    addresses of a network of their own."""
    with certificates(folder):
        config = "cluster-enabled yes\ncluster-node-timeout 2000\n"
        runs = [_redis_run(folder, REDIS, DATA, config, image=image)] * (6 if replicas else 3)
        with _started(image, runs, 6379, "Running mode=") as (engine, made, nodes):
            clients = [as_admin(folder, at) for at in nodes]
            for number, client in enumerate(clients[:3]):
                first, end = (part * 16384 // 3 for part in (number, number + 1))
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            for container in made[1:]:
                clients[0].execute_command("CLUSTER", "MEET", _inside(engine, container), 6379)
            for client in clients:
                eventually(partial(_whole, client), "a node does not see a whole cluster")
            for primary, client in zip(clients, clients[3:], strict=False):
                client.execute_command("CLUSTER", "REPLICATE", primary.cluster("MYID"))
                eventually(partial(_follows, client), "a replica does not follow")
            yield Foreign(folder, "redis-cluster", nodes, made, engine, dict(LINES))


def _whole(client: Any) -> bool:
    said = str(client.execute_command("CLUSTER", "INFO"))
    return "cluster_state': 'ok" in said or "cluster_state:ok" in said


def _follows(client: Any) -> bool:
    return bool(client.info("replication").get("master_link_status") == "up")


def _inside(engine: Engine, container: Container) -> str:
    """Its address in the engine's network."""
    state = engine.state(container)
    assert state is not None
    (address,) = state.addresses.values()
    return address


@contextmanager
def etcd(folder: Path, size: int = 1) -> Iterator[Foreign]:
    """Members that ask for a client's certificate, and for a user of its own who may touch nothing
    but the prefix. Several reach each other at the addresses of their containers."""
    with certificates(folder):
        tls = {
            "cert-file": "/lockbench/tls/server.pem",
            "key-file": "/lockbench/tls/server.key",
            "trusted-ca-file": "/lockbench/tls/ca.pem",
        }
        options = {
            **tls,
            "data-dir": "/lockbench/data",
            "listen-client-urls": "https://0.0.0.0:2379",
            "advertise-client-urls": "https://127.0.0.1:2379",
        }
        command = ["etcd", "--client-cert-auth", *(f"--{k}={v}" for k, v in options.items())]
        up = "ready to serve"
        several = size > 1
        commands = [_with_peers(command, n) if several else command for n in range(size)]
        runs = [(one, _files(folder)) for one in commands]
        with _started("etcd", runs, 2379, "" if several else up) as started:
            engine, made, nodes = started
            if several:
                peers = [f"m{n}=http://{_inside(engine, one)}:2380" for n, one in enumerate(made)]
                _introduce(folder, engine, made, ",".join(peers), up)
            _ask_for_users(folder, nodes[0])
            yield Foreign(
                folder,
                "etcd",
                nodes,
                made,
                engine,
                {
                    "prefix": '"lockbench/team-a/"',
                    "user": f'"{USER}"',
                    "password-env": f'"{VARIABLE}"',
                    "[tls]": TLS_LINES,
                },
            )


def _with_peers(command: Sequence[str], number: int) -> Sequence[str]:
    """A member of etcd that knows the others once it is told."""
    words = [
        f"{KNOWS}; exec {shlex.join(command)} --name=m{number}",
        f'--initial-cluster="$(cat {PEERS})" --listen-peer-urls=http://0.0.0.0:2380',
        '--initial-advertise-peer-urls="http://$(hostname -i):2380"',
    ]
    return ["sh", "-c", " ".join(words)]


def _ask_for_users(folder: Path, at: tuple[str, int]) -> None:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    context.load_cert_chain(folder / "client.pem", folder / "client.key")
    http = client.HTTPSConnection(*at, context=context, timeout=5)

    def post(path: str, **body: object) -> None:
        http.request("POST", f"/v3/auth/{path}", json.dumps(body))
        answer = http.getresponse()
        said = answer.read()
        assert answer.status == client.OK, (path, said)

    for name, password in (("root", f"{PASSWORD}-admin"), (USER, PASSWORD)):
        post("user/add", name=name, password=password)
    post("role/add", name=USER)
    prefix, end = (
        b64encode(text).decode() for text in (b"lockbench/team-a/", b"lockbench/team-a0")
    )
    post(
        "role/grant",
        name=USER,
        perm={"permType": "READWRITE", "key": prefix, "range_end": end},
    )
    post("role/add", name="root")
    post("user/grant", user="root", role="root")
    post("user/grant", user=USER, role=USER)
    post("enable")
    http.close()


@contextmanager
def postgres(folder: Path) -> Iterator[Foreign]:
    """A primary that takes sessions with TLS and a password alone (SCRAM), for a database of the
    user's own."""
    with certificates(folder):
        role = f"CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}';\n\n"
        init = f"{role}CREATE DATABASE shop OWNER {USER};\n\n"
        settings = {
            "ssl": "on",
            "ssl_cert_file": "/lockbench/tls/server.pem",
            "ssl_key_file": "/lockbench/server.key",
            "listen_addresses": "*",
            "unix_socket_directories": "",
            "hba_file": "/lockbench/pg_hba.conf",
        }
        said = " ".join(f"-c {name}='{value}'" for name, value in settings.items())
        script = (
            "install --owner=postgres --mode=600 /lockbench/tls/server.key /lockbench/server.key;"
            "exec setpriv --reuid=postgres --regid=postgres --clear-groups sh -c '"
            "postgres --single -j -D /lockbench/data postgres < /lockbench/init.sql;"
            f"exec postgres -D /lockbench/data {said.replace(chr(39), chr(34))}'"
        )
        files = {
            **_files(folder),
            "/lockbench/init.sql": init.encode(),
            "/lockbench/pg_hba.conf": b"hostssl all all 0.0.0.0/0 scram-sha-256\n",
        }
        ready = "database system is ready to accept connections"
        with _started("postgres", [(["sh", "-c", script], files)], 5432, ready) as started:
            engine, made, nodes = started
            yield Foreign(
                folder,
                "postgres",
                nodes,
                made,
                engine,
                {
                    "prefix": f'"{PREFIX}"',
                    "user": f'"{USER}"',
                    "database": '"shop"',
                    "password-env": f'"{VARIABLE}"',
                    "[tls]": TLS_LINES,
                },
            )


@contextmanager
def zookeeper(folder: Path, size: int = 1) -> Iterator[Foreign]:
    """Servers that ask for TLS and a client's certificate, whose ``/team-a`` only the user may
    touch. They see each other by the names of their containers."""
    with certificates(folder):
        both = (folder / "server.pem").read_bytes() + (folder / "server.key").read_bytes()
        config = """
            tickTime=200
            initLimit=20
            syncLimit=10
            dataDir=/lockbench/data
            secureClientPort=2281
            serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
            ssl.keyStore.location=/lockbench/tls/both.pem
            ssl.trustStore.location=/lockbench/tls/ca.pem
            ssl.clientAuth=need
            ssl.clientHostnameVerification=false
            authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider
            admin.enableServer=false
            maxClientCnxns=0
        """
        lines = [line.strip() for line in config.splitlines()]
        command = ["java", "-Xmx96m", "-Dorg.slf4j.simpleLogger.showDateTime=true"]
        command += ["-cp", "/usr/share/java/slf4j-simple.jar:/usr/share/java/*"]
        command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", "/lockbench/zoo.cfg"]
        files = {
            "/lockbench/tls/both.pem": both,
            "/lockbench/tls/ca.pem": (folder / "ca.pem").read_bytes(),
            "/lockbench/zoo.cfg": "\n".join(lines).encode(),
        }
        up = "bound to port"
        if size > 1:  # who the others are is known when all have an address
            joined = f"cat {PEERS} >> /lockbench/zoo.cfg"
            command, up = ["sh", "-c", f"{KNOWS}; {joined}; exec {shlex.join(command)}"], ""
        runs = [
            (command, {**files, "/lockbench/data/myid": f"{number}\n".encode()})
            for number in range(1, size + 1)
        ]
        with _started("zookeeper", runs, 2281, up) as started:
            engine, made, nodes = started
            if size > 1:
                peers = "".join(
                    f"server.{number}={_inside(engine, one)}:2888:3888\n"
                    for number, one in enumerate(made, 1)
                )
                _introduce(folder, engine, made, peers, "bound to port")
            _reserve(folder, nodes[0])
            yield Foreign(
                folder,
                "zookeeper",
                nodes,
                made,
                engine,
                {
                    "prefix": '"/team-a"',
                    "user": f'"{USER}"',
                    "password-env": f'"{VARIABLE}"',
                    "[tls]": TLS_LINES,
                },
            )


def _introduce(
    folder: Path, engine: Engine, made: Sequence[Container], peers: str, up: str
) -> None:
    """Tell servers who the others are, once all have an address."""
    file = folder / "peers"
    file.write_text(peers)
    for one in made:
        for path in (PEERS, WHOLE):
            subprocess.run(["docker", "cp", file, f"{one.name}:{path}"], check=True)
    for one in made:
        eventually(partial(_says, engine, one, up), f"{one.name} does not start")


@contextmanager
def kazoo(folder: Path, at: tuple[str, int]) -> Iterator[Any]:
    """A client, as the user."""
    from kazoo.client import KazooClient

    client = KazooClient(
        f"{at[0]}:{at[1]}",
        use_ssl=True,
        ca=str(folder / "ca.pem"),
        certfile=str(folder / "client.pem"),
        keyfile=str(folder / "client.key"),
        auth_data=[("digest", f"{USER}:{PASSWORD}")],
    )
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def _reserve(folder: Path, at: tuple[str, int]) -> None:
    """``/team-a``, for the user alone."""
    from kazoo.security import make_digest_acl

    with kazoo(folder, at) as client:
        client.create("/team-a", acl=[make_digest_acl(USER, PASSWORD, all=True)])
