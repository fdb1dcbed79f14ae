"""The service's record as a second witness: each statement planted, and the neighbour of which
nothing may be said. Times in seconds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lockbench.checker.check import check
from lockbench.checker.service import WHAT, contradictions
from lockbench.checker.verdict import Report
from lockbench.history.columns import History
from lockbench.history.op import F
from lockbench.history.service import How, Service, Tenure
from tests.checker.scenes import Scene, ns

LONG = 100.0


class Record:
    """A service's record of the holds of a scene, by their names."""

    def __init__(self, scene: Scene, quorum: int = 1) -> None:
        self.history: History = scene.history()
        names = self.history.hold_names or {}
        self._holds = {name: number for number, name in names.items()}
        self._tenures: list[Tenure] = []
        self._quorum = quorum
        self.partial: str | None = None

    def of(
        self,
        client: int,
        made: int,
        ended: int | None = None,
        how: How | None = "deleted",
        *,
        begun: int | None = -1,
        until: float | None = None,
        log: str = "redis-1",
        key: str = "k0",
    ) -> Record:
        noted = None if until is None else (ns(until), ns(until) + 1_000_000)
        if ended is None and how == "deleted":
            how = None
        begun = made if begun == -1 else begun
        hold = self._holds[f"h{client}"]
        self._tenures.append(Tenure(log, key, hold, made, begun, ended, how, noted))
        return self

    def judged(self) -> Report:
        service = Service("the record", self._quorum, self.partial, tuple(self._tenures))
        return check(replace(self.history, service=service))

    def says(self, verdict: str) -> str:
        found = self.judged().verdicts[verdict]
        assert found.result == "invalid"
        (said,) = [item for item in found.evidence if item["what"] == WHAT]
        if said["says"] == "not decided":
            assert "by the record" not in found.reason
        else:
            assert found.reason.endswith(f"{said['says']} by the record")
        return str(said["says"])


def two_holders() -> Scene:
    """Client 1 is promised the lock from 1 to 10, client 2 is granted it at 5."""
    scene = Scene().acquire(1, 0, 1, until=10).acquire(2, 4, 5, until=14)
    return scene.release(2, 6, 6.1)


def test_taken_away_before_its_term() -> None:
    record = Record(two_holders()).of(1, 1, 2, until=10.0).of(2, 3, 4, until=14.0)
    assert record.says("double-grant") == "confirmed"


def test_its_term_was_over() -> None:
    """What the bench recorded as promised was never promised by the service."""
    record = Record(two_holders()).of(1, 1, 2, until=4.0).of(2, 3, 4, until=14.0)
    assert record.says("double-grant") == "contradicted"
    assert set(contradictions(record.judged())) == {"double-grant", "promises"}


def test_its_term_may_have_been_over() -> None:
    record = Record(two_holders()).of(1, 1, 2, until=4.9995).of(2, 3, 4, until=14.0)
    assert record.says("double-grant") == "not decided"


def test_an_order_alone_tells_nothing_of_a_promise() -> None:
    """Without a term it would look the same if the promise had been recorded too long."""
    record = Record(two_holders()).of(1, 1, 2).of(2, 3, 4)
    assert record.says("double-grant") == "not decided"


def test_a_hold_without_a_term_ends_by_its_release_alone() -> None:
    scene = Scene().acquire(1, 0, 1).acquire(2, 4, 5).release(2, 6, 6.1)
    assert Record(scene).of(1, 1, 2).of(2, 3, 4).says("double-grant") == "confirmed"


def test_lost_with_the_data_of_its_server() -> None:
    after = "redis-1 after wipe 1"
    record = Record(two_holders()).of(1, 7, how="lost", until=10.0).of(2, 3, 4, log=after)
    assert record.says("double-grant") == "confirmed"
    record = Record(two_holders()).of(1, 7, how="lost", until=4.0).of(2, 3, 4, log=after)
    assert record.says("double-grant") == "contradicted"
    record = Record(two_holders()).of(1, 7, 8, until=10.0).of(2, 3, 4, log=after)
    assert record.says("double-grant") == "not decided"


def test_told_before_its_turn() -> None:
    scene = two_holders().release(1, 7, 7.1).acquire(3, 8, 9, until=18)
    record = Record(scene).of(1, 1, 5).of(3, 4, begun=6).of(2, 2, 6, begun=5)
    # The entry of client 3 was asked for at 8, and stands in the record before the turn of 2.
    assert record.says("double-grant") == "confirmed"
    record = Record(two_holders()).of(1, 1).of(2, 2, 6, begun=None)
    assert record.says("double-grant") == "confirmed"


def test_a_record_with_gaps_is_no_witness() -> None:
    record = Record(two_holders()).of(1, 1, 2, until=4.0)
    assert record.says("double-grant") == "not decided"
    assert "shows nothing of 1 grant" in str(record.judged().measurements["service"])
    record = Record(two_holders()).of(1, 1, 2, until=4.0).of(2, 3, 4)
    record.partial = "redis-1 lost its power"
    assert record.says("double-grant") == "not decided"


def test_moved_clocks_make_terms_worthless() -> None:
    scene = two_holders().fault("clock-jump", 2, 3)
    record = Record(scene).of(1, 1, 2, until=4.0).of(2, 3, 4, until=14.0)
    assert record.says("double-grant") == "not decided"
    assert not contradictions(record.judged())


def majorities(*, wiped_until: float = 10.0, third: int = 8) -> Record:
    """Client 1 stands on r-1, which is wiped, and on r-2; client 2 on r-1 again and on r-3. Client
    3 asked at 6: what follows its entry in r-2 came later than the grant of client 2."""
    scene = two_holders().release(1, 11, 11.1).acquire(3, 6, 7, until=16)
    record = Record(scene, quorum=2).of(1, 5, how="lost", until=wiped_until, log="r-1")
    record.of(1, 5, 9, until=10.0, log="r-2")
    record.of(2, 1, until=14.0, log="r-1 after wipe 1").of(2, 1, until=14.0, log="r-3")
    return record.of(3, third, until=16.0, log="r-2").of(3, 5, until=16.0, log="r-3")


def test_two_majorities() -> None:
    assert majorities().says("double-grant") == "confirmed"
    # The entry in r-2 may have been gone.
    assert majorities(third=10).says("double-grant") == "not decided"
    # No majority had noted it for so long.
    assert majorities(wiped_until=4.5).says("double-grant") == "contradicted"


def test_a_promise_that_outlives_the_term_is_told_without_a_violation() -> None:
    scene = Scene().acquire(1, 0, 1, until=10).release(1, 2, 2.1)
    found = contradictions(Record(scene).of(1, 1, 2, until=9.9).judged())
    assert list(found) == ["promises"]
    assert "ended at 9.901 s" in found["promises"]
    assert not contradictions(Record(scene).of(1, 1, 2, until=10.0).judged())
    # A majority of three has noted it long enough.
    three = Record(scene, quorum=2)
    three.of(1, 1, 2, until=10.5, log="a").of(1, 1, 2, until=3.0, log="b").of(
        1, 1, until=10, log="c"
    )
    assert not contradictions(three.judged())


def test_an_extend_that_found_nothing_is_the_locks_own_lie() -> None:
    scene = Scene().acquire(1, 0, 1, until=5).extend(1, 6, 6.1, until=12)
    assert not contradictions(Record(scene).of(1, 1, 2, until=5.0).judged())
    # Here the entry stood: it was the service that was asked, and it noted less.
    assert contradictions(Record(scene).of(1, 1, until=11.0).judged())
    # Unless what the server noted last died with it.
    scene.fault("one-of-ones-own", 7, 8)
    assert contradictions(Record(scene).of(1, 1, until=11.0).judged())
    scene.fault("one-of-ones-own", 7, 8, ends_servers=True)
    assert not contradictions(Record(scene).of(1, 1, until=11.0).judged())


def test_a_server_may_have_died_by_the_name_of_a_fault() -> None:
    scene = Scene().acquire(1, 0, 1, until=5).extend(1, 6, 6.1, until=12).fault("kill", 7, 8)
    assert not contradictions(Record(scene).of(1, 1, until=11.0).judged())


def late() -> Scene:
    return Scene().acquire(1, 0, 6, until=5).release(1, 7, 7.1)


@pytest.mark.parametrize(
    ("until", "says"), [(5.5, "confirmed"), (5.9995, "not decided"), (8.0, "not decided")]
)
def test_a_late_grant(until: float, says: str) -> None:
    assert Record(late()).of(1, 1, 2, until=until).says("late-grant") == says


def stale(third: float = 6.5) -> Scene:
    """Client 1 writes at 8, after its promise and the grant of client 2."""
    scene = Scene().acquire(1, 0, 1, until=5).acquire(2, 2, 6, until=12).release(2, 7, 7.1)
    return scene.acquire(3, third, third + 1, until=20).write(1, 8, 0, 1)


def test_a_stale_operation() -> None:
    record = Record(stale()).of(1, 1, 2, until=5.0).of(2, 3, 4, until=12.0).of(3, 5, until=20.0)
    assert record.says("stale-holder") == "confirmed"
    # When it was gone is not known: whoever came after it in the log was told later.
    record = Record(stale(8.5)).of(1, 1, 6).of(2, 2, 3, log="other").of(3, 8)
    assert record.says("stale-holder") == "not decided"


def test_an_operation_under_an_unknown_acquire() -> None:
    scene = Scene().acquire(1, 0, None, "info").acquire(2, 0, 2, until=9)
    scene.write(1, 3, 0, 1).release(2, 4, 4.1)
    assert Record(scene).of(2, 3, 4, until=9.0).says("stale-holder") == "confirmed"
    before = Record(scene).of(1, 1, 2, until=9.0).of(2, 3, 4, until=9.0)
    assert before.says("stale-holder") == "confirmed"
    assert Record(scene).of(1, 5, 6, until=13.0).of(2, 3, 4).says("stale-holder") == "not decided"
    summary: Any = before.judged().measurements["service"]
    assert summary["unknown_acquires"] == {"took_effect": 1, "left_no_trace": 0}


def wrong_release() -> Scene:
    """Client 1's release from 5 to 6 ended the hold of client 2, as it is told at 10."""
    scene = Scene().acquire(1, 0, 1, until=3).acquire(2, 2, 4, until=14).release(1, 5, 6)
    return scene.acquire(3, 7, 8, until=20, hold="h3").not_held(2, 10, 11)


def test_a_wrong_release() -> None:
    record = Record(wrong_release()).of(1, 1, 2, until=3.0).of(2, 3, 4, until=14.0)
    assert record.of(3, 9, until=20.0).says("wrong-release") == "confirmed"
    # It was taken away after client 3 had asked, which was after the release.
    record = Record(wrong_release()).of(1, 1, 2, until=3.0).of(2, 3, 12, until=14.0)
    assert record.of(3, 9, begun=12, until=20.0).says("wrong-release") == "contradicted"
    # Of a server that died the end of the file may be missing, and with it the deletion.
    record = Record(wrong_release().fault("kill", 5, 6)).of(1, 1, 2, until=3.0)
    record.of(2, 3, 12, until=14.0).of(3, 9, begun=12, until=20.0)
    assert record.says("wrong-release") == "not decided"
    # It is there still.
    record = Record(wrong_release()).of(1, 1, 2, until=3.0).of(2, 3, until=14.0)
    assert record.of(3, 9, begun=None).says("wrong-release") == "contradicted"
    # Its term was over.
    record = Record(wrong_release()).of(1, 1, 2, until=3.0).of(2, 3, 4, until=4.5)
    assert record.of(3, 9, until=20.0).says("wrong-release") == "not decided"


def false_release() -> Scene:
    scene = Scene().acquire(1, 0, 1, until=3).acquire(2, 2, 4, until=14).release(2, 4.5, 4.6)
    return scene.release(1, 5, 6)


def test_a_false_release() -> None:
    record = Record(false_release()).of(1, 1, 2, until=3.0).of(2, 3, 4, until=14.0)
    assert record.says("false-release") == "confirmed"
    scene = false_release().op(F.ACQUIRE, 3, 5.5, 7, valid_until_ns=ns(LONG))
    record = Record(scene).of(1, 1, 9).of(2, 2, 3, log="other").of(3, 5, begun=9)
    assert record.says("false-release") == "contradicted"
    record = Record(false_release()).of(1, 1, 9).of(2, 2, 3, log="other")
    assert record.says("false-release") == "not decided"


def test_a_release_that_was_confirmed_while_the_entry_stood_is_the_false_one() -> None:
    """By the time of the second one it was there, and only then it went."""
    scene = Scene().acquire(1, 0, 1).release(1, 2, 3).release(1, 4, 6)
    scene.acquire(2, 5, 5.5, key="k1").release(2, 7, 7.1, key="k1")
    record = Record(scene).of(1, 1, 3).of(2, 2, 4, key="k1")
    assert record.says("false-release") == "confirmed"


def fences() -> Scene:
    scene = Scene().acquire(1, 0, 1, fence=41).release(1, 2, 3)
    return scene.acquire(2, 4, 5, fence=40).release(2, 6, 7)


def test_the_order_of_fences() -> None:
    assert Record(fences()).of(1, 1, 2).of(2, 3, 4).says("fence-order") == "confirmed"
    assert Record(fences()).of(1, 3, 4).of(2, 1, 2).says("fence-order") == "contradicted"
    record = Record(fences()).of(1, 3, 4).of(2, 1, 2, log="other")
    assert record.says("fence-order") == "not decided"


def test_without_a_violation_nothing_is_added() -> None:
    scene = Scene().acquire(1, 0, 1, until=10).release(1, 2, 3)
    report = Record(scene).of(1, 1, 2, until=10.0).judged()
    assert report.result == "valid"
    assert not any(verdict.evidence for verdict in report.verdicts.values())


def test_of_shared_locks_nothing_is_said() -> None:
    scene = two_holders()
    scene.kind("semaphore", permits=1)
    record = Record(scene).of(1, 1, 2, until=4.0).of(2, 3, 4)
    assert record.says("double-grant") == "not decided"
