"""``lockbench regress`` on a real cluster, with a lock from outside the repository."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clusters.engine.docker import Engine
from results.stored import stored
from tests.bench.test_real import LIMIT_S, containers, processes, start

pytestmark = [pytest.mark.docker, pytest.mark.slow]

MINE = """
from locks.redis.token import SYSTEM, RedisToken


class Mine(RedisToken):
    topologies = ("redis",)
    source = "a test"
    expectations = SYSTEM.expectations
"""


def test_one_pair_of_a_lock_of_ones_own_is_too_few(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    words = ["regress", "--base", "redis-token", "--new", "mine.py:Mine", "--pairs", "1", "--json"]
    bench = start(tmp_path, *words)
    out, err = bench.communicate(timeout=2 * LIMIT_S)
    assert bench.returncode == 2, err
    found = json.loads(out)
    assert found["ending"] == "inconclusive"
    assert {cell["verdict"] for cell in found["comparison"]["cells"]} == {
        "too few pairs, need n ≥ 6"
    }
    sides = {case["side"]: case for case in found["cases"]}
    assert sides["base"]["lock"] == "redis-token"
    assert sides["new"]["lock"] == "mine.py:Mine"
    assert all(case["observed"]["double-grant"] == "valid" for case in found["cases"])
    run = tmp_path / found["run"]
    assert (run / "ending").read_text() == "inconclusive\n"
    assert len(stored(run).cases) == len(found["cases"])
    with Engine():
        assert not containers(bench.pid)
    assert not processes(bench.pid)
