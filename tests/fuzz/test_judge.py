"""What no input may make a command do is found where it is planted, and nothing else is."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fuzz.inputs import Input, no_file
from tests.fuzz.planted import EATEN_BYTES
from tests.fuzz.server import RSS_BYTES, Warm
from tests.fuzz.trying import CANARY, RAW, judge, judged

PLANTED = Input(lambda work: None, (), no_file, entry="tests.fuzz.planted:main")


@pytest.fixture
def filled(place: Path) -> Path:
    work = place / "work"
    (place / "outside" / "canary").write_text(CANARY)
    (work / "link").symlink_to(place / "outside" / "canary")
    (work / "folder").mkdir()
    (work / "folder" / "link").symlink_to(place / "outside" / "canary")
    (work / "input").write_text("as it was")
    (work / "evil.py").write_text("EVIL = 1\n")
    (work / "named").symlink_to(place / "outside")
    os.mkfifo(work / "pipe")
    return place


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("traceback", "traceback: fuzz/planted.py"),
        ("code", "code 77"),
        ("raw", "raw '\\x1b' in the output"),
        ("start", "subprocess.Popen"),
        ("connect", "connected to ('127.0.0.1', 1)"),
        ("kill", "os.kill"),
        ("follow", "followed a link to 'folder/link'"),
        ("write-outside", "outside/canary' (open)"),
        ("write-input", "wrote work/input"),
        ("execute", "executed "),
    ],
)
def test_a_planted_defect_is_found(warm: Warm, filled: Path, command: str, said: str) -> None:
    _, wrong = judged(warm, filled, PLANTED, [command])
    assert any(said in sentence for sentence in wrong), wrong


def test_the_memory_of_a_run_is_its_own(warm: Warm, filled: Path) -> None:
    eaten, none = (judged(warm, filled, PLANTED, [word])[0] for word in ("eat", "nothing"))
    assert eaten.rss_bytes >= EATEN_BYTES > none.rss_bytes
    assert judge(replace(eaten, rss_bytes=RSS_BYTES + 1), (), PLANTED) == ["memory: 2048 MB"]
    assert judge(eaten, (), PLANTED) == []


@pytest.mark.parametrize(("command", "said"), [("hang", "waited"), ("spin", "computed")])
def test_what_does_not_end_is_found(warm: Warm, filled: Path, command: str, said: str) -> None:
    _, wrong = judged(warm, filled, PLANTED, [command], cpu_s=1, blocked_s=2.0)
    assert any(sentence.startswith("hang: ") and said in sentence for sentence in wrong), wrong


@pytest.mark.parametrize(
    "command",
    [
        "nothing",
        "slow",
        "bad-input",
        "write-asked",
        "execute-asked",
        "execute-asked-file",
        "follow-asked",
    ],
)
def test_what_is_as_it_should_be_is_not(warm: Warm, filled: Path, command: str) -> None:
    assert judged(warm, filled, PLANTED, [command])[1] == []


def test_text_of_any_language_is_not_raw() -> None:
    assert RAW.search("prüfen 検査 ✗ tab\t line\n") is None
