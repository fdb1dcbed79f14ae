"""What libraries are pinned to, and how the programs in client images are said to use them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from lockbench.clusters import images, recipes
from lockbench.locks.registry import systems
from lockbench.locks.shared import pins
from lockbench.locks.shared.client_container import ContainerLibrary, check_version
from lockbench.locks.shared.library import ADAPTERS, library_of
from lockbench.locks.shared.sidecar import SidecarError

MOD = """module m
go 1.26.0
require a.b/c v1.0.0
require (
    d.e/f/v2 v2.3.4-rc.1
    g v0.1.0 // indirect
)
"""
WANTED = {"org.r:red-is": "4.7.0"}
FILES = "aa  red-is-4.7.0.jar\nbb  net-4.1.9.Final-linux-x86_64.jar\ncc  j-2.jar\ndd  j-3.1.jar\n"


def contained() -> dict[str, ContainerLibrary]:
    of = {name: library_of(system) for name, system in systems().items()}
    return {name: library for name, library in of.items() if isinstance(library, ContainerLibrary)}


def test_every_form_of_a_go_mod_is_read() -> None:
    assert pins.go_modules(MOD) == {"a.b/c": "v1.0.0", "d.e/f/v2": "v2.3.4-rc.1", "g": "v0.1.0"}


@pytest.mark.parametrize("line", ["replace a.b/c => ../c", "exclude a.b/c v1.0.0"])
def test_a_module_that_is_not_what_its_line_says_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="is not known"):
        pins.go_modules(MOD + line)


def test_what_maven_came_to_is_read_with_the_names_that_were_asked_for() -> None:
    others = {"net": "4.1.9.Final-linux-x86_64", "j": "2, 3.1"}
    assert pins.artifacts(WANTED, FILES) == {"org.r:red-is": "4.7.0", **others}
    assert pins.artifacts({"org.r:red-is": "4.7.1"}, FILES) == {"red-is": "4.7.0", **others}
    with pytest.raises(ValueError, match="has no version"):
        pins.artifacts(WANTED, FILES + "ee  nameless.jar")


PACKAGES = {
    "": {"dependencies": {"a": "1.0.0"}},
    "node_modules/a": {"version": "1.0.0"},
    "node_modules/@b/c": {"version": "2.0.0-beta.1"},
    "node_modules/d-1": {"name": "d", "version": "1.2.3"},
    "node_modules/@b/c/node_modules/a": {"version": "0.9.0"},
}


def test_every_package_of_a_package_lock_is_read_by_the_name_it_is_imported_by() -> None:
    found = pins.npm_packages(json.dumps({"packages": PACKAGES}))
    assert found == {"a": "0.9.0, 1.0.0", "@b/c": "2.0.0-beta.1", "d-1": "1.2.3"}
    for other in ({"resolved": "../e", "link": True}, {}):
        with pytest.raises(ValueError, match="node_modules/e is not a package of a version"):
            pins.npm_packages(json.dumps({"packages": PACKAGES | {"node_modules/e": other}}))


def test_every_package_of_node_has_its_hash() -> None:
    text = (images.FOLDER / "node-sidecar" / "package-lock.json").read_text()
    installed = {path: one for path, one in json.loads(text)["packages"].items() if path}
    assert installed
    for path, package in installed.items():
        assert package["integrity"].startswith("sha512-"), path
        assert "resolved" not in package, "the address of a registry"


def test_the_images_and_adapters_of_this_tree_have_pins() -> None:
    assert pins.of_image("go-sidecar")["github.com/go-redsync/redsync/v4"].startswith("v4.")
    assert pins.of_image("jvm-sidecar")["org.redisson:redisson"].startswith("4.")
    assert pins.of_image("node-sidecar")["redlock"].startswith("4.")
    assert pins.of_image("php-sidecar")["php-symfony-lock"].startswith("6.4.")
    assert pins.of_image("redis") == {}
    for adapter in ADAPTERS.glob("*/requirements.in"):
        wanted = pins.requirements(adapter)
        found = pins.requirements(adapter.with_suffix(".txt"))
        assert wanted, adapter
        assert wanted.items() <= found.items(), adapter


@pytest.mark.parametrize("name", sorted(contained()))
def test_what_is_said_of_a_program_is_in_its_source(name: str) -> None:
    """A setting that the program does not name is not set, and a pin that is not there is none."""
    library = contained()[name]
    program = library.program
    source, image = library.source.read_text(), images.FOLDER / library.image
    assert library.source.parent.parent == ADAPTERS
    sources = {".go", ".java", ".js", ".php", ".sh"}
    shared = "".join(path.read_text() for path in image.iterdir() if path.suffix in sources)
    for setting in {**program.settings, **program.safe}:
        word = setting if setting.startswith("-X") else re.split(r"\W+", setting)[-1]
        in_shared = setting.startswith(("-X", "runtime.", "redis.Options.", "ioredis."))
        assert word in (shared if in_shared else source), setting
    for called in re.findall(r"(\w+)\(", program.call):
        assert called in source, called
    assert {program.library, *program.stands_on} <= set(pins.of_image(library.image))


def test_the_source_in_a_library_s_folder_is_part_of_its_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever adds a folder has added its source, and two files of one name are refused."""
    before = recipes.recipes()["go-sidecar"].files()
    shutil.copytree(ADAPTERS, tmp_path / "libraries")
    monkeypatch.setattr(recipes, "LIBRARIES", tmp_path / "libraries")
    added = tmp_path / "libraries" / "added"
    added.mkdir()
    (added / "added.go").write_text("package main")
    after = recipes.recipes()["go-sidecar"].files()
    assert after.keys() - before.keys() == {"added.go"}
    assert list(after) == sorted(after)
    (added / "added.go").rename(added / "etcd.go")
    with pytest.raises(ValueError, match=r"another file of the same name: .*etcd\.go"):
        recipes.recipes()["go-sidecar"].files()


def test_a_program_with_another_version_than_its_pin_is_refused() -> None:
    """An image that was not built from this tree would be recorded as if it were."""
    pinned = pins.of_image("jvm-sidecar")["org.redisson:redisson"]
    check_version("jvm-sidecar", {"library": "org.redisson:redisson", "version": pinned})
    check_version("jvm-sidecar", {"library": "nothing", "version": "1"})
    check_version("php-sidecar", {"library": "php-symfony-lock", "version": "as of the mirror"})
    with pytest.raises(SidecarError, match=rf"is org\.redisson:redisson 4\.6\.0, not {pinned}"):
        check_version("jvm-sidecar", {"library": "org.redisson:redisson", "version": "4.6.0"})


def test_the_pins_of_go_are_those_that_the_sidecar_is_locked_to() -> None:
    """Every module of go.mod has its hash in go.sum, so none of them can be another one."""
    sums = (images.FOLDER / "go-sidecar" / "go.sum").read_text()
    for module, version in pins.of_image("go-sidecar").items():
        assert f"{module} {version}" in sums, module
