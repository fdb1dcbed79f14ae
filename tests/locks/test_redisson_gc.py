"""The scene of the garbage collection without a JVM: what counts as a round, and what is recorded.

A server that only pretends, and a lease that ends because nobody renews it; what a real collection
does is in ``docs/track/redisson-gc.md``, whose history ``tests/test_track.py`` judges.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from lockbench.checker.check import check
from lockbench.history.jsonl import read_jsonl
from lockbench.locks.base import Freed, NotHeld, Released, new_hold_id, token_of
from lockbench.locks.registry import find
from lockbench.workloads.resource import Resource
from tests.locks.fakes import FakeRedis
from tests.locks.parties import COULD_NOT_TELL, Party, guarded, rounds, written
from tests.locks.redisson_gc import WATCHDOG_S, Stall, seen, work

LEASE_S = 0.2
NS = 1_000_000_000
LONG = Stall(asked_ns=0, answered_ns=9 * NS, longest_ns=3 * NS)


@pytest.fixture
def parties() -> Iterator[tuple[Party, Party]]:
    """A and B, each a client of one server."""
    with FakeRedis() as server:
        key = token_of(new_hold_id())
        made = [Party(name, find("redis-token"), [server.address], key, LEASE_S) for name in "AB"]
        yield made[0], made[1]
        for party in made:
            party.close()


def test_a_write_after_the_lease_is_recorded_and_judged(
    parties: tuple[Party, Party], tmp_path: Path
) -> None:
    a, b = parties
    with guarded() as where, closing(Resource(where)) as of_a, closing(Resource(where)) as of_b:
        a.acquire(1)
        begun_ns, version = time.monotonic_ns(), a.read(of_a)
        work(b, of_b)
        stall = Stall(begun_ns, time.monotonic_ns(), int(LEASE_S * NS))
        assert a.write(of_a, version) == version + 2, "B wrote in between"
        assert isinstance(a.release(), NotHeld)
    for party in parties:
        assert [line["f"] for line in party.lines] == ["acquire", "read", "write", "release"]
    written(tmp_path / "history.jsonl", parties, [stall.fault()])
    judged = check(read_jsonl(tmp_path / "history.jsonl")).verdicts
    broken = {name for name, verdict in judged.items() if verdict.result == "invalid"}
    assert broken == {"stale-holder", "lost-update"}
    assert "during gc-stall of A" in judged["stale-holder"].reason


def test_where_the_longest_stop_lay_is_an_interval() -> None:
    line = LONG.fault()
    assert (line["begin_ns"], line["heal_ns"]) == ([0, 6 * NS], [3 * NS, 9 * NS])


def test_a_stop_no_longer_than_the_lease_cannot_tell(parties: tuple[Party, Party]) -> None:
    a, b = _granted(parties, NS)
    short = Stall(0, 9 * NS, int(WATCHDOG_S * NS))
    assert seen(a, b, short, 1, NotHeld()) is None


@pytest.mark.parametrize(
    ("granted_ns", "overwritten", "at_last", "shown"),
    [
        (5 * NS, 1, NotHeld(), True),
        (10 * NS, 1, NotHeld(), False),  # granted only when A went on already
        (5 * NS, 0, NotHeld(), False),
        (5 * NS, 1, Released(), False),
    ],
)
def test_it_shows_when_a_overwrote_what_b_wrote_during_the_stop(
    parties: tuple[Party, Party], granted_ns: int, overwritten: int, at_last: Freed, shown: bool
) -> None:
    a, b = _granted(parties, granted_ns)
    assert seen(a, b, LONG, overwritten, at_last) is shown


def test_nothing_shows_when_b_is_not_granted(parties: tuple[Party, Party]) -> None:
    assert seen(*parties, LONG, 1, NotHeld()) is False


@pytest.mark.parametrize(
    ("told", "said", "ends_with"),
    [
        ([True, None, False, True], "2 of 3", 1),
        ([False, None], "0 of 1", 0),
        ([None, None], "0 of 0", COULD_NOT_TELL),
    ],
)
def test_a_round_that_could_not_tell_does_not_count(
    told: list[bool | None], said: str, ends_with: int, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter(told)
    assert rounds(lambda _: next(answers), len(told), None, "it shows") == ends_with
    assert capsys.readouterr().out.splitlines()[-1] == said


def _granted(parties: tuple[Party, Party], granted_ns: int) -> tuple[Party, Party]:
    a, b = parties
    b.acquire(1)
    b.granted_ns = granted_ns
    return a, b
