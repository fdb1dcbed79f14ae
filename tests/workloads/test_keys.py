"""Which keys the contending users ask for."""

from __future__ import annotations

from collections import Counter

import pytest

from workloads.load import shared_key


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("keys", [1, 2, 3, 5, 8, 20])
@pytest.mark.parametrize("users", [8, 24, 64])
def test_keys_are_shared_evenly_and_across_workers(workers: int, keys: int, users: int) -> None:
    asked = [(shared_key(place, keys, workers), place % workers) for place in range(users)]
    per_key = Counter(key for key, _ in asked)
    assert max(per_key.values()) - min(per_key.values()) <= 1 or users < keys
    if workers == 1 or users < 2 * keys:
        return
    alone = [key for key in per_key if len({w for other, w in asked if other == key}) == 1]
    assert not alone, f"only one worker asks for {alone}"
