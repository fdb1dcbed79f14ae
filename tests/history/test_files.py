"""Opening what somebody else wrote: regular files inside the folder, and nothing waits."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from lockbench.history.files import (
    BadFile,
    MissingFile,
    is_file,
    is_folder,
    names,
    open_named,
    read_bytes,
    read_json,
    read_text,
)

SRC = Path(__file__).parents[2]


class Thing(msgspec.Struct, frozen=True):
    count: int
    parts: dict[str, "Thing"] = {}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    (folder / "cases" / "one").mkdir(parents=True)
    (folder / "cases" / "one" / "case.json").write_text('{"count": 1}', encoding="utf-8")
    (tmp_path / "secret").write_text("secret", encoding="utf-8")
    return folder


def test_a_file_inside_is_read(run: Path) -> None:
    path = run / "cases" / "one" / "case.json"
    assert read_text(path, inside=run) == '{"count": 1}'
    assert read_json(path, Thing, inside=run) == Thing(1)
    assert is_file(path, inside=run)
    assert names(run / "cases", inside=run) == ["one"]
    assert names(run, inside=run) == ["cases"]


@pytest.mark.parametrize("inside", [True, False])
def test_what_is_no_file_is_refused_at_once(run: Path, inside: bool) -> None:
    os.mkfifo(run / "fifo")
    (run / "device").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(run / "socket"))
    for name, said in {
        "fifo": "FIFO",
        "device": "a link" if inside else "a device",
        "socket": "a socket",
        "cases": "a folder",
    }.items():
        with pytest.raises(BadFile, match=said) as refused:
            read_bytes(run / name, inside=run if inside else None)
        assert str(refused.value).startswith(f"{run / name}: ")
        assert not is_file(run / name, inside=run if inside else None)


def test_no_link_inside_is_followed(run: Path, tmp_path: Path) -> None:
    (run / "leak").symlink_to(tmp_path / "secret")
    (run / "beside").symlink_to(run / "cases" / "one" / "case.json")
    (run / "out").symlink_to(tmp_path)
    for path in (run / "leak", run / "beside", run / "out" / "secret"):
        with pytest.raises(BadFile):
            read_bytes(path, inside=run)
        assert not is_file(path, inside=run)
    assert not is_folder(run / "out", inside=run)
    with pytest.raises(BadFile):
        names(run / "out", inside=run)
    with pytest.raises(BadFile, match="leads out"):
        read_bytes(run / ".." / "secret", inside=run)
    with pytest.raises(BadFile, match="not in"):
        read_bytes(tmp_path / "secret", inside=run)


def test_a_link_that_the_user_names_is_followed(run: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(run)
    assert read_text(tmp_path / "latest" / "cases" / "one" / "case.json") == '{"count": 1}'
    assert names(tmp_path / "latest" / "cases", inside=tmp_path / "latest") == ["one"]


def test_what_is_missing_is_told_apart(run: Path) -> None:
    for path in (run / "no", run / "no" / "way"):
        with pytest.raises(MissingFile, match="no such file"):
            read_bytes(path, inside=run)
    with pytest.raises(BadFile) as refused:
        read_bytes(run / "cases" / "one" / "case.json" / "x", inside=run)
    assert not isinstance(refused.value, MissingFile)
    with pytest.raises(BadFile):
        read_bytes(run / "a\0b", inside=run)
    with pytest.raises(BadFile):
        read_bytes(run / ("n" * 5000), inside=run)


def test_what_is_too_large_is_refused(run: Path) -> None:
    path = run / "cases" / "one" / "case.json"
    assert read_bytes(path, most=12) == b'{"count": 1}'
    with pytest.raises(BadFile, match="larger than 11 bytes"):
        read_bytes(path, most=11)
    # A file that says nothing of its size.
    with pytest.raises(BadFile, match="larger than 3 bytes"):
        read_bytes(Path("/proc/self/status"), most=3)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"count": "three"}', "count: Expected int, got str"),
        (b'{"count": 1, "parts": {"a": {"count": null}}}', "count: Expected int, got null"),
        (b"{}", "missing required field count"),
        (b"[" * 100_000, "nested too deeply|got array"),
        (b'{"count": 1, "x": ' + b"[" * 100_000, "nested too deeply"),
        (b'{"count": 1, "\\ud800": 2}', "surrogate"),
        (b'{"count": 1, "parts": {"\xff": {"count": 1}}}', "UTF-8"),
        (b'{"count": 1', "truncated"),
        (b'{"count": Infinity}', "malformed"),
        (b"", "truncated"),
    ],
)
def test_json_that_does_not_fit_is_refused_by_field(run: Path, data: bytes, said: str) -> None:
    (run / "meta.json").write_bytes(data)
    with pytest.raises(BadFile, match=said):
        read_json(run / "meta.json", Thing, inside=run)


def test_text_that_is_none_is_refused(run: Path) -> None:
    (run / "note").write_bytes(b"ab\xff")
    with pytest.raises(BadFile, match=r"UTF-8 .*byte 2"):
        read_text(run / "note", inside=run)


def test_a_pipe_of_the_shell_is_read_and_a_fifo_is_not(run: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from lockbench.history.files import open_named\n"
        "print(open_named(Path(sys.argv[1])).read())"
    )

    def read(path: str, **how: object) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code, path],
            cwd=SRC, capture_output=True, text=True, timeout=60, check=False, **how,  # type: ignore[call-overload]
        )  # fmt: skip
        return str(done.stdout or done.stderr)

    assert "b'piped'" in read("/dev/stdin", input="piped")
    with (run / "cases" / "one" / "case.json").open("rb") as file:
        assert "count" in read("/dev/stdin", stdin=file)
    os.mkfifo(run / "fifo")
    with pytest.raises(BadFile, match="FIFO"):
        open_named(run / "fifo")
    with pytest.raises(BadFile, match="device"):
        open_named(Path("/dev/zero"))
    with pytest.raises(BadFile, match="folder"):
        open_named(run)
