"""The slow way to search: tries every order of the calls of a model, one by one, without any
cleverness.

It shares models and calls with the product, so it is a reference for the *search* alone. What a
lock may answer at all is restated in ``tests/checker/reference.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from lockbench.checker.models import Model, State
from lockbench.checker.search import Call


def linearizable(model: Model, calls: Sequence[Call]) -> bool:
    """Depth first over every order that the windows allow; unknown calls may be left out."""

    def explain(state: State, left: frozenset[int]) -> bool:
        due = [i for i in left if calls[i].end is not None]
        if not due:
            return True
        first_end = min(calls[i].end for i in due)  # type: ignore[type-var]
        for i in left:
            if first_end is not None and calls[i].begin <= first_end:
                for after in model.step(state, calls[i].operation):
                    if explain(after, left - {i}):
                        return True
        return False

    return explain(model.initial, frozenset(range(len(calls))))
