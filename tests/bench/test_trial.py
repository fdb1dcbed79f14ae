"""What a trial of a guard says of its price."""

from __future__ import annotations

import pytest

from lockbench.bench.trial import Price, priced
from lockbench.results.documents import Quantiles
from lockbench.stores.base import Guard
from lockbench.stores.registry import find

GUARD: Guard = find("redis").guard
MS = Quantiles(count=1200, p50=2.0, p99=8.0)


def test_a_price_stands_beside_the_unguarded_one() -> None:
    plain = Price(GUARD, Quantiles(count=1200, p50=1.0, p99=4.0), 0, 0, 0)
    assert "p50 2.00 ms (2.00 times)" in priced(Price(GUARD, MS, 0, 0, 0), plain)


@pytest.mark.parametrize(("refused", "failed"), [(3, 0), (0, 2)])
def test_writes_that_were_not_applied_have_no_price(refused: int, failed: int) -> None:
    said = priced(Price(GUARD, MS, 0, refused, failed), Price(GUARD, MS, 0, 0, 0))
    assert f"no price: of 1200 writes {refused} were refused and {failed} failed" in said
    assert "ms" not in said
