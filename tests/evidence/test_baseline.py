"""The pinned baseline: what is refused, what a side is given of it, and what a change is about."""

from __future__ import annotations

import hashlib
import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lockbench.clusters import images
from lockbench.evidence import baseline, sides
from lockbench.evidence.baseline import Pinned, clients, read, unpack
from lockbench.evidence.sides import Side, install, known_locks, parse
from lockbench.evidence.touched import main, touched
from lockbench.locks.registry import systems
from lockbench.locks.shared.client_container import ContainerLibrary
from lockbench.locks.shared.library import library_of
from lockbench.results import documents
from lockbench.results.errors import BadInput
from tests.evidence.test_workflows import git

IMAGE = "sha256:" + "c" * 64
OLD, NEW = (f"redis=={version} \\\n    --hash=sha256:{version}\n" for version in ("1.0", "2.0"))
OTHERS = "kazoo==2.0 \\\n    --hash=sha256:aa\n    # via lockbench\nlocust==1.0 \\\n    --hash=x\n"


def pinned(commit: str = "a" * 40, lock: str = "") -> Pinned:
    digest = hashlib.sha256(lock.encode()).hexdigest()
    return Pinned(commit=commit, lock_sha256=digest, images={"redis": IMAGE})


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose first commit has an older redis and locust, and an older recipe."""
    root = tmp_path / "tree"
    for folder in ("locks", "clusters", "workloads"):
        (root / folder).mkdir(parents=True)
    (root / "clusters" / "one.py").write_text("")
    (root / "workloads" / "load.py").write_text("import locust\n")
    (root / "locks" / "one.py").write_text("import redis, kazoo, locust\nAGE = 'old'\n")
    (root / "requirements.lock").write_text(OLD + OTHERS)
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "old")
    (root / "locks" / "one.py").write_text("import redis, kazoo, locust\nAGE = 'new'\n")
    (root / "requirements.lock").write_text(NEW + OTHERS.replace("locust==1.0", "locust==2.0"))
    monkeypatch.setattr(baseline, "ROOT", root)
    return root


def test_a_side_is_given_the_recipes_and_the_clients_of_its_commit(
    tree: Path, tmp_path: Path
) -> None:
    """And not the load generator's libraries: who measures is the same on both sides."""
    folder = tmp_path / "side"
    unpack(pinned(git(tree, "rev-parse", "HEAD"), OLD + OTHERS), folder)
    assert "old" in (folder / "lockbench" / "locks" / "one.py").read_text()
    assert (folder / "requirements.txt").read_text() == OLD
    assert not (folder / "lockbench" / "workloads").exists()


def test_a_side_whose_clients_are_those_of_this_tree_installs_none(
    tree: Path, tmp_path: Path
) -> None:
    (tree / "requirements.lock").write_text(OLD + OTHERS)
    unpack(pinned(git(tree, "rev-parse", "HEAD"), OLD + OTHERS), tmp_path / "side")
    assert not (tmp_path / "side" / "requirements.txt").exists()


def test_another_lock_file_than_the_pinned_one_is_refused(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="lock is not that of its commit"):
        unpack(pinned(git(tree, "rev-parse", "HEAD"), "edited"), tmp_path / "side")
    with pytest.raises(BadInput, match="git show"):
        unpack(pinned("f" * 40), tmp_path / "side")


def test_what_is_not_committed_is_no_baseline(tree: Path) -> None:
    with pytest.raises(BadInput, match="is not committed: a baseline is a commit"):
        baseline.pin(tree / "baseline.json")
    assert not (tree / "baseline.json").exists()


def test_moving_it_writes_the_commit_the_lock_and_the_images(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tree, "commit", "--all", "--quiet", "--message", "new")
    tagged: list[tuple[str, str]] = []
    engine = SimpleNamespace(tag=lambda ref, name: tagged.append((ref, name)))
    found = {"redis": SimpleNamespace(ref="lockbench-redis:abc", id=IMAGE)}
    monkeypatch.setattr(baseline, "Engine", lambda: nullcontext(engine))
    monkeypatch.setattr(images, "ensure", lambda *_, **__: None)
    monkeypatch.setattr(images, "describe", lambda *_, **__: found)
    file = tree / "baseline.json"
    made = baseline.pin(file)
    assert read(file) == made
    assert made.commit == git(tree, "rev-parse", "HEAD")
    assert made.images == {"redis": IMAGE}
    assert tagged == [("lockbench-redis:abc", "lockbench-redis:baseline")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "there is no baseline"),
        ("{", "baseline"),
        (
            json.dumps({"format": 2, "commit": "main", "lock_sha256": "0" * 64, "images": {}}),
            "commit",
        ),
    ],
)
def test_a_baseline_that_is_missing_or_no_pin_is_refused(
    tmp_path: Path, text: str | None, said: str
) -> None:
    file = tmp_path / "baseline.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(BadInput, match=said):
        parse(f"baseline:{file}")


def test_an_image_that_is_gone_is_an_error_and_is_not_made_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    engine = SimpleNamespace(image=lambda ref: None)
    monkeypatch.setattr(baseline, "Engine", lambda: nullcontext(engine))
    with pytest.raises(BadInput, match=r"the baseline's image redis .* is not here"):
        baseline.check_images(pinned(), ["toxiproxy", "redis"])
    baseline.check_images(pinned(), ["toxiproxy", "etcd"])


def test_recipes_that_today_s_load_cannot_use_are_refused(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tree's locks are no package, and then one that cannot be imported any more."""
    monkeypatch.setattr(baseline, "check_images", lambda *_: None)
    (tree / "requirements.lock").write_text(OLD + OTHERS)

    def side() -> Side:
        git(tree, "add", "--all")
        git(tree, "commit", "--quiet", "--message", "next")
        return Side("baseline", pinned=pinned(git(tree, "rev-parse", "HEAD"), OLD + OTHERS))

    with pytest.raises(BadInput, match=r"the workers would import the locks in .* instead"):
        install(side(), tmp_path / "one")
    (tree / "locks" / "__init__.py").write_text("raise ImportError('of another age')")
    with pytest.raises(BadInput, match="cannot be imported with it: ImportError: of another age"):
        install(side(), tmp_path / "two")


def test_this_tree_s_own_locks_can_be_a_side(tmp_path: Path, monkeypatch: Any) -> None:
    """What is committed, imported as the workers would."""
    monkeypatch.setattr(baseline, "check_images", lambda *_: None)
    commit = baseline.checked_out()
    if commit is None:
        pytest.skip("this is no git tree")
    lock = git(baseline.ROOT, "show", f"{commit}:requirements.lock") + "\n"
    ran: list[Any] = []
    real = vars(sides)["_run"]

    def without_network(command: Any, *rest: Any) -> Any:
        if "pip" in command:
            ran.append(command)
            return SimpleNamespace(returncode=0, stderr="", stdout="")
        return real(command, *rest)

    monkeypatch.setitem(vars(sides), "_run", without_network)
    install(Side("baseline", pinned=pinned(commit, lock)), tmp_path)
    assert (tmp_path / "lockbench" / "locks" / "redis" / "token.py").is_file()


def test_clients_are_what_recipes_import_and_the_load_does_not() -> None:
    found = clients(baseline.ROOT / "locks")
    assert {"redis", "hiredis", "kazoo", "pg8000", "requests"} <= found
    assert found.isdisjoint({"locust", "gevent", "numpy", "msgspec", "lockbench", "pytest"})


@pytest.mark.parametrize(
    ("paths", "locks"),
    [
        ([], []),
        (["README.md", "checker/check.py"], []),
        (["locks/redis/token.py"], ["redis-token"]),
        (["locks/libraries/kazoo/adapter.py"], ["kazoo", "kazoo-safe"]),
        (["locks/base.py"], ["etcd", "redis-token", "redlock", "zookeeper"]),
        (["clusters/images/debian.lock"], ["etcd", "redis-token", "redlock", "zookeeper"]),
        (["requirements.lock"], ["etcd", "redis-token", "redlock", "zookeeper"]),
        (["locks/redis/recipe.py", "clusters/redis/nodes.py"], ["redis-token", "redlock"]),
        (["clusters/etcd/cluster.py", "clusters/images/etcd/go.sum"], ["etcd"]),
        (["clusters/postgres/replicated.py"], ["postgres-advisory", "postgres-advisory-xact"]),
        (  # PgBouncer's image stands on it
            ["clusters/images/postgres/Dockerfile"],
            ["postgres-advisory", "postgres-advisory-pooled", "postgres-advisory-xact"],
        ),
        (
            ["clusters/images/go-sidecar/go.mod"],
            ["bsm-redislock-safe", "etcd-concurrency", "go-zookeeper", "redsync-safe"],
        ),
        (["clusters/images/npm/Dockerfile"], ["node-redlock", "node-redlock-5"]),
        (["clusters/images/php-sidecar/main.php"], ["symfony-pdo", "symfony-postgresql"]),
    ],
)
def test_a_change_is_about_the_locks_whose_files_it_touches(
    paths: list[str], locks: list[str]
) -> None:
    assert sorted(touched(paths)) == locks


def test_a_change_of_java_s_client_is_about_locks_of_java() -> None:
    found = touched(["clusters/images/jvm-sidecar/pom.xml"])
    assert found
    for name in found:
        library = library_of(systems()[name])
        assert isinstance(library, ContainerLibrary)
        assert library.image == "jvm-sidecar"


def test_a_lock_that_is_new_has_nothing_to_be_compared_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed, known = tmp_path / "changed", tmp_path / "known"
    changed.write_text("locks/redis/token.py\nlocks/libraries/kazoo/adapter.py\n")
    known.write_text("etcd\nredis-token\n")
    main([str(changed), str(known)])
    told = capsys.readouterr()
    assert told.out == "redis-token\n"
    assert told.err == "nothing to compare with: kazoo, kazoo-safe\n"


def test_a_baseline_is_a_document_of_today() -> None:
    text = documents.text_of(pinned())
    assert json.loads(text)["format"] == documents.FORMAT


def test_what_is_pinned_can_be_read_and_its_commit_is_there() -> None:
    """Nobody but a person pins one, so there may be none."""
    if not baseline.FILE.exists():
        pytest.skip("no baseline is pinned")
    found = read()
    assert git(baseline.ROOT, "cat-file", "-t", found.commit) == "commit"


def test_a_side_knows_the_locks_of_its_own_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "tree"
    for name in baseline.TREE:
        shutil.copytree(baseline.ROOT / name, root / name)
    shutil.rmtree(root / "locks" / "libraries" / "etcd3gw")
    (root / "requirements.lock").write_text("")
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "before etcd3gw")
    monkeypatch.setattr(baseline, "ROOT", root)
    side = Side("baseline", pinned=pinned(git(root, "rev-parse", "HEAD")))
    assert set(systems()) - known_locks(side) == {"etcd3gw", "etcd3gw-safe"}
    assert known_locks(parse("current")) == set(systems())
