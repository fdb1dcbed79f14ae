"""The earlier tries of a case, which count in every k of n, are held against what was written of
them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockbench.results.stored import Edited, stored
from tests.results.made_run import make_run

EARLIER = "01-etcd-pause-try1"
Change = Callable[[list[dict[str, Any]]], object]


@pytest.fixture
def tried(tmp_path: Path) -> Path:
    """A run of one case, tried twice."""

    def twice(case: dict[str, Any]) -> None:
        (folder,) = tmp_path.glob("2*/cases/01-*")
        earlier = folder.with_name(EARLIER)
        shutil.copytree(folder, earlier)
        (earlier / "case.json").write_text(json.dumps({**case, "folder": EARLIER}))
        observed = {verdict: of["result"] for verdict, of in case["verdicts"].items()}
        case["earlier_tries"] = [{"observed": observed, "exposed": True, "folder": EARLIER}]

    return make_run(tmp_path, change=twice).path


def edit(run: Path, change: Change) -> None:
    """What is said of the earlier tries, in both files alike."""
    for file in (run / "results.json", run / "cases" / "01-etcd-pause" / "case.json"):
        document = json.loads(file.read_text())
        change((document["cases"][0] if "cases" in document else document)["earlier_tries"])
        file.write_text(json.dumps(document))


def test_what_was_left_alone_is_taken(tried: Path) -> None:
    (case,) = stored(tried).cases
    assert case.earlier_tries[0].observed["double-grant"] == "valid"


@pytest.mark.parametrize(
    "change",
    [
        lambda tries: tries[0]["observed"].update({"double-grant": "invalid"}),
        lambda tries: tries[0]["observed"].pop("double-grant"),
        lambda tries: tries[0].update(exposed=False),
    ],
)
def test_an_earlier_try_that_was_edited_in_both_files_is_refused(
    tried: Path, change: Change
) -> None:
    edit(tried, change)
    with pytest.raises(Edited, match=f"{EARLIER}: 01-etcd-pause says something else of this try"):
        stored(tried)


def test_an_earlier_try_that_was_edited_everywhere_is_not_what_its_history_gives(
    tried: Path,
) -> None:
    edit(tried, lambda tries: tries[0]["observed"].update({"double-grant": "invalid"}))
    file = tried / "cases" / EARLIER / "case.json"
    document = json.loads(file.read_text())
    document["verdicts"]["double-grant"]["result"] = "invalid"
    file.write_text(json.dumps(document))
    with pytest.raises(Edited, match=f"{EARLIER}: double-grant is stored as invalid"):
        stored(tried)


def test_an_earlier_try_is_not_counted_twice(tried: Path) -> None:
    edit(tried, lambda tries: tries.append(dict(tries[0])))
    with pytest.raises(Edited, match="two of its tries are one"):
        stored(tried)


def test_an_earlier_try_without_its_folder_or_with_another_history_is_refused(
    tried: Path,
) -> None:
    file = next((tried / "cases" / EARLIER / "history").glob("*.ops"))
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    with pytest.raises(Edited, match=f"{EARLIER}: the history is not the one that was judged"):
        stored(tried)
    shutil.rmtree(tried / "cases" / EARLIER)
    with pytest.raises(Edited, match=f"{EARLIER}: its case.json is missing"):
        stored(tried)
    edit(tried, lambda tries: tries[0].pop("folder"))
    with pytest.raises(Edited, match="does not say which folder is its own"):
        stored(tried)
