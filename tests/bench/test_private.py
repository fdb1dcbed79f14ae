"""The folder for well-known names: nobody else can have made it, and no link is written through."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lockbench.bench.private import NotPrivate, private_folder
from lockbench.cli import break_by_hand
from lockbench.results.errors import BadInput
from tools import setup
from tools.setup import SetupError

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
SKIP_UNLESS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="only root can act for others")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder that everybody shares, as /tmp is."""
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.setattr("tempfile.tempdir", str(shared))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    return shared


def guessed(temporary: Path) -> Path:
    return temporary / f"lockbench-{os.getuid()}"


def test_it_is_made_for_this_user_alone_and_found_again(temporary: Path) -> None:
    before = os.umask(0)
    try:
        folder = private_folder()
    finally:
        os.umask(before)
    assert folder == guessed(temporary)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (folder / "kept").touch()
    assert private_folder() == folder
    assert (folder / "kept").exists()


def test_the_login_s_own_folder_is_preferred(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = tmp_path / "login"
    login.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(login))
    assert private_folder() == login / "lockbench"
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("what", ["missing", "relative", "shared", "link"])
def test_a_login_s_folder_that_others_can_enter_is_not_used(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    login = tmp_path / "login"
    if what == "shared":
        login.mkdir()
        login.chmod(0o755)
    if what == "link":
        (tmp_path / "real").mkdir(mode=0o700)
        login.symlink_to(tmp_path / "real")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "login" if what == "relative" else str(login))
    monkeypatch.chdir(tmp_path)
    assert private_folder() == guessed(temporary)


@pytest.mark.parametrize("mode", [0o777, 0o750, 0o701])
def test_a_folder_that_others_can_enter_is_refused(temporary: Path, mode: int) -> None:
    guessed(temporary).mkdir()
    guessed(temporary).chmod(mode)
    with pytest.raises(NotPrivate, match=r"can be entered by others.*remove it, or set"):
        private_folder()


def test_a_link_is_refused_even_to_a_folder_of_one_s_own(temporary: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o700)
    guessed(temporary).symlink_to(mine)
    with pytest.raises(NotPrivate, match="is not a folder"):
        private_folder()
    assert list(mine.iterdir()) == []


def test_a_temporary_folder_where_others_may_rename_is_refused(temporary: Path) -> None:
    temporary.chmod(0o777)
    with pytest.raises(NotPrivate, match="sticky"):
        private_folder()
    temporary.chmod(0o755)
    assert private_folder() == guessed(temporary)


def test_a_temporary_folder_that_cannot_be_written_is_one_sentence(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(temporary / "file" / "below"))
    (temporary / "file").touch()
    with pytest.raises(NotPrivate, match="cannot be made") as failed:
        private_folder()
    assert "\n" not in str(failed.value)


@SKIP_UNLESS_ROOT
def test_the_folder_of_another_user_is_refused(temporary: Path) -> None:
    guessed(temporary).mkdir(mode=0o700)
    os.chown(guessed(temporary), NOBODY, NOBODY)
    with pytest.raises(NotPrivate, match=f"belongs to another user \\({NOBODY}\\)"):
        private_folder()
    with pytest.raises(SetupError, match="belongs to another user"), setup.only_setup():
        pass
    with pytest.raises(BadInput, match="belongs to another user"):
        break_by_hand.tell("status")


@SKIP_UNLESS_ROOT
@pytest.mark.parametrize("link", ["lockbench-0", "lockbench-setup-0.lock", "lockbench-break-0"])
def test_a_link_of_another_user_is_not_written_through(temporary: Path, link: str) -> None:
    """The names that have been guessed; setup itself runs, isolated as `make setup` runs it."""
    victim = temporary / "victim"
    victim.write_text("what somebody needs")
    (temporary / link).symlink_to(victim)
    os.lchown(temporary / link, NOBODY, NOBODY)
    script = str(ROOT / "tools" / "setup.py")
    look = f"import runpy; runpy.run_path({script!r})['only_setup']().__enter__()"
    done = subprocess.run(
        [sys.executable, "-I", "-c", look],
        env={"TMPDIR": str(temporary), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert victim.read_text() == "what somebody needs"
    refused = link == "lockbench-0"
    assert ("is not a folder" in done.stderr) == refused, done.stderr
    assert (done.returncode != 0) == refused
