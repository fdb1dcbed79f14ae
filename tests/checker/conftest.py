"""What the long comparisons counted is shown at the end of the run."""

from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    told = [pair for report in reports for pair in report.user_properties]
    lines = [str(value) for name, value in told if name == "histories"]
    if lines:
        terminalreporter.section("compared with a reference or simulated")
        for line in lines:
            terminalreporter.write_line(line)
        compared = sum(int(str(value)) for name, value in told if name == "compared")
        if compared:
            terminalreporter.write_line(f"{compared:,} histories compared with the reference")
