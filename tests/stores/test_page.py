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
        f"```{guard.language}\n{guard.snippet}\n```\n\nSource: {guard.source}\n"
    )
    assert shown in f"{PAGE}\n"
