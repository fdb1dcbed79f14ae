"""An interruption that Python dropped is not forgotten."""

from __future__ import annotations

import subprocess
import sys

SWALLOWED = """
import os, signal
from bench import interruption

interruption.arm()
try:
    interruption.check()  # nothing was asked yet

    class Dropped:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(1000):
                pass

    Dropped()
    print("dropped")
    interruption.check()
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interruption_inside_a_finalizer_still_interrupts() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SWALLOWED], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["dropped", "interrupted"], done.stderr
