"""The package as people install it: what is in it, and that it runs a case where no checkout is."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

import pytest

from tools.setup import ROOT

LINKS: Final = sorted(path.name for path in (ROOT / "lockbench").iterdir() if path.is_symlink())
UV: Final = (sys.executable, "-m", "uv")


def run(*command: str, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (command, done.stdout[-4000:], done.stderr[-4000:])
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """By way of the sdist, as ``make dist`` makes it."""
    out = tmp_path_factory.mktemp("dist")
    build = ("build", "--quiet", "--no-build-isolation", "--python", sys.executable)
    # uv leaves locks where temporary files go.
    env = {**os.environ, "TMPDIR": str(out)}
    folder = os.open(ROOT, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # it writes there, and so does one of another session
        run(*UV, *build, "--out-dir", str(out), str(ROOT), cwd=out, env=env)
    finally:
        os.close(folder)
    (found,) = out.glob("*.whl")
    return found


def test_every_folder_of_the_product_is_in_the_package() -> None:
    first = {Path(name).parts[0] for name in tracked("*/__init__.py")}
    assert first - {"lockbench", "perf", "soak", "tests", "tools"} == {*LINKS} - {"docs"}


def test_the_wheel_has_every_file_under_one_name(wheel: Path) -> None:
    """Sources of programs in Go and Java, Dockerfiles, locks, pins and templates among them."""
    packed = set(zipfile.ZipFile(wheel).namelist())
    stored = ("docs/observed", "docs/track")
    folders = [f"{name}/" for name in LINKS if name != "docs"]
    wanted = {f"lockbench/{name}" for name in tracked(*folders, *stored)}
    assert wanted <= packed
    assert {name.split("/")[0] for name in packed} == {"lockbench", "lockbench-0.1.0.dist-info"}
    assert not [name for name in packed - wanted if name.endswith((".pyc", ".jar"))]


def test_the_metadata_has_the_readme_and_no_placeholder(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        (name,) = (name for name in packed.namelist() if name.endswith("/METADATA"))
        metadata = packed.read(name).decode()
    assert metadata.endswith((ROOT / "README.md").read_text())
    assert "OWNER" not in metadata


@pytest.mark.docker
@pytest.mark.parametrize("redis", [5, 6, 7, 8])
def test_it_can_be_installed_beside_any_redis_py(wheel: Path, redis: int, tmp_path: Path) -> None:
    wanted = tmp_path / "requirements.in"
    wanted.write_text(f"lockbench[all] @ {wheel.as_uri()}\nredis=={redis}.*\n")
    resolved = run(*UV, "pip", "compile", "--quiet", "--no-annotate", str(wanted), cwd=tmp_path)
    assert f"\nredis=={redis}." in resolved


@pytest.mark.docker
@pytest.mark.timeout(900)
def test_it_runs_a_case_in_a_folder_with_modules_of_the_same_names(
    wheel: Path, tmp_path: Path
) -> None:
    """A lock library's, because that is installed as well."""
    bin_ = tmp_path / "venv" / "bin"
    run(*UV, "venv", "--quiet", "--python", sys.executable, "venv", cwd=tmp_path)
    pinned = ("--constraint", str(ROOT / "requirements.lock"))
    python = ("--python", str(bin_ / "python"))
    run(*UV, "pip", "install", "--quiet", *python, *pinned, str(wheel), cwd=tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    for name in ("checker", "results", "history", "locks", "pip"):
        (empty / f"{name}.py").write_text("raise SystemExit('a stranger was here')\n")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    env["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    case = ("--lock", "redis-py", "--fault", "none", "--time-limit", "8", "--runs", "kept")
    told = json.loads(run(str(bin_ / "lockbench"), "run", *case, "--json", cwd=empty, env=env))
    assert (told["ending"], len(told["cases"])) == ("ok", 1)
    assert (empty / "kept" / "latest" / "report.html").is_file()
    assert list((tmp_path / "cache" / "lockbench" / "libraries").glob("redis_py-*/built"))


def tracked(*paths: str) -> list[str]:
    listed = run("git", "ls-files", "-z", "--", *paths, cwd=ROOT)
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]
