"""What has to be there before a run starts, and what voids one."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from bench.room import check_room
from bench.run import _clock_step
from results.errors import BadInput


def test_too_little_disk_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(psutil, "disk_usage", lambda _: SimpleNamespace(free=10**9))
    with pytest.raises(BadInput, match=r"0\.9 GiB are free where runs are written"):
        check_room(tmp_path)


def test_too_little_memory_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=10**9))
    with pytest.raises(BadInput, match=r"0\.9 GiB of memory"):
        check_room(tmp_path)


def test_a_step_of_the_wall_clock_voids_the_case() -> None:
    offset = time.time_ns() - time.monotonic_ns()
    assert _clock_step(offset) is None
    assert "was set by +2.0" in (_clock_step(offset - 2 * 10**9) or "")
    assert "was set by -2.0" in (_clock_step(offset + 2 * 10**9) or "")
