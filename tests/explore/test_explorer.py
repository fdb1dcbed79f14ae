"""What is tried at which events, what counts as the same finding, and a lock that is explored."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace as with_

from lockbench.bench.plan import cluster_plan_of, make_case, topology_of
from lockbench.clusters.base import Cluster
from lockbench.clusters.registry import topologies
from lockbench.evidence import explored as maps
from lockbench.evidence import track
from lockbench.evidence.sides import Instead, parse
from lockbench.explore import command, page, plays
from lockbench.explore.asked import Asked, asked, begun
from lockbench.explore.command import (
    DOCUMENT,
    beforehand,
    ending,
    every_lock,
    explore_each,
    explore_into,
    folder_name,
    folder_of,
    is_complete,
    left_s,
)
from lockbench.explore.explorer import explore
from lockbench.explore.faults import FAULTS, fitting
from lockbench.explore.findings import alike, on_record
from lockbench.explore.judge import RAISES, Shown
from lockbench.explore.link import FITTING
from lockbench.explore.mapped import map_of
from lockbench.explore.plays import next_sharing
from lockbench.explore.servers import APART, addresses, independent, interchangeable
from lockbench.explore.several import at_once
from lockbench.explore.trial import Place, Played, Setting, Strike, Trial, at_event, event_of
from lockbench.explore.trials import named, pairs_of, polls, servers_of, singles, standing
from lockbench.locks.registry import find, systems
from lockbench.report import messages
from lockbench.results.documents import CURRENT, read, text_of
from lockbench.results.documents.exploration import (
    EventPlace,
    Exploration,
    ExploredScenario,
    Finding,
    StrikeAt,
    Tried,
)
from lockbench.results.errors import BadInput, Ending, Unfit
from lockbench.results.store import SLUG_CHARS_MAX
from tests.explore.planted import PLANTED, spec

HERE = Instead(parse(CURRENT), {})
SHOWN = Shown(("double-grant",), "both held it", declared=False)
KNOWN = Exploration(lock="x", topology="redis", seed=0, depth=1, lease_s=2.0)


def finding(kind: str = "request", number: int = 1, *, declared: bool = False) -> Finding:
    place = EventPlace(kind, number, 1)  # type: ignore[arg-type]
    return Finding(
        ("double-grant",), "both", "free", (StrikeAt(place, "late"),), declared, 3, 11, "000001"
    )


def test_every_fault_strikes_as_a_link_can() -> None:
    for fault in FAULTS.values():
        for kind in fault.fits:
            assert fault.strike in FITTING[kind], fault.name
    assert {fault.name for kind in FITTING for fault in fitting(kind)} == set(FAULTS)


class Nodes:
    """A cluster of so many, to which nothing can be done."""

    def __init__(self, count: int) -> None:
        self.nodes = range(1, count + 1)


class Both(Nodes):
    """Five nodes, and three of another system."""

    def __init__(self) -> None:
        super().__init__(8)
        self.quorums = [range(1, 6), range(6, 9)]


def struck_places(nodes: Sequence[int], cluster: int) -> list[list[int]]:
    """The numbers of the events that are lost, alone or together, of requests to these nodes, which
    know nothing of each other."""
    return lost_in(nodes, Nodes(cluster), Nodes(cluster).nodes)


def lost_in(nodes: Sequence[int], cluster: Nodes, independent: Sequence[int]) -> list[list[int]]:
    events = tuple(EventPlace("request", n, node) for n, node in enumerate(nodes, 1))
    about = ExploredScenario("free", "", events)
    trials = singles(about, cast("Cluster", cluster), independent)
    lost = [trial for trial in trials if trial.strikes[0].fault == "request-lost"]
    return [[strike.place.number for strike in trial.strikes] for trial in lost]


def test_of_a_round_of_requests_the_first_the_deciding_one_and_a_majority_are_struck() -> None:
    assert struck_places((1, 2, 3), 3) == [[1], [2], [1, 2]]
    assert struck_places((1, 2, 3, 4, 5), 5) == [[1], [3], [1, 2, 3]]
    twice = struck_places((1, 2, 3, 1, 2, 3), 3)
    assert twice == [[1], [2], [4], [5], [1, 2], [4, 5]]


def test_of_nodes_that_know_of_each_other_each_event_is_struck_and_none_together() -> None:
    """What a client asks one of them is not what it asks another."""
    assert lost_in((1, 2, 3, 1, 2, 3), Nodes(3), ()) == [[n] for n in range(1, 7)]


def test_of_two_systems_one_is_asked_as_a_whole() -> None:
    assert lost_in(range(1, 9), Both(), range(1, 6)) == [[1], [3], [6], [7], [8], [1, 2, 3]]


class Elects(Both):
    """Both, of which a leader is elected, and whose servers can be frozen."""

    def leader(self) -> int | None:
        return 1

    def pause(self, nodes: Sequence[int]) -> None: ...
    def unpause(self, nodes: Sequence[int]) -> None: ...
    def frozen(self, node: int) -> bool:
        return False


def test_a_majority_of_servers_is_struck_where_one_alone_is_asked() -> None:
    events = tuple(EventPlace("request", n, node) for n, node in enumerate((1, 6, 7, 8, 2), 1))
    about = ExploredScenario("free", "", events)
    trials = [*singles(about, cast("Cluster", Elects()), ())]
    struck = {
        fault: [t.strikes[0].place.number for t in trials if t.strikes[0].fault == fault]
        for fault in ("majority-frozen", "server-frozen")
    }
    assert struck == {"majority-frozen": [1, 2, 3, 4, 5], "server-frozen": [1, 2, 3, 4, 5]}


def test_nothing_is_tried_behind_a_majority() -> None:
    after = first(1, "a", 2)
    struck = StrikeAt(EventPlace("request", 1, 1), "majority-frozen")
    assert seconds(with_(after, strikes=(struck,))) == []
    assert seconds(after) == [2]


def first(number: int, state: str | None, *then: int, outcome: str = "kept") -> Tried:
    """A request that was late, and the requests that came after it."""
    strikes = (StrikeAt(EventPlace("request", number, 1), "late"),)
    after = tuple(EventPlace("request", n, 1) for n in then)
    return Tried("free", strikes, outcome, state=state, then=after)  # type: ignore[arg-type]


def seconds(*tried: Tried, pruned: bool = True) -> list[int]:
    """The requests whose loss is tried as the second fault."""
    known = with_(KNOWN, scenarios=(ExploredScenario("free", "", state="usual"),), tried=tried)
    chosen, _ = pairs_of(known, cast("Cluster", Nodes(1)), pruned=pruned)
    lost = [trial.strikes[1] for trial in chosen if trial.strikes[1].fault == "request-lost"]
    return [strike.place.number for strike in lost]


def test_pairs_that_are_like_others_are_left_out() -> None:
    assert seconds(first(1, "usual", 2, 3)) == [], "each was tried alone"
    assert seconds(first(1, "a", 2, 3), first(2, "a", 2, 3)) == [2, 3]
    assert seconds(first(1, "a", 2, 3), first(2, "a", 2, 3), pruned=False) == [2, 3, 2, 3]
    assert seconds(first(1, None, 2), first(2, None, 2)) == [2, 2]


def test_a_pair_is_left_out_only_if_the_other_was_tried() -> None:
    broke = first(1, "a", 2, 3, outcome="broke")
    assert seconds(broke, first(2, "a", 2, 3)) == [2, 3], "nothing is tried behind what broke"
    assert seconds(first(1, "a", 3), first(2, "a", 2, 3)) == [3, 2], "nor before its place"


def asked_in_turn(kind: Any, sizes: Sequence[int], nodes: int = 1) -> list[Place]:
    """Messages of these sizes to each of so many nodes."""
    each = [(node, size) for size in sizes for node in range(1, nodes + 1)]
    return [Place(kind, n, node, n / 10, size) for n, (node, size) in enumerate(each, 1)]


@pytest.mark.parametrize(
    ("sizes", "nodes", "left_out"),
    [
        ((90, 30, 30, 30, 30, 30, 30, 50), 1, {4, 5}),  # the first and the last two are struck
        ((90, 30, 30, 30, 30, 50), 1, set()),  # nothing lies between them
        ((30, 30, 31, 30, 30, 30, 30), 1, set()),
        ((30, 30, 30, 30, 30), 3, {7, 8, 9}),
        ((30, 30, 30, 30, 30, 50, 30, 30, 30, 30, 30), 1, {3, 9}),
        ((30, 70) * 6, 1, {5, 6, 7, 8}),  # a poll of two messages
        ((30, 70) * 5 + (30,), 1, {5, 6, 7}),
        ((30, 70) * 4, 1, set()),
        ((30, 70, 40) * 5, 1, {7, 8, 9}),
        ((30, 70, 40, 90) * 5, 1, set()),  # one of four is not looked for
    ],
)
def test_of_polls_that_are_alike_the_first_and_the_last_are_struck(
    sizes: tuple[int, ...], nodes: int, left_out: set[int]
) -> None:
    for kind in ("request", "reply"):
        found = polls(asked_in_turn(kind, sizes, nodes))
        assert {place.number for place in found} == left_out
    assert polls(asked_in_turn("connect", sizes, nodes)) == set()


def test_each_node_may_be_polled_in_its_own_way() -> None:
    """A client of several nodes asks all of them, and takes back what only some have granted."""
    sizes = [(1, 72), (2, 72), (2, 104)] * 6
    places = [Place("request", n, node, n / 10, size) for n, (node, size) in enumerate(sizes, 1)]
    found = polls(places)
    assert {place.number for place in found if place.node == 1} == {7, 10}
    assert {place.number for place in found if place.node == 2} == {8, 9, 11, 12}


def test_polls_of_requests_and_of_replies_are_told_apart() -> None:
    """Requests that are alike may be answered in another way."""
    requests, replies = (30,) * 5, (5, 5, 9, 5, 5)
    found = polls([*asked_in_turn("request", requests), *asked_in_turn("reply", replies)])
    assert {(place.kind, place.number) for place in found} == {("request", 3)}


def test_what_is_left_out_is_tried_with_no_fault_and_counted() -> None:
    events = tuple(map(event_of, asked_in_turn("request", (30,) * 6)))
    scenario = ExploredScenario("gives-up", "", events)
    struck = {t.strikes[0].place.number for t in singles(scenario, cast("Cluster", Nodes(1)), (1,))}
    assert struck == {1, 2, 5, 6}
    mapped = map_of(with_(KNOWN, scenarios=(scenario,)))
    assert mapped.polls == 2
    assert "6 events (2 of them of polls like others)" in messages.summary(mapped)[0]


def wiped(*nodes: int) -> Trial:
    strikes = (Strike(Place("request", n, node), "server-wiped") for n, node in enumerate(nodes))
    return Trial("free", tuple(strikes))


def test_servers_that_know_nothing_of_each_other_stand_for_one_another() -> None:
    trials = [wiped(2), wiped(5, 3, 4), wiped(1), wiped(3, 1, 2), wiped(5)]
    five = (1, 2, 3, 4, 5)
    for trial in trials:
        stands = standing(trial, five)
        assert sorted(stands) == sorted(stands.values()) == [*five], "each is there once"
        assert servers_of(trial, five) == [1, 2, 3][: len(trial.strikes)]


@pytest.mark.parametrize(
    ("fault", "apart", "at"),
    [("server-wiped", (1, 2, 3), 2), ("server-wiped", (), None), ("reply-lost", (1, 2, 3), None)],
)
def test_of_several_nodes_that_are_asked_at_once_one_is_meant(
    fault: str, apart: Sequence[int], at: int | None
) -> None:
    case = asked("redlock").case
    setting = Setting(case.lock, case.system, case.pace, (), (), interchangeable=apart)
    assert Strike(Place("reply", 4, 2), fault).order(setting).node == at


@pytest.mark.parametrize(
    ("sharing", "played", "apart", "busy", "then"),
    [
        (48, 48, 25, 0, 24),
        (48, 48, 24, 0, 48),
        (48, 20, 11, 0, 10),  # fewer were left
        (6, 6, 6, 0, 4),
        (4, 4, 4, 0, 4),
        (24, 24, 0, 90, 30),
        (24, 24, 1, 0, 24),
        (24, 10, 0, 0, 24),  # says nothing of more
        (48, 48, 0, 0, 48),
        (24, 24, 0, 99, 18),
        (24, 24, 13, 99, 12),
        (24, 12, 0, 99, 9),
        (4, 4, 0, 99, 4),
    ],
)
def test_fewer_share_a_strike_where_too_many_come_apart_or_the_machine_is_busy(
    sharing: int, played: int, apart: int, busy: float, then: int, tmp_path: Path
) -> None:
    unable = [APART] * apart + [""] * (played - apart)
    came = [Played(Trial("free"), tmp_path, "k", unable=why) for why in unable]
    assert next_sharing(sharing, 48, came, busy) == then


@pytest.mark.parametrize(
    ("busy", "spare_bytes", "at_once"),
    [(0.0, 0, 4), (90.0, 0, 2), (100.0, 0, 1), (0.0, 1 << 60, 2), (100.0, 1 << 60, 1)],
)
def test_more_play_at_once_while_the_processors_are_idle_and_the_memory_suffices(
    busy: float, spare_bytes: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plays, "LOOKS_S", 0.01)
    monkeypatch.setattr(plays, "LEAST", 1)
    monkeypatch.setattr(plays, "SLOTS", 2)
    room, there, most = plays.Room(4, spare_bytes, busy=lambda: busy), 0, 0
    changed = threading.Condition()

    def come() -> None:
        nonlocal there, most
        with room:
            with changed:
                there += 1
                most = max(most, there)
                changed.notify_all()
                assert changed.wait_for(lambda: most == at_once, 20)
            with changed:
                there -= 1

    with ThreadPoolExecutor(6) as pool:
        for one in [pool.submit(come) for _ in range(6)]:
            one.result()
    assert most == at_once


@pytest.mark.parametrize(
    ("lock", "memory_bytes", "at_once"),
    [
        ("redisson-rlock", 0, 4),
        ("redisson-rlock", 6 << 30, 10),  # of four clients each, 150 MiB a client
        ("redsync", 6 << 30, 27),
        ("redsync", 64 << 30, 48),
        ("redis-token", 0, 48),
    ],
)
def test_clients_that_keep_containers_are_as_many_as_the_memory_holds(
    lock: str, memory_bytes: int, at_once: int
) -> None:
    room = plays.room_of(asked(lock), memory_bytes)
    assert room.of_one == at_once
    assert room.sharing <= at_once <= room.most


def test_servers_of_which_one_leads_are_struck_themselves() -> None:
    assert standing(wiped(2), ()) == {}
    assert servers_of(wiped(2), ()) == [2]


class Linked(Nodes):
    """Also reached past its links."""

    def addresses(self, group: int) -> Sequence[tuple[str, int]]:
        return [("127.0.0.1", group)]

    def direct_addresses(self) -> Sequence[tuple[str, int]]:
        return [("172.17.0.2", 9)]


@pytest.mark.parametrize(
    ("topology", "direct"), [("redlock", True), ("zookeeper", True), ("redis-cluster", False)]
)
def test_clients_that_are_told_addresses_stay_on_the_links(topology: str, direct: bool) -> None:
    found = addresses(cast("Cluster", Linked(1)), topologies()[topology], 2)
    assert found == ([("172.17.0.2", 9)] if direct else [("127.0.0.1", 2)])


@pytest.mark.parametrize(
    ("topology", "apart"),
    [("redlock", True), ("etcd", False), ("sentinel", False), ("redis-cluster", False)],
)
def test_which_servers_know_nothing_of_each_other(topology: str, apart: bool) -> None:
    cluster = cast("Cluster", Nodes(5))
    found = interchangeable(cluster, topologies()[topology])
    assert [*found] == ([*cluster.nodes] if apart else [])


@pytest.mark.parametrize(
    ("topology", "nodes"), [("redlock", range(1, 6)), ("etcd", ()), ("sentinel", ())]
)
def test_which_servers_are_asked_the_same(topology: str, nodes: Sequence[int]) -> None:
    cluster = cast("Cluster", Nodes(5))
    assert [*independent(cluster, topologies()[topology])] == [*nodes]


def test_of_two_systems_the_servers_of_one_are_asked_the_same() -> None:
    case = make_case("hybrid-redlock-else-zookeeper", "none", seed=0)
    hybrid = topology_of(case)
    cluster = hybrid.make(cluster_plan_of(case, "plan", Path()))
    assert [*independent(cluster, hybrid)] == [1, 2, 3, 4, 5]


def test_who_speaks_to_one_node_is_struck_at_each_event() -> None:
    assert struck_places((1, 1, 1), 3) == [[1], [2], [3]]
    assert struck_places((1, 1, 1), 1) == [[1], [2], [3]]


def test_what_is_declared_is_the_same_at_another_event_of_the_kind() -> None:
    known = [finding("request", 3, declared=True)]
    shown = replace(SHOWN, declared=True)
    same = Trial("free", (Strike(Place("request", 5), "late"),))
    assert alike(known, same, shown) == 0
    for other in (
        Trial("twice", same.strikes),
        Trial("free", (Strike(Place("reply", 5), "late"),)),
        Trial("free", (Strike(Place("request", 5), "very-late"),)),
    ):
        assert alike(known, other, shown) is None


def test_what_is_not_declared_is_another_finding_at_another_event() -> None:
    known = [finding("request", 3)]
    assert alike(known, Trial("free", (Strike(Place("request", 3), "late"),)), SHOWN) == 0
    assert alike(known, Trial("free", (Strike(Place("request", 5), "late"),)), SHOWN) is None


def test_what_one_fault_of_a_pair_shows_alone_is_no_other_finding() -> None:
    known = [finding("request", 5)]
    first, second = Strike(Place("reply", 1), "reply-lost"), Strike(Place("request", 5), "late")
    assert alike(known, Trial("free", (first, second), pair=True), SHOWN) == 0
    other = Shown(("double-grant", "late-grant"), "", declared=False)
    assert alike(known, Trial("free", (first, second), pair=True), other) is None
    # After the first fault the same number may be another message.
    (at,) = known[0].strikes
    sized = [with_(known[0], strikes=(with_(at, place=with_(at.place, size=100)),))]
    for size, same in ((100, 0), (105, 0), (172, None)):
        message = Strike(Place("request", 5, size=size), "late")
        assert alike(sized, Trial("free", (first, message), pair=True), SHOWN) == same
    neither = Strike(Place("request", 5), "very-late")
    assert alike(known, Trial("free", (first, neither), pair=True), SHOWN) is None
    # At a majority of nodes it is one fault, and no other than itself.
    assert alike(known, Trial("free", (second, second)), SHOWN) is None


def test_what_is_not_declared_is_never_the_same_as_what_is() -> None:
    late = Trial("free", (Strike(Place("request", 3), "late"),))
    declared = finding("request", 3, declared=True)
    usual = with_(declared, strikes=())
    for known in (declared, usual):
        assert alike([known], late, replace(SHOWN, declared=True)) == 0
        assert alike([known], late, SHOWN) is None
    pair = replace(late, strikes=(*late.strikes, Strike(Place("reply", 3), "late")), pair=True)
    assert alike([declared], pair, SHOWN) is None
    assert alike([declared], pair, replace(SHOWN, declared=True)) == 0


def test_what_showed_where_a_fault_missed_hides_no_fault() -> None:
    missed = with_(finding("request", 3), strikes=())
    late = Trial("free", (Strike(Place("request", 3), "late"),))
    assert alike([missed], late, SHOWN) is None
    assert alike([missed], replace(late, strikes=()), SHOWN) == 0


def test_at_one_event_another_message_is_another_finding() -> None:
    known = finding("request", 3)
    (strike,) = known.strikes
    known = with_(known, strikes=(with_(strike, place=with_(strike.place, size=100)),))
    for size, same in ((100, 0), (105, 0), (0, 0), (172, None), (37, None)):
        trial = Trial("free", (Strike(Place("request", 3, size=size), "late"),))
        assert alike([known], trial, SHOWN) == same


def test_an_error_is_one_finding_of_a_script_wherever_it_is_raised() -> None:
    at = Trial("free", (Strike(Place("reply", 1), "reply-lost"),))
    found = {
        why: Shown((RAISES,), why, declared=False)
        for why in ("acquire: KeyError: 1", "release: KeyError: 2", "acquire: TypeError: 1")
    }
    first, same, other = found.values()
    known = [with_(finding("request", 3), verdicts=(RAISES,), why=first.why)]
    assert alike(known, at, same) == 0
    assert alike(known, replace(at, scenario="twice"), same) is None
    assert alike(known, at, other) is None
    assert alike(known, at, replace(same, verdicts=(RAISES, "leaked-lock"))) is None


def test_what_shows_without_a_fault_is_no_news_of_a_fault() -> None:
    usual = Finding(("false-release", "wrong-release"), "", "free", (), True, 6, 6, "000001")
    late = Trial("free", (Strike(Place("request", 5), "late"),))
    assert alike([usual], late, Shown(("wrong-release",), "", declared=True)) == 0
    assert alike([usual], late, SHOWN) is None, "another verdict is"
    assert alike([usual], replace(late, scenario="twice"), SHOWN) is None


def test_a_page_says_as_what_an_exploration_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    page = track.pages()[0]
    lock = page.locks[0]
    shown = Shown(("hangs",), "", declared=False)
    for explored, found in ((("hangs",), (page.id,)), (("raises",), ())):
        there = with_(page, explored=explored, fault="none", also=(), kind="defect")
        monkeypatch.setattr(track, "pages", lambda there=there: [there])
        assert on_record(["late"], "free", shown, lock) == found
        assert on_record(["late"], "free", shown, "another") == ()


def test_a_page_names_the_scenarios_that_are_about_it(monkeypatch: pytest.MonkeyPatch) -> None:
    page = with_(
        track.pages()[0],
        explored=("hangs",),
        scenarios=("extended",),
        fault="none",
        also=(),
        kind="defect",
    )
    monkeypatch.setattr(track, "pages", lambda: [page])
    shown = Shown(("hangs",), "", declared=False)
    assert on_record(["late"], "extended", shown, page.locks[0]) == (page.id,)
    assert on_record(["late"], "free", shown, page.locks[0]) == ()


@pytest.mark.parametrize(
    ("verdicts", "why", "known"),
    [
        ((RAISES,), "acquire: KeyError: 'lease'", True),
        ((RAISES,), "ExecutionException: a.b.KeyError: 1", True),
        ((RAISES,), "acquire: TypeError: 1", False),
        ((RAISES,), "acquire: KeyErrors: 1", False),
        (("hangs",), "acquire had not ended; KeyError", False),
    ],
)
def test_a_page_on_an_error_is_about_its_class_alone(
    monkeypatch: pytest.MonkeyPatch, verdicts: tuple[str, ...], why: str, known: bool
) -> None:
    page = track.pages()[0]
    there = with_(
        page, explored=(RAISES,), raised=("KeyError",), fault="none", also=(), kind="cost"
    )
    monkeypatch.setattr(track, "pages", lambda: [there])
    shown = Shown(verdicts, why, declared=False)
    assert on_record(["late"], "free", shown, page.locks[0]) == ((page.id,) if known else ())


def test_how_long_it_will_take_is_said_beforehand(tmp_path: Path) -> None:
    every = [asked(name) for name in every_lock()]
    assert len(every) == len(systems()) > 60
    said = beforehand(every, tmp_path)
    assert said.startswith(f"{len(every)} locks, {at_once()} at once, about ")


def kept_in(folder: Path, what: Asked, **more: object) -> None:
    """Two of four single faults were tried, in 100 s."""
    scenarios = tuple(ExploredScenario(one.name, one.summary) for one in what.scenarios)
    tried = tuple(
        Tried("free", (StrikeAt(EventPlace("request", n, 1), "late"),), "kept") for n in (1, 2)
    )
    document = with_(begun(what), scenarios=scenarios, tried=tried, planned=4, took_s=100.0, **more)
    folder_of(what, folder, None).mkdir()
    (folder_of(what, folder, None) / DOCUMENT).write_text(text_of(document), encoding="utf-8")


def test_what_is_done_takes_no_time_and_what_was_begun_takes_its_rest(tmp_path: Path) -> None:
    half, done, new = asked("redis-token"), asked("etcd"), asked("zookeeper")
    kept_in(tmp_path, half)
    kept_in(tmp_path, done, ended=True)
    assert [left_s(what, tmp_path) for what in (half, done)] == [100.0, 0.0]
    assert left_s(asked("etcd", depth=2), tmp_path) > 0
    every = beforehand([half, done, new], tmp_path)
    assert every.startswith(f"3 locks, 1 of them done, {at_once()} at once, about ")


@pytest.mark.parametrize(("locks", "hours"), [(12, "0.3"), (2, "0.1")])
def test_several_at_once_take_their_share_and_no_less_than_the_longest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locks: int, hours: str
) -> None:
    monkeypatch.setattr(command, "at_once", lambda: 3)
    monkeypatch.setattr(command, "USUAL_S", 300.0)
    monkeypatch.setattr(maps, "load", dict)
    said = beforehand([asked("redis-token")] * locks, tmp_path)
    assert f"about {hours} hours" in said, "12 x 300 s / 3, and 300 s"


def test_the_longest_of_several_begins_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    takes_s = {"redis-token": 20.0, "etcd": 10.0, "zookeeper": 30.0}
    begun: list[str] = []

    def explored(commands: Mapping[str, object], _: object) -> dict[str, int]:
        begun.extend(commands)
        return dict.fromkeys(commands, 0)

    monkeypatch.setattr(command, "explore_several", explored)
    monkeypatch.setattr(command, "reap", lambda: None)
    monkeypatch.setattr(command, "left_s", lambda what, *_: takes_s[what.case.lock])
    explore_each({lock: asked(lock) for lock in takes_s}, tmp_path, (), lambda _: None)
    assert begun == ["zookeeper", "redis-token", "etcd"]


@pytest.mark.parametrize(
    "more",
    [
        {"ended": False},
        {"tried": "not reached"},
        {"tried": "could not run"},
        {"works": False},
        {"depth": 2},
        {"part": True},
    ],
    ids=str,
)
def test_what_is_not_whole_is_gone_on_with(more: dict[str, object]) -> None:
    what = asked("redis-token")
    scenarios = [ExploredScenario(one.name, one.summary) for one in what.scenarios]
    place = (StrikeAt(EventPlace("request", 1, 1), "late"),)
    whole = with_(
        begun(what), scenarios=tuple(scenarios), tried=(Tried("free", place, "kept"),), ended=True
    )
    assert is_complete(whole, what)
    if more.get("depth"):
        what = replace(what, depth=2)
    if more.get("works") is False:
        scenarios[0] = with_(scenarios[0], worked=False)
    tried = Tried("free", place, more.get("tried", "kept"))  # type: ignore[arg-type]
    part = with_(
        whole,
        scenarios=tuple(scenarios[1:] if more.get("part") else scenarios),
        tried=(tried,),
        ended=more.get("ended", True),
    )
    assert not is_complete(part, what)


def test_a_strike_is_asked_for_by_name() -> None:
    words = ["reply-lost@reply:2", "late@request:3"]
    what = asked("redis-token", scenarios=["free"], strikes=words)
    assert [str(at_event(strike)) for strike in what.strikes] == words


def test_servers_are_struck_once() -> None:
    """By one strike, that may be at several of them."""
    frozen = ["server-frozen@request:1", "server-frozen@request:2"]
    what = asked("redis-token", scenarios=["free"], strikes=frozen)
    at_nodes = [EventPlace("request", n, n) for n in (1, 2)]
    trial = named(ExploredScenario("free", "", tuple(at_nodes)), what.strikes)
    assert [strike.place.node for strike in trial.strikes] == [1, 2]
    at_one = tuple(with_(place, node=1) for place in at_nodes)
    with pytest.raises(BadInput, match="at the same server"):
        named(ExploredScenario("free", "", at_one), what.strikes)
    with pytest.raises(BadInput, match="server-frozen and server-killed"):
        asked("redis-token", scenarios=["free"], strikes=[frozen[0], "server-killed@request:3"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("reply-losst@reply:2", "reply-losst"),
        ("reply-lost@request:2", "it fits reply"),
        ("reply-lost@reply:0", "reply-lost@reply:2"),
        ("reply-lost@reply", "reply-lost@reply:2"),
        ("reply-lost", "reply-lost@reply:2"),
    ],
)
def test_a_strike_that_cannot_be_is_refused(words: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        asked("redis-token", scenarios=["free"], strikes=[words])


def test_a_strike_needs_one_scenario_and_a_scenario_its_kind_of_lock() -> None:
    for scenarios in ([], ["free", "twice"]):
        with pytest.raises(BadInput, match="--scenario"):
            asked("redis-token", scenarios=scenarios, strikes=["late@request:1"])
    with pytest.raises(Unfit, match="read"):
        asked("redis-token", scenarios=["read"])


def test_a_name_that_does_not_exist_and_what_is_no_lock_are_refused() -> None:
    with pytest.raises(BadInput, match="fre"):
        asked("redis-token", scenarios=["fre"])
    with pytest.raises(Unfit):
        asked("without-actor")
    with pytest.raises(BadInput):
        asked("reddis-token")


@pytest.mark.parametrize(("clients", "rivals"), [(2, 1), (3, 2)])
def test_so_many_clients_want_the_key_at_once(clients: int, rivals: int) -> None:
    case = asked("redis-token", clients=clients).case
    setting = Setting(case.lock, case.system, case.pace, (), (), clients=clients)
    assert setting.rivals_and_helper == rivals + 1
    permits = replace(setting, system=find("zookeeper-semaphore"))
    assert permits.rivals_and_helper == rivals + permits.permits, "there is no room for one of them"


def test_other_numbers_of_clients_are_refused_and_no_part_of_the_same_exploration(
    tmp_path: Path,
) -> None:
    for clients in (1, 4):
        with pytest.raises(BadInput, match="--clients"):
            asked("redis-token", clients=clients)
    few, usual = asked("redis-token", clients=2), asked("redis-token")
    (folder := folder_of(few, tmp_path, None)).mkdir()
    (folder / DOCUMENT).write_text(text_of(begun(few)))
    with pytest.raises(BadInput, match="another exploration"):
        explore_into(usual, tmp_path, HERE, lambda _: None)
    (folder_of(usual, tmp_path, None) / DOCUMENT).write_text(text_of(begun(usual)))
    with pytest.raises(BadInput, match="another exploration"):
        explore_into(few, tmp_path, HERE, lambda _: None)


def test_pairs_are_no_part_of_what_tried_each_fault_alone(tmp_path: Path) -> None:
    """What came after each fault was not kept."""
    alone, pairs = asked("redis-token"), asked("redis-token", depth=2)
    (folder := folder_of(alone, tmp_path, None)).mkdir()
    (folder / DOCUMENT).write_text(text_of(begun(alone)))
    with pytest.raises(BadInput, match="is of depth 1; begin again with --anew"):
        explore_into(pairs, tmp_path, HERE, lambda _: None)


@pytest.mark.parametrize(("lock", "unjudged"), [("redsync", True), ("redis-token", False)])
def test_a_library_whose_errors_are_not_declared_is_not_acquitted_of_them(
    lock: str, unjudged: bool
) -> None:
    document = begun(asked(lock))
    assert (document.unjudged == (RAISES,)) == unjudged
    said = "\n".join(messages.summary(map_of(document)))
    assert ("not judged: raises" in said) == unjudged


def test_only_a_map_of_all_clients_is_whole() -> None:
    for clients, whole in ((3, True), (2, False)):
        what = asked("redis-token", clients=clients)
        scenarios = tuple(ExploredScenario(one.name, one.summary) for one in what.scenarios)
        assert map_of(with_(begun(what), scenarios=scenarios)).whole is whole


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ({"ended": True, "tried": "kept"}, Ending.OK),
        ({"ended": False, "tried": "kept"}, Ending.INCONCLUSIVE),
        ({"ended": True, "tried": "not reached"}, Ending.INCONCLUSIVE),
        ({"ended": True, "tried": "could not run"}, Ending.INCONCLUSIVE),
        ({"ended": True}, Ending.INCONCLUSIVE),
        ({"ended": True, "tried": "kept", "finding": False}, Ending.SAFETY),
        ({"ended": True, "tried": "kept", "finding": True}, Ending.OK),
        ({"ended": True, "tried": "kept", "works": False}, Ending.INCONCLUSIVE),
    ],
)
def test_what_was_not_tried_is_never_green(made: dict[str, object], expected: Ending) -> None:
    strikes = (StrikeAt(EventPlace("request", 1, 1), "late"),)
    tried = (Tried("free", strikes, made["tried"]),) if "tried" in made else ()  # type: ignore[arg-type]
    found = (finding(declared=made["finding"] is True),) if "finding" in made else ()
    scenario = ExploredScenario("free", "a free key", worked=made.get("works", True) is True)
    document = Exploration(
        lock="x",
        topology="redis",
        seed=0,
        depth=1,
        lease_s=2.0,
        scenarios=(scenario,),
        tried=tried,
        findings=found,
        ended=made["ended"] is True,
    )
    assert ending(document) == expected


@pytest.mark.docker
def test_a_wrong_step_is_found_and_shown(tmp_path: Path) -> None:
    document = explored("wrong-token-per-hold", tmp_path, "twice")
    found = {verdict for one in document.findings for verdict in one.verdicts}
    assert found & set(PLANTED["wrong-token-per-hold"].found), messages.summary(map_of(document))
    assert outcomes(document) >= {"kept", "broke"}
    (tmp_path / "exploration.json").write_text(text_of(document), encoding="utf-8")
    assert read(tmp_path / "exploration.json", Exploration, inside=tmp_path) == document
    html = page.write(tmp_path, document).read_text(encoding="utf-8")
    assert "not declared" in html
    assert html.count('id="redis-finding-') == len(document.findings)


@pytest.mark.docker
def test_its_right_neighbour_is_not_accused(tmp_path: Path) -> None:
    document = explored("right-token-per-hold", tmp_path, "twice")
    assert [messages.sentence(one) for one in document.findings if not one.declared] == []
    # A server that forgets, and nothing else, breaks it.
    broke = {s.fault for t in document.tried if t.outcome == "broke" for s in t.strikes}
    assert broke <= {"server-wiped", "clock-jumped"}
    assert "kept" in outcomes(document)


def outcomes(document: Exploration) -> set[str]:
    """Of what was tried; on a busy machine a few may not have come to their event."""
    found = [one.outcome for one in document.tried]
    assert sum(one not in {"kept", "broke"} for one in found) <= len(found) // 20, found
    return {*found}


def explored(name: str, folder: Path, *scenarios: str) -> Exploration:
    (folder / "logs").mkdir()
    last = KNOWN

    def saved(known: Exploration) -> None:
        nonlocal last
        last = known

    what = asked(spec(name), scenarios=scenarios)
    explore(
        what, begun(what), folder, run_id=uuid.uuid4().hex[:12], told=lambda _: None, saved=saved
    )
    assert last.ended
    return last


def test_names_that_are_too_long_for_a_folder_stay_apart() -> None:
    long = "redsync-safe-redlock-go:github.com/go-redsync/redsync/v4@v4.12."
    assert folder_name(f"{long}0") != folder_name(f"{long}1")
    assert len(folder_name(f"{long}0")) == len(folder_name(f"{long}1")) == SLUG_CHARS_MAX
    assert folder_name("etcd-etcd") == "etcd-etcd"
