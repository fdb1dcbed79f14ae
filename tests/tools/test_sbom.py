"""Bills of materials: what each source of them says becomes a component that scanners know."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import pytest

from lockbench.clusters.engine.docker import Engine, EngineError
from tools import sbom

STATUS = """Package: redis-server
Status: install ok installed
Architecture: amd64
Version: 5:8.0.2-3+deb13u1
Description: a server
 over lines

Package: gone
Status: deinstall ok config-files
Architecture: all
Version: 1

Package: libstdc++6
Status: hold ok installed
Architecture: amd64
Version: 14.2.0-19
"""
DIGEST = "ab" * 32
MODULES = """/out/toxiproxy: go1.26.3
\tpath\tgithub.com/Shopify/toxiproxy/v2/cmd/server
\tmod\tgithub.com/Shopify/toxiproxy/v2\tv2.12.0
\t=>\t./source\t(devel)\t
\t
\tdep\tgolang.org/x/sys\tv0.31.0\th1:ioabZlmFYtWhL+TRYpcnNlLwhyxaM9kWTDEmfnprqik=
\tbuild\tCGO_ENABLED=0
"""


def test_packages_are_those_that_are_installed_with_the_digest_of_their_file() -> None:
    redis, library = sbom.debian(STATUS, f"redis-server 5:8.0.2-3+deb13u1 amd64 {DIGEST}\n")
    assert redis["purl"] == "pkg:deb/debian/redis-server@5%3A8.0.2-3%2Bdeb13u1?arch=amd64"
    assert redis["version"] == "5:8.0.2-3+deb13u1"
    assert redis["hashes"] == [{"alg": "SHA-256", "content": DIGEST}]
    assert library["name"] == "libstdc++6"
    assert "hashes" not in library


def test_a_digest_of_another_version_is_not_this_one_s() -> None:
    redis, _ = sbom.debian(STATUS, f"redis-server 5:8.0.2-2 amd64 {DIGEST}\n")
    assert "hashes" not in redis


def test_a_program_of_go_is_go_and_its_modules() -> None:
    assert [part["purl"] for part in sbom.go(MODULES)] == [
        "pkg:golang/stdlib@1.26.3",
        "pkg:golang/github.com/Shopify/toxiproxy/v2@v2.12.0",
        "pkg:golang/golang.org/x/sys@v0.31.0",
    ]


def test_a_jar_is_named_by_where_maven_found_the_same_bytes() -> None:
    (jar,) = sbom.jars(
        f"{DIGEST}  netty-4.1.9-linux.jar\n",
        f"{'00' * 32}  io/netty/netty/4.1.9/netty-4.1.9.pom\n"
        f"{DIGEST}  io/netty/netty/4.1.9/netty-4.1.9-linux.jar\n",
    )
    assert jar["purl"] == "pkg:maven/io.netty/netty@4.1.9?classifier=linux"
    assert jar["name"] == "io.netty:netty"


def test_a_package_of_npm_has_its_own_name_and_the_digest_of_its_file() -> None:
    lock = {
        "": {"dependencies": {"two": "npm:@a/one@1.0.0-beta.2"}},
        "node_modules/two": {
            "name": "@a/one", "version": "1.0.0-beta.2", "integrity": "sha512-q80=",
        },
    }  # fmt: skip
    (part,) = sbom.npm(json.dumps({"packages": lock}))
    assert part["purl"] == "pkg:npm/%40a/one@1.0.0-beta.2"
    assert part["hashes"] == [{"alg": "SHA-512", "content": "abcd"}]


def test_names_of_python_packages_are_as_the_index_has_them() -> None:
    (part,) = sbom.python([("Typing_Extensions", "4.1")])
    assert part["purl"] == "pkg:pypi/typing-extensions@4.1"


def test_a_bill_is_the_same_whatever_the_order_and_has_each_part_once() -> None:
    a, b = sbom.python([("a", "1"), ("b", "2")])
    text = sbom.document("application", "x", "1", [b, a, b])
    assert text == sbom.document("application", "x", "1", [a, b])
    bill = json.loads(text)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert [part["name"] for part in bill["components"]] == ["a", "b"]


def test_without_an_engine_it_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> Engine:
        raise EngineError("no Docker engine answers")

    monkeypatch.setattr(sbom, "Engine", fail)
    assert sbom.main([str(tmp_path)]) == 255
    assert capsys.readouterr().err == "no Docker engine answers\n"
    assert sbom.main([]) == 254


@pytest.mark.docker
def test_the_bills_of_this_machine(tmp_path: Path) -> None:
    assert sbom.main([str(tmp_path / "new")]) == 0
    bills = {path.name: json.loads(path.read_text()) for path in tmp_path.glob("new/*.cdx.json")}

    def versions(name: str) -> dict[str, str]:
        return {part["name"]: part["version"] for part in bills[f"{name}.cdx.json"]["components"]}

    assert versions("lockbench")["redis"] == version("redis")
    assert versions("image-redis")["redis-server"].startswith("5:8.")
    assert "stdlib" in versions("image-etcd")
    assert "go.etcd.io/etcd/server/v3" in versions("image-etcd")
    assert "redis" in versions("library-redis_py")
    # Whatever was installed by us came in a file of which the digest is known.
    parts = bills["image-redis.cdx.json"]["components"]
    assert all("hashes" in part for part in parts if part["name"].startswith("redis"))
