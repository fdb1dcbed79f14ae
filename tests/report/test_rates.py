"""The table of stated rates: every figure with its range, what is void and what is a bound."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from msgspec.structs import replace
from rich.console import Console

from lockbench.report import rates
from lockbench.report.charts import Chart
from lockbench.report.content import preview
from lockbench.report.markdown import to_markdown
from lockbench.report.page import to_html
from lockbench.report.rate_chart import pictures
from lockbench.report.tables import overview, print_tables, show
from lockbench.report.write import files, write
from lockbench.results.documents import (
    Bounds,
    Knee,
    LockRates,
    PooledRate,
    Quantiles,
    RatesOf,
    Spread,
)
from lockbench.results.wording import NONE
from tests.results.made_run import make_run
from tests.results.plain import plain

HOG = "other programs used 40 % of the processors"


def at_rate(share: float, p50: float, p99: float | None, **more: Any) -> PooledRate:
    offered = 800 * share
    return PooledRate(
        offered_per_s=Spread(3, offered, offered - 1, offered + 1),
        granted_per_s=Spread(3, offered - 2, offered - 3, offered),
        due=1620,
        granted=1615,
        response_ms=Quantiles(
            count=1620, p50=p50, p99=p99, max=90.0, above=more.pop("above", ("max",))
        ),
        p50_ms_range=Bounds(p50 - 0.1, p50 + 0.2),
        p99_ms_range=Bounds((p99 or 9.0) - 1, (p99 or 9.0) + 2),
        blocks=3,
        void_blocks=0,
        share=share,
        **more,
    )


def lock(name: str, *found: PooledRate, why: tuple[str, ...] = (), **of: Any) -> LockRates:
    known: dict[str, Any] = {
        "topology": name,
        "size": 1,
        "network": "loopback",
        "clients": 32,
        "keys": 0,
        "hold_s": 0.0,
    }
    carried = Spread(3, 812.0, 800.0, 820.0)
    between = Bounds(790.0, 845.0)
    return LockRates(RatesOf(name, **(known | of)), carried, found, between, why=why)


SHOWN = (
    lock(
        "redis-token",
        at_rate(0.1, 0.5, 2.0),
        at_rate(0.5, 0.6, None),
        at_rate(0.75, 0.7, 1000.0, above=("p99", "max")),
    ),
    lock("etcd", at_rate(0.5, 4.5, 20.0, why=(HOG,)), why=("worker-1 used 97 % of a core",)),
)


def test_a_terminal_has_a_line_for_each_lock_and_a_column_for_each_rate() -> None:
    grid = rates.narrow(SHOWN)
    assert grid is not None
    assert grid.headings == ("lock", "carried/s", "at 10 %, ms", "at 50 %, ms", "at 75 %, ms")
    assert [[cell.text for cell in row] for row in grid.rows] == [
        [
            "redis-token",
            "812 [790–845]",
            "0.50 [0.40–0.70]/2.00",
            f"0.60 [0.50–0.80]/{NONE}",
            "0.70 [0.60–0.90]/> 1,000",
        ],
        ["etcd", "≥ 812 [790–845]", NONE, "(4.50 [4.40–4.70]/20.0)", NONE],
    ]


def test_why_a_figure_is_void_or_a_lower_bound_stands_below() -> None:
    assert rates.notes(SHOWN) == [
        f"Void at stated rates: etcd at 50 %: {HOG}.",
        "≥: etcd may carry more: worker-1 used 97 % of a core.",
    ]
    assert rates.notes(SHOWN[:1]) == []
    several = (at_rate(0.5, 4.5, 20.0, why=(HOG, "a", "b")), at_rate(0.75, 4.5, 20.0, why=("c",)))
    assert rates.notes([lock("etcd", *several)]) == [
        f"Void at stated rates: etcd at 50 %: {HOG} (and 2 reasons more); at 75 %: c."
    ]


def test_a_void_figure_is_in_brackets_in_every_rendering_and_its_neighbour_is_not() -> None:
    made = overview([], at_rates=SHOWN)
    content = preview(made, "run", "ok")
    (grid,) = [grid for grid in content.numbers if grid.name == "rates"]
    text, page = to_markdown(content, {})[0], to_html(content, {})
    out = io.StringIO()
    print_tables(made, Console(file=out, width=110, color_system=None))
    for rendered in (text, page, out.getvalue()):
        assert "(4.50" in rendered
        assert HOG in rendered
        assert "(0.50" not in rendered
        assert "0.50" in rendered
    assert "| (4.50) | (4.40) | (4.70) |" in text
    assert '<td class="num" data-v="4.5">(4.50)</td>' in page
    assert '<td class="num" data-v="1000.0">&gt; 1,000</td>' in page
    assert '<td class="num" data-v="812.0">≥ 812</td>' in page
    cells = dict(zip(grid.headings, grid.rows[1], strict=True))
    assert cells["response p99, ms"].text == NONE
    # The range of what is not shown is not shown either.
    assert cells["response p99 min, ms"].text == NONE
    assert max(map(len, out.getvalue().splitlines())) <= 110


def test_what_tells_rows_apart_is_in_the_label_and_what_all_share_in_the_caption() -> None:
    assert rates.labels(SHOWN) == ["redis-token", "etcd"]
    caption = rates.caption(SHOWN)
    assert caption.endswith(
        "For all: loopback, 32 clients, a key for each client, released at once."
    )
    far = (*SHOWN, lock("etcd", network="region", size=3, hold_s=0.005))
    assert rates.labels(far) == [
        "redis-token, 1 node, loopback, released at once",
        "etcd, 1 node, loopback, released at once",
        "etcd, 3 nodes, region, holds of 5 ms",
    ]
    assert rates.caption(far).endswith("For all: 32 clients, a key for each client.")


def test_the_knee_is_told_with_its_uncertainty() -> None:
    bent = lock("etcd", at_rate(0.5, 4.5, 20.0))
    known = replace(bent, knee=Knee(180.0, 260.0, 3))
    unbent = replace(bent, knee=Knee(400.0, None, 3))
    for one, told in (
        (known, ["180", "260"]),
        (unbent, ["> 400", ""]),
        (bent, ["", ""]),
    ):
        grid = rates.grid([one])
        assert grid is not None
        shown = dict(zip(grid.headings, (cell.text for cell in grid.rows[0]), strict=True))
        assert [shown.get(f"knee {end}, 1/s", "") for end in ("low", "high")] == told


def test_a_rate_that_was_not_a_share_is_told_per_second() -> None:
    assert rates.at(replace(SHOWN[0].rates[0], share=None)) == "80/s"


def test_what_all_rows_share_is_in_no_column_of_the_report() -> None:
    shared, differing = rates.grid(SHOWN), rates.grid((*SHOWN, lock("etcd", network="region")))
    assert shared is not None
    assert differing is not None
    assert not {"network", "clients", "keys"}.intersection(shared.headings)
    assert "network" in differing.headings
    assert "clients" not in differing.headings


def many(locks: int, count: int) -> list[LockRates]:
    shares = [(n + 1) / count for n in range(count)]
    return [
        lock(f"lock-{n}", *(at_rate(share, 0.5 * (n + 1) + share, 9.0) for share in shares))
        for n in range(locks)
    ]


def frames(chart: Chart) -> list[Any]:
    return [frame for row in chart.spec["vconcat"] for frame in row["hconcat"]]


def test_all_locks_are_drawn_in_one_frame_with_the_range_of_the_rounds() -> None:
    (chart,) = pictures(many(8, 10))
    assert [len(panel["data"]["values"]) for panel in frames(chart)] == [80, 80]
    first = frames(chart)[0]["data"]["values"][0]
    assert (first["s"], first["x"], first["v"]) == ("lock-0", 78.0, 0.6)
    assert (first["low"], first["high"]) == (0.5, pytest.approx(0.8))
    colours = frames(chart)[0]["layer"][0]["encoding"]["color"]["scale"]["range"]
    assert len(set(colours)) == 8
    svg = chart.svg()
    assert all(f">lock-{n}<" in svg for n in range(8))
    assert len(svg) < 200_000
    # Of more locks than colours, the lines differ by their dashes.
    (more,) = pictures(many(10, 2))
    (lines,) = [layer for layer in frames(more)[0]["layer"] if layer["mark"]["type"] == "line"]
    dashes = lines["encoding"]["strokeDash"]["scale"]["range"]
    assert dashes[0] != dashes[8]


def test_each_network_has_a_frame_with_the_same_axes_and_a_lock_the_same_colour() -> None:
    networks = ("loopback", "rack", "region")
    found = [
        lock(name, at_rate(0.1, p50 + n, 9.0 + n), network=network)
        for name, p50 in (("redis-token", 0.5), ("etcd", 40.0))
        for n, network in enumerate(networks)
    ]
    (chart,) = pictures(found)
    assert [len(row["hconcat"]) for row in chart.spec["vconcat"]] == [3, 3]
    upper = frames(chart)[:3]
    assert [frame["title"]["text"] for frame in upper] == list(networks)
    assert [[row["s"] for row in frame["data"]["values"]] for frame in upper] == [
        ["redis-token", "etcd"]
    ] * 3
    for at in ("x", "y"):
        scales = [frame["encoding"][at]["scale"] for frame in upper]
        assert scales[0]["domain"][0] < scales[0]["domain"][1]
        assert scales[1:] == scales[:1] * 2
    svg = chart.svg()
    assert (svg.count(">redis-token<"), svg.count(">region<")) == (1, 1)
    # One lock alone is compared with itself in one frame.
    (alone,) = pictures(found[:3])
    assert len(frames(alone)) == 2
    assert [row["s"] for row in frames(alone)[0]["data"]["values"]] == [
        f"redis-token, {network}" for network in networks
    ]


def test_a_terminal_shows_three_of_many_rates() -> None:
    shares = (0.1, 0.25, 0.5, 0.75, 0.9)
    grid = rates.narrow([lock("etcd", *(at_rate(share, 0.5, 9.0) for share in shares))])
    assert grid is not None
    assert grid.headings[2:] == ("at 10 %, ms", "at 50 %, ms", "at 75 %, ms")
    assert grid.caption.endswith("The report has 5 rates.")
    paces = [replace(at_rate(n / 10, 0.5, 9.0), share=None) for n in range(1, 6)]
    grid = rates.narrow([lock("etcd", *paces)])
    assert grid is not None
    assert grid.headings[2:] == ("at 80/s, ms", "at 240/s, ms", "at 400/s, ms")


def test_several_locks_under_several_settings_are_compared_in_one_table() -> None:
    networks = ("loopback", "region")
    found = [
        lock(name, at_rate(0.1, p50 * (n + 1), 9.0, why=why), at_rate(0.5, 9.0, 9.0), network=net)
        for name, p50, why in (("redis-token", 0.5, ()), ("etcd", 40.0, (HOG,)))
        for n, net in enumerate(networks)
    ]
    grid = rates.compared(found[:3])
    assert grid is not None
    assert grid.title == "Response time at 10 % of what each carries, p50, ms"
    assert grid.headings == ("lock", "loopback", "region")
    assert [[cell.text for cell in row] for row in grid.rows] == [
        ["redis-token", "0.50 [0.40–0.70]", "1.00 [0.90–1.20]"],
        ["etcd", "(40.0 [39.9–40.2])", NONE],
    ]
    assert rates.compared(SHOWN) is None  # under one setting
    assert rates.compared(found[:2]) is None  # one lock


@pytest.mark.parametrize(("fault", "first"), [("none", "rates"), ("pause", "verdicts")])
def test_a_sweep_shows_its_rates_before_its_verdicts(
    tmp_path: Path, fault: str, first: str
) -> None:
    run = make_run(tmp_path, faults={fault: False}, results={"rates": [plain(s) for s in SHOWN]})
    out = io.StringIO()
    show(run, run.results(), Console(file=out, width=110, color_system=None))
    text = out.getvalue()
    at = {"rates": text.index(rates.TITLE), "verdicts": text.index("\nVerdicts")}
    assert min(at, key=lambda name: at[name]) == first


def test_a_lock_that_breaks_in_a_sweep_keeps_its_verdict(tmp_path: Path) -> None:
    texts = {}
    for broke in (False, True):
        run = make_run(
            tmp_path / str(broke),
            faults={"none": False},
            double=broke,
            results={"rates": [plain(s) for s in SHOWN]},
        )
        out = io.StringIO()
        show(run, run.results(), Console(file=out, width=110, color_system=None))
        texts[broke] = out.getvalue()
        assert rates.TITLE in texts[broke]
    assert "✗" in texts[True]
    assert "double-grant" in texts[True]
    assert "✗" not in texts[False]


def test_a_void_point_is_hollow_and_a_valid_one_is_filled() -> None:
    """A mark without a filling is drawn as a line around nothing."""

    def filled(*found: LockRates) -> int:
        (chart,) = pictures(found)
        marks = re.findall(r"<path[^>]*transform=[^>]*>", chart.svg())
        # The legend has one more of each.
        return sum('fill="#0072b2"' in mark for mark in marks)

    valid, void = at_rate(0.5, 4.5, 20.0), at_rate(0.5, 4.5, 20.0, why=(HOG,))
    assert filled(lock("etcd", valid)) > filled(lock("etcd", void))
    rows = frames(pictures([lock("etcd", valid, void)])[0])[0]["data"]["values"]
    assert [row["void"] for row in rows] == [False, True]


def test_what_n_does_not_carry_is_not_drawn_and_a_lower_bound_is_marked() -> None:
    (chart,) = pictures(SHOWN)
    p50, p99 = (panel["data"]["values"] for panel in frames(chart))
    assert (len(p50), len(p99)) == (4, 3)
    assert [row["above"] for row in p99] == [False, True, False]
    assert chart.svg().count("↑") == 1
    assert pictures([lock("etcd")]) == []
    (alone,) = pictures([lock("etcd", at_rate(0.5, 4.5, None))])
    assert len(frames(alone)) == 1


def test_the_picture_is_in_the_page_and_beside_the_markdown(tmp_path: Path) -> None:
    run = make_run(
        tmp_path, faults={"none": False}, results={"rates": [plain(one) for one in SHOWN]}
    )
    written = write(run)
    assert "Response time at stated rates, all locks" in written.html.read_text()
    assert "](report/00-rates.svg)" in written.markdown.read_text()
    assert "redis-token" in (run.path / "report" / "00-rates.svg").read_text()


def test_a_run_keeps_its_rates_beside_its_results(tmp_path: Path) -> None:
    run = make_run(
        tmp_path, faults={"none": False}, results={"rates": [plain(one) for one in SHOWN]}
    )
    found = pd.read_csv(io.StringIO(files(run, run.results())["rates.csv"]))
    assert found["numbers_valid"].tolist() == [True, True, True, False]
    assert found["carried_at_least"].tolist() == [False, False, False, True]
    assert found.loc[2, "above"] == "p99, max"
    assert found.loc[3, "response_p50_ms"] == 4.5
    assert found.loc[3, "why"] == HOG
    bare = make_run(tmp_path, faults={"none": False})
    assert "rates.csv" not in files(bare, bare.results())
