"""Images are built a few at once, and an interruption waits for none of them."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from clusters import images

INTERRUPTED = """
import _thread
import threading
from clusters import images

def build(name):
    _thread.interrupt_main()
    threading.Event().wait()

try:
    images._each(["one", "two"], build)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interruption_waits_for_no_build() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "interrupted\n"


def test_the_others_are_built_to_their_end_before_a_failure_is_told() -> None:
    failed, built = threading.Event(), []

    def build(name: str) -> None:
        if name == "bad":
            failed.set()
            raise OSError("no room")
        assert failed.wait(30)
        built.append(name)

    with pytest.raises(OSError, match="no room"):
        images._each(["bad", *"abcd"], build)
    assert sorted(built) == ["a", "b", "c", "d"]
