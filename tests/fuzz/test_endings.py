"""Every ending of the command line has its exit code, and nothing that it prints acts on a
terminal."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.table import Table

from lockbench.report.console import plain
from lockbench.results.errors import CODES
from tests.fuzz.server import Ended, Warm
from tests.fuzz.trying import RAW
from tools.setup import ROOT

HISTORY = ROOT / "docs" / "observed" / "etcd" / "client-pause-lost-update.jsonl"
GONE = 141


def planted(warm: Warm, place: Path, word: str) -> Ended:
    return warm.run(place, [word], "tests.fuzz.planted:main")


def test_the_codes_are_these() -> None:
    assert set(CODES) == {0, 1, 2, 3, 141, 254, 255}


def test_every_code_is_documented() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    (table,) = re.findall(r"\| exit code \|.*?\n\n", page, re.DOTALL)
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", table, re.MULTILINE)
    assert {int(code): means for code, means in rows} == CODES


def test_every_code_is_in_the_help(warm: Warm, place: Path) -> None:
    ended = warm.run(place, ["--help"])
    said = " ".join(re.sub(r"\x1b\[[\d;]*m", "", ended.out).split())
    assert ended.code == 0
    for code, means in CODES.items():
        assert f"{code} {means}" in said


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("nothing", 0),
        ("bad-input", 254),
        ("interrupt", 255),
        ("abort", 255),
        ("traceback", 255),
        # Of a connection, not of the output.
        ("other-pipe", 255),
    ],
)
def test_every_error_has_its_code(warm: Warm, place: Path, word: str, code: int) -> None:
    ended = planted(warm, place, word)
    assert ended.code == code
    assert bool(ended.err) == bool(code)


@pytest.mark.parametrize("words", [[], ["nonsense"], ["check"], ["list", "--nonsense"]], ids=str)
def test_what_the_parser_refuses_is_bad_input(warm: Warm, place: Path, words: list[str]) -> None:
    ended = warm.run(place, words)
    assert ended.code == 254
    assert not words or len(ended.err.splitlines()) == 1


@pytest.mark.parametrize("out", ["unread", "closed", "/dev/full"])
@pytest.mark.parametrize(
    "words",
    [["--help"], ["check", str(HISTORY)], ["check", str(HISTORY), "--json"]],
    ids=lambda words: words[-1].rpartition("/")[2],
)
def test_an_output_that_cannot_be_written_has_a_code_of_its_own(
    warm: Warm, place: Path, words: list[str], out: str
) -> None:
    ended = warm.run(place, words, out=out)
    assert ended.code == GONE
    assert len(ended.err.splitlines()) == (out != "unread"), ended.err


def test_a_reader_who_has_seen_enough_is_no_broken_promise() -> None:
    """The interpreter's own end is part of it, so this one is a process of its own."""
    check = f"'{sys.executable}' -m lockbench.cli.main check '{HISTORY}'"
    command = f"{check} | true; echo ${{PIPESTATUS[0]}}"
    ended = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=True, cwd=ROOT
    )
    # `true` may have ended before or after the first line was written.
    assert ended.stdout.strip() in {str(GONE), "1"}
    assert ended.stderr == ""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize(
    "words", [["list"], ["check", str(HISTORY)], ["--help"]], ids=lambda w: w[0]
)
def test_an_output_of_another_encoding_is_only_written_otherwise(
    warm: Warm, place: Path, words: list[str], encoding: str
) -> None:
    usual, other = (warm.run(place, words, encoding=e) for e in ("utf-8", encoding))
    assert other.code == usual.code
    assert other.err == ""
    assert len(other.out.splitlines()) == len(usual.out.splitlines())


def test_the_locale_c_is_one_of_them() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "lockbench.cli.main", "run", "--lock", "rédis✗"],
        capture_output=True,
        check=False,
        cwd=ROOT,
        env={
            "PATH": os.environ["PATH"],
            "LC_ALL": "C",
            "PYTHONUTF8": "0",
            "PYTHONCOERCECLOCALE": "0",
        },
    )
    assert ended.returncode == 254
    assert b"Traceback" not in ended.stderr
    assert ended.stderr.isascii()


@pytest.mark.parametrize("word", ["strange", "strange-text", "strange-error"])
def test_nothing_acts_on_a_terminal_or_is_taken_for_markup(
    warm: Warm, place: Path, word: str
) -> None:
    ended = planted(warm, place, word)
    said = ended.out + ended.err
    assert RAW.search(said) is None
    for shown in (
        "\\x1b]0;owned\\x07",
        "[red]x[/red]",
        ":smile:",
        "\\u202e",
        "\\x9b31m",
        "\\ud800",
    ):
        assert shown in said


def test_json_is_ascii(warm: Warm, place: Path) -> None:
    ended = planted(warm, place, "strange-json")
    assert RAW.search(ended.out) is None
    assert json.loads(ended.out)["x"].startswith("\x1b]0;")


def test_a_table_is_plain_too(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(title="[bold]t\x1b[0m")
    table.add_column("[red]c\x07")
    table.add_row("[/]\x1b[31m")
    plain(width=60).print(table)
    said = capsys.readouterr().out
    assert RAW.search(said) is None
    assert "[red]c\\x07" in said
    assert "[/]\\x1b[31m" in said


def test_our_own_colours_reach_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    plain(force_terminal=True, color_system="standard").print("text", style="red")
    assert "\x1b[31m" in capsys.readouterr().out
