"""What ``new-lock`` writes can be used at once; requirements are resolved from wheels made here."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from lockbench.bench import clients
from lockbench.bench.conform import conform
from lockbench.bench.duties import DUTIES
from lockbench.bench.new_lock import add_library, lock, write_library, write_recipe
from lockbench.locks import registry
from lockbench.locks.shared.library import ADAPTERS, library_of
from lockbench.results.errors import BadInput


def wheel(folder: Path, name: str, version: str, needs: str = "") -> None:
    """A package with nothing in it."""
    info = f"{name}-{version}.dist-info"
    needed = f"Requires-Dist: {needs}\n" if needs else ""
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", "")
        head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        file.writestr(f"{info}/METADATA", f"{head}Provides-Extra: fast\n{needed}")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where packages come from; no other place is asked."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    wheel(folder, "made_up", "1.2", "other")
    wheel(folder, "made_up", "1.3", "other")
    wheel(folder, "other", "4.6")
    wheel(folder, "other", "8.1")
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    return tmp_path


def wanted(folder: Path) -> list[str]:
    return (folder / "requirements.in").read_text().splitlines()


def pinned(folder: Path) -> list[str]:
    lines = (folder / "requirements.txt").read_text().splitlines()
    assert all("--hash=sha256:" in line or "#" in line or "==" in line for line in lines)
    return [line.split()[0] for line in lines if line[0].isalpha()]


def test_a_library_is_pinned_to_its_newest_version_and_can_be_changed(index: Path) -> None:
    folder = add_library("made-up", index)
    assert folder == index / "made_up"
    assert wanted(folder) == ["made-up==1.3"]
    assert pinned(folder) == ["made-up==1.3", "other==8.1"]
    add_library("Made_Up[fast]", index, beside=["other<5"])
    assert wanted(folder) == ["Made_Up[fast]==1.3", "other<5"]
    assert "other==4.6" in pinned(folder)
    add_library("made-up", index, version="1.2")
    assert wanted(folder) == ["made-up==1.2", "other<5"]
    assert pinned(folder) == ["made-up==1.2", "other==4.6"]
    add_library("made-up", index, beside=["other"])
    assert wanted(folder) == ["made-up==1.2", "other"]


def test_what_cannot_be_resolved_changes_nothing(index: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot be resolved: .*no-such-thing"):
        add_library("no-such-thing", index)
    assert not (index / "no_such_thing").exists()
    folder = add_library("made-up", index)
    before = {path: path.read_text() for path in folder.iterdir()}
    with pytest.raises(BadInput, match="cannot be resolved"):
        add_library("made-up", index, version="9")
    assert {path: path.read_text() for path in folder.iterdir()} == before


@pytest.mark.parametrize("word", ["-r evil.txt", "--index-url=http://x", "a b", "a @ http://x", ""])
def test_what_is_no_requirement_is_refused(word: str, index: Path) -> None:
    with pytest.raises(BadInput, match="is no requirement"):
        add_library("made-up", index, beside=[word])
    assert not (index / "made_up").exists()


def test_the_same_wishes_give_the_same_pins_wherever_they_are_resolved(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text of the pins names the environment."""
    folder = add_library("made-up", index)
    text = (folder / "requirements.txt").read_text()
    monkeypatch.chdir(folder)
    lock(Path())
    assert (folder / "requirements.txt").read_text() == text


def test_pins_of_our_own_name_their_place_in_the_repository() -> None:
    """As they always did; another text would be another environment."""
    for file in ADAPTERS.glob("*/requirements.txt"):
        place = file.with_suffix(".in").relative_to(ADAPTERS.parents[1])
        assert f"-r {place}" in file.read_text()


def test_a_folder_that_is_no_library_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"has no requirements\.in"):
        lock(tmp_path)


def test_a_new_library_is_a_lock_of_its_own(index: Path) -> None:
    folder = write_library("made-up", index)
    assert {path.name for path in folder.iterdir()} == {
        "lock.py",
        "adapter.py",
        "requirements.in",
        "requirements.txt",
    }
    assert registry.each(str(folder)) == [f"{folder}:made-up", f"{folder}:made-up-safe"]
    library = library_of(registry.find(f"{folder}:made-up-safe"))
    assert library is not None
    assert library.safe
    assert clients.as_pinned(library)["versions"] == {"made-up": "1.3"}
    adapter = (folder / "adapter.py").read_text()
    assert "class MadeUp(Client)" in adapter
    assert "my-lock" not in adapter + (folder / "lock.py").read_text()
    (folder / "adapter.py").write_text("mine")
    with pytest.raises(BadInput, match=r"adapter\.py is there already|lock\.py is there already"):
        write_library("made-up", index)
    assert (folder / "adapter.py").read_text() == "mine"


def test_a_new_recipe_is_a_lock(tmp_path: Path) -> None:
    file = write_recipe("my-first", tmp_path)
    system = registry.find(str(file))
    assert (file.name, system.name) == ("my_first.py", "my-first")
    assert "MyLock" not in file.read_text()
    with pytest.raises(BadInput, match="is there already"):
        write_recipe("my-first", tmp_path)


@pytest.mark.parametrize("name", ["My-Lock", "a/b", "../x", "1st", "", "a--b", "lock.py"])
def test_a_name_that_is_no_name_is_refused(name: str, tmp_path: Path) -> None:
    for write in (write_recipe, write_library):
        with pytest.raises(BadInput, match="is no name for a lock"):
            write(name, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.docker
def test_a_new_recipe_conforms_as_it_is_written(tmp_path: Path) -> None:
    file = write_recipe("my-first", tmp_path)
    found = conform(str(file), told=lambda outcome: None, say=print)
    assert [(one.word, one.why) for one in found] == [("kept", "")] * len(DUTIES)
