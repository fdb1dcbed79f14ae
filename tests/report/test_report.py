"""The report: what is on it, what is never green, what it refuses, what it leaves alone."""

from __future__ import annotations

import hashlib
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lockbench.history.op import NULL, F, Type
from lockbench.history.recording import read_recording
from lockbench.report.columns import Column
from lockbench.report.content import Content, compose
from lockbench.report.grid import Cell
from lockbench.report.source import read
from lockbench.report.timeline import timeline
from lockbench.report.write import files, write
from lockbench.results.alert_metrics import ALERTS
from lockbench.results.cases import command_of
from lockbench.results.comparison import Comparison
from lockbench.results.documents import CaseResult, PhasesS
from lockbench.results.gate import Cell as Number
from lockbench.results.store import NotARun, RunFolder, open_run
from lockbench.results.wording import NONE
from tests.results.load import Load
from tests.results.made_run import make_run, record
from tests.results.plain import plain, write_case

EVIL = "<img src=x onerror=alert(1)>\"'</script><b>|`"


def composed(run: RunFolder) -> Content:
    return compose(read(run))


def kinds(run: RunFolder) -> list[str]:
    matrix = composed(run).matrix
    assert matrix is not None
    return [cell.kind for row in matrix.rows for cell in row[1:]]


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def edit(path: Path, change: Any) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def test_a_report_loads_nothing_and_touches_nothing_else(tmp_path: Path) -> None:
    run = make_run(tmp_path, double=True, faults={"none": False, "pause": True})
    before = digests(run.path)
    (run.path / "report").mkdir()
    (run.path / "report" / "09-stale.svg").write_text("<svg/>")
    written = write(run)
    page = written.html.read_text()
    for word in ("http://", "https://", "src=", "@import", "url(", "<link", "<iframe"):
        assert word not in page.replace('xmlns="http://www.w3.org/2000/svg"', "").replace(
            "'http://www.w3.org/2000/svg'", ""
        ), word
    after = digests(run.path)
    assert {name: after[name] for name in before} == before
    new = set(after) - set(before)
    assert all(name.startswith("report") for name in new)
    assert "report/09-stale.svg" not in new
    shown = re.findall(r"\]\((report/[^)]+)\)", written.markdown.read_text())
    assert sorted(shown) == sorted(name for name in new if name.startswith("report/"))
    assert written.images == len(shown) >= 2 * 4
    assert all("<svg" in (run.path / name).read_text() for name in shown)


def test_everything_that_is_asked_for_is_there(tmp_path: Path) -> None:
    run = make_run(tmp_path, double=True)
    page = write(run).html.read_text()
    for words in (
        "Verdicts, lock by fault", "Side by side", "Latency by outcome, own keys",
        "Latency by outcome, contended keys", "Quantiles over time", "Rate and availability",
        "Fairness", "Error classes", "Load generator", "Link overhead, and one client alone",
        "double-grant: invalid.", 'class="lanes"', "both held it",
    ):  # fmt: skip
        assert words in page, words
    section = composed(run).sections[0]
    latency = next(grid for grid in section.grids if grid.title == "Latency by phase")
    assert {"p50, ms", "p99, ms", "IQR, ms", "n"} <= set(latency.headings)
    assert any(
        "2 acquire" in chart.caption or "granted" in chart.caption for chart in section.charts
    )
    assert section.command.startswith("lockbench run --lock etcd --fault pause")


def test_void_figures_stand_in_brackets_on_the_whole_page_and_a_neighbour_has_none(
    tmp_path: Path,
) -> None:
    def change(case: dict[str, Any]) -> None:
        if case["fault"] == "pause":
            case.update(numbers="void")
            case["generator"].update(ok=False, why=["worker-1 used 97 % of a core"])

    run = make_run(tmp_path, faults={"none": False, "pause": True}, change=change)
    written = write(run)
    page = written.html.read_text()
    void: set[tuple[str, str, str]] = set()
    valid: set[tuple[str, str, str]] = set()
    for figure in re.findall(r'<figure class="table.*?</figure>', page, re.DOTALL):
        name = re.findall('data-name="([^"]+)"', figure)[0]
        headings = re.findall(r'<th scope="col"><button type="button">([^<]*)', figure)
        for row in re.findall("<tr>(?!<th)(.*?)</tr>", figure, re.DOTALL):
            cells = re.findall(r"<td[^>]*>([^<]*)", row)
            named = dict(zip(headings, cells, strict=False))
            of_void = named.get("fault") == "pause" or name.startswith("case-02")
            for heading, cell in named.items():
                if re.search(r"(p\d+|max|IQR), m?s|cycles", heading) and cell != NONE:
                    (void if of_void else valid).add((name, heading, cell))
    assert {name for name, *_ in void} >= {
        "side-by-side", "every-case", "case-02-latency", "case-02-throughput", "case-02-fairness"
    }  # fmt: skip
    # What one client alone costs was measured before, and how late the generator was is why.
    of_others = ("case-02-overhead", "case-02-generator")
    plain = [figure for figure in void if not figure[2].startswith("(")]
    assert not [figure for figure in plain if figure[0] not in of_others]
    assert not [figure for figure in valid if figure[2].startswith("(")]
    assert "worker-1 used 97 % of a core" in page
    assert page.count("The figures are void.") == 4
    # Why stands with the tables, folded.
    before, _, after = page.partition("<li>Numbers in brackets are void")
    assert after
    assert before.rfind("<details") > before.rfind("</details>")
    latency = pd.read_csv(io.StringIO(files(run, run.results())["latency.csv"]))
    assert set(latency.loc[latency["fault"] == "pause", "numbers_valid"]) == {False}
    assert set(latency.loc[latency["fault"] == "none", "numbers_valid"]) == {True}


def test_both_sides_of_a_change_stand_apart(tmp_path: Path) -> None:
    sides = iter(["base", "new"])
    compared = Comparison(
        kind="regress",
        base="redis==8.0.1",
        new="current",
        endings=["regression"],
        sentences={"regression": "Slower: it is"},
        changes=[],
        cells=[Number("etcd", "pause", "acquire-p50", "worse", 10, 1.0, 1.5, 0.5, 0.4, 0.6)],
        notes=["20 runs"],
    )
    run = make_run(
        tmp_path,
        faults={"pause": True, "kill": True},
        change=lambda case: case.update(fault="pause", side=next(sides)),
        results={"comparison": plain(compared.document())},
    )
    content = composed(run)
    assert content.lines == ("Slower: it is",)
    assert content.matrix is not None
    assert [label.text for label, *_ in content.matrix.rows] == ["etcd (base)", "etcd (new)"]
    assert all("--lock etcd --fault" in section.command for section in content.sections)
    (grid,) = content.comparison
    row = dict(zip(grid.headings, grid.rows[0], strict=True))
    assert row["verdict"].text == "worse"
    assert (row["low, %"].text, row["high, %"].text) == ("40.0", "60.0")
    assert "base: redis==8.0.1; new: current" in grid.caption.lower()
    assert "Slower: it is" in write(run).html.read_text()


def test_the_summary_of_a_night_names_the_runs_to_report(tmp_path: Path) -> None:
    run = make_run(tmp_path, results={"parts": ["runs/a", "runs/b"]})
    with pytest.raises(NotARun, match=r"sums up a night; give one of its runs: runs/a, runs/b"):
        write(run)


def test_every_alert_says_of_each_violation_whether_it_saw_it(tmp_path: Path) -> None:
    found = composed(make_run(tmp_path, double=True)).sections[0].grids
    (grid,) = [grid for grid in found if grid.name == "case-01-alerts"]
    columns = dict(zip(grid.headings, zip(*grid.rows, strict=True), strict=True))
    assert {cell.text for cell in columns["violation"]} == {"double-grant"}
    assert [cell.text for cell in columns["alert"]] == [alert.name for alert in ALERTS]
    assert all(cell.text.startswith("unseen") for cell in columns["recorded"][:2])
    calm = composed(make_run(tmp_path)).sections[0].grids
    assert not [grid for grid in calm if "alerts" in grid.name]


@pytest.mark.parametrize(
    ("judgement", "exposed", "kind"),
    [
        ("as expected", True, "kept"),
        ("not exposed", False, "open"),
        ("undecided", True, "open"),
        ("failed", True, "failed"),
        ("did not show", True, "open"),
        ("held, undeclared", True, "open"),
        (None, True, "open"),
    ],
)
def test_only_what_was_kept_is_green(
    tmp_path: Path, judgement: str | None, exposed: bool, kind: str
) -> None:
    run = make_run(tmp_path, change=lambda case: case.update(judgement=judgement, exposed=exposed))
    assert kinds(run) == [kind]
    page = write(run).html.read_text()
    assert ('<td class="kept">' in page) == (kind == "kept")


def test_a_cell_of_several_cases_is_as_green_as_its_worst(tmp_path: Path) -> None:
    seen = iter(["as expected", "not exposed"])
    run = make_run(
        tmp_path,
        faults={"pause": True, "kill": True},
        change=lambda case: case.update(fault="pause", judgement=next(seen)),
    )
    assert kinds(run) == ["open"]


def test_html_in_names_and_messages_stays_text(tmp_path: Path) -> None:
    def change(case: dict[str, Any]) -> None:
        case.update(lock=f"toy{EVIL}", fault=EVIL, why=EVIL, judgement="worse than expected")
        case["errors"] = {"before": {EVIL: 3}}
        case["generator"]["why"] = [EVIL]
        case["verdicts"]["double-grant"]["reason"] = EVIL

    run = make_run(tmp_path, change=change, injected=EVIL, double=True)
    written = write(run)
    page = written.html.read_text()
    assert "<img" not in page
    assert "<b>|" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert page.count("<script>") == page.count("</script>") == 2
    text = written.markdown.read_text()
    assert "<img" not in text.replace("`lockbench run", "`").split("Again:")[0]
    for image in (run.path / "report").glob("*.svg"):
        assert "<img" not in image.read_text(), image
    again = next(line for line in text.splitlines() if line.startswith("Again:"))
    assert again.count("`") == 2


def test_a_run_without_a_fault_leaves_those_columns_empty(tmp_path: Path) -> None:
    run = make_run(tmp_path, faults={"none": False})
    found = composed(run)
    every = next(grid for grid in found.numbers if grid.name == "every-case")
    assert {row[every.headings.index("phase")].text for row in every.rows} == {"before"}
    assert 'stroke-dasharray="2,3"' not in found.sections[0].charts[0].svg()
    write(run)


def test_a_changed_history_is_refused_and_the_old_report_stays(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    write(run)
    before = digests(run.path)
    segment = next(run.cases()[0].history.glob("*.ops"))
    data = bytearray(segment.read_bytes())
    data[100] ^= 1
    segment.write_bytes(data)
    with pytest.raises(NotARun, match="was changed since case 1 was judged"):
        write(open_run(run.path))
    segment.unlink()
    with pytest.raises(NotARun, match="is missing"):
        write(run)
    left = {name: digest for name, digest in before.items() if not name.endswith(".ops")}
    assert {name: digests(run.path)[name] for name in left} == left


def test_results_edited_by_hand_are_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path, double=True)

    def whiten(document: dict[str, Any]) -> None:
        case = document["cases"][0]
        case["verdicts"]["double-grant"]["result"] = "valid"

    edit(run.path / "results.json", whiten)
    with pytest.raises(NotARun, match=r"is not what .*case\.json"):
        write(run)
    assert not (run.path / "report.html").exists()


def test_results_edited_everywhere_are_not_believed(tmp_path: Path) -> None:
    """The history stays the evidence: judged again, it says what the results no longer say."""
    run = make_run(tmp_path, double=True)

    def whiten(case: dict[str, Any]) -> None:
        for name in ("double-grant", "linearizable"):
            case["verdicts"][name]["result"] = "valid"

    edit(run.path / "results.json", lambda document: whiten(document["cases"][0]))
    edit(run.cases()[0].path / "case.json", whiten)
    assert kinds(run) == ["broke"] or kinds(run) == ["worse"]
    page = write(run).html.read_text()
    assert "judged again says invalid" in page
    assert '<td class="kept">' not in page


def test_a_judgement_that_hides_a_break_is_not_believed(tmp_path: Path) -> None:
    run = make_run(
        tmp_path, double=True, change=lambda case: case.update(expected={"double-grant": "holds"})
    )
    assert kinds(run) == ["worse"]
    page = write(run).html.read_text()
    assert "(NOT expected)" in page
    assert '<td class="worse">' in page
    assert "td.worse{background" in page


def test_a_stored_judgement_hides_no_break_of_which_nothing_was_declared(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        double=True,
        change=lambda case: case.update(
            expected=dict.fromkeys(("double-grant", "lost-update", "linearizable"), "undeclared"),
            judgement="held, undeclared",
        ),
    )
    assert kinds(run) == ["worse"]
    page = write(run).html.read_text()
    assert "(undeclared)" in page
    assert "the stored judgement hides it" in page


def test_what_is_no_finished_run_is_named(tmp_path: Path) -> None:
    half = RunFolder.create(tmp_path, "half")
    half.let_go()
    with pytest.raises(NotARun, match="half-written"):
        write(half)
    assert not (half.path / "report.html").exists()
    run = make_run(tmp_path)
    (run.path / "results.json").write_text('{"cases": [')
    with pytest.raises(NotARun, match="cannot be read"):
        write(run)


def test_a_case_that_failed_before_its_load_is_shown(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    folder = run.case(2, "etcd", "kill")
    case: dict[str, Any] = {"lock": "etcd", "fault": "kill", "judgement": "failed"}
    case["why"] = "no cluster"
    case |= {"folder": folder.path.name, "numbers": "void", "history_sha256": {}}
    write_case(folder, case)
    edit(run.path / "results.json", lambda document: document["cases"].append(case))
    section = composed(run).sections[1]
    assert (section.kind, section.charts) == ("failed", ())
    assert "no history" in section.notes[0]
    assert "no cluster" in write(run).html.read_text()


def test_thinning_keeps_every_operation_and_every_extreme(tmp_path: Path) -> None:
    """Held against the plain columns of the history."""
    record(tmp_path, 4000)
    history = read_recording(tmp_path)
    line = timeline(history)
    assert line is not None
    start = np.where(history.intended_ns == NULL, history.invoke_ns, history.intended_ns)
    for role in ("own", "contended"):
        key = history.keys.index(f"{role}-0")
        acquires = (history.f == F.ACQUIRE) & (history.key == key)
        for outcome, type_ in (
            ("granted", Type.OK),
            ("refused", Type.FAIL),
            ("unknown", Type.INFO),
        ):
            picked = acquires & (history.type == type_)
            for frame in (line.bins, line.fine):
                bins = frame[(frame["role"] == role) & (frame["outcome"] == outcome)]
                assert bins["count"].sum() == np.count_nonzero(picked)
                if type_ is not Type.INFO and np.any(picked):
                    took = (history.complete_ns[picked] - start[picked]) / 1e6
                    assert bins["max_ms"].max() == pytest.approx(took.max(), abs=1e-9)
                    assert bins["min_ms"].min() == pytest.approx(took.min(), abs=1e-9)
    assert len(line.fine) <= 60 * 6


def test_the_pictures_of_a_case_end_where_its_stated_rates_begin() -> None:
    load = Load()
    for n in range(30):
        load.grant("k0", 1000 + 100 * n, 1010 + 100 * n)
    alone = timeline(load.history())
    for at in (5000, 9000):
        load.grant("r0", at, at + 100)
    load.grant("k0", 30_000, 30_001)  # who looks whether anything is left
    found = timeline(load.history())
    assert alone is not None
    assert found is not None
    assert found.end_s == pytest.approx(4.0)
    assert found.bins["count"].sum() == alone.bins["count"].sum() == 30


def test_the_command_that_runs_a_case_again_leaves_out_the_time_of_its_rates() -> None:
    phases = PhasesS(floor_s=1.0, own_s=3.0, contended_s=11.0, rates_s=45.0)
    case = CaseResult(lock="etcd", fault="none", phases_s=phases)
    assert "--time-limit 15" in command_of(case)


def test_a_quantile_of_a_bin_needs_its_n(tmp_path: Path) -> None:
    record(tmp_path, 4000)
    line = timeline(read_recording(tmp_path))
    assert line is not None
    for frame in (line.bins, line.fine):
        for column, least in (("p50_ms", 20), ("p90_ms", 100), ("p99_ms", 1000)):
            granted = frame[frame["outcome"] == "granted"]
            assert (granted[column].notna() == (granted["count"] >= least)).all(), column
    assert line.bins["p90_ms"].notna().any()


def test_one_slow_operation_among_thousands_reaches_the_picture(tmp_path: Path) -> None:
    """A range of one bin ends at it, whatever its neighbours are."""
    run = make_run(tmp_path, faults={"none": False})
    line = read(run).seen[0].line
    assert line is not None
    slowest = line.fine.loc[line.fine["role"] == "own", "max_ms"].max()
    chart = composed(run).sections[0].charts[0]
    drawn = [
        row["v"] for layer in chart.spec["layer"] for row in layer["data"]["values"] if row.get("v")
    ]
    assert max(drawn) == slowest


def test_numbers_are_written_with_their_unit() -> None:
    def cell(name: str, value: Any) -> Cell:
        return Column(name, "").cell(value)

    assert Column("wait_p99_ms", "").heading == "wait p99, ms"
    assert Column("count", "").heading == "n"
    assert cell("p50_ms", 1.23456) == Cell("1.23", "1.23456")
    assert cell("p99_ms", None) == Cell(NONE)
    assert cell("count", 12345.0) == Cell("12,345", "12345")
    assert cell("healthy", True) == Cell("yes")


def test_a_lock_of_ones_own_is_told_with_its_file_and_what_its_server_said(tmp_path: Path) -> None:
    said = "no-effect: ResponseError: ERR value is not an integer"

    def change(case: dict[str, Any]) -> None:
        own = {"spec": "my locks/a.py:Mine", "sha256": "ab" * 32, "libraries": {"redis": "8.1.0"}}
        case |= {"own": own, "error_texts": {"no-effect: ResponseError": said}}

    written = write(make_run(tmp_path, change=change)).markdown.read_text(encoding="utf-8")
    assert "lockbench run --lock 'my locks/a.py:Mine' --fault pause" in written.replace("\\", "")
    assert said in written.replace("\\", "")
    assert "redis 8.1.0" in written


def test_errors_of_a_case_that_went_as_expected_ask_nobody_to_look(tmp_path: Path) -> None:
    def expected(case: dict[str, Any]) -> None:
        case |= {"judgement": "as expected", "error_texts": {"acquire: TimeoutError": "too slow"}}

    def failed(case: dict[str, Any]) -> None:
        case |= {"judgement": "failed", "error_texts": {"acquire: TimeoutError": "too slow"}}

    quiet, loud = (
        write(make_run(tmp_path / name, change=change)).markdown.read_text(encoding="utf-8")
        for name, change in (("a", expected), ("b", failed))
    )
    assert "too slow" in loud
    assert "too slow" not in quiet
