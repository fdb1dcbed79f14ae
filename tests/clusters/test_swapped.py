"""A server image under another name is started as one of others only if it is one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lockbench.clusters.base import Clocked, ClusterPlan
from lockbench.clusters.registry import topologies

ID = "sha256:" + "a" * 64


def plan(topology: str, folder: Path) -> ClusterPlan:
    size = topologies()[topology].default_size
    return ClusterPlan(topology, size, 1, "test", 3.0, str(folder))


@pytest.mark.parametrize(
    "topology",
    [
        "redis",
        "redlock-delayed-restart",
        "valkey-redlock-delayed-restart",
        "zookeeper",
        "postgres",
        "redlock-zookeeper",
    ],
)
def test_what_we_made_is_ours_by_any_name(topology: str, tmp_path: Path) -> None:
    """As a baseline has it, which names images by their ids."""
    make, usual = topologies()[topology].make, plan(topology, tmp_path)
    named = dict.fromkeys(topologies()[topology].images, ID)
    ours = replace(usual, images=named, ours=frozenset(named))
    assert type(make(ours)) is type(make(usual))
    assert isinstance(make(ours), Clocked)
    assert not isinstance(make(replace(usual, images=named)), Clocked)
