"""Redis Cluster: slots, and how a node describes another."""

from __future__ import annotations

import pytest

from lockbench.clusters.redis.cluster import AIMED_KEY, Seen, slot_of
from lockbench.workloads import load


def test_the_aimed_key_is_the_loads() -> None:
    assert load.AIMED_KEY == AIMED_KEY


def test_slots_are_those_of_the_specification() -> None:
    """CRC16 of "123456789" is 0x31C3, says appendix A; tags are hashed alone."""
    assert slot_of("123456789") == 0x31C3 % 16384
    assert slot_of("a{123456789}b") == slot_of("123456789")
    assert slot_of("{}123456789") != slot_of("123456789")
    assert slot_of("foo{{bar}}zap") == slot_of("{bar")
    assert slot_of("foo{bar}{zap}") == slot_of("bar")


def test_a_line_of_cluster_nodes_is_read() -> None:
    line = "abc 127.0.0.1:7001@17001,,shard-id=x myself,master - 0 1 2 connected 0-5 7 [8->-def]"
    seen = Seen.read(line)
    assert (seen.id, seen.port) == ("abc", 7001)
    assert seen.flags == {"myself", "master"}
    assert seen.slots == (range(6), range(7, 8))
    with pytest.raises(ValueError, match="not enough values"):
        Seen.read("abc")
