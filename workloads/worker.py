"""A Locust worker process: ``python -m lockbench.workloads.worker``, configured by the environment.

Beside the users it runs a watch over itself, which writes two lines a second into
``logs/worker-<n>.jsonl``: CPU used, lag of the event loop, users that made progress.
"""

from locust import runners  # isort: skip  # first, because it monkey-patches

import json
import logging
import os
import resource as rusage
from pathlib import Path
from time import monotonic_ns, process_time_ns

import gevent
import psutil
from locust import events
from locust.env import Environment

from lockbench.locks.shared import sidecar
from lockbench.workloads import listeners, wallclock
from lockbench.workloads.load import VICTIM
from lockbench.workloads.locustreport import answer
from lockbench.workloads.session import Session
from lockbench.workloads.users import USERS, session, told

TICK_S = 0.02
REPORT_S = 0.5


def watch(here: Session, path: Path) -> None:
    """Never returns. A tick that comes late is the lag that every client of this process had."""
    with path.open("w", encoding="utf-8", buffering=1) as file:
        while True:
            begin_ns, cpu_ns, beside_ns = monotonic_ns(), process_time_ns(), sidecar.cpu_ns()
            lags: list[float] = []
            while (monotonic_ns() - begin_ns) / 1e9 < REPORT_S:
                before = monotonic_ns()
                gevent.sleep(TICK_S)
                ticked_ns = monotonic_ns()
                here.page.ticked_ns = ticked_ns
                lags.append((ticked_ns - before) / 1e6 - TICK_S * 1e3)
                if here.worker == VICTIM:
                    here.control.clock_read_ns = wallclock.read_off_ns()
            now_ns = monotonic_ns()
            line = {
                # On the bench's clock.
                "begin_ns": begin_ns - here.load.ahead_ns,
                "end_ns": now_ns - here.load.ahead_ns,
                "cpu_percent": 100 * (process_time_ns() - cpu_ns) / (now_ns - begin_ns),
                "sidecar_percent": 100 * (sidecar.cpu_ns() - beside_ns) / (now_ns - begin_ns),
                # Of all cores, since the last line, whoever used them.
                "machine_percent": psutil.cpu_percent(),
                "lag_ms": [round(lag, 3) for lag in lags],
                "cycles": dict(here.progress),
                "failures": sidecar.failures(),
                **_arrived(here, now_ns),
            }
            file.write(json.dumps(line) + "\n")


def _arrived(here: Session, now_ns: int) -> dict[str, int]:
    """How many jobs of an open load were due and begun so far."""
    begun = here.control.start_ns != 0 and now_ns >= here.phase_end_ns(2)
    if not begun or here.arrivals is None:
        return {}
    until_ns = min(now_ns, here.phase_end_ns(3))
    return {"due": here.arrivals.due(until_ns), "begun": here.arrivals.begun}


def main() -> None:
    """The whole life of the process."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    # A client has a few connections, and there may be hundreds of clients.
    _, most = rusage.getrlimit(rusage.RLIMIT_NOFILE)
    rusage.setrlimit(rusage.RLIMIT_NOFILE, (most, most))
    # A frozen worker must not resign when it wakes up.
    runners.MASTER_HEARTBEAT_TIMEOUT = 3600
    here = session()
    if here.worker == VICTIM:
        wallclock.install(here.control)
    # Those that a lock's file has may have listeners, too.
    environment = Environment(user_classes=list(USERS), events=events)
    listeners.load(here.load.locust)
    runner = environment.create_worker_runner("127.0.0.1", here.load.master_port)
    answer(runner, told)
    environment.events.init.fire(environment=environment, runner=runner, web_ui=None)  # type: ignore[no-untyped-call]
    runner.send_message("lockbench-worker", {"number": here.worker})
    gevent.spawn(watch, here, here.load.logs / f"worker-{here.worker}.jsonl")
    runner.greenlet.join()
    environment.events.quitting.fire(environment=environment, reverse=True)  # type: ignore[no-untyped-call]
    here.recorder.close()
    # Connections are left to the kernel: closing hundreds politely takes longer than the case.
    logging.shutdown()
    os._exit(0)


if __name__ == "__main__":
    main()
