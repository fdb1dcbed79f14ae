"""What a case's document says of recovery."""

from __future__ import annotations

import pytest

from lockbench.bench.document import _unrecovered_s
from lockbench.history.op import Fault
from lockbench.results.documents import Recovery

S = 1_000_000_000
END_NS = 20 * S


def fault(healed_s: int | None) -> Fault:
    heal_ns = None if healed_s is None else (healed_s * S, healed_s * S)
    return Fault("kill", ("n1",), (S, S), heal_ns)


@pytest.mark.parametrize(
    ("faults", "unrecovered_s"),
    [
        ([(10, 0.5)], None),
        ([(10, None)], 10.0),
        ([(10, 0.5), (15, None)], 5.0),
        ([(10, None), (15, 0.5)], 10.0),
        ([(None, None)], None),
        ([(20, None)], None),
        ([], None),
    ],
    ids=["served", "never", "the second", "the first", "not healed", "healed at the end", "none"],
)
def test_a_fault_that_was_not_recovered_from_is_not_left_out(
    faults: list[tuple[int | None, float | None]], unrecovered_s: float | None
) -> None:
    """Censored at the end of the load, whatever other faults there were."""
    seen = [Recovery("kill", servers_s=served_s) for _, served_s in faults]
    assert _unrecovered_s(seen, [fault(healed_s) for healed_s, _ in faults], END_NS) == (
        unrecovered_s
    )
