"""Images: what decides their tags, what they are compared with, and how several are built."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock, call

import pytest

from lockbench.clusters import debian, images, recipes
from lockbench.clusters.engine import owner
from lockbench.clusters.engine.docker import Engine, EngineError
from tests.eventually import eventually


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Fingerprints are computed once a process; here the files change."""
    recipes.fingerprint.cache_clear()
    yield
    recipes.fingerprint.cache_clear()


def fingerprints() -> dict[str, str]:
    recipes.fingerprint.cache_clear()
    return {name: images.fingerprint(name) for name in images.recipes()}


def changed(before: Mapping[str, str]) -> set[str]:
    return {name for name, mark in fingerprints().items() if mark != before[name]}


def test_server_images_do_not_include_what_only_builds() -> None:
    assert set(images.server_names()) == {
        "toxiproxy",
        "etcd",
        "nats",
        "consul",
        "redis",
        "valkey",
        "zookeeper",
        "postgres",
        "pgbouncer",
        "mariadb",
    }
    assert images.lineage("kubernetes") == ["base", "golang", "kubernetes"]
    assert images.lineage("redis") == ["base", "compiler", "redis"]
    assert images.lineage("etcd") == ["base", "golang", "etcd"]
    assert images.lineage("node-sidecar") == ["base", "npm", "node-sidecar"]
    assert images.lineage("php-sidecar") == ["base", "php-sidecar"]
    assert images.lineage("pgbouncer") == ["base", "compiler", "postgres", "pgbouncer"]


def test_fingerprints_follow_pins_and_parents(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprints()
    assert len(set(before.values())) == len(before)
    pins = images.pins()
    monkeypatch.setattr(recipes, "pins", lambda: {**pins, "etcd": "v3.6.0"})
    assert changed(before) == {"etcd"}
    monkeypatch.setattr(recipes, "pins", lambda: {**pins, "go_suite": "other"})
    assert changed(before) == {
        "golang",
        "etcd",
        "nats",
        "kubernetes",
        "versitygw",
        "toxiproxy",
        "go-sidecar",
    }
    for pin in ("debian_suite", "debian_image"):
        monkeypatch.setattr(recipes, "pins", lambda pin=pin: {**pins, pin: "other"})
        assert changed(before) == set(before)


def test_fingerprints_follow_the_lines_of_the_lock(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lock = tmp_path / "debian.lock"
    monkeypatch.setattr(recipes, "LOCK", lock)
    lock.write_text("# two images\nbase dash 1 amd64 aa\nredis redis-server 2 amd64 bb\n")
    before = fingerprints()
    lock.write_text("# other words\nbase dash 1 amd64 aa\nredis redis-server 2 amd64 bb\n")
    assert changed(before) == set()
    lock.write_text("base dash 1 amd64 aa\nredis redis-server 3 amd64 cc\n")
    assert changed(before) == {"redis"}
    lock.write_text("base dash 2 amd64 dd\nredis redis-server 2 amd64 bb\n")
    assert changed(before) == set(before)


def test_fingerprints_do_not_follow_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprints()
    monkeypatch.setenv("GOPROXY", "off")
    assert changed(before) == set()


# --- what is downloaded ---

WANTED = "dash 1-2 amd64 aa\ntzdata 2026a all bb\n"


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ("dash 1-2 amd64 aa\n", {}),
        (WANTED, {}),
        ("dash 1-3 amd64 cc\n", {"dash": "1-2 amd64 → 1-3 amd64"}),
        ("dash 1-2 arm64 cc\n", {"dash": "1-2 amd64 → 1-2 arm64"}),
        (WANTED + "new 1 all dd\n", {"new": "not there → 1 all"}),
        ("dash 1-1 amd64 00\n" + WANTED, {}),  # a later layer has installed another one
    ],
)
def test_what_debian_came_to_is_compared_with_the_lock(found: str, told: dict[str, str]) -> None:
    assert debian.differences(WANTED, found) == told


def test_one_version_with_two_digests_is_refused() -> None:
    with pytest.raises(EngineError, match=r"tzdata 2026a all has the SHA-256 b0.* has bb"):
        debian.differences(WANTED, WANTED.replace("bb", "b0"))


def built(packages: str, parent: Mapping[str, str] | None = None) -> Mock:
    """An engine whose images have these packages."""
    engine = Mock(spec=Engine)
    files = {images.PACKAGES_FILE: packages.encode(), images.VERSIONS_FILE: b"redis-server=8\n"}
    engine.read_image_file.side_effect = lambda ref, path, labels: files[path]
    engine.image.return_value = SimpleNamespace(labels=parent or {})
    return engine


def finish(engine: Mock) -> dict[str, str]:
    return images._finish(images._Making(engine, lambda _: None), images.recipes()["redis"])


@pytest.fixture
def small_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "locked", lambda _: WANTED)


@pytest.mark.usefixtures("small_lock")
def test_an_image_says_what_it_and_its_builder_were_made_of_instead() -> None:
    engine = built("dash 2 amd64 cc\n", {images.DIFFERS: json.dumps({"gcc": "1 → 2"})})
    assert finish(engine) == {"gcc": "1 → 2", "dash": "1-2 amd64 → 2 amd64"}
    labels = engine.build.call_args.kwargs["labels"]
    assert labels[images.FINGERPRINT] == images.fingerprint("redis")
    assert json.loads(labels[images.DIFFERS]) == finish(engine)
    assert json.loads(labels[images.VERSIONS]) == {"redis-server": "8"}


@pytest.mark.usefixtures("small_lock")
def test_an_image_with_a_wrong_digest_never_becomes_current() -> None:
    engine = built(WANTED.replace("aa", "a0"))
    with pytest.raises(EngineError, match="dash"):
        finish(engine)
    engine.build.assert_not_called()


@pytest.mark.docker
def test_an_image_of_ours_is_one_by_any_name(engine: Engine) -> None:
    """As the baseline has it: it is started as ours are, with our library in it."""
    image = engine.image(recipes.recipes()["redis"].ref)
    assert image is not None
    assert images.ours_among({"redis": image.id, "etcd": "none-of-that-name:1"}) == {"redis"}
    assert images.ours_among({}) == frozenset()


def test_an_image_is_built_by_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "BUILD_TIMEOUT_S", 0.0)
    with images._alone("planted"):
        with (
            pytest.raises(EngineError, match="another process has been building planted"),
            images._alone("planted"),
        ):
            pytest.fail("two at once")
        with images._alone("another"):
            pass
    with images._alone("planted"):
        pass


@pytest.mark.parametrize("of", [None, "base", "redis"])
def test_an_image_whose_build_was_killed_before_its_last_step_is_not_current(
    of: str | None,
) -> None:
    """It has its name by then, and the labels of what it stands on."""
    labels = {images.FINGERPRINT: images.fingerprint(of)} if of else {}
    assert images.is_current(built("", labels), "redis") is (of == "redis")


# A builder of Debian whose debootstrap is a program that waits, interrupted once that has begun.
INTERRUPTED = """
import sys, threading, time
from pathlib import Path
from lockbench.clusters import debian
work = Path(sys.argv[1])
script = "echo $$ > half; mv half begun; sleep 60"
register, registered = debian.atexit.register, threading.Event()
debian.atexit.register = lambda *to_do: (register(*to_do), registered.set())
threading.Thread(
    target=debian._command, args=(["sh", "-c", f"cd {work}; {script}"], work), daemon=True
).start()
while not ((work / "begun").exists() and registered.is_set()):
    time.sleep(0.01)
sys.stdout.write((work / "begun").read_text())
raise KeyboardInterrupt
"""


def test_an_interrupted_bootstrap_ends_and_leaves_no_folder(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, work], capture_output=True, text=True, check=False
    )
    assert "KeyboardInterrupt" in ended.stderr
    # Nobody may be there to wait for it, so it can stay as a zombie.
    eventually(lambda: owner.start_ticks(int(ended.stdout)) is None, limit_s=20.0)
    assert not work.exists()


def test_a_tree_that_was_not_finished_is_never_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, cut_short = Mock(spec=Engine), Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/sbin/{name}")
    monkeypatch.setattr(debian, "_command", cut_short)
    with pytest.raises(KeyboardInterrupt):
        debian.image(engine, lambda _: None, fresh=True)
    engine.import_rootfs.assert_not_called()
    _, work = cut_short.call_args.args
    assert not work.exists()


def test_the_base_is_the_pinned_image_or_is_bootstrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never another image of the same name: that would be trusted for its name alone."""
    monkeypatch.setattr(debian, "_bootstrap", lambda engine, suite: f"bootstrapped {suite}")
    pinned, engine = images.pins()["debian_image"], Mock(spec=Engine)
    assert debian.image(engine, lambda _: None, fresh=False) == pinned
    engine.pull.side_effect = EngineError("cannot pull: no route to host")
    assert debian.image(engine, lambda _: None, fresh=False) == "bootstrapped trixie"
    assert engine.pull.mock_calls == [call(pinned)] * 2


def test_what_was_bootstrapped_is_written_down(tmp_path: Path) -> None:
    lists, archives = tmp_path / "var/lib/apt/lists", tmp_path / "var/cache/apt/archives"
    for folder in (lists, archives):
        folder.mkdir(parents=True)
    (lists / "mirror_dists_trixie_InRelease").write_bytes(b"words and their signature")
    (lists / "mirror_dists_trixie_Release").write_bytes(b"words")
    (archives / "tar_1%3a1.35_amd64.deb").write_bytes(b"a package")
    packages, release = debian._bootstrapped(tmp_path).values()
    assert packages == f"tar 1:1.35 amd64 {hashlib.sha256(b'a package').hexdigest()}\n"
    assert release == f"release=sha256:{hashlib.sha256(b'words').hexdigest()}\n"


def test_the_lock_has_every_package_once_with_its_digest() -> None:
    lines = [line.split() for line in recipes.LOCK.read_text().splitlines() if line[0] != "#"]
    assert all(len(line) == 5 and re.fullmatch("[0-9a-f]{64}", line[4]) for line in lines)
    assert len({(image, package) for image, package, *_ in lines}) == len(lines)
    # Nothing of Debian beyond their builder and base.
    own = {"etcd", "nats", "kubernetes", "versitygw", "toxiproxy", "go-sidecar"}
    assert {image for image, *_ in lines} == set(images.recipes()) - own


def test_the_base_image_is_pinned_by_its_digest() -> None:
    assert re.fullmatch(r"[a-z]+@sha256:[0-9a-f]{64}", images.pins()["debian_image"])


def test_nothing_is_downloaded_past_the_locks() -> None:
    """Debian's packages come through the command that writes them down, modules from go.mod."""
    for path in images.FOLDER.glob("*/Dockerfile"):
        text = path.read_text()
        for word in ("apt-get", "go get", "curl", "wget", "ADD ", "pip ", "mvn ", "npm install"):
            assert word not in text, (path, word)


@pytest.mark.parametrize("name", ["etcd", "toxiproxy"])
def test_a_pinned_version_is_that_of_go_mod_with_every_digest(name: str) -> None:
    args = images.recipes()[name].args
    folder = images.FOLDER / name
    modules = re.findall(
        r"^(?:require)?\s+(\S+) (v\S+)", (folder / "go.mod").read_text(), re.MULTILINE
    )
    assert (args["MODULE"], args["VERSION"]) in modules
    sums = (folder / "go.sum").read_text()
    assert all(f"{module} {version}" in sums for module, version in modules)


def test_the_modules_of_kubernetes_are_of_its_own_version() -> None:
    version = images.recipes()["kubernetes"].args["VERSION"]
    text = (images.FOLDER / "kubernetes" / "go.mod").read_text()
    assert f"k8s.io/kubernetes {version}" in text
    replaced = re.findall(r"^\s+(\S+) => (\S+) (v\S+)$", text, re.MULTILINE)
    assert len(replaced) == 33
    assert {(name, v) for _, name, v in replaced} == {
        (name, f"v0{version.removeprefix('v1')}") for name, *_ in replaced
    }


def test_every_jar_is_among_the_files_that_maven_may_fetch() -> None:
    folder = images.FOLDER / "jvm-sidecar"
    jars, fetched = (
        {line.split()[0] for line in (folder / name).read_text().splitlines()}
        for name in ("artifacts.sha256", "checksums.sha256")
    )
    assert jars < fetched


def test_actions_are_pinned_by_commit() -> None:
    for path in (images.FOLDER.parent.parent / ".github" / "workflows").glob("*.yml"):
        uses = re.findall(r"uses: (\S+)", path.read_text())
        assert uses
        assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", each) for each in uses), path


def test_only_images_of_ours_that_are_not_today_s_are_removed() -> None:
    today = [recipe.ref for recipe in images.recipes().values()]
    kept = [*today, "lockbench-redis:baseline", "lockbench-of-somebody:latest"]
    old = ["lockbench-redis:latest", "lockbench-base:trixie", "lockbench-jvm-sidecar:0123456789ab"]
    engine = Mock(spec=Engine)
    engine.image_refs.return_value = [*kept, *old, "lockbench-etcd:used"]
    engine.remove_image.side_effect = [None, None, None, EngineError("a container is using it")]
    assert images.remove_old(engine) == old
    assert engine.remove_image.mock_calls == [call(ref) for ref in [*old, "lockbench-etcd:used"]]


def test_versions_are_read_as_dockerfiles_write_them() -> None:
    assert images.parse_versions(b"redis-server=5:8.0.2-3\nx=1\n") == {
        "redis-server": "5:8.0.2-3",
        "x": "1",
    }
    assert images.parse_versions(b"") == {}


def test_host_certificates_are_those_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_text("a certificate")
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    assert images.host_ca() == b"a certificate"
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
    assert b"BEGIN CERTIFICATE" in images.host_ca()


@pytest.mark.parametrize("builder", ["maven", "npm"])
def test_a_builder_is_given_this_user_s_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, builder: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    name, path, none = images.HOST_SETTINGS[builder]
    for settings in (none, b"a mirror"):
        engine = Mock(spec=Engine)
        images._build(images._Making(engine, lambda _: None), images.recipes()[builder])
        (files, _), _ = engine.build.call_args
        assert files[name] == settings
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(b"a mirror")


# --- with a real engine ---


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine() as found:
        yield found


@pytest.mark.docker
def test_ensure_does_nothing_when_all_is_there(engine: Engine) -> None:
    said: list[str] = []
    images.ensure(images.server_names(), engine=engine, say=said.append)
    assert said == []


@pytest.mark.docker
def test_images_are_described_with_the_versions_inside(engine: Engine) -> None:
    described = images.describe(["etcd", "redis", "toxiproxy", "zookeeper"], engine=engine)
    assert described["etcd"].versions == {"etcd": images.pins()["etcd"]}
    toxiproxy = f"{images.pins()['toxiproxy']}+lockbench2"  # some of it is ours
    assert described["toxiproxy"].versions == {"toxiproxy": toxiproxy}
    assert described["redis"].versions["redis-server"].startswith("5:8.")
    assert set(described["zookeeper"].versions) == {"libzookeeper-java", "openjdk-21-jre-headless"}
    assert all(image.id.startswith("sha256:") for image in described.values())


@pytest.mark.docker
def test_an_image_that_is_not_there_is_named(engine: Engine) -> None:
    with pytest.raises(EngineError, match="no image lockbench-nowhere:1"):
        images.describe(["lockbench-nowhere:1"], engine=engine)
    with pytest.raises(EngineError, match="no image is called nowhere; there are base, golang"):
        images.ensure(["nowhere"], engine=engine)
