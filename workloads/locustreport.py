"""Locust's own CSV files and page of a report, of one case, as ``--csv`` and ``--html`` write them.

Written by Locust's writers in its master. Guarantees: operations that a worker has finished before
the end are in them, unless the worker was killed or does not answer within ``TOLD_S``. Locust
rounds quantiles; the exact ones are Lockbench's.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Final

import gevent
from locust import stats
from locust.env import Environment
from locust.html import get_html_report
from locust.rpc import Message
from locust.runners import MasterRunner, WorkerRunner

from lockbench.workloads.locuststats import LocustStats

# What master and workers say to each other at the end.
TELL, TOLD = "lockbench-tell", "lockbench-told"
TOLD_S: Final = 1.5
POLL_S: Final = 0.02
PREFIX: Final = "locust"


class Report:
    """In the master. Make it before the load begins; ``ask`` while workers live, then ``write``."""

    def __init__(self, environment: Environment, runner: MasterRunner, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._environment = environment
        self._runner = runner
        self._folder = folder
        self._told: set[str] = set()
        runner.register_message(TOLD, self._hear)
        self._writer = stats.StatsCSVFileWriter(
            environment, stats.PERCENTILES_TO_REPORT, str(folder / PREFIX), full_history=True
        )
        self._writing = gevent.spawn(self._writer.stats_writer)
        gevent.spawn(stats.stats_history, runner)

    def ask(self) -> None:
        """Lets every worker tell what it has not told yet; waits for a bounded time."""
        self._runner.send_message(TELL)
        with gevent.Timeout(TOLD_S, False):
            while len(self._told) < len(self._runner.clients):
                gevent.sleep(POLL_S)

    def write(self) -> None:
        """The history was written all along; everything else is written anew, with its end."""
        self._writing.kill()
        self._writer.close_files()
        for part, rows in (
            ("stats", self._writer.requests_csv),
            ("failures", self._writer.failures_csv),
            ("exceptions", self._writer.exceptions_csv),
        ):
            path = self._folder / f"{PREFIX}_{part}.csv"
            with path.open("w", encoding="utf-8", newline="") as file:
                rows(csv.writer(file))
        page = get_html_report(self._environment, show_download_link=False)  # type: ignore[no-untyped-call]
        (self._folder / f"{PREFIX}.html").write_text(page, encoding="utf-8")

    def _hear(self, environment: Environment, msg: Message) -> None:
        self._told.add(msg.node_id)


def answer(runner: WorkerRunner, told: list[LocustStats]) -> None:
    """In a worker: does what ``Report.ask`` asks for. ``told`` is empty before there is a user."""

    def tell(environment: Environment, msg: Message) -> None:
        for each in told:
            each.flush()
        runner._send_stats()  # noqa: SLF001 - as the runner itself does when it quits
        runner.send_message(TOLD)

    runner.register_message(TELL, tell)
