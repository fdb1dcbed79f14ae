"""What Locust itself leaves of a bench's run: its listeners hear every operation, its CSV and its
page are kept, and both count what the history has."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from lockbench.history.columns import History
from lockbench.history.op import NULL, F, Type
from lockbench.history.recording import read_recording
from tests.command import lockbench

LISTENING: Final = """
import os
from pathlib import Path
from locust import events

@events.init.add_listener
def begin(environment, **_):
    role = type(environment.runner).__name__
    Path(__file__).with_name(f"{role}-{os.getpid()}").touch()

@events.request.add_listener
def hear(request_type, name, exception, **_):
    with Path(__file__).with_name(f"heard-{os.getpid()}").open("a") as file:
        print(f"{request_type}/{exception is not None}", file=file)
"""


def recorded(history: History) -> Counter[str]:
    """What Locust calls it → how often it was done; what was never begun is not told."""
    over = history.complete_ns != NULL
    acquires = over & (history.f == F.ACQUIRE)
    refused = acquires & (history.type == Type.FAIL)
    return Counter(
        {
            "acquire": np.count_nonzero(acquires & ~refused),
            "acquire, refused": np.count_nonzero(refused),
            "release": np.count_nonzero(over & (history.f == F.RELEASE)),
            "extend": np.count_nonzero(over & (history.f == F.EXTEND)),
        }
    )


@pytest.mark.docker
def test_listeners_csv_and_page_agree_with_the_history(tmp_path: Path) -> None:
    file = tmp_path / "listening.py"
    file.write_text(LISTENING)
    words = ["--lock", "redis-token", "--workload", "long-hold:times=0.2:renew=yes"]
    words += ["--time-limit", "9"]
    own = ["--locustfile", str(file), "--locust-report", "--runs", str(tmp_path / "runs")]
    done = lockbench("run", *words, *own)
    run = tmp_path / "runs" / "latest"
    (case,) = (run / "cases").iterdir()
    # Others may load this machine.
    judgement = json.loads((case / "case.json").read_text())["judgement"]
    assert done.returncode in {0, 2} or judgement == "disturbed", done.stderr
    wanted = +recorded(read_recording(case / "history"))
    assert wanted["extend"] > 0
    assert wanted["release"] > 0

    lines = [line for heard in tmp_path.glob("heard-*") for line in heard.read_text().split("\n")]
    assert Counter(line.rpartition("/")[0] for line in lines if line) == wanted
    assert len(list(tmp_path.glob("MasterRunner-*"))) == 1

    with (case / "locust" / "locust_stats.csv").open() as stats:
        rows = [row for row in csv.DictReader(stats) if row["Type"]]
    assert Counter({row["Type"]: int(row["Request Count"]) for row in rows}) == wanted
    for name in ("locust_stats_history.csv", "locust_failures.csv", "locust_exceptions.csv"):
        assert (case / "locust" / name).stat().st_size > 0
    assert len((case / "locust" / "locust_stats_history.csv").read_text().splitlines()) > 10
    page = (case / "locust" / "locust.html").read_text()
    assert "redis-token" in page
    link = f"cases/{case.name}/locust/locust.html"
    done = lockbench("report", str(run))
    assert done.returncode == 0, done.stderr
    for report in ("report.html", "report.md"):
        assert link in (run / report).read_text()
