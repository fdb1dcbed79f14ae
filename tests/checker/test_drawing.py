"""The drawing, as text and in a real browser."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lockbench.checker.check import check
from lockbench.checker.drawing import LANES_MAX, ROWS_MAX, page
from lockbench.history.columns import History
from perf.histories import Load, lock_history
from tests.checker.scenes import Scene
from tests.checker.test_planted import DEFECTS
from tests.report.browser import browser, needs_chromium


def drawn(history: History) -> str:
    return page([("it <b>", history, check(history))])


def stale() -> History:
    scene = Scene().acquire(1, 0, 1, until=5).read(1, 1.5, 0)
    scene.acquire(2, 2, 6, until=12).read(2, 6.5, 0).write(2, 6.6, 0, 1).release(2, 7, 7.1)
    scene.write(1, 8, 1, 2).not_held(1, 9, 9.1).acquire(3, 7, None, "info")
    return scene.fault("client-pause", 1.7, 7.8, targets=("<victim>",)).history()


def test_everything_that_matters_is_in_it() -> None:
    html = drawn(stale())
    for part in (
        'class="promised',
        'class="unpromised',
        'class="fault',
        'class="unknown',
        "marked",
    ):
        assert part in html, part
    assert "client-pause of &lt;victim&gt;" in html
    assert "<b>stale-holder: invalid.</b>" in html
    assert "it &lt;b&gt;" in html
    assert "http://" not in html.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in html


@pytest.mark.parametrize("plant", [plant for plant, _ in DEFECTS], ids=lambda x: x.__name__)
def test_every_planted_defect_can_be_drawn(plant: object) -> None:
    scene = Scene()
    assert callable(plant)
    plant(scene)
    history = scene.history()
    invalid = sum(v.result == "invalid" for v in check(history).verdicts.values())
    html = drawn(history)
    assert html.count("<figure>") == invalid
    assert "marked" in html
    assert "nan" not in re.sub(r"<script>.*</script>", "", html, flags=re.DOTALL).lower()


def test_a_valid_history_has_no_figure() -> None:
    assert "<figure>" not in drawn(Scene().acquire(1, 0, 1).release(1, 2, 3).history())


def test_a_long_history_shows_its_neighbourhood_only() -> None:
    history = lock_history(Load(100_000, double_grants=1))
    report = check(history)
    html = page([("long", history, report)])
    assert len(html) < 2_000_000
    assert html.count("<title>") < 3 * ROWS_MAX * 3
    assert html.count(">client ") <= LANES_MAX * 3


def long() -> History:
    return lock_history(Load(100_000, double_grants=1))


# Turns the wheel over the first drawing, as somebody who looks closer.
WHEEL = """document.querySelector('svg.lanes').dispatchEvent(new WheelEvent('wheel',
{deltaY:-400,clientX:600,clientY:60,cancelable:true}))"""
# All colours of a picture that stands as base64 in place of PICTURE.
COLOURS = """(async () => {
  const picture = new Image(); picture.src = 'data:image/png;base64,PICTURE';
  await picture.decode();
  const {width, height} = picture, canvas = new OffscreenCanvas(width, height).getContext('2d');
  canvas.drawImage(picture, 0, 0);
  const found = new Map(), {data} = canvas.getImageData(0, 0, width, height);
  for (let i = 0; i < data.length; i += 4) {
    const colour = [...data.slice(i, i + 3)]; found.set(colour.join(), colour);
  }
  return [...found.values()];
})()"""


@needs_chromium
@pytest.mark.parametrize("make", [stale, long])
def test_in_a_real_browser(tmp_path: Path, make: Callable[[], History]) -> None:
    """The script runs (it marks what it has set up), the wheel zooms, and the picture has the
    colours of a promise and of a violation in it; also for a hundred thousand operations."""
    path = tmp_path / "check.html"
    path.write_text(drawn(make()), encoding="utf-8")
    with browser(tmp_path) as opened:
        opened.screen(1280, 900)
        opened.open(path.as_uri())
        figures = opened.ask("document.querySelectorAll('figure').length")
        ready = opened.ask("document.querySelectorAll('[data-ready=yes]').length")
        assert ready == figures > 0
        opened.ask(WHEEL)
        zoomed = opened.ask("document.querySelector('.plot').transform.baseVal[0].matrix.a")
        assert zoomed == pytest.approx(math.e, rel=1e-3)  # exp(400 / 400)
        opened.ask("document.querySelector('.legend').remove()")  # which has all colours
        picture = opened.call("Page.captureScreenshot", format="png")["data"]
        assert opened.errors == []
        opened.open("about:blank")
        colours = np.array(opened.ask(COLOURS.replace("PICTURE", picture)))
    for red, green, blue in ((0x2E, 0x86, 0xAB), (0xD7, 0x26, 0x3D)):
        assert np.any(np.all(abs(colours - (red, green, blue)) < 12, axis=1)), (red, green, blue)
