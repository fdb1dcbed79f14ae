"""The drawing, as text and in a real browser."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from checker.check import check
from checker.drawing import LANES_MAX, ROWS_MAX, page
from history.columns import History
from perf.histories import Load, lock_history
from tests.checker.scenes import Scene
from tests.checker.test_planted import DEFECTS

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


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
WHEEL = """<script>document.querySelector('svg.lanes').dispatchEvent(new WheelEvent('wheel',
{deltaY:-400,clientX:600,clientY:60,cancelable:true}))</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
@pytest.mark.parametrize("make", [stale, long])
def test_in_a_real_browser(tmp_path: Path, make: Callable[[], History]) -> None:
    """The script runs (it marks what it has set up), the wheel zooms, and the picture has the
    colours of a promise and of a violation in it; also for a hundred thousand operations."""
    path = tmp_path / "check.html"
    path.write_text(drawn(make()) + WHEEL, encoding="utf-8")
    assert CHROMIUM is not None
    browser = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    browser += [f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1280,900"]
    dom = subprocess.run(
        [*browser, "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert dom.count('data-ready="yes"') == dom.count("<figure>") > 0
    first = re.search(r'class="plot" transform="matrix\(([\d.]+),', dom)
    assert first is not None
    assert float(first[1]) == pytest.approx(math.e, rel=1e-3)  # exp(400 / 400)
    picture = tmp_path / "check.png"
    subprocess.run(
        [*browser, f"--screenshot={picture}", path.as_uri()],
        capture_output=True,
        timeout=60,
        check=True,
    )
    colours = _colours(picture)
    for red, green, blue in ((0x2E, 0x86, 0xAB), (0xD7, 0x26, 0x3D)):
        assert np.any(np.all(abs(colours - (red, green, blue)) < 12, axis=1)), (red, green, blue)


def _colours(picture: Path) -> np.ndarray:
    """All colours of a PNG of 8-bit RGB or RGBA, read without a library."""
    import struct
    import zlib

    data = picture.read_bytes()
    at, packed, width, channels = 8, b"", 0, 3
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, _height, depth, colour = struct.unpack(">IIBB", body[:10])
            assert depth == 8
            channels = {2: 3, 6: 4}[colour]
        elif kind == b"IDAT":
            packed += body
        at += 12 + length
    raw = zlib.decompress(packed)
    stride = width * channels
    above = np.zeros(stride, np.int64)
    found: set[tuple[int, ...]] = set()
    for start in range(0, len(raw), stride + 1):
        line = _unfiltered(
            raw[start], np.frombuffer(raw, np.uint8, stride, start + 1), above, channels
        )
        above = line
        found.update(map(tuple, np.unique(line.reshape(-1, channels)[:, :3], axis=0).tolist()))
    return np.array(sorted(found))


def _unfiltered(kind: int, line: np.ndarray, above: np.ndarray, channels: int) -> np.ndarray:
    result: np.ndarray = line.astype(np.int64)
    if kind == 2:
        return np.asarray((result + above) % 256)
    if kind == 0:
        return result
    for i in range(len(result)):
        left = int(result[i - channels]) if i >= channels else 0
        up = int(above[i])
        corner = int(above[i - channels]) if i >= channels else 0
        guess = {1: left, 3: (left + up) // 2, 4: _paeth(left, up, corner)}[kind]
        result[i] = (int(result[i]) + guess) % 256
    return result


def _paeth(left: int, up: int, corner: int) -> int:
    near = left + up - corner
    return min((left, up, corner), key=lambda value: abs(near - value))
