from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lockbench.results import machine
from lockbench.results.documents import Machine, made
from tests.results.plain import plain


def test_facts_are_plain_json_and_name_no_path(tmp_path: Path) -> None:
    facts = machine.facts(tmp_path, engine="20.10.24")
    text = json.dumps(plain(facts), allow_nan=False)
    assert facts.engine == "20.10.24"
    assert facts.cores_usable
    assert facts.memory_bytes
    fsync = facts.fsync_ms
    assert fsync is not None
    assert fsync.count >= machine.FSYNC_WRITES_MIN
    assert (fsync.max or 0) >= (fsync.p50 or 0) > 0
    assert facts.loop_ms is not None
    assert (facts.loop_ms.p50 or 0) > 0
    assert str(tmp_path) not in text
    assert list(tmp_path.iterdir()) == []


def test_a_slow_disk_gets_fewer_writes_and_no_p99(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "FSYNC_SECONDS_MAX", 0.0)
    monkeypatch.setattr(os, "fdatasync", lambda _: None)
    found = machine.fsync_ms(tmp_path)
    assert found.count == machine.FSYNC_WRITES_MIN
    assert found.p99 is None
    assert found.max is not None


def test_versions_are_of_the_pinned_libraries() -> None:
    found = machine.versions()
    assert found["numpy"]
    assert found["redis"]
    assert "pytest" not in found  # a tool, not part of any measurement


def test_the_machine_in_one_line() -> None:
    known = {
        "cpu": "Some CPU",
        "cores_usable": 2,
        "cores_limit": 1.5,
        "memory_bytes": 8 * 2**30,
        "os": "Debian 12",
        "kernel": "6.1",
        "virtual": ["vm", "container"],
        "engine": "20.10",
        "fsync_ms": {"p50": 1.0, "p99": None, "max": 9.5, "count": 250},
        "loop_ms": {"p50": 1.5, "count": 100},
    }
    assert machine.describe(made(Machine, known)) == (
        "Some CPU, 2 cores (limit 1.5), 8 GiB, Debian 12, kernel 6.1, container in vm, "
        "Docker 20.10, fsync max 9.5 ms of 250, loop p50 1.50 ms"
    )
    assert machine.describe(Machine()) == ""
