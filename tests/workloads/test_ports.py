"""Loads that start at the same time, as tests and suites start them, have ports of their own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from workloads.fleet import free_port


def test_a_port_is_not_handed_out_twice_before_somebody_listens_there() -> None:
    with ThreadPoolExecutor(8) as pool:
        ports = list(pool.map(lambda _: free_port(), range(100)))
    assert len(set(ports)) == len(ports)
