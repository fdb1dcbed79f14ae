"""What a play shows: what every lock owes is held against the service's own record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as evolved

from lockbench.checker.verdict import Report, Verdict
from lockbench.evidence import track
from lockbench.explore import judge as judge_module
from lockbench.explore.findings import alike, counted, finding_of, on_record
from lockbench.explore.judge import (
    DENIED_YET_TAKEN,
    HANGS,
    LOST_WAKEUP,
    PROMISED_TOO_LONG,
    RAISES,
    RELEASED_YET_KEPT,
    Shown,
    Undecided,
    judged,
    waits_too_long,
)
from lockbench.explore.link import Kind
from lockbench.explore.servers import JUMPS
from lockbench.explore.trial import Place, Played, Setting, Strike, Trial
from lockbench.history.op import NULL, F, Fault, Object, Type
from lockbench.history.recorder import PROCESSES_PER_WORKER, Recorder
from lockbench.history.recording import write_faults, write_meta
from lockbench.history.service import How, Service, Tenure, write_service
from lockbench.locks.registry import find
from lockbench.workloads.load import Pace

NS = 1_000_000_000
HOLD = 7


def played(folder: Path, fault: str = "request-lost", kind: Kind = "request") -> Played:
    return Played(Trial("free", (Strike(Place(kind, 1), fault),)), folder, "k")


def judge(folder: Path, *, lock: str = "redis-token", **more: Any) -> Shown | None:
    play = played(folder)
    for name, value in more.items():
        setattr(play, name, value)
    found = judged(play, find(lock))
    assert not isinstance(found, Undecided)
    return found


def recorded(folder: Path, *calls: tuple[F, Type, str | None], until_ns: int | None = None) -> None:
    aimed = Object(kind="mutex", role="aimed", lease_ns=2 * NS, slack_ns=NS)
    write_meta(folder, {"k": aimed}, wall_minus_monotonic_ns=0)
    recorder = Recorder(folder, 0)
    for at, (f, ended, error) in enumerate(calls, 1):
        handle = recorder.invoke(0, f, "k", hold=HOLD, invoke_ns=at * NS)
        end_ns = at * NS + NS // 2
        recorder.complete(
            handle, ended, error=error, complete_ns=end_ns, valid_until_ns=until_ns or NULL
        )
    recorder.close()
    write_faults(folder, [])


def record(folder: Path, how: How | None, *, servers: int = 1, quorum: int = 1) -> None:
    tenures = [
        Tenure(f"s{n}", "k", HOLD, 1, 1, None if how in {None, "lost"} else 2, how, None)
        for n in range(servers)
    ]
    write_service(folder, Service("a record", quorum, None, tuple(tenures)))


def test_a_play_in_which_all_went_well_shows_nothing(tmp_path: Path) -> None:
    recorded(tmp_path, (F.ACQUIRE, Type.OK, None), (F.RELEASE, Type.OK, None))
    record(tmp_path, "deleted")
    assert judge(tmp_path) is None


@pytest.mark.parametrize(
    ("how", "servers", "quorum", "found"),
    [
        (None, 1, 1, True),
        ("replaced", 1, 1, True),
        ("deleted", 1, 1, False),
        ("session", 1, 1, False),
        ("lost", 1, 1, False),
        (None, 3, 3, True),
        (None, 2, 3, False),
    ],
)
def test_a_refused_hold_that_the_service_kept(
    tmp_path: Path, how: How | None, servers: int, quorum: int, found: bool
) -> None:
    recorded(tmp_path, (F.ACQUIRE, Type.FAIL, "held"))
    record(tmp_path, how, servers=servers, quorum=quorum)
    shown = judge(tmp_path)
    assert (shown is not None) == found
    if shown is not None:
        assert shown.verdicts == (DENIED_YET_TAKEN,)
        assert not shown.declared


def test_an_unknown_outcome_says_nothing_that_could_be_wrong(tmp_path: Path) -> None:
    recorded(tmp_path, (F.ACQUIRE, Type.INFO, "timed out"))
    record(tmp_path, None)
    assert judge(tmp_path) is None


def test_a_release_that_was_confirmed_and_did_not_happen(tmp_path: Path) -> None:
    recorded(tmp_path, (F.ACQUIRE, Type.OK, None), (F.RELEASE, Type.OK, None))
    record(tmp_path, None)
    shown = judge(tmp_path)
    assert shown is not None
    assert shown.verdicts == (RELEASED_YET_KEPT,)


@pytest.mark.parametrize(
    ("lock", "noted_s", "servers", "fault", "found"),
    [
        ("redis-token", (3.0, 3.1), 1, None, True),
        ("redis-token", (3.0, 3.6), 1, None, False),  # a busy machine, or a clock that is slewed
        ("redis-py", (3.0, 3.1), 1, None, False),  # reckoned by the adapter
        ("redlock", (3.0, 3.1), 2, None, False),  # a third may have noted more
        ("redlock", (3.0, 3.1), 3, None, True),
        ("redis-token", (3.0, 3.1), 1, "clock-jumped", False),
        ("redis-token", (3.0, 3.1), 1, "client-frozen", True),
    ],
)
def test_a_promise_that_is_longer_than_the_service_noted(
    tmp_path: Path,
    lock: str,
    noted_s: tuple[float, float],
    servers: int,
    fault: str | None,
    found: bool,
) -> None:
    """Promised until 4 s, of a lease of 2 s."""
    recorded(tmp_path, (F.ACQUIRE, Type.OK, None), until_ns=4 * NS)
    struck = [] if fault is None else [Fault(fault, ("node 1",), (NS, NS), (2 * NS, 2 * NS))]
    write_faults(tmp_path, struck)
    until_ns = (int(noted_s[0] * NS), int(noted_s[1] * NS))
    tenures = [Tenure(f"s{n}", "k", HOLD, 1, 1, 2, "deleted", until_ns) for n in range(servers)]
    quorum = 3 if lock == "redlock" else 1
    write_service(tmp_path, Service("a record", quorum, None, tuple(tenures)))
    play = played(tmp_path, fault or "client-frozen")
    shown = judged(play, find(lock))
    assert (isinstance(shown, Shown) and PROMISED_TOO_LONG in shown.verdicts) is found


def test_what_follows_from_a_promise_that_is_too_long_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(tmp_path, (F.ACQUIRE, Type.OK, None), until_ns=4 * NS)
    tenure = Tenure("s1", "k", HOLD, 1, 1, 2, "deleted", (3 * NS, 3 * NS))
    write_service(tmp_path, Service("a record", 1, None, (tenure,)))
    for verdict, told in (("double-grant", True), ("false-release", False)):
        verdicts(monkeypatch, contradicted=verdict, **{verdict: "invalid"})
        shown = judge(tmp_path)
        assert shown is not None
        assert shown.verdicts == (PROMISED_TOO_LONG, *([verdict] if told else []))


@pytest.mark.parametrize(
    ("f", "ended", "verdict"),
    [
        (F.ACQUIRE, Type.FAIL, DENIED_YET_TAKEN),
        (F.RELEASE, Type.OK, RELEASED_YET_KEPT),
    ],
)
@pytest.mark.parametrize(
    ("until_s", "fault", "found"),
    [
        (2.1, "server-frozen", True),
        (1.9, "server-frozen", False),
        (1.4, "server-frozen", False),
        (2.1, "clock-jumped", False),
    ],
)
def test_an_entry_that_ended_by_itself_was_kept_until_then(
    tmp_path: Path, f: F, ended: Type, verdict: str, until_s: float, fault: str, found: bool
) -> None:
    """Told at 1.5 s, of a lease of 2 s. Who is told after the end, or at it, was told the truth.
    A clock that jumped ended it before."""
    recorded(tmp_path, (f, ended, None))
    write_faults(tmp_path, [Fault(fault, ("node 1",), (NS, NS), (2 * NS, 2 * NS))])
    until_ns = (int(until_s * NS), int(until_s * NS) + 1)
    tenure = Tenure("s1", "k", HOLD, 1, 1, 2, "expired", until_ns)
    write_service(tmp_path, Service("a record", 1, None, (tenure,)))
    shown = judge(tmp_path)
    assert (shown is not None and verdict in shown.verdicts) is found


@pytest.mark.parametrize(
    ("first", "until_s", "found"),
    [
        ("deleted", 4.1, False),  # made at 2.1 s, by a request that came late
        ("deleted", 3.4, True),  # made at 1.4 s: of a second try, which the release did not delete
        ("expired", 4.1, True),
    ],
)
def test_an_entry_that_a_late_request_made_is_not_what_the_release_kept(
    tmp_path: Path, first: How, until_s: float, found: bool
) -> None:
    """Its release was asked for at 2 s; the lease is 2 s."""
    recorded(tmp_path, (F.ACQUIRE, Type.OK, None), (F.RELEASE, Type.OK, None))
    until_ns = (int(until_s * NS), int(until_s * NS) + 1)
    tenures = (
        Tenure("s1", "k", HOLD, 1, 1, 2, first, None),
        Tenure("s1", "k", HOLD, 3, 3, 4, "expired", until_ns),
    )
    write_service(tmp_path, Service("a record", 1, None, tenures))
    shown = judge(tmp_path)
    assert (shown is not None and RELEASED_YET_KEPT in shown.verdicts) is found


@pytest.mark.parametrize(
    ("struck_s", "found"), [(1.4, True), (1.6, False), (None, True)], ids=["before", "after", "no"]
)
def test_a_grant_that_was_late_before_anything_was_struck(
    tmp_path: Path, struck_s: float | None, found: bool
) -> None:
    """Granted at 1.5 s, promised until 1.2 s."""
    recorded(tmp_path, (F.ACQUIRE, Type.OK, None), until_ns=int(1.2 * NS))
    if struck_s is not None:
        at_ns = int(struck_s * NS)
        write_faults(tmp_path, [Fault("client-gone", (), (at_ns, at_ns), None)])
    shown = judge(tmp_path)
    assert (shown is not None) is found
    if shown is not None:
        assert shown.verdicts == ("late-grant",)


def test_an_inner_hold_leaves_the_entry_to_the_outer_one(tmp_path: Path) -> None:
    recorded(tmp_path, (F.ACQUIRE, Type.OK, None), (F.RELEASE, Type.OK, None))
    record(tmp_path, None)
    assert judge(tmp_path, lock="redis-reentrant") is None


def test_hangs_and_errors_are_findings_whatever_is_declared(tmp_path: Path) -> None:
    recorded(tmp_path, (F.ACQUIRE, Type.INFO, "unexpected: KeyError: 'id'"))
    shown = judge(tmp_path, hangs=["acquire of the victim had not ended after 30 s"])
    assert shown is not None
    assert shown.verdicts == (HANGS, RAISES)
    assert not shown.declared
    assert "KeyError: 'id'" in shown.why


DOCUMENTED = {"RedisTimeoutException": "https://…"}


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("RedisTimeoutException: no answer", False),
        ("acquire: RedisTimeoutException", False),
        ("NullPointerException: null", True),
        ("acquire: KeyError: 'lease'", True),
        ("ExecutionException: a.b.RedisTimeoutException: no answer", False),
        ("ExecutionException: a.b.StatusRuntimeException: NOT_FOUND", True),
        ("Lock() has not returned", False),  # in the adapter's own words
        ("the sidecar of x ended (x 1.0)", True),
        ("the sidecar of x takes no requests: [Errno 32] Broken pipe (x 1.0)", True),
        ("the sidecar of x was closed (x 1.0)", False),
        ("the sidecar of x did not answer a ping within 5 s (x 1.0)", True),
        ("the sidecar of x answered with garbage: b'?' (x 1.0)", True),
    ],
)
def test_what_a_library_raises_is_held_against_its_documentation(
    tmp_path: Path, said: str, found: bool
) -> None:
    recorded(tmp_path, (F.ACQUIRE, Type.INFO, said))
    shown = judged(played(tmp_path), find("redis-token").derived(raises=DOCUMENTED))
    assert (shown is not None) == found
    if found:
        assert isinstance(shown, Shown)
        assert (shown.verdicts, shown.declared, shown.why) == ((RAISES,), False, said)


def test_what_an_adapter_takes_for_a_refusal_is_known_to_it(tmp_path: Path) -> None:
    recorded(tmp_path, (F.ACQUIRE, Type.FAIL, "no-effect: NullPointerException: null"))
    assert judged(played(tmp_path), find("redis-token").derived(raises=DOCUMENTED)) is None


def test_errors_of_a_library_that_declares_none_are_not_judged(tmp_path: Path) -> None:
    recorded(tmp_path, (F.ACQUIRE, Type.INFO, "NullPointerException: null"))
    assert judge(tmp_path) is None
    nothing = judged(played(tmp_path), find("redis-token").derived(raises={}))
    assert isinstance(nothing, Shown)


@pytest.mark.parametrize("fault", ["client-killed", "client-gone"])
def test_who_is_killed_loses_its_sidecar(tmp_path: Path, fault: str) -> None:
    recorded(tmp_path, (F.ACQUIRE, Type.INFO, "the sidecar of x ended (x 1.0)"))
    assert judged(played(tmp_path, fault), find("redis-token")) is None


def test_who_is_frozen_answers_no_ping(tmp_path: Path) -> None:
    recorded(
        tmp_path, (F.ACQUIRE, Type.INFO, "the sidecar of x did not answer a ping within 5 s (x 1)")
    )
    assert judged(played(tmp_path, "client-frozen"), find("redis-token")) is None


def waited(
    folder: Path,
    *,
    until_s: float,
    fault: Fault | None = None,
    promised_ns: int = NULL,
    client: int = 1,
    **release: Any,
) -> None:
    """A holder from 1 to 2 s, and a waiter from 1.5 s to ``until_s``."""
    aimed = Object(kind="mutex", role="aimed", lease_ns=2 * NS, slack_ns=NS)
    write_meta(folder, {"k": aimed}, wall_minus_monotonic_ns=0)
    recorder = Recorder(folder, 0)
    held = recorder.invoke(0, F.ACQUIRE, "k", hold=1, invoke_ns=NS)
    recorder.complete(held, Type.OK, complete_ns=NS + 1, valid_until_ns=promised_ns)
    given = recorder.invoke(0, F.RELEASE, "k", hold=1, invoke_ns=2 * NS - 1)
    recorder.complete(given, release.get("ended", Type.OK), complete_ns=2 * NS)
    waits = recorder.invoke(client, F.ACQUIRE, "k", hold=2, invoke_ns=int(1.5 * NS))
    recorder.complete(waits, Type.OK, complete_ns=int(until_s * NS))
    recorder.close()
    write_faults(folder, [] if fault is None else [fault])


def test_a_waiter_that_is_not_woken(tmp_path: Path) -> None:
    waited(tmp_path, until_s=3.5)
    shown = judge(tmp_path)
    assert shown is not None
    assert shown.verdicts == (LOST_WAKEUP,)
    assert "1.5 s" in shown.why
    play = played(tmp_path)
    assert waits_too_long(play, find("redis-token"))
    assert judged(play, find("redis-token"), timed=False) is None


@pytest.mark.parametrize(
    ("client", "struck_s", "found"),
    [
        (None, None, False),
        (None, 6.1, False),
        (None, 1.1, True),  # what it was granted before may keep it out
        (1, None, True),  # who also asks may be what it waits for
    ],
    ids=["alone", "struck after", "struck before", "beside another"],
)
def test_who_asks_first_and_alone_is_not_woken_by_anybody(
    tmp_path: Path, client: int | None, struck_s: float | None, found: bool
) -> None:
    """A free key is granted after 4 s."""
    aimed = Object(kind="mutex", role="aimed", lease_ns=2 * NS, slack_ns=NS)
    write_meta(tmp_path, {"k": aimed}, wall_minus_monotonic_ns=0)
    recorder = Recorder(tmp_path, 0)
    asks = recorder.invoke(0, F.ACQUIRE, "k", hold=1, invoke_ns=NS)
    recorder.complete(asks, Type.OK, complete_ns=5 * NS)
    if client is not None:
        process = client * PROCESSES_PER_WORKER
        other = recorder.invoke(process, F.ACQUIRE, "k", hold=2, invoke_ns=2 * NS)
        recorder.complete(other, Type.FAIL, error="held", complete_ns=3 * NS)
    recorder.close()
    at_ns = 0 if struck_s is None else int(struck_s * NS)
    struck = [] if struck_s is None else [Fault("late", (), (at_ns, at_ns), (at_ns, at_ns))]
    write_faults(tmp_path, struck)
    shown = judge(tmp_path)
    assert (shown is not None) is found
    if shown is not None:
        assert shown.verdicts == (LOST_WAKEUP,)


@pytest.mark.parametrize(
    "more",
    [
        {"until_s": 2.4},
        # It may have held on: nobody knows what became of the release.
        {"until_s": 3.5, "ended": Type.INFO},
        {
            "until_s": 3.5,
            "fault": Fault("late", ("node 1",), (2 * NS, 2 * NS), (3 * NS, 3 * NS)),
        },
        # Its request was sent before the heal, and had no answer within 0.8 s.
        {
            "until_s": 4.2,
            "fault": Fault("server-wiped", ("node 1",), (2 * NS, 2 * NS), (3 * NS, 3 * NS)),
        },
    ],
    ids=["soon", "unknown", "struck", "unanswered"],
)
def test_a_waiter_that_had_to_wait(tmp_path: Path, more: dict[str, Any]) -> None:
    waited(tmp_path, **more)
    assert judge(tmp_path) is None
    assert not waits_too_long(played(tmp_path), find("redis-token"))


@pytest.mark.parametrize(
    ("client", "took_s", "fault", "found"),
    [
        (2, 0.2, None, False),
        (2, 0.1, None, True),
        (0, 0.2, None, True),  # the victim's may have been struck
        (2, 0.2, (0.4, 0.6), True),  # and so may others, where a server was
        (2, 0.2, (0.6, 0.65), True),
        (2, 0.2, (0.1, 0.2), False),
    ],
)
def test_a_waiter_is_as_slow_as_others_are(
    client: int, took_s: float, fault: tuple[float, float] | None, *, found: bool, tmp_path: Path
) -> None:
    waited(tmp_path, until_s=3.5)
    recorder = Recorder(tmp_path, 9)
    process = client * PROCESSES_PER_WORKER
    held = recorder.invoke(process, F.ACQUIRE, "other", hold=9, invoke_ns=NS // 4)
    recorder.complete(held, Type.OK, complete_ns=NS // 4 + 1)
    given = recorder.invoke(process, F.RELEASE, "other", hold=9, invoke_ns=NS // 2)
    recorder.complete(given, Type.OK, complete_ns=int((0.5 + took_s) * NS))
    recorder.close()
    if fault is not None:
        begin_ns, heal_ns = (int(at_s * NS) for at_s in fault)
        at = (begin_ns, begin_ns), (heal_ns, heal_ns)
        write_faults(tmp_path, [Fault("server-frozen", ("node 1",), *at)])
    play, system = played(tmp_path), find("redis-token")
    assert waits_too_long(play, system) == found
    assert isinstance(judged(play, system), Shown if found else Undecided), "it is not kept"
    assert not isinstance(judged(play, system, timed=False), Undecided)


def test_who_was_frozen_lost_no_answer(tmp_path: Path) -> None:
    frozen = Fault("client-frozen", ("node 1",), (2 * NS, 2 * NS), (3 * NS, 3 * NS))
    waited(tmp_path, until_s=3.6, fault=frozen)
    assert waits_too_long(played(tmp_path), find("redis-token"))
    reset = Fault("reset-before", ("node 1",), (2 * NS, 2 * NS), (3 * NS, 3 * NS))
    write_faults(tmp_path, [reset])
    assert not waits_too_long(played(tmp_path), find("redis-token"))


def test_a_lock_that_has_to_settle_is_given_its_time(tmp_path: Path) -> None:
    led = Fault("leader-changed", ("node 1",), (2 * NS, 2 * NS), (3 * NS, 3 * NS))
    waited(tmp_path, until_s=9.0, fault=led)
    usual = find("redis-token")
    assert waits_too_long(played(tmp_path), usual)
    assert waits_too_long(played(tmp_path), usual.derived(settles_s=4.0))
    assert not waits_too_long(played(tmp_path), usual.derived(settles_s=5.0))


@pytest.mark.parametrize(("fault", "found"), [("clock-jumped", False), ("server-wiped", True)])
def test_what_was_written_by_a_clock_that_was_ahead_ends_when_it_is_there_again(
    tmp_path: Path, fault: str, found: bool
) -> None:
    struck = Fault(fault, ("node 1",), (2 * NS, 2 * NS), (3 * NS, 3 * NS))
    waited(tmp_path, until_s=3 + 2 * JUMPS, fault=struck)
    assert waits_too_long(played(tmp_path), find("redis-token")) == found
    (tmp_path / "longer").mkdir()
    waited(tmp_path / "longer", until_s=6 + 2 * JUMPS, fault=struck)
    assert waits_too_long(played(tmp_path / "longer"), find("redis-token"))


@pytest.mark.parametrize("fault", ["client-frozen", "reset-before"])
def test_a_client_that_pauses_before_it_connects_again_is_given_its_time(
    tmp_path: Path, fault: str
) -> None:
    struck = Fault(fault, ("node 1",), (2 * NS, 2 * NS), (3 * NS, 3 * NS))
    waited(tmp_path, until_s=9.0, fault=struck)
    usual = find("redis-token")
    assert waits_too_long(played(tmp_path), usual.derived(recovers_s=4.0))
    assert not waits_too_long(played(tmp_path), usual.derived(recovers_s=6.0))


def test_who_waits_on_after_a_strike_is_not_woken(tmp_path: Path) -> None:
    wiped = Fault("server-wiped", ("node 1",), (2 * NS, 2 * NS), (3 * NS, 3 * NS))
    waited(tmp_path, until_s=4.4, fault=wiped)
    assert waits_too_long(played(tmp_path), find("redis-token"))


@pytest.mark.parametrize(
    ("fault", "until_s", "in_parts", "found"),
    [
        ("server-frozen", 6.2, True, False),
        ("server-frozen", 6.4, True, True),
        ("server-frozen", 4.4, False, True),
        ("reset-before", 4.4, True, True),
    ],
)
def test_what_frozen_servers_of_redlock_were_asked_for_lasts_a_lease(
    tmp_path: Path, fault: str, until_s: float, in_parts: bool, found: bool
) -> None:
    """They go on at 3 s; then the time for an answer, 0.8 s, a lease, 2 s, and a quarter of it."""
    struck = Fault(fault, ("node 1",), (2 * NS, 2 * NS), (3 * NS, 3 * NS))
    waited(tmp_path, until_s=until_s, fault=struck)
    play = replace(played(tmp_path), in_parts=in_parts)
    assert waits_too_long(play, find("redlock")) is found


@pytest.mark.parametrize(
    ("fault", "until_s", "found"),
    [("leader-changed", 5.9, False), ("leader-changed", 6.6, True), ("late", 5.9, True)],
)
def test_a_new_leader_keeps_a_hold_that_only_time_ends_for_a_whole_lease(
    tmp_path: Path, fault: str, until_s: float, found: bool
) -> None:
    """Promised until 3 s, and over at 4 s with the slack; servers struck until 3 s, and then a
    lease of 2 s and the slack."""
    struck = Fault(fault, ("node 1",), (NS, NS), (3 * NS, 3 * NS))
    waited(tmp_path, until_s=until_s, fault=struck, promised_ns=3 * NS, ended=Type.INFO)
    assert waits_too_long(played(tmp_path), find("redis-token")) is found


@pytest.mark.parametrize(
    ("lock", "ended", "found"),
    [
        ("redisson-rlock-lease", Type.INFO, True),  # promised until 3 s, and over at 4 s
        ("redisson-rlock", Type.INFO, False),
        ("redisson-rlock", Type.OK, True),
    ],
)
def test_a_watchdog_may_renew_what_an_unanswered_release_gives_back(
    tmp_path: Path, lock: str, ended: Type, found: bool
) -> None:
    waited(tmp_path, until_s=6.5, promised_ns=3 * NS, ended=ended)
    assert waits_too_long(played(tmp_path), find(lock)) is found


def test_a_service_that_keeps_what_was_given_back_is_waited_for(tmp_path: Path) -> None:
    """Consul's lock-delay: refused at 1.6 s, and granted to another at 3.5 s."""
    aimed = Object(kind="mutex", role="aimed", lease_ns=2 * NS, slack_ns=NS)
    write_meta(tmp_path, {"k": aimed}, wall_minus_monotonic_ns=0)
    recorder = Recorder(tmp_path, 0)
    refused = recorder.invoke(0, F.ACQUIRE, "k", hold=1, invoke_ns=NS)
    recorder.complete(refused, Type.FAIL, complete_ns=int(1.6 * NS), error="gave-up")
    rival = recorder.invoke(PROCESSES_PER_WORKER, F.ACQUIRE, "k", hold=2, invoke_ns=NS)
    recorder.complete(rival, Type.OK, complete_ns=int(3.5 * NS))
    recorder.close()
    write_faults(tmp_path, [])
    assert find("consul-session").kept_leases > 1
    assert not waits_too_long(played(tmp_path), find("consul-session"))
    assert waits_too_long(played(tmp_path), find("redis-token"))


def test_where_two_had_it_nobody_knows_who_was_kept_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited(tmp_path, until_s=3.5)
    verdicts(monkeypatch, double_grant="invalid")
    shown = judge(tmp_path)
    assert shown is not None
    assert shown.verdicts == ("double-grant",)


def test_who_is_refused_may_have_held_it_until_then(tmp_path: Path) -> None:
    """It asks on after the holder has released and is refused at 3 s; then another gets it."""
    waited(tmp_path, until_s=3.4)
    recorder = Recorder(tmp_path, 1)
    refused = recorder.invoke(2, F.ACQUIRE, "k", hold=3, invoke_ns=NS)
    recorder.complete(refused, Type.FAIL, complete_ns=3 * NS, error="gave-up")
    recorder.close()
    assert judge(tmp_path) is None


@pytest.mark.parametrize(
    ("second_s", "more", "found"),
    [
        (3.6, {}, True),
        (2.2, {}, False),  # it may have held it before
        (3.6, {"in_parts": True}, False),  # each may have had a part of it
        (3.6, {"fault": "server-frozen"}, False),  # it may have had it, lost it and asked again
        (3.6, {"fault": "client-frozen"}, True),
        (3.6, {"until_s": 3.55}, False),  # told too late: it may have held it before
        (3.6, {"client": 0}, False),  # the victim may have been told long afterwards
    ],
)
def test_who_is_granted_it_later_had_not_held_it_before(
    tmp_path: Path, second_s: float, more: dict[str, Any], found: bool
) -> None:
    """Two wait; the first of them is granted it at 3.5 s."""
    more = dict(more)
    name = more.pop("fault", None)
    struck = None if name is None else Fault(name, ("node 1",), (NS, NS), (NS, NS + 1))
    waited(tmp_path, until_s=3.5, fault=struck, client=3 * PROCESSES_PER_WORKER)
    recorder = Recorder(tmp_path, 1)
    process = more.pop("client", 2 * PROCESSES_PER_WORKER)
    second = recorder.invoke(process, F.ACQUIRE, "k", hold=3, invoke_ns=int(1.5 * NS))
    until_ns = int(more.pop("until_s", 9.0) * NS)
    recorder.complete(second, Type.OK, complete_ns=int(second_s * NS), valid_until_ns=until_ns)
    recorder.close()
    assert waits_too_long(replace(played(tmp_path), **more), find("redis-token")) is found


@pytest.mark.parametrize(
    ("leaked", "found"), [("invalid", ("leaked-lock",)), ("valid", (LOST_WAKEUP,))]
)
def test_who_waits_for_a_key_that_leaked_is_no_finding_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaked: str, found: tuple[str, ...]
) -> None:
    waited(tmp_path, until_s=3.5)
    verdicts(monkeypatch, leaked_lock=leaked)
    shown = judge(tmp_path)
    assert shown is not None
    assert shown.verdicts == found


@pytest.mark.parametrize("fault", ["request-lost", "server-frozen"])
def test_what_may_break_without_a_fault_may_break_beside_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    waited(tmp_path, until_s=3.5)
    verdicts(monkeypatch, leaked_lock="invalid")
    play = played(tmp_path, fault)
    no_lock, neighbour = find("postgres-advisory-pooled"), find("postgres-advisory")
    for system, declared in ((no_lock, True), (neighbour, False)):
        shown = judged(play, system)
        assert isinstance(shown, Shown)
        assert shown.declared is declared


@pytest.mark.parametrize(
    ("lock", "worker", "fault", "declared"),
    [
        ("shedlock-mariadb", 1, "server-wiped", True),
        ("shedlock-mariadb", 0, None, True),
        ("redis-token", 1, "server-wiped", False),
        ("shedlock-mariadb", 0, "server-wiped", False),
    ],
    ids=["late itself", "without a fault", "not excused", "struck"],
)
def test_who_is_late_itself_is_judged_as_one_whose_work_outlasts_its_lease(
    tmp_path: Path, lock: str, worker: int, fault: str | None, declared: bool
) -> None:
    aimed = Object(kind="mutex", role="aimed", lease_ns=2 * NS, slack_ns=NS)
    write_meta(tmp_path, {"k": aimed}, wall_minus_monotonic_ns=0)
    process = worker * PROCESSES_PER_WORKER
    recorder = Recorder(tmp_path, 0)
    held = recorder.invoke(process, F.ACQUIRE, "k", hold=1, invoke_ns=NS)
    recorder.complete(held, Type.OK, complete_ns=NS + 1, valid_until_ns=3 * NS)
    next_ = recorder.invoke(9 * PROCESSES_PER_WORKER, F.ACQUIRE, "k", hold=2, invoke_ns=3 * NS)
    recorder.complete(next_, Type.OK, complete_ns=int(3.2 * NS), valid_until_ns=5 * NS)
    late = recorder.invoke(process, F.RELEASE, "k", hold=1, invoke_ns=int(3.5 * NS))
    recorder.complete(late, Type.OK, complete_ns=int(3.6 * NS))
    recorder.close()
    write_faults(tmp_path, [])
    play = played(tmp_path, fault) if fault else Played(Trial("free", ()), tmp_path, "k")
    shown = judged(play, find(lock))
    assert isinstance(shown, Shown)
    assert "false-release" in shown.verdicts
    assert shown.declared is declared


def test_who_waits_for_a_lock_that_leaks_without_a_fault_is_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited(tmp_path, until_s=3.5)
    verdicts(monkeypatch, double_grant="valid")
    assert judged(played(tmp_path), find("postgres-advisory-pooled")) is None
    shown = judged(played(tmp_path), find("postgres-advisory"))
    assert isinstance(shown, Shown)
    assert shown.verdicts == (LOST_WAKEUP,)


def verdicts(monkeypatch: pytest.MonkeyPatch, contradicted: str = "", **results: str) -> None:
    """The checker says so."""
    found = {
        name.replace("_", "-"): Verdict(result, f"{name} is {result}")  # type: ignore[arg-type]
        for name, result in results.items()
    }
    report = Report(0, 0, found, {})
    monkeypatch.setattr(judge_module, "check", lambda _: report)
    refuted = {contradicted: "it was not so"} if contradicted else {}
    monkeypatch.setattr(judge_module, "contradictions", lambda _: refuted)


def test_what_is_not_known_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(tmp_path, (F.ACQUIRE, Type.OK, None), (F.RELEASE, Type.OK, None))
    verdicts(monkeypatch, double_grant="valid", leaked_lock="unknown")
    found = judged(played(tmp_path), find("redis-token"))
    assert isinstance(found, Undecided)
    assert "leaked_lock is unknown" in found.why
    verdicts(monkeypatch, double_grant="invalid", leaked_lock="unknown")
    assert isinstance(judged(played(tmp_path), find("redis-token")), Shown)
    verdicts(monkeypatch, double_grant="valid", leaked_lock="valid")
    assert judged(played(tmp_path), find("redis-token")) is None


def test_what_the_service_refutes_is_no_evidence_against_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(tmp_path, (F.ACQUIRE, Type.OK, None), (F.RELEASE, Type.OK, None))
    verdicts(monkeypatch, "double-grant", double_grant="invalid", linearizable="invalid")
    found = judged(played(tmp_path), find("redis-token"))
    assert isinstance(found, Undecided)
    assert "it was not so" in found.why
    verdicts(monkeypatch, "double-grant", double_grant="invalid", late_grant="invalid")
    shown = judged(played(tmp_path), find("redis-token"))
    assert isinstance(shown, Shown)
    assert shown.verdicts == ("late-grant",)


def raising(folder: Path, *errors: str) -> tuple[Played, Shown]:
    folder.mkdir()
    recorded(folder, *((F.ACQUIRE, Type.INFO, error) for error in errors))
    shown = judged(played(folder), find("redis-token").derived(raises=DOCUMENTED))
    assert isinstance(shown, Shown)
    return played(folder), shown


def test_one_error_of_each_class_is_told(tmp_path: Path) -> None:
    errors = ("acquire: KeyError: 'a'", "acquire: KeyError: 'b'", "TypeError: None")
    _, shown = raising(tmp_path / "x", *errors)
    assert shown.errors == (errors[0], errors[2])
    assert shown.why == f"{errors[0]}; {errors[2]}"


def test_an_error_of_another_class_is_another_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = ("ended", "answered with garbage: b'?'")
    ended, garbage = (f"the sidecar of x {said} (x 1.0)" for said in what)
    told = {"key": ["KeyError: 'a'"], "type": ["TypeError"], "both": ["KeyError: 'a'", "TypeError"]}
    told |= {"ended": [ended], "garbage": [garbage]}
    plays = {name: raising(tmp_path / name, *errors) for name, errors in told.items()}
    known = {name: finding_of(play, shown, "redis-token") for name, (play, shown) in plays.items()}

    def same(name: str, other: str) -> bool:
        play, shown = plays[name]
        return alike([known[other]], play.trial, shown) is not None

    assert same("key", "key")
    assert same("key", "both")
    assert not same("both", "key")
    assert not same("type", "key")
    assert not same("garbage", "ended")
    system = find("redis-token").derived(raises=DOCUMENTED)
    setting = Setting("redis-token", system, Pace(), (), ())
    again = {name: counted(known["key"], [plays[name][0]], setting) for name in told}
    assert {name for name, found in again.items() if found.broke == 2} == {"key", "both"}
    page = evolved(
        track.pages()[0], locks=("redis-token",), explored=(RAISES,), raised=("KeyError",),
        scenarios=(), fault="none", also=(), kind="cost",
    )  # fmt: skip
    monkeypatch.setattr(track, "pages", lambda: [page])
    of_page = {n: on_record(["late"], "free", s, "redis-token") for n, (_, s) in plays.items()}
    assert {name for name, pages in of_page.items() if pages} == {"key"}


@pytest.mark.parametrize(
    ("servers", "found"), [(("s1", "s1", "s2"), False), (("s1", "s2", "s3"), True)]
)
def test_two_entries_on_one_server_are_not_those_of_two(
    tmp_path: Path, servers: tuple[str, ...], found: bool
) -> None:
    recorded(tmp_path, (F.ACQUIRE, Type.FAIL, "held"))
    tenures = tuple(
        Tenure(server, "k", HOLD, made, made, made + 1, "expired", (5 * NS, 5 * NS + 1))
        for made, server in enumerate(servers, 1)
    )
    write_service(tmp_path, Service("a record", 3, None, tenures))
    shown = judge(tmp_path, lock="redlock")
    assert (shown is not None and DENIED_YET_TAKEN in shown.verdicts) == found
