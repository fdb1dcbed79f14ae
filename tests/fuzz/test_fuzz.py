"""Random changes to everything that the command line reads, for as long as ``make fuzz`` may take.

What breaks a command is kept in a folder that the failure names: ``tried.json`` in it, moved to
``corpus/``, plays it again. Each try is drawn from the seed, the input and its number.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.budget import tries
from tests.fuzz.inputs import INPUTS, ROOT
from tests.fuzz.server import Warm
from tests.fuzz.trying import attempt, keep, made

SECONDS = tries(3)  # all inputs together
SHOWN_MAX = 20
KEPT = ROOT / ".fuzz"


def _new_folder() -> Path:
    KEPT.mkdir(exist_ok=True)
    return Path(tempfile.mkdtemp(dir=KEPT))


@pytest.mark.long
@pytest.mark.timeout(SECONDS + 300)
@pytest.mark.parametrize("kind", INPUTS)
def test_no_change_breaks_a_command(
    warm: Warm, made_bases: Path, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    end = time.monotonic() + SECONDS / len(INPUTS)
    number = 0
    tried: Counter[int] = Counter()
    told: dict[tuple[str, ...], str] = {}
    kept: Path | None = None
    while time.monotonic() < end:
        luck = random.Random(f"{seed} {kind} {number}")
        number += 1
        command = INPUTS[kind].command(luck)
        changes = INPUTS[kind].change(luck, made_bases / kind / "work")
        try:
            with made(made_bases / kind, tmp_path / "one", changes) as folder:
                found = attempt(warm, folder, kind, command, changes)
                tried[found.ended.code] += 1
                if found.wrong and found.wrong not in told:
                    kept = kept or _new_folder()
                    told[found.wrong] = f"{found.told()}\n  kept in {keep(folder, found, kept)}"
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
            # A second change that the first one left nothing to change.
            continue
    codes = ", ".join(f"{code}: {count}" for code, count in sorted(tried.items()))
    with capsys.disabled():
        sys.stdout.write(f"\n{kind}: {tried.total()} inputs, seed {seed}, exit codes {codes}\n")
    shown = "\n".join(list(told.values())[:SHOWN_MAX])
    assert not told, f"{len(told)} kinds of failure in {tried.total()} inputs\n{shown}"
    assert tried
