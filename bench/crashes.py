"""Crashes and panics in the logs of servers and links, as they say them themselves.

Shown with the case; no verdict follows from them. A server that is killed says nothing, so what the
nemesis kills is no crash; only PostgreSQL tells of a child that was killed, which counts where
nobody took hold of servers (the kernel may have, for want of memory). Guarantees: every line listed
contains a mark of a crash. Does not guarantee: that a crash without a known mark is seen.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from lockbench.results.documents import Crash, Crashes

SHOWN_MAX: Final = 8  # of a case
TEXT_MAX: Final = 200
# Processes of the load write beside them.
OF_THE_LOAD: Final = re.compile(r"(master|resource|worker-\d+)\.log")
SAID: Final = (
    r"^panic: |^fatal error: |\"level\":\"(panic|fatal)\"|SIGSEGV: segmentation violation",
    r"=== REDIS BUG REPORT START|=== ASSERTION FAILED|Guru Meditation|crashed by signal",
    r"Fatal error loading the DB|Bad file format reading the append only file",
    r"Exception in thread \"|java\.lang\.OutOfMemoryError|\bSEVERE\b",
    r"A fatal error has been detected by the Java Runtime|Severe unrecoverable error",
    r"\bPANIC: |was terminated by signal (?!9\b)(?!15\b)\d+|TRAP: failed Assert",
    r"ERROR: (Address|Leak|Memory|Thread)Sanitizer|WARNING: ThreadSanitizer",
    r"UndefinedBehaviorSanitizer|: runtime error: |stack smashing detected",
    r"double free or corruption|Segmentation fault|\(core dumped\)|Assertion `.*' failed",
)
MARKS: Final = re.compile("|".join(SAID))
KILLED: Final = re.compile(r"was terminated by signal 9\b")


def crashes(logs: Path, *, servers_struck: bool) -> list[Crash]:
    """Every marked line, by log. ``servers_struck``: a fault took hold of servers,
    so that a killed process is its work."""
    found: list[Crash] = []
    for path in sorted(logs.glob("*.log")):
        if OF_THE_LOAD.fullmatch(path.name):
            continue
        with path.open(encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, 1):
                if MARKS.search(line) or (not servers_struck and KILLED.search(line)):
                    found.append(Crash(path.stem, number, line.strip()[:TEXT_MAX]))
    return found


def shown(found: list[Crash]) -> Crashes:
    """How many there are, and the first of them."""
    return Crashes(len(found), tuple(found[:SHOWN_MAX]))
