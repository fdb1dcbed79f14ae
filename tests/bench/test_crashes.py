"""A server that says that it crashed is shown; one that was killed, or that complains, is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockbench.bench.crashes import crashes, shown
from lockbench.report import tables
from lockbench.results.documents import Crash
from tests.report.test_tables import case
from tests.results.plain import plain, typed

CRASHED = (
    "panic: runtime error: invalid memory address or nil pointer dereference",
    "fatal error: all goroutines are asleep - deadlock!",
    '{"level":"panic","ts":"2026-01-01T00:00:00Z","msg":"failed to read WAL"}',
    "=== REDIS BUG REPORT START: Cut & paste starting from here ===",
    "1:M 01 Jan 2026 00:00:00.000 # Redis 8.0.2 crashed by signal: 11, si_code: 1",
    'Exception in thread "SyncThread:1" java.lang.IllegalStateException: queue',
    "java.lang.OutOfMemoryError: Java heap space",
    "Jan 01, 2026 12:00:00 AM SEVERE: the server stops",
    "ERROR [SyncThread:1] - Severe unrecoverable error, from thread : SyncThread:1",
    '2026-01-01 PANIC:  could not write to file "pg_wal/xlogtemp.29": No space left on device',
    "2026-01-01 LOG:  server process (PID 77) was terminated by signal 11: Segmentation fault",
    "==7==ERROR: AddressSanitizer: heap-use-after-free on address 0x6020000000f0",
)
INNOCENT = (
    '{"level":"warn","msg":"lost TCP streaming connection with remote peer","error":"EOF"}',
    '{"level":"error","msg":"apply request took too long"}',
    "1:signal-handler (1767225600) Received SIGTERM scheduling shutdown...",
    "1:M # Short read while loading the AOF file: truncating",
    "2026-01-01 LOG:  database system was interrupted; last known up at 2026-01-01",
    "2026-01-01 FATAL:  terminating connection due to administrator command",
    "2026-01-01 LOG:  received fast shutdown request",
    "ERROR [LearnerHandler] - Unexpected exception causing shutdown while sock still open",
    "java.net.SocketException: Connection reset",
    "don't panic: this is a message",
)


def said(folder: Path, *lines: str, name: str = "redis-1") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize("line", CRASHED)
def test_a_crash_is_found(tmp_path: Path, line: str) -> None:
    logs = said(tmp_path / "logs", "all is well", line, "and on")
    (found,) = crashes(logs, servers_struck=True)
    assert found == Crash("redis-1", 2, line)


@pytest.mark.parametrize("line", INNOCENT)
def test_a_complaint_is_no_crash(tmp_path: Path, line: str) -> None:
    assert crashes(said(tmp_path / "logs", line), servers_struck=False) == []


def test_what_the_nemesis_kills_is_no_crash(tmp_path: Path) -> None:
    killed = "2026-01-01 LOG:  server process (PID 77) was terminated by signal 9: Killed"
    logs = said(tmp_path / "logs", "1:M * Ready to accept connections tcp", killed)
    assert crashes(logs, servers_struck=True) == []
    (found,) = crashes(logs, servers_struck=False)
    assert found.line == 2, "nobody of ours did it"


def test_the_load_is_no_server(tmp_path: Path) -> None:
    for name in ("worker-0", "master", "resource"):
        logs = said(tmp_path / "logs", "panic: not of a server", name=name)
    assert crashes(logs, servers_struck=False) == []
    assert crashes(tmp_path / "nowhere", servers_struck=False) == []


def test_a_crash_stands_under_the_table() -> None:
    found = shown([Crash("etcd-2", 7, "panic: at once"), Crash("etcd-3", 1, "panic: later")])
    made = tables.overview(typed([case("etcd", "kill", crashes=plain(found)), case("redis-token")]))
    (note,) = [note for note in made.notes.verdicts if "crashed" in note]
    assert 'etcd-2 said "panic: at once" (line 7 of its log, 1 lines more)' in note
    healthy = tables.overview(typed([case("etcd", "kill", crashes=plain(shown([])))]))
    assert not any("crashed" in note for note in healthy.notes.verdicts)
