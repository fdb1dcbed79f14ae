"""The examples in the pages about the library and the plugin are run as they stand there."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tools.setup import ROOT

pytest_plugins = ["pytester"]


def examples(page: str) -> Sequence[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


PROGRAMS = [
    pytest.param(example, id=f"{page}-{number}")
    for page in ("library.md", "in-a-program.md")
    for number, example in enumerate(examples(page), 1)
]


def test_there_are_some_and_they_are_short() -> None:
    assert len(PROGRAMS) == 6
    for example in [*examples("library.md"), *examples("pytest.md")]:
        assert len(example.splitlines()) <= 28


@pytest.mark.docker
@pytest.mark.parametrize("example", PROGRAMS)
def test_a_program(example: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.docker
def test_the_tests(pytester: pytest.Pytester) -> None:
    first, marked = examples("pytest.md")
    broken = first.replace("px=60_000", "px=5")
    assert broken != first
    pytester.makepyfile(test_a=first, test_b=marked, test_c=broken)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=5, failed=1)
    assert "more than one holder inside at once" in result.stdout.str()
