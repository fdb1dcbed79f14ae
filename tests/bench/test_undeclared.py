"""Which faults a declaration says nothing of, and what the suites have of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lockbench.bench.plan import expected_of, fits
from lockbench.bench.suites import suite
from lockbench.bench.undeclared import undeclared
from lockbench.locks.base import Expectation
from lockbench.locks.registry import find, systems, without
from lockbench.nemesis.registry import faults


def test_a_fault_that_is_taken_out_of_a_declaration_is_named() -> None:
    whole = find("redis-token")
    assert undeclared([whole]) == {}
    some = {f: said for f, said in whole.expectations.items() if f not in {"pause", "slicer"}}
    assert undeclared([replace(whole, expectations=some)]) == {"redis-token": ("pause", "slicer")}


def test_a_fault_that_no_topology_of_a_lock_can_have_is_not_asked_for() -> None:
    nothing = replace(find("etcd"), expectations={})
    (silent,) = undeclared([nothing]).values()
    assert "clock-jump" not in silent
    assert set(silent) == {fault for fault in faults() if fits(fault, "etcd")}


def test_one_verdict_declares_its_fault() -> None:
    one = {"pause": {"double-grant": Expectation("holds", "its page")}}
    (silent,) = undeclared([replace(find("etcd"), expectations=one)]).values()
    assert "pause" not in silent


@pytest.mark.parametrize("name", ["quick", "nightly", "full"])
def test_the_suites_that_are_run_meet_no_fault_that_is_not_declared(name: str) -> None:
    """So that none of their cases is green because nobody has said anything."""
    met = {
        (case.lock, case.fault) for case in suite(name, seed=0).cases if expected_of(case).silent()
    }
    assert not met


def test_whoever_expects_everything_of_a_fault_names_a_real_one() -> None:
    for system in (*systems().values(), *without().values()):
        assert set(system.expectations) <= {"none", *faults()}, system.name
