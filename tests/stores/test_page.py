"""The page shows of every guard the text that runs."""

from __future__ import annotations

import pytest

from lockbench.stores.base import UNGUARDED, Guard
from lockbench.stores.registry import declared
from tools.setup import ROOT

PAGE = (ROOT / "docs" / "fences.md").read_text()
GUARDS = [
    pytest.param(name, guard, id=f"{name}-{guard.name}")
    for name, store in declared().items()
    for guard in store.guards
    if guard.name != UNGUARDED
]


@pytest.mark.parametrize(("store", "guard"), GUARDS)
def test_the_page_shows_what_runs(store: str, guard: Guard) -> None:
    shown = (
        f"`--resource {store}:guard={guard.name}`: {guard.promises}\n\n"
        f"```{guard.language}\n{guard.after_helpers}\n```\n\nSource: {guard.source}\n"
    )
    assert shown in f"{PAGE}\n"


@pytest.mark.parametrize(("store", "guard"), GUARDS)
def test_what_guards_have_in_common_is_shown_once_before_them(store: str, guard: Guard) -> None:
    assert guard.snippet.startswith(guard.helpers)
    if guard.helpers:
        before = PAGE.partition(f"`--resource {store}:guard=")[0]
        assert before.endswith(f"begin with:\n\n```{guard.language}\n{guard.helpers}\n```\n\n")
        assert PAGE.count(guard.helpers) == 1
