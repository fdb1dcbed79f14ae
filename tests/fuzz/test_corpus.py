"""Every input that ever broke a command is told what is wrong with it, in a sentence.

``corpus/*.json`` has the command, the changes (``mutations``) and, of what was believed although it
cannot be, the exit code that is due. What `make fuzz` finds is kept in
the same form.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.inputs import INPUTS
from tests.fuzz.server import Warm
from tests.fuzz.trying import attempt, keep, made

READ = {
    "run": [one for one in INPUTS["run"].commands if not one.startswith("suite")],
    **{kind: INPUTS[kind].commands[:2] for kind in ("recording", "edn", "jsonl", "observations")},
}
CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.json"))


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_what_broke_a_command_does_so_no_longer(
    warm: Warm, made_bases: Path, tmp_path: Path, path: Path
) -> None:
    it: dict[str, Any] = json.loads(path.read_text())
    with made(made_bases / it["input"], tmp_path / "one", it["changes"]) as folder:
        tried = attempt(warm, folder, it["input"], it["command"], it["changes"])
        assert tried.ended.code == it.get("code", tried.ended.code), tried.ended.err
        if tried.wrong:
            pytest.fail(f"{tried.told()}\n  kept in {keep(folder, tried, tmp_path)}")


@pytest.mark.parametrize(
    ("kind", "command"),
    [(kind, command) for kind in READ for command in READ[kind]],
)
def test_an_unchanged_input_is_read(
    warm: Warm, made_bases: Path, tmp_path: Path, kind: str, command: str
) -> None:
    """Else nothing that is changed would be looked at."""
    with made(made_bases / kind, tmp_path / "one", []) as folder:
        tried = attempt(warm, folder, kind, command.split(), [])
    assert not tried.wrong, tried.told()
    engine = "no Docker engine answers" in tried.ended.err
    assert tried.ended.code == 254 if engine else tried.ended.code in {0, 1}, tried.ended.err
