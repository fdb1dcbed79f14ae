"""The report in a real browser: clicks, sorting, downloads, themes, a phone, no scripts at all."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockbench.report.write import write
from tests.report.browser import Browser, browser, needs_chromium
from tests.results.made_run import make_run

pytestmark = needs_chromium
COLUMN = (
    "[...document.querySelectorAll('figure[data-name=every-case] tbody tr')]"
    ".map(row => row.cells[COLUMN].dataset.v ?? row.cells[COLUMN].innerText)"
)
TABLE = "figure[data-name=every-case]"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    faults = {"none": False, "pause": True, "kill": True}
    run = make_run(folder, cycles=6000, faults=faults, double=True, change=with_payments)
    return write(run).html


def with_payments(case: dict[str, Any]) -> None:
    """The last case is one of payments."""
    if case["fault"] == "kill":
        case["workload"] = "payment"
        case["counts"] |= {"job": {"before": {"ok": 1250, "fail": 3}, "during": {"ok": 90}}}
        case["latency_ms"] |= {"job": {"before": {"count": 1200, "p50": 7.0, "p99": 80.0}}}
        case["measurements"] |= {"jobs": {"payment": {"tries": 1300, "repeated": 0}}}
        case["measurements"]["fencing"] = {
            "unfenced": {"stale_attempted": 412, "lost_updates": 3},
            "fence-on-write": {"stale_attempted": 412, "stale_refused": 412},
        }


@pytest.fixture
def page(report: Path, tmp_path: Path) -> Iterator[Browser]:
    with browser(tmp_path) as opened:
        opened.screen(1280, 900)
        opened.open(report.as_uri())
        yield opened


def values(page: Browser, column: int) -> list[str]:
    return [str(value) for value in page.ask(COLUMN.replace("COLUMN", str(column)))]


def position(page: Browser, heading: str) -> int:
    headings = page.ask(
        f"[...document.querySelectorAll('{TABLE} th')].map(th => th.innerText.trim())"
    )
    return int(headings.index(heading))


def until(page: Browser, expression: str) -> None:
    end = time.monotonic() + 20
    while not page.ask(expression):
        assert time.monotonic() < end, expression


def test_the_helper_sees_script_errors(tmp_path: Path) -> None:
    broken = tmp_path / "broken.html"
    broken.write_text("<script>nowhere.at.all</script>")
    with browser(tmp_path) as opened:
        opened.open(broken.as_uri())
        opened.ask("1")
        assert any("nowhere" in error for error in opened.errors)


def unfolded(page: Browser) -> None:
    """Opens whatever is folded."""
    page.ask("document.querySelectorAll('details').forEach(d => d.open = true)")


def test_tables_sort_by_number_with_what_is_missing_last(page: Browser) -> None:
    unfolded(page)
    column = position(page, "acquire p99, ms")
    header = f"{TABLE} th:nth-child({column + 1})"
    unsorted = values(page, column)
    assert "–" in unsorted
    page.click(f"{header} button")
    until(page, f"document.querySelector('{header}').ariaSort === 'ascending'")
    known = sorted(float(v) for v in unsorted if v[0].isdigit())
    up = values(page, column)
    assert [float(v) for v in up[: len(known)]] == known
    assert all(not v[0].isdigit() for v in up[len(known) :])
    page.click(f"{header} button")
    until(page, f"document.querySelector('{header}').ariaSort === 'descending'")
    down = values(page, column)
    assert [float(v) for v in down[: len(known)]] == known[::-1]
    assert all(not v[0].isdigit() for v in down[len(known) :])
    assert page.errors == []


def test_counts_sort_as_numbers_and_not_as_texts(page: Browser) -> None:
    unfolded(page)
    column = position(page, "acquire n")
    known = sorted(values(page, column), key=int)
    assert known != sorted(known), "a sort of texts would pass as well"
    page.click(f"{TABLE} th:nth-child({column + 1}) button")
    until(page, f"document.querySelector('{TABLE} th[aria-sort=ascending]') !== null")
    assert values(page, column) == known


def test_a_table_is_downloaded_with_exact_numbers(page: Browser, tmp_path: Path) -> None:
    unfolded(page)
    page.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    column = position(page, "acquire p50, ms")
    shown = values(page, column)
    page.click(f"{TABLE} .csv")
    file = tmp_path / "every-case.csv"
    end = time.monotonic() + 20
    while not file.exists():
        assert time.monotonic() < end, "no download"
        page.ask("1")
    rows = list(csv.reader(file.read_text(encoding="utf-8").splitlines()))
    assert [row[column] for row in rows[1:]] == [v if v[0].isdigit() else "" for v in shown]
    assert len({len(row) for row in rows}) == 1
    assert page.errors == []


def test_a_cell_of_the_matrix_opens_its_case(page: Browser) -> None:
    assert not page.ask("document.getElementById('case-2').open")
    page.click("a[href='#case-2']")
    until(page, "document.getElementById('case-2').open")
    assert page.ask("document.querySelectorAll('#case-2 .chart svg').length") == 4
    assert page.ask("document.querySelectorAll('#case-2 svg.lanes[data-ready=yes]').length") >= 1
    page.click(".all")
    until(page, "[...document.querySelectorAll('details.case')].every(d => d.open)")
    assert page.errors == []


def test_light_dark_and_a_choice_of_ones_own(page: Browser) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    ink = "getComputedStyle(document.querySelector('.chart text')).fill"
    assert page.ask(background) == "rgb(255, 255, 255)"
    light = page.ask(ink)
    page.screen(1280, 900, scheme="dark")
    assert page.ask(background) != "rgb(255, 255, 255)"
    assert page.ask(ink) != light
    page.click(".theme")
    until(page, "document.documentElement.dataset.theme === 'light'")
    assert page.ask(background) == "rgb(255, 255, 255)"
    page.click(".theme")
    until(page, "document.documentElement.dataset.theme === 'dark'")
    assert page.ask(background) != "rgb(255, 255, 255)"
    assert page.errors == []


def test_a_phone_needs_no_sideways_scrolling_of_the_page(page: Browser) -> None:
    page.screen(390, 844, phone=True)
    unfolded(page)
    assert page.ask("document.documentElement.scrollWidth") == 390
    # Pictures of the whole run scroll in their frame: smaller nobody could read them.
    assert page.ask(
        "[...document.querySelectorAll('.chart:not(.picture) svg')]"
        ".every(s => s.getBoundingClientRect().width <= 390)"
    )


def test_jobs_stand_in_a_table_of_their_own(page: Browser) -> None:
    unfolded(page)
    rows = page.ask(
        "[...document.querySelectorAll('figure[data-name=jobs] tbody tr')].map(r => r.innerText)"
    )
    assert len(rows) == 3, "one a phase, of the one case with jobs"
    assert "1,200" in rows[0]
    worth = page.ask("document.querySelector('figure[data-name=worth] tbody').innerText")
    assert "412 attempted" in worth
    assert "412 refused, none lost" in worth
    wrong = "[...document.querySelectorAll('figure[data-name=jobs] th')]"
    place = page.ask(
        f"{wrong}.find(th => th.innerText.startsWith('wrong')).getBoundingClientRect().right"
    )
    assert place < 1280, "what went wrong is seen without scrolling"
    page.click("figure[data-name=jobs] th:nth-child(5) button")
    until(page, "document.querySelector('figure[data-name=jobs] th[aria-sort=ascending]') !== null")
    assert page.errors == []


def test_it_asks_for_nothing_but_itself(page: Browser, report: Path) -> None:
    assert set(page.requests) == {report.as_uri()}
    assert page.ask("document.documentElement.dataset.ready") == "yes"
    assert page.errors == []


def test_the_first_screen_needs_no_scripts(report: Path, tmp_path: Path) -> None:
    with browser(tmp_path) as opened:
        opened.screen(1280, 1000)
        opened.call("Emulation.setScriptExecutionDisabled", value=True)
        opened.open(report.as_uri())
        assert opened.ask("document.documentElement.dataset.ready") is None
        text = opened.ask("document.body.innerText")
        for words in ("Verdicts, lock by fault", "✗ double-grant", "The rate through each fault"):
            assert words in text, words
        below = "document.querySelector('figure.picture svg')"
        assert 0 < opened.ask(f"{below}.getBoundingClientRect().top") < 1000
        assert opened.ask("document.querySelector('button.theme').hidden")


def test_paper_shows_every_case(page: Browser) -> None:
    page.call("Emulation.setEmulatedMedia", media="print")
    page.ask("dispatchEvent(new Event('beforeprint'))")
    assert page.ask("[...document.querySelectorAll('details.case')].every(d => d.open)")
    page.ask("dispatchEvent(new Event('afterprint'))")
    assert page.ask("[...document.querySelectorAll('details.case')].some(d => !d.open)")
    assert page.errors == []
