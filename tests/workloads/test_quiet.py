"""The quiet phase of a whole load: every key that was used is asked for, and one that was left
behind is found."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from lockbench.checker.check import check
from lockbench.checker.leaks import quiet_ns
from lockbench.history.op import F, Type
from lockbench.workloads.load import FLOOR_KEY, SPARE_KEY, Pace
from tests.workloads import unsafe
from tests.workloads.playing import Played, all_played, play

pytestmark = pytest.mark.slow
PACE = Pace(lease_ttl_s=0.6, wait_s=0.5, aimed_hold_s=0.05, aimed_wait_s=0.3, client_timeout_s=0.3)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Played]:
    plays = {
        name: partial(
            play,
            workload=workload,
            lock=f"{unsafe.__file__}:{name}",
            clients=3,
            keys=2,
            contended_s=4,
            pace=PACE,
            solo=2,
        )
        for name, workload in (
            ("OneAtATime", "mutex"),
            ("KeepsOne", "mutex"),
        )
    }
    return all_played(tmp_path_factory.mktemp("quiet"), plays)


def test_every_key_that_was_used_is_asked_for(played: dict[str, Played]) -> None:
    history = played["OneAtATime"].history
    quiet = history.f == F.QUIET
    asked = (history.f == F.ACQUIRE) & ~quiet
    used = asked & (history.invoke_ns < quiet_ns(history))
    # On a busy machine a client may not have come to its own key before: that is asked for, too.
    assert set(np.unique(history.key[used])) <= set(np.unique(history.key[quiet]))
    assert FLOOR_KEY in {history.keys[key] for key in np.unique(history.key[quiet])}
    late = asked & (history.invoke_ns >= quiet_ns(history))
    assert (history.type[late] == Type.OK).all()
    assert check(history).verdicts["leaked-lock"].result == "valid"


def test_a_key_that_is_left_behind_is_found(played: dict[str, Played]) -> None:
    history = played["KeepsOne"].history
    found = check(history).verdicts["leaked-lock"]
    assert found.result == "invalid"
    assert {item.get("key") for item in found.evidence} == {"k0", SPARE_KEY}
    assert check(history).verdicts["double-grant"].result == "valid"
