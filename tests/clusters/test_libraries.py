"""Folders of libraries in other languages: what they bring into an image, what is refused."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from lockbench.clusters import images, recipes
from lockbench.clusters.engine.docker import Engine, EngineError
from lockbench.clusters.libraries import GO, JAVA, NODE, SERVICES, Language
from lockbench.locks.registry import systems
from lockbench.locks.shared.client_container import ContainerLibrary
from lockbench.locks.shared.library import library_of

LOCKS = ("go.mod", "go.sum", "artifacts.sha256", "checksums.sha256", "package-lock.json")
CLASS = "package lockbench;\npublic final class Added implements Library {}\n"
POM = b"<project>\n  <dependencies>\n  </dependencies>\n</project>\n"


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Fingerprints are computed once a process; here the files change."""
    recipes.fingerprint.cache_clear()
    yield
    recipes.fingerprint.cache_clear()


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder among those of all libraries, in a place of their own."""
    libraries = tmp_path / "libraries"
    shutil.copytree(recipes.LIBRARIES, libraries)
    monkeypatch.setattr(recipes, "LIBRARIES", libraries)
    added = libraries / "added"
    added.mkdir()
    return added


def folder(parent: Path, name: str, files: dict[str, str]) -> Path:
    made = parent / name
    made.mkdir()
    for file, text in files.items():
        (made / file).write_text(text)
    return made


@pytest.mark.parametrize("image", images.CLIENTS)
def test_the_folders_of_this_tree_are_whole_and_locked(image: str) -> None:
    recipe = images.recipes()[image]
    recipe.check()
    recipe.check_locks(recipe.context())
    assert len(recipe.folders()) > 1


@pytest.mark.parametrize("image", images.CLIENTS)
def test_what_a_library_needs_and_is_called_stands_in_its_folder_alone(image: str) -> None:
    """Not in what all libraries of a language share."""
    recipe = images.recipes()[image]
    assert recipe.language is not None
    own, *libraries = recipe.folders()
    shared = {path.name: path.read_text() for path in own.iterdir() if path.name not in LOCKS}
    of = [library_of(system) for system in systems().values()]
    locks = {each.lock for each in of if isinstance(each, ContainerLibrary)}
    for name in {*recipe.language.wanted(libraries), *locks}:
        named = rf"(?<![\w-]){re.escape(name)}(?![\w-])"
        assert [file for file, text in shared.items() if re.search(named, text)] == [], name


def test_modules_of_all_folders_are_one_list(tmp_path: Path) -> None:
    own = folder(tmp_path, "own", {"requirements.mod": "a.b/shared v1.0.0\n"})
    one = folder(tmp_path, "one", {"requirements.mod": "a.b/one/v2 v2.0.1\na.b/shared v1.0.0\n"})
    composed = GO.composed([own, one], {})
    assert composed == {"requirements.mod": b"a.b/shared v1.0.0\na.b/one/v2 v2.0.1\n"}
    GO.check([own, one])  # one version of what both ask for


def test_artifacts_and_classes_of_all_folders_are_a_pom_and_a_list_of_services(
    tmp_path: Path,
) -> None:
    own = folder(tmp_path, "own", {"requirements.maven": "org.s:shared:1\n"})
    calls = "final class Calls {} // as Library wants it\n"
    files = {"requirements.maven": "org.a:added:2.0-rc.1\n", "Added.java": CLASS}
    one = folder(tmp_path, "one", {**files, "Calls.java": calls})
    composed = JAVA.composed([own, one], {"pom.xml": POM})
    assert composed[SERVICES] == b"lockbench.Added\n"
    assert composed["requirements.maven"] == b"org.s:shared:1\norg.a:added:2.0-rc.1\n"
    found = re.findall(r"<(?:groupId|artifactId|version)>(.+?)<", composed["pom.xml"].decode())
    assert found == ["org.s", "shared", "1", "org.a", "added", "2.0-rc.1"]
    assert composed["pom.xml"].endswith(b"    </dependency>\n  </dependencies>\n</project>\n")
    JAVA.check([own, one])


def test_packages_of_all_folders_are_a_package_of_their_own(tmp_path: Path) -> None:
    own = folder(tmp_path, "own", {"requirements.npm": "shared@1.0.0\n"})
    lines = "@of/one@2.0.1-rc.1\nold@npm:one@1.9.0\n"
    one = folder(tmp_path, "one", {"requirements.npm": lines, "one.js": ""})
    composed = NODE.composed([own, one], {})
    assert json.loads(composed["package.json"]) == {
        "private": True,
        "dependencies": {"shared": "1.0.0", "@of/one": "2.0.1-rc.1", "old": "npm:one@1.9.0"},
    }
    NODE.check([own, one])


@pytest.mark.parametrize(
    ("language", "line", "name", "changed"),
    [
        (GO, "a.b/c v1.0.0", "a.b/c", "a.b/c 9"),
        (JAVA, "org.a:b:1.0", "org.a:b", "org.a:b:9"),
        (NODE, "@a/b@1.0.0", "@a/b", "@a/b@9"),
        (NODE, "b-2@npm:@a/b@2.0.0", "b-2", "b-2@npm:@a/b@9"),
        (NODE, "b-2@npm:@a/b@2.0.0", "b", "b-2@npm:@a/b@2.0.0"),
    ],
)
def test_another_version_of_a_requirement_is_written_in_its_place(
    language: Language, line: str, name: str, changed: str
) -> None:
    others = "z@0 z:0 z 0\n"
    assert language.with_version(f"{others}{line}\n", name, "9") == f"{others}{changed}\n"


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"added.go": ""}, r"added has no requirements\.mod that says what it needs: a module"),
        ({"requirements.mod": "\n"}, r"added has no requirements\.mod that"),
        ({"requirements.mod": "a.b/c@v1"}, r"added/requirements\.mod: 'a\.b/c@v1' is not a module"),
        ({"requirements.mod": "a.b/c v1; x"}, "is not a module and its version"),
        (
            {"requirements.mod": "github.com/redis/go-redis/v9 v9.0.0"},
            r"added/requirements\.mod asks for \S+ v9\.0\.0, go-sidecar/requirements\.mod for v9",
        ),
        (
            {"Added.java": CLASS},
            r"added has no requirements\.maven that says what it needs: group:",
        ),
        ({"requirements.maven": "org.a:a", "Added.java": CLASS}, "'org.a:a' is not group:artifact"),
        (
            {"requirements.maven": "org.a:a:1", "Calls.java": "final class Calls {}"},
            "added has no public final class that implements Library",
        ),
        ({"added.js": ""}, r"added has no requirements\.npm that says what it needs: package@v"),
        ({"requirements.npm": "a@^1.0.0"}, r"added/requirements\.npm: 'a@\^1\.0\.0' is not pack"),
        ({"requirements.debian": "php-a (>= 1)"}, r"'php-a \(>= 1\)' is not a package of Debian"),
    ],
)
def test_a_folder_that_is_not_whole_is_told_in_a_sentence(
    added: Path, files: dict[str, str], told: str
) -> None:
    for name, text in files.items():
        (added / name).write_text(text)
    kinds = {"go": "go", "mod": "go", "java": "jvm", "maven": "jvm", "js": "node", "npm": "node"}
    kinds |= {"php": "php", "debian": "php"}
    image = f"{kinds[next(iter(files)).rpartition('.')[2]]}-sidecar"
    engine = Mock(spec=Engine)
    images.fingerprint(image)  # it has a name, so that whoever asks for it can be told
    with pytest.raises(EngineError, match=told):
        images._build(images._Making(engine, lambda _: None), images.recipes()[image])
    engine.build.assert_not_called()


@pytest.mark.parametrize(
    ("image", "files"),
    [
        ("go-sidecar", {"added.go": "package main\n", "requirements.mod": "a.b/c v1.0.0\n"}),
        ("jvm-sidecar", {"Added.java": CLASS, "requirements.maven": "org.a:added:1\n"}),
        ("node-sidecar", {"added.js": "", "requirements.npm": "@a/added@1.0.0\n"}),
    ],
)
def test_a_library_that_was_added_is_part_of_its_image_once_it_is_locked(
    added: Path, image: str, files: dict[str, str]
) -> None:
    before = images.fingerprint(image)
    for name, text in files.items():
        (added / name).write_text(text)
        recipes.fingerprint.cache_clear()
        assert images.fingerprint(image) != before, name
        before = images.fingerprint(image)
    recipe = images.recipes()[image]
    assert {name for name in files if not name.startswith("req")} < recipe.context().keys()
    making = images._Making(Mock(spec=Engine), lambda _: None)
    with pytest.raises(EngineError, match=rf"asks for \S+ v?1.*images lock {image}` resolves it"):
        images._build(making, recipe)
    locks = {name: text for name, text in recipe.context().items() if name in LOCKS}
    with pytest.raises(ValueError, match="asks for"):
        recipe.check_locks(locks)
    if image == "go-sidecar":
        locks["go.mod"] += b"require a.b/c v1.0.0\n"
    elif image == "node-sidecar":
        locks["package-lock.json"] = package_lock(recipe.wanted())
    else:
        locks["artifacts.sha256"] += b"00  added-1.jar\n"
    recipe.check_locks(locks)


def package_lock(asked: dict[str, str]) -> bytes:
    return json.dumps({"packages": {"": {"dependencies": asked}}}).encode()


def test_a_package_that_nobody_asks_for_is_refused() -> None:
    NODE.check_locks({"a": "1.0.0"}, {"package-lock.json": package_lock({"a": "1.0.0"})})
    more = {"package-lock.json": package_lock({"a": "1.0.0", "b": "2.0.0"})}
    with pytest.raises(ValueError, match=r"package-lock\.json has b, and no requirements\.npm"):
        NODE.check_locks({"a": "1.0.0"}, more)
    with pytest.raises(ValueError, match=r"asks for a 1\.0\.1, and package-lock\.json does not"):
        NODE.check_locks({"a": "1.0.1", "b": "2.0.0"}, more)


def test_a_module_that_is_imported_and_not_asked_for_is_refused() -> None:
    indirect = b"require (\n\ta.b/c v1.0.0\n\td.e/f v2.0.0 // indirect\n)\n"
    GO.check_locks({"a.b/c": "v1.0.0"}, {"go.mod": indirect})
    GO.check_locks({"a.b/c": "v1.0.0", "d.e/f": "v2.0.0"}, {"go.mod": indirect})
    with pytest.raises(ValueError, match=r"d\.e/f v2\.0\.0 as a direct requirement, and no"):
        GO.check_locks({"a.b/c": "v1.0.0"}, {"go.mod": indirect.replace(b" // indirect", b"")})


@pytest.fixture
def resolving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mock:
    """An engine in which Go resolves what is locked; the locks are in a place of their own."""
    shutil.copytree(images.FOLDER, tmp_path / "images")
    for module in (images, recipes):
        monkeypatch.setattr(module, "FOLDER", tmp_path / "images")
    monkeypatch.setattr(images, "ensure", lambda names, **_: None)
    engine = Mock(spec=Engine)
    locks = {f"/build/{n}": (tmp_path / "images/go-sidecar" / n).read_bytes() for n in LOCKS[:2]}
    engine.read_image_file.side_effect = lambda ref, path, labels: locks[path]
    engine.locks = locks
    return engine


def test_what_was_resolved_is_written_and_nothing_else(resolving: Mock) -> None:
    said: list[str] = []
    path = images.FOLDER / "go-sidecar" / "go.sum"
    locked = path.read_bytes()
    path.write_bytes(b"old\n")
    images._resolve(resolving, ["go-sidecar"], said.append)
    assert said == ["go-sidecar: go.mod is unchanged", "go-sidecar: go.sum is written"]
    assert path.read_bytes() == locked
    (context, _), _ = resolving.build.call_args
    assert {"main.go", "redsync.go", "requirements.mod"} < context.keys()
    assert not context.keys() & set(LOCKS), "what was resolved before decides nothing"


def test_a_module_in_its_newest_version_is_never_written(resolving: Mock) -> None:
    resolving.locks["/build/go.mod"] += b"require a.b/newest v9.0.0\n"
    before = (images.FOLDER / "go-sidecar" / "go.mod").read_bytes()
    with pytest.raises(EngineError, match=r"a\.b/newest v9\.0\.0 as a direct"):
        images._resolve(resolving, ["go-sidecar"], print)
    assert (images.FOLDER / "go-sidecar" / "go.mod").read_bytes() == before
    with pytest.raises(EngineError, match="redis is none of go-sidecar, jvm-sidecar, node-s"):
        images._resolve(resolving, ["redis"], print)
