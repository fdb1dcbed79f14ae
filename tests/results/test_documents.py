"""What a document of a run folder may hold: everything that is written, and nothing that would trip
a reader."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lockbench.results import digests, documents, store
from lockbench.results.documents import FORMAT
from lockbench.results.store import NotARun, RunFolder, open_run
from tests.results.made_run import make_run
from tests.results.plain import write_json, write_results
from tools.schema import FILE

DEEP = 100_000
KINDS: dict[str, type[documents.Document]] = {
    "plan.json": documents.Plan,
    "machine.json": documents.Machine,
    "versions.json": documents.Versions,
    "results.json": documents.Results,
}


@pytest.mark.parametrize("name", [*KINDS, "cases/01-etcd-pause/case.json"])
def test_everything_that_is_written_is_declared(tmp_path: Path, name: str) -> None:
    run = make_run(tmp_path, double=True)
    kind = KINDS.get(name, documents.CaseResult)
    found = documents.read(run.path / name, kind, inside=run.path)
    text = (run.path / name).read_text()
    assert text == documents.text_of(found)
    assert json.loads(text)["format"] == FORMAT


def case(**fields: object) -> dict[str, Any]:
    return {"cases": [{"lock": "etcd", "fault": "none", **fields}]}


@pytest.mark.parametrize(
    ("name", "value", "field"),
    [
        ("plan.json", {"cases": [{"clients": "many"}]}, "cases[0].clients"),
        ("plan.json", {"cases": [{"clients": 10**9}]}, "cases[0].clients"),
        ("plan.json", {"cases": [{"injections": [{"fault": "x"}]}]}, "cases[0].injections[0]"),
        ("plan.json", {"cases": [{"images": [["redis"]]}]}, "cases[0].images[0]"),
        ("machine.json", {"memory_bytes": "much"}, "memory_bytes"),
        ("machine.json", {"fsync_ms": {"p99": "slow"}}, "fsync_ms.p99"),
        ("machine.json", {"fsync_ms": []}, "fsync_ms"),
        ("versions.json", {"images": {"redis": "latest"}}, "images[...]"),
        ("versions.json", {"libraries": []}, "libraries"),
        ("results.json", {"cases": {}}, "cases"),
        ("results.json", {}, "cases"),
        ("results.json", case(lock=3), "cases[0].lock"),
        ("results.json", case(folder="../../other"), "cases[0].folder"),
        ("results.json", case(folder=""), "cases[0].folder"),
        (
            "results.json",
            case(series={"start_ns": 10**30, "grants": []}),
            "cases[0].series.start_ns",
        ),
        (
            "results.json",
            case(phases_s={"floor_s": 1, "own_s": -1, "contended_s": 1}),
            "cases[0].phases_s.own_s",
        ),
        (
            "results.json",
            case(phases_s={"floor_s": 1, "own_s": 1e300, "contended_s": 1}),
            "cases[0].phases_s.own_s",
        ),
        ("results.json", case(phases_s={"own_s": 1}), "cases[0].phases_s"),
        ("results.json", case(settings={"client_timeout_s": "1 s"}), "client_timeout_s"),
        ("results.json", case(verdicts={"double-grant": "valid"}), "cases[0].verdicts[...]"),
        ("results.json", case(verdicts={"../x": {"result": "valid"}}), "cases[0].verdicts"),
        ("results.json", case(observed={"x": "fine"}), "cases[0].observed[...]"),
        ("results.json", case(latency_ms={"acquire": [1]}), "cases[0].latency_ms[...]"),
        ("results.json", case(generator={"workers": [{"idle_users": 3}]}), "idle_users"),
        ("results.json", case(history_sha256={"a": 1}), "cases[0].history_sha256[...]"),
        ("results.json", case(measurements={"fencing": {"x": 3}}), "fencing[...]"),
        (
            "results.json",
            case(counts={"acquire": {"before": {"ok": 10**400}}}),
            "cases[0].counts",
        ),
        ("results.json", {"cases": [], "undisturbed": [{"lock": "x"}]}, "undisturbed[0]"),
        ("results.json", {"cases": [], "parts": [1]}, "parts[0]"),
        ("results.json", {"cases": [], "format": FORMAT + 1}, "format"),
    ],
)
def test_what_does_not_fit_is_refused_with_file_and_field(
    tmp_path: Path, name: str, value: dict[str, Any], field: str
) -> None:
    run = make_run(tmp_path, cycles=400)
    write_json(run.path / name, value)
    read: Callable[[], object] = getattr(open_run(run.path), name.removesuffix(".json"))
    with pytest.raises(NotARun) as refused:
        read()
    said = str(refused.value)
    assert name in said
    assert field.replace("[0]", "[...]") in said.replace("[0]", "[...]")


@pytest.mark.parametrize("name", [*KINDS, "case.json"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * DEEP + "]" * DEEP, "Expected object"),
        ('{"x":' * DEEP + "1" + "}" * DEEP, "nested too deeply"),
        ('{"name": "\\ud800", "lock": "\\ud800", "cpu": "\\ud800", "engine": "\\ud800"}', "pair"),
        ('{"x": NaN}', "malformed"),
        ('{"lock": "x", "fault": "x", "cases": [], "x": 1e999}', "out of range"),
        ("", "truncated"),
        ('"\xff"', "Expected"),
    ],
)
def test_what_is_no_document_is_refused(tmp_path: Path, name: str, text: str, said: str) -> None:
    run = make_run(tmp_path, cycles=400)
    folder = run.cases()[0]
    path = folder.path / name if name == "case.json" else run.path / name
    path.write_text(text)
    of: RunFolder | store.CaseFolder = folder if name == "case.json" else open_run(run.path)
    reader = "read_case" if name == "case.json" else name.removesuffix(".json")
    read: Callable[[], object] = getattr(of, reader)
    with pytest.raises(NotARun, match=said):
        read()


def test_the_number_of_the_format_is_for_the_reader_alone(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path)
    write_results(run, {"cases": [], "ending": "ok"})
    run.finish("ok")
    assert json.loads((run.path / "results.json").read_text())["format"] == FORMAT
    assert run.results() == documents.Results(cases=(), ending="ok")
    (run.path / "results.json").write_text('{"cases": [], "ending": "ok"}')
    assert run.results() == documents.Results(cases=(), ending="ok"), (
        "from before there was a number"
    )


def test_half_of_a_surrogate_pair_does_not_lose_a_run(tmp_path: Path) -> None:
    """A server's error text is what it is; the results are written, and can be read."""
    run = RunFolder.create(tmp_path)
    write_results(run, case(why="it said \udc80"))
    run.finish("ok")
    assert run.results().cases[0].why == "it said \\udc80"
    run.write_text("report.md", "\udc80\n")
    assert (run.path / "report.md").read_text() == "\\udc80\n"


def test_a_recording_that_is_too_large_is_not_digested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path, cycles=400)
    folder = run.cases()[0]
    recorded = folder.history_sha256()
    assert folder.history_differs(recorded) == []
    with (folder.history / "9.0.ops").open("wb") as file:
        file.truncate(1 << 42)
    with pytest.raises(NotARun, match="larger than"):
        folder.history_differs(recorded)
    (folder.history / "9.0.ops").unlink()
    monkeypatch.setattr(digests, "BYTES_MAX", 1000)
    with pytest.raises(NotARun, match="larger than"):
        folder.history_differs(recorded)


def test_folders_without_end_are_not_walked(tmp_path: Path) -> None:
    run = make_run(tmp_path, cycles=400)
    below = run.cases()[0].history
    for _ in range(20):
        below = below / "a"
        below.mkdir()
    with pytest.raises(NotARun, match="lies deeper"):
        run.cases()[0].history_differs({})


def test_the_schema_that_is_shipped_is_of_today() -> None:
    """After a change: ``python -m tools.schema``."""
    assert FILE.read_text(encoding="utf-8") == documents.schema()
    found = json.loads(documents.schema())["$defs"]["Results"]
    assert found["required"] == ["cases"]
    assert found["additionalProperties"] is False
    assert found["properties"]["format"] == {"type": "integer", "const": FORMAT}


@pytest.mark.parametrize("number", [0, 1, FORMAT - 1, FORMAT])
def test_a_field_that_is_not_declared_is_refused_and_dropped_from_older_documents(
    tmp_path: Path, number: int
) -> None:
    run = RunFolder.create(tmp_path)
    found = case(floor={"cycles": 3, "colour": "red"})
    write_json(run.path / "results.json", found | {"format": number})
    run.finish("ok")
    if number < documents.DECLARED_FROM:
        assert run.results().cases[0].floor == documents.Floor(cycles=3)
        return
    with pytest.raises(NotARun, match=r"cases\[0\]\.floor: .*colour"):
        run.results()


def test_numbers_of_numpy_are_numbers() -> None:
    found = documents.made(documents.Floor, {"cpu_us_per_cycle": np.float64(1.5)})
    assert found == documents.Floor(cpu_us_per_cycle=1.5)
    case = documents.CaseResult(lock="etcd", fault="none", cycles_per_second=np.float64(2.5))
    assert '"cycles_per_second": 2.5' in documents.text_of(case)
