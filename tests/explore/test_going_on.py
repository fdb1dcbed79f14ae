"""An exploration by plays that only say what came of them: what is played again, what is kept of
plays that are not, and how it goes on after it was stopped, or its cluster was lost."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace as with_

from lockbench.clusters.base import ClusterError
from lockbench.explore import explorer, findings
from lockbench.explore.asked import Asked, asked, begun
from lockbench.explore.command import ending, folder_of
from lockbench.explore.explorer import DRY_PLAYS, MORE_PLAYS, PLAYS_MAX, explore
from lockbench.explore.judge import LATE_GRANT, LOST_WAKEUP, Shown, Undecided, judged
from lockbench.explore.mapped import map_of
from lockbench.explore.plays import ClusterLost, Plays, last_number
from lockbench.explore.pool import Pool
from lockbench.explore.repeats import REPEATS, Repeats
from lockbench.explore.scenarios import SCENARIOS
from lockbench.explore.servers import APART
from lockbench.explore.trial import Place, Played, Setting, Strike, Trial
from lockbench.history.op import F, Object, Type
from lockbench.history.recorder import Recorder
from lockbench.history.recording import write_faults, write_meta
from lockbench.locks.registry import find
from lockbench.report.messages import summary
from lockbench.results.documents.exploration import (
    MISSED,
    EventPlace,
    Exploration,
    Finding,
    StrikeAt,
)
from lockbench.results.errors import Ending

S = 1_000_000_000
LEASE_S = 2
SIZE = 37
Came = Callable[[Trial, int], set[str]]  # of a trial that is played for the n-th time


def written(folder: Path, came: set[str]) -> None:
    """A holder from 1 to 2 s. ``double``: another one, from 1.2 to 1.4 s. ``waits``: another one
    asks from 1.5 s on, and is granted the key 3 s after the release. ``late``: the holder's grant
    comes when its promise is over. ``again``: a second release is confirmed. A client asks at the
    end."""
    folder.mkdir(parents=True)
    aimed = Object(kind="mutex", role="aimed", lease_ns=LEASE_S * S, slack_ns=S // 10)
    write_meta(folder, {"k": aimed}, wall_minus_monotonic_ns=0)

    def holds(client: int, asks_s: float, granted_s: float, released_s: float) -> None:
        recorder = Recorder(folder, client)
        process = client << 20
        hold = client + 1
        until_ns = int(granted_s * S) + (-S // 10 if "late" in came else LEASE_S * S)
        grant = recorder.invoke(process, F.ACQUIRE, "k", hold=hold, invoke_ns=int(asks_s * S))
        recorder.complete(grant, Type.OK, complete_ns=int(granted_s * S), valid_until_ns=until_ns)
        for nth in range(2 if "again" in came else 1):
            asked_ns = int((released_s + 4 * LEASE_S * nth) * S)
            release = recorder.invoke(process, F.RELEASE, "k", hold=hold, invoke_ns=asked_ns)
            recorder.complete(release, Type.OK, complete_ns=asked_ns + 1000)
        recorder.close()

    holds(0, 1.0, 1.01, 2.0)
    if "double" in came:
        holds(1, 1.1, 1.2, 1.4)
    if "waits" in came:
        holds(2, 1.5, 5.0, 5.1)
    write_faults(folder, [])


class Nodes:
    """To which nothing can be done."""

    nodes = (1,)


class Frozen(Nodes):
    """They can be frozen."""

    def pause(self, nodes: Iterable[int]) -> None:
        raise AssertionError

    def unpause(self, nodes: Iterable[int]) -> None:
        raise AssertionError

    def frozen(self, node: int) -> bool:
        raise AssertionError


@dataclass
class Told:
    """Plays of a lock whose cycle is two requests. ``came``: what shows."""

    folder: Path
    what: Asked
    came: Came = lambda trial, time: set()
    cluster: Any = field(default_factory=Nodes)
    most: int = 2
    usual: int = 2
    sharing: int = 12
    played: list[Trial] = field(default_factory=list)
    together: list[Sequence[Trial]] = field(default_factory=list)

    def __post_init__(self) -> None:
        case = self.what.case
        self.setting = Setting(case.lock, find("redis-token"), case.pace, (), ())

    def play_all(self, trials: Sequence[Trial]) -> list[Played]:
        self.together.append(trials)
        return [self._play(trial) for trial in trials]

    def kill(self) -> None:
        """Its plays end by themselves."""

    def _play(self, trial: Trial) -> Played:
        self.played.append(trial)
        came = self.came(trial, self.played.count(trial))
        if "lost" in came:
            raise ClusterLost([trial, trial], "nobody answers")
        folder = self.folder / f"{len(self.played):06}"
        written(folder, came)
        grants = 0 if "refused" in came else SCENARIOS[trial.scenario].grants
        play = Played(trial, folder, "k", grants=grants)
        sizes = [SIZE, 2 * SIZE if "longer" in came else SIZE]
        play.places = [Place("request", n, 1, n, size, size) for n, size in enumerate(sizes, 1)]
        play.unable = "it could not" if "unable" in came else APART if "apart" in came else ""
        play.missed = list(trial.strikes) if "missed" in came else []
        size = SIZE // 3 if "strayed" in came else SIZE
        play.met = {
            s: replace(s.place, size=size, begins=size) for s in trial.strikes if not play.missed
        }
        return play


def faults_of(trial: Trial) -> set[str]:
    return {strike.fault for strike in trial.strikes}


class Run:
    """An exploration of ``free``, and what it said and saved."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.what = asked("redis-token", scenarios=["free"])
        self.folder = folder
        self.saved: list[Exploration] = []
        self.plays: list[Told] = []
        self.came: Came = lambda trial, time: set()
        self.cluster = Nodes()
        monkeypatch.setattr(explorer, "_plays", self._open)

    @contextmanager
    def _open(self, what: Asked, folder: Path, *_: object) -> Iterator[Pool]:
        place = folder / f"cluster-{len(self.plays)}"
        self.plays.append(Told(place, what, self.came, self.cluster))
        yield Pool([cast("Plays", self.plays[-1])])

    def __call__(self, known: Exploration | None = None, **more: Any) -> Exploration:
        return explore(
            self.what,
            known or begun(self.what),
            self.folder,
            run_id="run",
            told=lambda _: None,
            saved=self.saved.append,
            **more,
        )

    @property
    def played(self) -> Counter[str]:
        """Fault → how often it was played at the first request, on the last cluster."""
        trials = [trial for trial in self.plays[-1].played if trial.strikes]
        first = [trial for trial in trials if trial.strikes[0].place.number == 1]
        return Counter(trial.strikes[0].fault for trial in first)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(tmp_path, monkeypatch)


def outcomes(document: Exploration) -> dict[str, str]:
    """Of each fault at the first request."""
    tried = [one for one in document.tried if one.strikes[0].place.number == 1]
    return {one.strikes[0].fault: one.outcome for one in tried}


def test_everything_is_tried_once_where_nothing_shows(run: Run) -> None:
    document = run()
    assert document.ended
    assert document.planned == len(document.tried) > 10
    assert {one.outcome for one in document.tried} == {"kept"}
    assert document.findings == ()
    assert set(run.played.values()) == {1}


def test_what_was_found_is_played_again(run: Run) -> None:
    run.came = lambda trial, _: {"double"} if "late" in faults_of(trial) else set()
    document = run()
    found = {one.strikes[0].place.number: one for one in document.findings}
    assert set(found) == {1, 2}, "each event by itself"
    assert (found[1].broke, found[1].plays) == (11, 11)
    assert "double-grant" in found[1].verdicts


def test_what_is_on_record_is_played_again_less_often(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(findings, "on_record", lambda *_: ("a-page",))
    run.came = lambda trial, _: {"double"} if "late" in faults_of(trial) else set()
    found = run().findings
    assert {(one.broke, one.plays, one.declared) for one in found} == {(5, 5, False)}


def test_what_is_found_is_played_again_under_two_strikes_at_servers(run: Run) -> None:
    run.cluster = Frozen()
    run.came = lambda trial, _: {"double"} if "server-frozen" in faults_of(trial) else set()
    document = run()
    assert {(one.broke, one.plays) for one in document.findings} == {(11, 11)}
    struck = [chunk for chunk in run.plays[-1].together if "server-frozen" in faults_of(chunk[0])]
    assert [len(chunk) for chunk in struck] == [2, 10, 10], "five of each event"


def test_what_is_declared_is_played_again_less_often(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_declared(*about: Any, **how: Any) -> Any:
        shown = judged(*about, **how)
        return replace(shown, declared=True) if isinstance(shown, Shown) else shown

    monkeypatch.setattr(explorer, "judged", as_declared)
    run.came = lambda trial, _: {"double"} if "late" in faults_of(trial) else set()
    (found,) = run().findings
    assert (found.broke, found.plays) == (5, 5)


@pytest.mark.parametrize(
    ("times", "found"),
    [
        (range(1, DRY_PLAYS + 3), False),
        (range(1, DRY_PLAYS + 4), True),
        (range(1, DRY_PLAYS + MORE_PLAYS + 1), True),
    ],
)
def test_without_a_fault_who_waits_beside_no_other_scenario_is_a_finding(
    run: Run, times: Sequence[int], *, found: bool
) -> None:
    run.came = lambda trial, time: {"waits"} if not trial.strikes and time in times else set()
    document = run()
    assert [one.verdicts for one in document.findings] == [(LOST_WAKEUP,)] * found
    assert bool(document.tried) is not found


def test_who_waited_once_is_played_again_and_what_else_showed_is_kept(run: Run) -> None:
    def came(trial: Trial, time: int) -> set[str]:
        found = {"waits"} if time == 1 and faults_of(trial) & {"late", "very-late"} else set()
        return found | ({"double"} if time == 1 and "late" in faults_of(trial) else set())

    run.came = came
    document = run()
    assert outcomes(document)["late"] == "broke"
    assert outcomes(document)["very-late"] == "kept"
    assert {v for one in document.findings for v in one.verdicts} >= {"double-grant"}


def test_who_waited_once_after_plays_that_came_to_nothing_is_no_finding(run: Run) -> None:
    def came(trial: Trial, time: int) -> set[str]:
        if "late" not in faults_of(trial):
            return set()
        return {"apart"} if time <= PLAYS_MAX else {"waits"} if time == PLAYS_MAX + 1 else set()

    run.came = came
    document = run()
    assert outcomes(document)["late"] == "kept"
    assert not document.findings


def test_who_waited_once_where_something_declared_broke_is_played_again(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_declared(*about: Any, **how: Any) -> Any:
        shown = judged(*about, **how)
        if isinstance(shown, Shown):
            return replace(shown, declared=LOST_WAKEUP not in shown.verdicts)
        return shown

    def came(trial: Trial, time: int) -> set[str]:
        if "late" not in faults_of(trial):
            return set()
        return {"late", "waits"} if time == 1 else {"late"}

    monkeypatch.setattr(explorer, "judged", as_declared)
    run.came = came
    findings = run().findings
    assert {v for one in findings for v in one.verdicts} == {"late-grant"}
    assert all(one.declared for one in findings)


def test_who_waited_for_a_key_that_another_may_have_held_is_not_played_again(run: Run) -> None:
    run.came = lambda trial, _: {"double", "waits"} if "late" in faults_of(trial) else set()
    assert {one.plays for one in run().tried} == {1}


def test_who_waits_each_time_is_a_finding(run: Run) -> None:
    run.came = lambda trial, _: {"waits"} if "late" in faults_of(trial) else set()
    document = run()
    assert outcomes(document)["late"] == "broke"
    assert {v for one in document.findings for v in one.verdicts} == {LOST_WAKEUP}


def test_what_never_met_its_event_is_not_reached_but_what_it_showed_is_told(run: Run) -> None:
    def came(trial: Trial, time: int) -> set[str]:
        if "late" in faults_of(trial):
            return {"missed"}
        return {"missed", "double"} if "very-late" in faults_of(trial) else set()

    run.came = came
    document = run()
    assert outcomes(document)["late"] == outcomes(document)["very-late"] == "not reached"
    assert run.played["late"] == PLAYS_MAX
    (found,) = document.findings
    assert (found.verdicts[0], found.strikes) == ("double-grant", ())


def test_two_findings_of_one_trial_are_counted_by_the_same_plays(run: Run) -> None:
    """Both without a strike that met its event."""

    def came(trial: Trial, time: int) -> set[str]:
        if "late" in faults_of(trial):
            return {"missed", "double"}
        return {"missed", "again"} if "very-late" in faults_of(trial) else set()

    run.came = came
    findings = run().findings
    assert [one.strikes for one in findings] == [(), ()]
    assert [(one.broke, one.plays) for one in findings] == [(1, 11)] * 2
    assert sum(trial.again for trial in run.plays[-1].played) == 10


def test_a_late_grant_where_the_fault_missed_is_told_of_no_lock(run: Run) -> None:
    """The machine is slow; without a fault it takes several plays to tell."""
    run.came = lambda trial, _: {"missed", "late"} if "late" in faults_of(trial) else set()
    assert not run().findings


def test_a_replay_that_cannot_be_decided_does_not_count(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def undecided(play: Played, system: Any, **how: Any) -> Any:
        return Undecided("who knows") if play.trial.again else judged(play, system, **how)

    monkeypatch.setattr(findings, "judged", undecided)
    run.came = lambda trial, _: {"double"} if "late" in faults_of(trial) else set()
    assert {(one.broke, one.plays) for one in run().findings} == {(1, 1)}


def test_what_breaks_without_a_fault_is_seen_where_the_victim_is_refused(run: Run) -> None:
    """Such a play does not work out, and is played again."""

    def came(trial: Trial, time: int) -> set[str]:
        return {"double", "refused"} if not trial.strikes and time == 1 else set()

    run.came = came
    document = run()
    (found,) = document.findings
    assert (found.verdicts[0], found.strikes) == ("double-grant", ())
    assert not document.tried, "nothing can be told of a fault there"


def test_who_is_refused_once_without_a_fault_is_played_again(run: Run) -> None:
    run.came = lambda trial, time: {"refused"} if not trial.strikes and time == 1 else set()
    document = run()
    assert document.ended
    assert document.tried
    assert not document.findings


def test_two_messages_at_one_event_are_played_again_by_themselves(run: Run) -> None:
    """The first play strikes another message, the second the planned one; both show the same."""

    def came(trial: Trial, time: int) -> set[str]:
        if "late" not in faults_of(trial) or trial.strikes[0].place.number == 2:
            return set()
        stray = trial.strikes[0].place.size < SIZE if trial.again else time == 1
        return {"strayed", "double"} if stray else {"double"}

    run.came = came
    found = run().findings
    assert [one.strikes[0].place.size for one in found] == [SIZE // 3, SIZE]
    assert [(one.broke, one.plays) for one in found] == [(11, 11)] * 2
    assert sum(trial.again for trial in run.plays[-1].played) == 20


def test_what_struck_another_message_is_played_again_and_counts_in_the_end(run: Run) -> None:
    def came(trial: Trial, time: int) -> set[str]:
        if "late" in faults_of(trial):
            return {"strayed"} if time == 1 else {"double"}
        return {"strayed"} if "very-late" in faults_of(trial) else set()

    run.came = came
    document = run()
    assert outcomes(document)["late"] == "broke"
    assert outcomes(document)["very-late"] == "kept"
    assert run.played["very-late"] == PLAYS_MAX
    assert document.ended


@pytest.mark.parametrize(
    ("again", "counts"),
    [
        ([{"strayed"}, {"double"}], (6, 6)),
        ([{"strayed", "double"}, {"double", "apart"}], (6, 6)),  # none was at the same message
        ([{"double"}, {"double", "missed"}], (6, 6)),
    ],
)
def test_of_repeats_those_at_the_same_message_are_counted(
    run: Run, again: list[set[str]], counts: tuple[int, int]
) -> None:
    def came(trial: Trial, time: int) -> set[str]:
        if "late" not in faults_of(trial):
            return set()
        return again[time % 2] if trial.again else {"double"}

    run.came = came
    assert {(one.broke, one.plays) for one in run().findings} == {counts}


def test_what_another_message_shows_is_a_finding_and_the_planned_one_is_tried(run: Run) -> None:
    def came(trial: Trial, time: int) -> set[str]:
        if "late" not in faults_of(trial) or trial.strikes[0].place.number == 2:
            return set()
        stray = trial.again or time == 1
        return {"strayed", "double"} if stray else set()

    run.came = came
    document = run()
    (found,) = document.findings
    assert found.strikes[0].place.size == SIZE // 3
    assert found.plays == 11
    assert outcomes(document)["late"] == "kept"


@pytest.mark.parametrize(
    ("longer", "size", "varies"),
    [
        ((), SIZE, False),
        ((1,), SIZE, False),
        ((4,), SIZE, False),
        ((1, 2), SIZE, True),
        ((2, 3, 5), 2 * SIZE, True),
        ((1, 2, 4, 5), 2 * SIZE, False),
    ],
)
def test_nothing_strays_from_what_varies_without_a_fault(
    run: Run, longer: Sequence[int], size: int, *, varies: bool
) -> None:
    """One longer message of five may be a heartbeat."""

    def came(trial: Trial, time: int) -> set[str]:
        if not trial.strikes:
            return {"longer"} if time in longer else set()
        return {"strayed"} if "late" in faults_of(trial) else set()

    run.came = came
    document = run()
    first, second = document.scenarios[0].events
    assert (first.size, first.varies) == (SIZE, False)
    assert (second.size, second.varies) == (size, varies)
    late = [one for one in document.tried if one.strikes[0].fault == "late"]
    plays = {1: PLAYS_MAX, 2: 1 if varies else PLAYS_MAX}
    assert {one.strikes[0].place.number: one.plays for one in late} == plays


@pytest.mark.parametrize(
    ("planned", "met", "begins", "strayed"),
    [
        (37, 12, 12, True),
        (37, 132, 132, True),
        (95, 97, 97, False),
        (0, 12, 12, False),
        (1000, 1090, 1090, False),
        (77, 186, 77, False),
        (77, 186, 109, True),
        (77, 77, 40, False),
        (77, 60, 40, True),
    ],
)
def test_another_message_is_told_by_its_size(
    planned: int, met: int, begins: int, *, strayed: bool
) -> None:
    """A heartbeat, or an answer with more in it; not a number with more digits, what comes in
    pieces, or a message that its sender follows up while it is held."""
    strike = Strike(Place("request", 3, size=planned), "late")
    play = Played(Trial("free", (strike,)), Path(), "k")
    play.met = {strike: Place("request", 3, size=met, begins=begins)}
    assert play.strayed == strayed


def test_what_came_to_nothing_is_tried_again_when_it_goes_on(run: Run) -> None:
    run.came = lambda trial, _: {"missed"} if "late" in faults_of(trial) else set()
    first = run()
    assert first.ended
    run.came = lambda trial, _: set()
    document = run(first)
    assert set(run.played) == {"late"}
    assert {one.outcome for one in document.tried} == {"kept"}
    assert len(document.tried) == len(first.tried)
    run(document)
    assert not run.played


def test_a_scenario_that_did_not_work_is_tried_again(run: Run) -> None:
    run.came = lambda trial, time: {"unable"} if not trial.strikes else set()
    first = run()
    assert [one.worked for one in first.scenarios] == [False]
    assert not first.tried
    run.came = lambda trial, time: {"unable"} if not trial.strikes and time == 1 else set()
    document = run(first)
    assert [one.worked for one in document.scenarios] == [True]
    assert document.tried


@pytest.mark.parametrize("works", [True, False])
def test_a_scenario_that_did_not_work_at_first_is_tried_once_more(run: Run, *, works: bool) -> None:
    times = Counter[bool]()

    def came(trial: Trial, _: int) -> set[str]:
        times[not trial.strikes] += 1
        at_first = times[True] <= DRY_PLAYS * PLAYS_MAX
        return {"unable"} if not trial.strikes and (at_first or not works) else set()

    run.came = came
    document = run()
    assert document.ended
    assert [one.worked for one in document.scenarios] == [works]
    assert bool(document.tried) == works
    assert times[True] == DRY_PLAYS * (PLAYS_MAX + (1 if works else PLAYS_MAX))


@pytest.mark.parametrize(
    ("shows", "times", "accused"),
    [("late", DRY_PLAYS, False), ("late", 1000, True), ("double", DRY_PLAYS, True)],
)
def test_a_late_grant_without_a_fault_shows_beside_nothing_else(
    run: Run, *, shows: str, times: int, accused: bool
) -> None:
    played = Counter[bool]()

    def came(trial: Trial, _: int) -> set[str]:
        played[not trial.strikes] += 1
        return {shows} if not trial.strikes and played[True] <= times else set()

    run.came = came
    document = run()
    assert any(not finding.strikes for finding in document.findings) == accused


def test_what_breaks_without_a_fault_is_one_finding_however_often_it_is_tried(run: Run) -> None:
    def came(trial: Trial, time: int) -> set[str]:
        return set() if trial.strikes else {"double", "unable"} if time == 2 else {"double"}

    run.came = came
    first = run()
    run(with_(first, scenarios=(with_(first.scenarios[0], worked=False),)))
    assert [one.strikes for one in run.saved[-1].findings] == [()]


def test_one_scenario_of_an_exploration_that_was_interrupted_does_not_end_it(run: Run) -> None:
    run.what = asked("redis-token", scenarios=["free", "refused"])
    part = run(until_s=time.monotonic() - 1)
    assert len(part.scenarios) == 2
    assert not part.ended
    every = run.what
    run.what = asked("redis-token", scenarios=["free"])
    part = run(part)
    assert {one.scenario for one in part.tried} == {"free"}
    assert part.planned > len(part.tried)
    assert not part.ended
    run.what = every
    whole = run(part)
    assert whole.ended
    assert whole.planned == len(whole.tried) == part.planned


@pytest.mark.parametrize("depth", [1, 2])
def test_scenarios_one_after_another_end_as_all_at_once(run: Run, depth: int) -> None:
    document = None
    for scenario in ("free", "refused"):
        run.what = asked("redis-token", scenarios=[scenario], depth=depth)
        document = run(document)
        assert document.ended, scenario


def test_pairs_of_one_scenario_do_not_end_those_of_another(run: Run) -> None:
    run.what = asked("redis-token", scenarios=["free", "refused"], depth=2)
    single = run()
    document = with_(single, tried=tuple(with_(one, state=None) for one in single.tried))
    for scenario, ended in (("free", False), ("refused", True)):
        run.what = asked("redis-token", scenarios=[scenario], depth=2)
        document = run(document)
        assert any(one.pair and one.scenario == scenario for one in document.tried)
        assert document.ended is ended


def test_a_finding_of_another_scenario_that_was_not_played_again_does_not_end_it(run: Run) -> None:
    run.came = lambda trial, _: {"double"} if "late" in faults_of(trial) else set()
    run.what = asked("redis-token", scenarios=["free"])
    first = run()
    assert first.ended
    assert first.findings
    once_played = tuple(with_(one, plays=1, broke=1) for one in first.findings)
    run.what = asked("redis-token", scenarios=["refused"])
    assert not run(with_(first, findings=once_played)).ended
    assert run(first).ended


def test_single_faults_of_an_exploration_of_pairs_do_not_end_it(run: Run) -> None:
    run.what = asked("redis-token", scenarios=["free"], depth=2)
    part = run(until_s=time.monotonic() - 1)
    run.what = asked("redis-token", scenarios=["free"])
    assert not run(part).ended


def test_no_time_is_left(run: Run) -> None:
    document = run(until_s=time.monotonic() - 1)
    assert (document.ended, document.tried) == (False, ())
    document = run(document)
    assert document.ended
    assert document.tried


def test_while_pairs_are_tried_it_has_not_ended(run: Run) -> None:
    run.what = asked("redis-token", scenarios=["free"], depth=2)
    first = run()
    assert first.ended
    run.saved.clear()
    run.came = lambda trial, _: {"lost"} if trial.pair else set()
    unlike = tuple(with_(one, state=None) for one in first.tried if not one.pair)
    with pytest.raises(ClusterError):
        run(with_(first, tried=unlike))
    assert not any(document.ended for document in run.saved)


def once(what: str) -> Came:
    """It comes of the loss of a client at the first event."""

    def came(trial: Trial, time: int) -> set[str]:
        first = trial.strikes and trial.strikes[0].place.number == 1
        return {what} if first and "client-gone" in faults_of(trial) else set()

    return came


def test_only_what_a_cluster_did_not_come_back_from_is_given_up(run: Run) -> None:
    """What was to be played beside it is played on the next cluster."""
    run.came = once("lost")
    document = run()
    assert document.ended
    assert len(run.plays) == 2
    (lost,) = [one for one in document.tried if one.outcome == "could not run"]
    assert lost.strikes[0].fault == "client-gone"
    assert "nobody answers" in (lost.why or "")
    assert len(document.tried) == document.planned


def test_what_was_found_stays_where_a_cluster_is_lost_when_it_is_played_again(run: Run) -> None:
    def came(trial: Trial, time: int) -> set[str]:
        if "late" not in faults_of(trial):
            return set()
        return {"double"} if time == 1 else {"lost"}

    run.came = came
    document = run()
    assert len(run.plays) > 1
    assert {(one.broke, one.plays) for one in document.findings} == {(1, 1)}
    assert outcomes(document)["late"] == "broke"
    assert len(document.tried) == document.planned
    assert document.ended
    run.came = lambda trial, _: {"double"} if "late" in faults_of(trial) else set()
    document = run(document)
    assert {(one.broke, one.plays) for one in document.findings} == {(11, 11)}
    assert document.ended


def test_what_broken_off_plays_left_is_removed(run: Run) -> None:
    run.came = lambda trial, _: {"double"} if "late" in faults_of(trial) else set()
    found = run().findings[0]
    for name in ("000006", "000007", "logs"):
        (run.folder / name).mkdir()
    run(with_(run.saved[-1], findings=(with_(found, recording="000006"),)))
    assert {one.name for one in run.folder.iterdir()} >= {"000006", "logs"}
    assert not (run.folder / "000007").exists()


def test_what_was_found_before_it_was_stopped_is_played_again_when_it_goes_on(run: Run) -> None:
    def came(trial: Trial, time: int) -> set[str]:
        if trial.again:
            raise KeyboardInterrupt
        return {"double"} if "late" in faults_of(trial) else set()

    run.came = came
    with pytest.raises(KeyboardInterrupt):
        run()
    before = run.saved[-1]
    assert {one.plays for one in before.findings} == {1}
    run.came = lambda trial, _: {"double"} if "late" in faults_of(trial) else set()
    document = run(before)
    assert run.played["late"] == 10, "it is not tried again"
    assert {(one.broke, one.plays) for one in document.findings} == {(11, 11)}
    assert document.ended


def test_a_cluster_that_never_serves_is_lost_at_once(run: Run) -> None:
    run.came = lambda trial, _: {"lost"}
    with pytest.raises(ClusterError):
        run()
    assert len(run.plays) == 1


def test_plays_are_numbered_after_those_that_are_left(tmp_path: Path) -> None:
    for name in ("000005", "logs", "findings"):
        (tmp_path / name).mkdir()
    assert last_number(tmp_path) == 5
    assert last_number(tmp_path / "logs") == 0


@pytest.mark.parametrize(
    ("verdict", "more", "times"),
    [
        ("double-grant", {}, 10),
        ("double-grant", {"declared": True}, 4),
        ("lost-wakeup", {"known": ("a-page",)}, 4),
        ("hangs", {}, 10),
        ("hangs", {"known": ("a-page",)}, 1),
    ],
)
def test_news_is_played_more_often_than_what_was_known(
    verdict: str, more: dict[str, Any], times: int
) -> None:
    found = Finding((verdict,), "why", "free", (), False, 1, 1, "000001")
    repeats = Repeats(cast("Setting", None), set(), {"free"})
    both = repeats.wanted([with_(found, **more)])
    assert sum(map(len, both)) == times
    assert repeats.wanted([found]) == ([], [])


def test_strikes_of_two_scenarios_are_in_two_folders() -> None:
    """One that has ended says nothing of the other."""
    strikes = ["late@request:1"]
    two = (asked("redis-token", scenarios=[name], strikes=strikes) for name in ("free", "twice"))
    assert len({folder_of(what, Path("x"), None) for what in two}) == 2


def test_pairs_are_not_lost_where_single_faults_went_on_alone(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        explorer, "_state", lambda play: repr(play.trial)
    )  # no pair is like another
    deep = asked("redis-token", scenarios=["free"], depth=2)
    run.what = deep
    known = run(until_s=time.monotonic() - 1)
    run.what = asked("redis-token", scenarios=["free"])
    known = run(known)
    assert not known.ended
    run.what = deep
    known = run(known)
    assert known.ended
    assert known.pairs == sum(tried.pair for tried in known.tried) > 0


def test_what_a_replay_shows_anew_is_a_finding_of_its_own(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first play shows what is declared, and those that count it something else."""

    def as_declared(*about: Any, **how: Any) -> Shown | Undecided | None:
        shown = judged(*about, **how)
        if isinstance(shown, Shown):
            return replace(shown, declared="double-grant" not in shown.verdicts)
        return shown

    for module in (explorer, findings):
        monkeypatch.setattr(module, "judged", as_declared)

    def came(trial: Trial, _: int) -> set[str]:
        if "very-late" not in faults_of(trial):
            return set()
        return {"double"} if trial.again else {"late"}

    run.came = came
    document = run()
    declared, news = document.findings
    assert (declared.verdicts, declared.declared, declared.broke) == ((LATE_GRANT,), True, 1)
    assert (news.declared, news.broke, news.plays) == (False, 11, 11)
    assert "double-grant" in news.verdicts
    assert (run.folder / "cluster-0" / news.recording).is_dir()
    assert ending(document) is Ending.SAFETY


def test_a_scenario_that_did_not_work_stays_where_another_is_asked_for(run: Run) -> None:
    run.what = asked("redis-token", scenarios=["free", "refused"])
    run.came = lambda trial, _: {"unable"} if trial.scenario == "refused" else set()
    known = run()
    assert ending(known) is Ending.INCONCLUSIVE
    run.what = asked("redis-token", scenarios=["free"])
    known = run(known)
    assert {one.name: one.worked for one in known.scenarios} == {"free": True, "refused": False}
    assert ending(known) is Ending.INCONCLUSIVE
    run.what = asked("redis-token", scenarios=["refused"])
    run.came = lambda trial, _: set()
    assert ending(run(known)) is Ending.OK


def test_a_lost_wake_up_counts_beside_a_verdict_that_is_unknown(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def undecided(*about: Any, timed: bool = True) -> Shown | Undecided | None:
        shown = judged(*about, timed=timed)
        return shown if timed or shown is not None else Undecided("leaked-lock: who knows")

    for module in (explorer, findings):
        monkeypatch.setattr(module, "judged", undecided)
    run.came = lambda trial, _: {"waits"} if "late" in faults_of(trial) else set()
    document = run()
    assert outcomes(document)["late"] == "broke"
    assert {one.verdicts for one in document.findings} == {(LOST_WAKEUP,)}


def test_what_was_not_reached_is_tried_again_whatever_it_showed(run: Run) -> None:
    run.came = lambda trial, _: (
        {"missed", "double"} if "late" in faults_of(trial) and not trial.again else set()
    )
    known = run()
    assert outcomes(known)["late"] == "not reached"
    (mapped,) = map_of(known).scenarios
    assert mapped.tried["late"][0] == MISSED
    run.came = lambda trial, _: set()
    known = run(known)
    assert outcomes(known)["late"] == "kept"
    assert len(known.findings) == 1


def test_pairs_that_are_to_come_are_not_like_others(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explorer, "_state", lambda play: repr(play.trial))
    run.what = asked("redis-token", scenarios=["free"], depth=2)

    def stopped(trial: Trial, _: int) -> set[str]:
        if trial.pair and len(run.plays[-1].played) % 40 == 0:
            raise KeyboardInterrupt
        return set()

    run.came = stopped
    with pytest.raises(KeyboardInterrupt):
        run()
    line = summary(map_of(run.saved[-1]))[0]
    assert "like others or to come" in line
    run.came = lambda trial, _: set()
    assert "0 like others)" in summary(map_of(run(run.saved[-1])))[0]


def test_a_finding_that_shows_beside_a_known_one_is_played_as_often_as_any() -> None:
    strikes = (StrikeAt(EventPlace("request", 3, 1, size=SIZE), "late"),)
    hang = Finding(("hangs",), "", "free", strikes, False, 1, 1, "000001", ("a-page",))
    news = Finding(("double-grant",), "", "free", strikes, False, 1, 1, "000002")
    repeats = Repeats(cast("Setting", None), set(), {"free"})
    assert sum(map(len, repeats.wanted([hang, news]))) == sum(REPEATS)
