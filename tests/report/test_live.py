from __future__ import annotations

import io

import pytest
from rich.console import Console

from lockbench.report import live
from lockbench.report.live import LiveView


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(live, "time", found)
    return found


def test_plain_lines_come_on_change_and_every_five_seconds(clock: Clock) -> None:
    out = io.StringIO()
    with LiveView(21, Console(file=out, width=40)) as view:
        view.case_started(3, "etcd", "kill")
        for tenth in range(120):
            clock.now = 1000 + tenth / 10
            faults = ["kill"] if tenth >= 70 else []
            view.update("contended", faults, 812.4, 0, 12 - tenth / 10)
    assert out.getvalue().splitlines() == [
        "[3/21] etcd under kill",
        "[3/21] etcd under kill · contended · 812 cycles/s · 12 s left",
        "[3/21] etcd under kill · contended · 812 cycles/s · 7 s left",
        "[3/21] etcd under kill · contended · FAULT kill · 812 cycles/s · 5 s left",
    ]


def test_notes_stay_and_odd_names_are_neither_markup_nor_control(clock: Clock) -> None:
    out = io.StringIO()
    with LiveView(1, Console(file=out, width=40)) as view:
        view.case_started(1, "[bold]x[/bold]", "none\n\x1b[31m")
        view.note("[red]" + "a" * 100)
    assert out.getvalue().splitlines() == [
        "[1/1] [bold]x[/bold] under none\\n\\x1b[31m",
        "[red]" + "a" * 100,
    ]


def test_a_terminal_gets_a_line_that_is_rewritten(clock: Clock) -> None:
    out = io.StringIO()
    console = Console(file=out, width=100, force_terminal=True, color_system=None)
    with LiveView(2, console) as view:
        view.case_started(1, "etcd", "kill")
        view.update("contended", ["kill", "pause"], 5, 1, 3)
        view.note("a note")
    text = out.getvalue()
    assert "FAULT kill + pause" in text
    assert "1 error ·" in text
    assert "a note\n" in text


def test_nothing_is_written_after_the_end(clock: Clock) -> None:
    out = io.StringIO()
    with LiveView(1, Console(file=out)) as view:
        view.case_started(1, "etcd", "none")
    before = out.getvalue()
    view.update("contended")
    view.note("late")
    view.case_started(1, "etcd", "none")
    assert out.getvalue() == before


def test_an_error_inside_ends_the_view(clock: Clock) -> None:
    out = io.StringIO()
    with pytest.raises(KeyboardInterrupt), LiveView(1, Console(file=out, force_terminal=True)):
        raise KeyboardInterrupt
    assert "\x1b[?25h" in out.getvalue()  # the cursor is shown again
