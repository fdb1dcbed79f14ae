"""What a stranger copies from the guides: its files are read by Lockbench, its command lines are
taken by the parser and are cases that fit, its shell is shell, and manifests are what they have to
be. Nothing is asked of a cluster: ``kubectl`` is a stand-in that writes down what it is asked."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, Final

import pytest
from ruamel.yaml import YAML
from typer.main import get_command

from lockbench.bench import plan, suites
from lockbench.bench.plan import WORKERS, Case
from lockbench.cli.main import app
from lockbench.clusters.elsewhere.site import OF_TWO
from lockbench.clusters.elsewhere.topology import known
from lockbench.results.errors import BadInput
from lockbench.workloads.machines.file import read
from tools.setup import ROOT

MACHINES: Final = "three-machines"
KUBERNETES: Final = "kubernetes"
PAGES: Final = (MACHINES, KUBERNETES)
VARIABLE: Final = "REDIS_PASSWORD"
PLANTED: Final = "planted"
MANIFESTS: Final = ROOT / "examples" / "kubernetes"
NAMESPACE: Final = "lockbench"
# Of the object for the first two of them.
CUT_1_2: Final = (
    "  name: cut-1-2",
    "  direction: from",
    "      lockbench: [etcd-1]",
    "        lockbench: [etcd-2]",
)
STAND_IN: Final = """#!/bin/sh
for word in "$@"; do printf "%s\\n" "$word"; done >> "$SAID"
[ "$word" != - ] || cat >> "$SAID"
"""


def blocks(page: str, language: str = "") -> list[str]:
    text = (ROOT / "docs" / f"{page}.md").read_text()
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [block for of, block in found if of == language]


def shell(page: str) -> list[str]:
    """What is typed, without what was printed."""
    printed = ("redis-token under", "All 3 cases")
    return [text for text in blocks(page) if not text.startswith(printed)]


@dataclass(frozen=True)
class Guide:
    """A folder in which a page was followed up to its first run."""

    folder: Path
    said: Path  # what kubectl was asked

    def env(self) -> dict[str, str]:
        at = {"PATH": f"{self.said.parent}:{os.environ['PATH']}", "SAID": str(self.said)}
        return {**os.environ, **at, "HOME": str(self.folder.parent)}

    def asked(self) -> list[str]:
        """Since it was asked last."""
        words = self.said.read_text().splitlines() if self.said.exists() else []
        self.said.unlink(missing_ok=True)
        return words


def followed(page: str, folder: Path) -> Guide:
    bin_ = folder / "bin"
    bin_.mkdir()
    kubectl = bin_ / "kubectl"
    kubectl.write_text(STAND_IN)
    kubectl.chmod(0o755)
    guide = Guide(folder / "kubernetes", bin_ / "said")
    start = ROOT
    if page == MACHINES:
        guide.folder.mkdir()
        start = guide.folder
        for text in blocks(page, "toml"):
            name = text.partition("\n")[0].removeprefix("# ")
            (guide.folder / name).write_text(text)
    (secrets,) = (text for text in shell(page) if f"{VARIABLE}=$(" in text)
    bash = ["bash", "-euo", "pipefail", "-c", secrets]
    subprocess.run(bash, cwd=start, env=guide.env(), check=True, capture_output=True)
    return guide


@pytest.fixture(scope="module", params=PAGES)
def page(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def guide(page: str, tmp_path_factory: pytest.TempPathFactory) -> Guide:
    return followed(page, tmp_path_factory.mktemp(page))


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which whoever reads a file takes away."""
    monkeypatch.setenv(VARIABLE, PLANTED)


# --- command lines ---


def lines(page: str) -> list[str]:
    text = "\n".join(shell(page))
    return re.findall(r"^(?:\$ )?(lockbench .*)$", text, re.MULTILINE)


def parsed(line: str) -> tuple[str, Mapping[str, Any]]:
    """The command and its values. Raises what the parser has to say."""
    _, name, *words = shlex.split(line, comments=True)
    command = vars(get_command(app))["commands"][name]
    return name, command.make_context(name, words).params


def cases(values: Mapping[str, Any], folder: Path) -> Iterator[Case]:
    """Those of ``lockbench run``, checked as it does. Raises BadInput."""
    file, machines = (values[it] and str(folder / values[it]) for it in ("cluster", "machines"))
    os.environ[VARIABLE] = PLANTED
    for lock in values["lock"].split(","):
        for fault in values["fault"].split(","):
            case = replace(
                plan.make_case(lock, fault, seed=0, cluster=file),
                machines=machines,
                clients=values["clients"] or 8,
            )
            if values["ttl"]:
                case = replace(case, pace=replace(case.pace, lease_ttl_s=values["ttl"]))
            if values["time_limit"]:
                case = replace(case, time_limit_s=values["time_limit"])
            else:
                case = plan.with_time_for_faults(case)
            yield plan.resolve(case)


def test_every_command_line_is_taken_and_every_case_fits(page: str, guide: Guide) -> None:
    names = set()
    for line in lines(page):
        name, values = parsed(line)
        names.add(name)
        if name == "run":
            assert list(cases(values, guide.folder))
        elif name == "suite":
            assert suites.of_cluster(str(guide.folder / values["cluster"]), 0).cases
        elif name == "clean":
            for file in filter(None, (values["cluster"], values["machines"])):
                assert (guide.folder / file).is_file()
    assert {"run", "clean"} <= names


@pytest.mark.parametrize(
    "line",
    ["lockbench run --lock redis-token --machine m.toml", "lockbench clean --clusters redis.toml"],
)
def test_a_line_that_is_not_taken_is_found(line: str) -> None:
    with pytest.raises(Exception, match="No such option"):
        parsed(line)


def test_a_case_that_does_not_fit_is_found(tmp_path: Path) -> None:
    guide = followed(KUBERNETES, tmp_path)
    _, values = parsed("lockbench run --lock redis-token --cluster redis-cut.toml --fault kill")
    with pytest.raises(BadInput, match=r"redis-cut\.toml gives pause"):
        list(cases(values, guide.folder))


@pytest.mark.parametrize("name", PAGES)
def test_shell_is_shell(name: str) -> None:
    for text in shell(name):
        said = subprocess.run(
            ["bash", "-n"], input=text, capture_output=True, text=True, check=False
        )
        assert said.stderr == "", text


# --- files ---


def test_files_are_read(guide: Guide) -> None:
    files = [*guide.folder.glob("redis*.toml"), *guide.folder.glob("etcd.toml")]
    assert len(files) == (3 if (guide.folder / "chaos").exists() else 2)
    for file in files:
        os.environ[VARIABLE] = PLANTED
        assert known(str(file)).hands.verbs
    assert [machine.name for machine in read(guide.folder / "machines.toml", WORKERS + 1)] == [
        "a",
        "b",
    ]


def test_the_page_has_the_hands_of_its_files_and_its_first_machine() -> None:
    redis, etcd, machine = map(tomllib.loads, blocks(KUBERNETES, "toml"))
    for page, file in ((redis, "redis.toml"), (etcd, "etcd.toml")):
        assert page["hands"] == tomllib.loads((MANIFESTS / file).read_text())["hands"]
    assert (
        machine["machine"]
        == tomllib.loads((MANIFESTS / "machines.toml").read_text())["machine"][:1]
    )


@pytest.mark.parametrize(
    ("file", "verb", "words"),
    [
        ("redis.toml", "pause", ["exec", "kill -STOP $(cat /data/redis.pid)"]),
        ("redis.toml", "resume", ["exec", "kill -CONT $(cat /data/redis.pid)"]),
        ("redis.toml", "kill", ["apply", "chaos/kill.yaml", "wait", "pod/redis-0"]),
        ("redis.toml", "start", ["delete", "--ignore-not-found", "chaos/kill.yaml", "wait"]),
        ("redis-cut.toml", "pause", ["apply", "chaos/cut.yaml", "wait", "networkchaos/cut"]),
        ("redis-cut.toml", "resume", ["delete", "--ignore-not-found", "chaos/cut.yaml"]),
        ("etcd.toml", "cut", ["apply", *CUT_1_2, "wait", "networkchaos/cut-1-2"]),
        ("etcd.toml", "join", ["delete", "--ignore-not-found", "networkchaos/cut-1-2"]),
    ],
)
def test_hands_ask_kubectl_for_what_is_there(
    file: str, verb: str, words: list[str], tmp_path: Path
) -> None:
    guide = followed(KUBERNETES, tmp_path)
    guide.asked()
    site = known(str(guide.folder / file))
    whom = (1, 2) if verb in OF_TWO else 1
    subprocess.run(site.words(verb, whom), cwd=guide.folder, env=guide.env(), check=True)
    asked = guide.asked()
    assert [word for word in asked if word in words] == words
    assert all((guide.folder / word).is_file() for word in asked if word.startswith("chaos/"))


# --- manifests ---

# What the API refuses an object without, and what these need beside it.
REQUIRED: Final = {
    ("v1", "Namespace"): (),
    ("v1", "ServiceAccount"): (),
    ("v1", "ConfigMap"): ("data",),
    ("v1", "Service"): ("spec.selector", "spec.ports"),
    ("apps/v1", "StatefulSet"): (
        "spec.serviceName",
        "spec.selector.matchLabels",
        "spec.template.metadata.labels",
        "spec.template.spec.containers",
        "spec.template.spec.shareProcessNamespace",
        "spec.volumeClaimTemplates",
    ),
    ("batch/v1", "Job"): (
        "spec.activeDeadlineSeconds",
        "spec.template.spec.restartPolicy",
        "spec.template.spec.containers",
    ),
    ("rbac.authorization.k8s.io/v1", "Role"): ("rules",),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): ("roleRef", "subjects"),
    ("chaos-mesh.org/v1alpha1", "PodChaos"): ("spec.action", "spec.mode", "spec.selector"),
    ("chaos-mesh.org/v1alpha1", "NetworkChaos"): (
        "spec.action",
        "spec.mode",
        "spec.selector",
        "spec.direction",
    ),
    ("chaos-mesh.org/v1alpha1", "TimeChaos"): ("spec.mode", "spec.selector", "spec.timeOffset"),
}


def documents() -> list[Any]:
    files = [*MANIFESTS.glob("*.yaml"), *MANIFESTS.glob("chaos/*.yaml")]
    return [one for file in files for one in YAML(typ="safe", pure=True).load_all(file.read_text())]


def of(kind: str) -> list[Any]:
    return [one for one in documents() if one["kind"] == kind]


def at(document: Any, path: str) -> Any:
    """What stands there; None: nothing."""
    return reduce(lambda found, name: found and found.get(name), path.split("."), document)


def missing(document: Any) -> set[str]:
    paths = ["apiVersion", "kind", "metadata.name"]
    if document.get("kind") != "Namespace":
        paths.append("metadata.namespace")
    kind = (document.get("apiVersion"), document.get("kind"))
    if kind not in REQUIRED:
        return {f"{kind} is not known"}
    return {path for path in (*paths, *REQUIRED[kind]) if not at(document, path)}


def test_manifests_have_what_their_kinds_need() -> None:
    found = documents()
    assert {(one["apiVersion"], one["kind"]) for one in found} == set(REQUIRED)
    for one in found:
        assert missing(one) == set()
        assert one["metadata"].get("namespace", NAMESPACE) == NAMESPACE


def test_what_is_missing_is_found() -> None:
    for one in documents():
        for path in REQUIRED[one["apiVersion"], one["kind"]]:
            above, _, last = path.rpartition(".")
            holder = at(one, above) if above else one
            kept = holder.pop(last)
            assert missing(one) == {path}
            holder[last] = kept
    assert missing({"apiVersion": "v1", "kind": "StatefulSet"}) == {
        "('v1', 'StatefulSet') is not known"
    }


def test_names_in_manifests_lead_somewhere() -> None:
    (redis,) = of("StatefulSet")
    pod, labels = redis["spec"]["template"]["spec"], redis["spec"]["template"]["metadata"]["labels"]
    server = f"{redis['metadata']['name']}-0"
    assert redis["spec"]["selector"]["matchLabels"] == labels
    inside, outside = of("Service")
    assert inside["metadata"]["name"] == redis["spec"]["serviceName"]
    assert inside["spec"]["selector"] == labels
    assert outside["spec"]["selector"] == {"statefulset.kubernetes.io/pod-name": server}
    for chaos in (*of("PodChaos"), *of("NetworkChaos"), *of("TimeChaos")):
        if "target" not in chaos["spec"]:  # that is between servers of another StatefulSet
            assert chaos["spec"]["selector"] == {"pods": {NAMESPACE: [server]}}
    (container,) = pod["containers"]
    claims = [one["metadata"] for one in redis["spec"]["volumeClaimTemplates"]]
    volumes = {one["name"] for one in (*pod["volumes"], *claims)}
    assert {one["name"] for one in container["volumeMounts"]} == volumes
    for file in ("redis.toml", "redis-cut.toml"):
        cluster = tomllib.loads((MANIFESTS / file).read_text())
        assert cluster["nodes"] == [f"node1.example:{outside['spec']['ports'][0]['nodePort']}"]
        assert cluster["tls"]["server-name"] == f"{inside['metadata']['name']}.{NAMESPACE}.svc"
    (job,) = of("Job")
    assert f"job/{job['metadata']['name']} --" in (MANIFESTS / "machines.toml").read_text()


def test_the_secret_has_the_files_that_redis_is_told_of(tmp_path: Path) -> None:
    guide = followed(KUBERNETES, tmp_path)
    given = {word.partition("=")[2] for word in guide.asked() if word.startswith("--from-file")}
    (conf,) = (one["data"]["redis.conf"] for one in of("ConfigMap"))
    assert given == set(re.findall(r"/secret/(\S+)", conf))
    assert all((guide.folder / name).is_file() for name in given)


def test_the_role_allows_what_hands_and_machines_ask_for() -> None:
    (role,) = of("Role")
    allowed = {
        (group, resource): set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert {"create", "get"} <= allowed["", "pods/exec"]
    assert {"get", "list", "watch"} <= allowed["", "pods"]
    assert {"get"} <= allowed["batch", "jobs"]
    kinds = {one["kind"].lower() for one in documents() if one["kind"].endswith("Chaos")}
    for kind in kinds:
        assert {"get", "list", "watch", "create", "patch", "delete"} <= allowed[
            "chaos-mesh.org", kind
        ]
