"""Pauses between tries, and what does not apply to a lock."""

from __future__ import annotations

import pytest

from lockbench.bench.judge import expectation
from lockbench.locks import registry
from lockbench.locks.base import BACKOFFS, Backoff, BackoffStyle

MIN_S, MAX_S = 0.002, 0.050


def pauses(style: BackoffStyle, count: int = 8) -> list[float]:
    backoff = Backoff(MIN_S, MAX_S, style)
    return [backoff._next_s() for _ in range(count)]


def test_a_fixed_pause_is_the_middle_of_the_others() -> None:
    assert pauses("fixed") == pytest.approx([0.010] * 8)


def test_an_exponential_pause_doubles_up_to_its_maximum() -> None:
    assert pauses("exponential") == pytest.approx(
        [0.004, 0.008, 0.016, 0.032, 0.050, 0.050, 0.050, 0.050]
    )


def test_jitter_stays_below_the_exponential_pause_and_repeats_none() -> None:
    drawn = pauses("jitter")
    assert len(set(drawn)) == len(drawn)
    for pause, ceiling in zip(drawn, pauses("exponential"), strict=True):
        assert MIN_S <= pause <= ceiling


@pytest.mark.parametrize("style", BACKOFFS)
def test_every_pause_of_a_process_can_be_the_same(
    style: BackoffStyle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Backoff, "every_s", 0.15)
    assert pauses(style) == [0.15] * 8


@pytest.mark.parametrize("style", BACKOFFS)
def test_a_pause_is_never_longer_than_what_is_left(style: BackoffStyle) -> None:
    Backoff(60, 120, style).pause(0.001)
    Backoff(60, 120, style).pause(-1)


@pytest.mark.parametrize(
    ("lock", "verdict"),
    [
        ("redis-setnx", "late-grant"),
        ("redis-token", "fence-order"),
        ("jetcd", "fence-order"),  # though it is declared like etcd-concurrency, which has one
        ("zookeeper-read-write", "wrong-release"),
        ("zookeeper-semaphore", "lost-update"),
        ("zookeeper-semaphore", "stale-holder"),
    ],
)
def test_what_does_not_apply_is_not_expected(lock: str, verdict: str) -> None:
    assert expectation(registry.find(lock), "client-pause", verdict).expected == "n/a"
    assert expectation(registry.find("etcd"), "client-pause", verdict).expected != "n/a"


def test_permits_are_a_parameter() -> None:
    assert registry.find("zookeeper-semaphore").permits == 3
    assert registry.find("zookeeper-semaphore:permits=5").permits == 5
