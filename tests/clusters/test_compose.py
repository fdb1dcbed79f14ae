"""What ``lockbench break --compose`` writes is what the engine runs, it fits the schema of Compose,
and comes up where there is a Compose."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import pytest
from ruamel.yaml import YAML

from lockbench.clusters import registry
from lockbench.clusters.base import Cluster, ClusterPlan, Composable
from lockbench.clusters.engine import owner
from lockbench.clusters.engine.docker import Engine
from lockbench.clusters.pods import compose
from lockbench.clusters.pods.launch import API_PORT, Part
from lockbench.clusters.pods.toxiproxy import Listen
from tests.eventually import eventually

# One of each kind; the others differ in a setting.
KINDS: Final = (
    "redis", "sentinel", "redis-cluster", "etcd", "zookeeper", "postgres", "redlock-zookeeper",
)  # fmt: skip
OTHERS: Final = tuple(name for name in registry.topologies() if name not in KINDS)
CONTENTS: Final = (
    "a\nb\n",
    " a\n",
    "a\n\n",
    "",
    "$HOME ${x} $$\n",
    "a\tb\n",
    'x: "1" # no\\\n',
    "é\n",
)


@cache
def compose_command() -> tuple[str, ...] | None:
    """How Compose is called here; None: there is none that knows what is used."""
    for words in (("docker", "compose"), ("docker-compose",)):
        if shutil.which(words[0]) is None:
            continue
        asked = [*words, "version", "--short"]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        version = re.findall(r"\d+", done.stdout)
        if done.returncode == 0 and [*map(int, version[:2])] >= [2, 24]:
            return words
    return None


def read(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


def refused(text: str, folder: Path) -> bool:
    file = folder / "document.yml"
    file.write_text(text)
    words = ["-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(file)]
    return subprocess.run([sys.executable, *words], capture_output=True, check=False).returncode > 0


def part(content: str = "a\n") -> list[Part]:
    link = Part(
        "x-1-link", "toxiproxy:1", ["toxiproxy"], {"A": "$B"}, network="x",
        ports={9000: [("127.0.0.1", 20001)]}, links=[Listen("client-0", "0.0.0.0:9000", "x:1")],
    )  # fmt: skip
    server = Part(
        "x-1",
        "x:1",
        ["sh", "-c", "echo $X"],
        {},
        joins="x-1-link",
        files={"/etc/x": content.encode()},
    )
    return [link, server]


@pytest.mark.parametrize("content", CONTENTS)
def test_every_file_is_read_back_as_it_was(content: str) -> None:
    document = read(compose.text("x", part(content)))
    said = document["configs"]["x-1-x"]["content"].replace("$$", "$")
    assert said == (content or "\n")
    assert document["services"]["x-1"]["entrypoint"] == ["sh", "-c", "echo $$X"]


def test_it_fits_the_schema_and_a_planted_defect_does_not(tmp_path: Path) -> None:
    text = compose.text("x", part())
    assert not refused(text, tmp_path)
    assert refused(text.replace("    image:", "    picture:"), tmp_path)


@contextmanager
def running(topology: str, folder: Path) -> Iterator[Cluster]:
    size = registry.topologies()[topology].default_size
    plan = ClusterPlan(topology, size, 2, f"compose-{os.getpid()}", 3.0, str(folder / "logs"))
    with registry.make(plan) as cluster:
        yield cluster


def as_engine_tells(run_id: str) -> dict[str, dict[str, Any]]:
    """Service → what the engine says of its container."""
    engine = Engine()
    found = {}
    with engine._asking("inspect") as api:
        by_id = {
            each.id: api.inspect_container(each.id)
            for each in engine.containers({owner.RUN: run_id})
        }
    for said in by_id.values():
        config, host = said["Config"], said["HostConfig"]
        mode = host["NetworkMode"]
        joined = by_id[mode.removeprefix("container:")] if mode.startswith("container:") else None
        found[service(said)] = {
            "image": config["Image"],
            "entrypoint": config["Entrypoint"],
            "environment": dict(line.split("=", 1) for line in config["Env"]),
            "user": config["User"],
            "joins": service(joined) if joined else "",
            "memory": service(by_id[host["IpcMode"].removeprefix("container:")])
            if joined
            else host["IpcMode"],
            "ports": sorted(
                f"{at['HostIp']}:{at['HostPort']}:{inside.removesuffix('/tcp')}"
                for inside, places in (host["PortBindings"] or {}).items()
                for at in places
            ),
            "nofile": {limit["Soft"] for limit in host["Ulimits"]},
            "mounts": said["Mounts"],
        }
    return found


def service(said: dict[str, Any]) -> str:
    """``/lockbench-<id>-redis-1-link`` → ``redis-1-link``."""
    cluster = said["Config"]["Labels"][owner.CLUSTER]
    return str(said["Name"]).removeprefix(f"/lockbench-{cluster}-")


def as_written(document: Any) -> dict[str, dict[str, Any]]:
    found = {}
    for name, said in document["services"].items():
        joins = said.get("network_mode", "").removeprefix("service:")
        found[name] = {
            "image": said["image"],
            "entrypoint": [word.replace("$$", "$") for word in said["entrypoint"]],
            "environment": said.get("environment", {}),
            "user": said.get("user", ""),
            "joins": joins,
            "memory": said["ipc"].removeprefix("service:"),
            "ports": sorted(said.get("ports", [])),
            "nofile": {said["ulimits"]["nofile"]},
            "mounts": said.get("volumes", []),
        }
    return found


@pytest.mark.docker
@pytest.mark.parametrize(
    "topology", [*KINDS, *(pytest.param(name, marks=pytest.mark.long) for name in OTHERS)]
)
def test_what_is_written_is_what_runs(topology: str, tmp_path: Path) -> None:
    with running(topology, tmp_path) as cluster:
        assert isinstance(cluster, Composable)
        document = read(cluster.compose())
        told, links = as_engine_tells(cluster.plan.run_id), links_of(cluster)
    written = as_written(document)
    for name, said in told.items():
        # The engine adds what the image has.
        assert said["environment"].items() >= written[name]["environment"].items()
        said["environment"] = written[name]["environment"]
        apis = [port for port in written[name]["ports"] if port.endswith(f":{API_PORT}")]
        assert len(apis) == (not said["joins"]), "Toxiproxy has a port here alone"
        said["ports"] = sorted([*said["ports"], *apis])
    assert written == told
    assert len(told) == 2 * len(cluster.nodes)
    for name, proxies in links.items():
        file = json.loads(document["configs"][f"{name}-links.json"]["content"])
        assert {(one["name"], one["listen"]) for one in file} == {
            (one["name"], listens(one["listen"])) for one in proxies.values()
        }


@pytest.mark.docker
@pytest.mark.long
@pytest.mark.skipif(compose_command() is None, reason="there is no Docker Compose")
@pytest.mark.parametrize("topology", registry.topologies())
def test_it_comes_up_without_lockbench(topology: str, tmp_path: Path) -> None:
    """Every node serves a write through a client's link, by Lockbench's own probes."""
    with running(topology, tmp_path) as cluster:
        assert isinstance(cluster, Composable)
        file = tmp_path / "docker-compose.yml"
        file.write_text(cluster.compose())
    words = [*(compose_command() or ()), "--project-name", f"lockbench-test-{os.getpid()}"]
    words += ["--file", str(file)]
    try:
        up = [*words, "up", "--wait", "--detach"]
        done = subprocess.run(up, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        for node in cluster.nodes:
            eventually(partial(cluster.serves, node, 2.0, 1), f"node {node}")
    finally:
        subprocess.run([*words, "down", "--timeout", "1"], capture_output=True, check=True)


def links_of(cluster: Cluster) -> dict[str, Any]:
    """Link service → its proxies, as its Toxiproxy tells."""
    parts = getattr(cluster, "_both", [cluster])
    return {
        f"{one.node_name(node)}-link": one._pods[node].links._send("GET", "/proxies")
        for one in parts
        for node in one.nodes
    }


def listens(address: str) -> str:
    """As it was asked for: Toxiproxy tells ``[::]:9000`` of ``0.0.0.0:9000``."""
    return address.replace("[::]", "0.0.0.0")
