"""Servers that are not Lockbench's: with TLS, users and passwords, on loopback, in containers that
a test starts and removes itself."""

from __future__ import annotations

import json
import os
import secrets
import ssl
import subprocess
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http import client
from pathlib import Path

from lockbench.clusters import images
from lockbench.clusters.engine import owner, ports
from lockbench.clusters.engine.docker import Container, Engine
from tests.eventually import eventually

PASSWORD = "planted-" + secrets.token_hex(8)
VARIABLE = "FOREIGN_PASSWORD"
USER = "bench"
PREFIX = "team-a:"
HERE = "127.0.0.1"


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

    def hands(self, *verbs: str) -> str:
        """The table of commands, which are the engine's: ``pause``, ``kill``."""
        at = self.folder / "hand"
        cases = "\n".join(
            f'"{port}") name={container.name};;'
            for (_, port), container in zip(self.nodes, self.containers, strict=True)
        )
        at.write_text(
            f'#!/bin/sh\necho "$1 $2" >> {self.folder}/hands.log\ncase $2 in\n{cases}\nesac\n'
            # Safe to repeat, as ``docker start`` is.
            'if [ "$1" = resume ]; then docker unpause "$name"\n'
            'docker inspect --format "{{.State.Paused}}" "$name" | grep -q false\n'
            'else docker "$1" "$name"; fi\n'
        )
        at.chmod(0o755)
        both = {"pause": "resume", "kill": "start"}
        words = [word for verb in verbs for word in (verb, both[verb])]
        return "\n".join(f'{word} = "{at} {word} {{port}}"' for word in words)


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


@contextmanager
def redis(folder: Path, size: int = 1) -> Iterator[Foreign]:
    """Redis that asks for TLS, a client's certificate, and a user who may touch nothing but the
    prefix."""
    with certificates(folder):
        config = f"""
            port 0
            tls-port 6379
            tls-cert-file /lockbench/tls/server.pem
            tls-key-file /lockbench/tls/server.key
            tls-ca-cert-file /lockbench/tls/ca.pem
            tls-auth-clients yes
            bind 0.0.0.0
            appendonly yes
            user default off
            user admin on >{PASSWORD}-admin ~* &* +@all
            user {USER} on >{PASSWORD} ~{PREFIX}* &{PREFIX}* +@all -@admin -@dangerous +info
        """
        text = "\n".join(line.strip() for line in config.splitlines())
        files = {**_files(folder), "/lockbench/redis.conf": text.encode()}
        runs = [(["redis-server", "/lockbench/redis.conf"], files)] * size
        with _started("redis", runs, 6379, "Ready to accept connections") as (engine, made, nodes):
            yield Foreign(
                folder,
                "redis" if size == 1 else "redlock",
                nodes,
                made,
                engine,
                {
                    "prefix": f'"{PREFIX}"',
                    "user": f'"{USER}"',
                    "password-env": f'"{VARIABLE}"',
                    "[tls]": TLS_LINES,
                },
            )


@contextmanager
def etcd(folder: Path) -> Iterator[Foreign]:
    """One member that asks for a client's certificate, and for a user of its own who may touch
    nothing but the prefix."""
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
        with _started("etcd", [(command, _files(folder))], 2379, "ready to serve") as started:
            engine, made, nodes = started
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
