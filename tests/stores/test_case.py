"""A lock and a store in one case: a holder that was frozen is refused by a store that checks, and
let in by one that does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.docker, pytest.mark.long]
LOAD = ("--workload", "long-hold:times=0.3", "--clients", "24", "--keys", "12")
PAUSES = "client-pause:who=half:times=2"


def case(folder: Path, resource: str, fault: str, *words: str) -> Any:
    command = [sys.executable, "-m", "lockbench.cli.main", "run", "--lock", "redis-fence"]
    command += ["--resource", resource, "--fault", fault, *words, "--json"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return json.loads(ended.stdout)["cases"][0]


@pytest.mark.parametrize("guard", ["fence", "unguarded"])
def test_what_becomes_of_late_writes(guard: str, tmp_path: Path) -> None:
    found = case(tmp_path, f"redis:guard={guard}", PAUSES, *LOAD)
    counts = found["measurements"]["guard"]
    assert counts["stale_attempted"] > 0
    assert counts["differences"] == 0
    assert found["observed"]["broken-guard"] == "valid"
    late = counts["stale_refused"] if guard == "fence" else counts["stale_applied_late"]
    assert late > 0
    assert (counts["stale_applied_late"] == 0) == (guard == "fence")


def test_a_failover_of_the_store_is_none_of_the_lock(tmp_path: Path) -> None:
    found = case(tmp_path, "postgres", "failover:strikes=resource")
    (fault,) = found["injections"]
    assert fault["strikes"] == "resource"
    assert found["measurements"]["guard"]["gone"] > 0
    assert found["observed"]["double-grant"] == "valid"
    assert found["observed"]["broken-guard"] == "valid"
