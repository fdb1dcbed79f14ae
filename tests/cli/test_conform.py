"""What ``lockbench conform`` prints of what came of each duty, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from lockbench.bench import conform as conforming
from lockbench.bench.conform import Outcome
from lockbench.bench.duties import DUTIES
from lockbench.cli.commands.conform import conform
from lockbench.cli.options import Done

KEPT = Outcome(DUTIES[0], "kept")
NOT_OWED = Outcome(DUTIES[1], "not owed", "its users do not ask for it")
BROKEN = Outcome(DUTIES[2], "broken", "a try of a free key: Denied")
BUILDING = "building 1 image: redis; about 10 seconds on two cores that do nothing else"
NOT_TRIED = Outcome(DUTIES[3], "not tried", "nobody can [red]pause[/red] it")


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Outcome]:
    """What comes of the duties of any lock."""
    outcomes = [KEPT, NOT_OWED]

    def made(
        lock: str,
        *,
        topology: str | None,
        told: Callable[[Outcome], None],
        say: Callable[[str], None],
    ) -> list[Outcome]:
        say(BUILDING)
        for outcome in outcomes:
            told(outcome)
        return outcomes

    monkeypatch.setattr(conforming, "conform", made)
    return outcomes


def ended(*, as_json: bool = False) -> int:
    with pytest.raises(Done) as done:
        conform("redis-token", as_json=as_json)
    return done.value.code


def test_each_duty_is_a_line_with_its_reason(
    found: list[Outcome], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended() == 0
    assert capsys.readouterr().out.splitlines() == [
        "redis-token on redis",
        BUILDING,
        "kept       a grant is promised for about a lease",
        "not owed   a try is denied while held: its users do not ask for it",
        "redis-token: 1 kept, 1 not owed",
        "",
    ]


@pytest.mark.parametrize(
    ("more", "code"), [([NOT_TRIED], 2), ([BROKEN], 1), ([BROKEN, NOT_TRIED], 1)]
)
def test_it_ends_as_badly_as_the_worst(
    more: list[Outcome], code: int, found: list[Outcome], capsys: pytest.CaptureFixture[str]
) -> None:
    found += more
    assert ended() == code
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[2] for line in lines[4:-2]] == [one.why for one in more]


def test_json_has_every_duty_and_nothing_else_is_printed(
    found: list[Outcome], capsys: pytest.CaptureFixture[str]
) -> None:
    found += [BROKEN]
    assert ended(as_json=True) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["ending"] == "safety"
    (lock,) = said["locks"]
    assert lock["lock"] == "redis-token"
    assert [(one["duty"], one["outcome"], one["why"]) for one in lock["duties"]] == [
        (one.duty.name, one.word, one.why) for one in found
    ]
