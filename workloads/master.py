"""The Locust master process: ``python -m lockbench.workloads.master``, configured by the
environment.

It hands the users to the workers as the load declares (the victim alone in its process), keeps a
frozen worker in the load, and ends everything when the control page says so.
"""

from locust import runners  # isort: skip  # first, because it monkey-patches

import logging
import os
from collections.abc import Generator
from pathlib import Path
from typing import ClassVar

import gevent
from locust import User, events
from locust.dispatch import UsersDispatcher
from locust.env import Environment
from locust.rpc import Message

from lockbench.workloads import listeners
from lockbench.workloads.control import Control
from lockbench.workloads.load import ENVIRONMENT, Load
from lockbench.workloads.locustreport import Report
from lockbench.workloads.session import POLL_S
from lockbench.workloads.users import USERS

# With Locust's default, a worker that is frozen for four seconds is given up and its users are
# started again elsewhere; freezing all of them ends the load with exit code 0.
HEARTBEAT_LIVENESS = 3600
# Seldom: whoever wakes up is in the way of those who are measured.
STOP_POLL_S = 0.05


class AllottedUsers(UsersDispatcher):
    """Gives each worker exactly the users that the load allots to it, at once."""

    allotment: ClassVar[dict[str, dict[str, int]]] = {}

    def new_dispatch(
        self,
        target_user_count: int,
        spawn_rate: float,
        user_classes: list[type[User]] | None = None,
    ) -> None:
        super().new_dispatch(target_user_count, spawn_rate, user_classes)
        everybody = {cls.__name__: 0 for cls in self._user_classes}
        on_workers = {node.id: everybody | self.allotment[node.id] for node in self._worker_nodes}
        self._users_on_workers = on_workers
        self._dispatcher_generator = _once(on_workers)


def _once(
    on_workers: dict[str, dict[str, int]],
) -> Generator[dict[str, dict[str, int]]]:
    yield on_workers


def main() -> None:
    """The whole life of the process."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    path = Path(os.environ[ENVIRONMENT])
    while not path.exists():
        gevent.sleep(POLL_S)
    load = Load.read(path)
    control = Control(load.control)
    runners.HEARTBEAT_LIVENESS = HEARTBEAT_LIVENESS
    environment = Environment(
        user_classes=list(USERS), dispatcher_class=AllottedUsers, events=events
    )
    listeners.load(load.locust)
    runner = environment.create_master_runner("127.0.0.1", load.master_port)
    arrived: dict[str, dict[str, int]] = {}

    def arrive(environment: Environment, msg: Message) -> None:
        arrived[msg.node_id] = load.allotment[msg.data["number"]]

    runner.register_message("lockbench-worker", arrive)
    port = load.locust.web_port
    page = None if port is None else environment.create_web_ui("127.0.0.1", port)
    report = Report(environment, runner, load.locust_report) if load.locust.report else None
    environment.events.init.fire(environment=environment, runner=runner, web_ui=page)  # type: ignore[no-untyped-call]
    while len(arrived) < load.workers + 1:
        if control.stop:
            os._exit(0)
        gevent.sleep(POLL_S)
    AllottedUsers.allotment = arrived
    gevent.spawn(runner.start, load.users, spawn_rate=load.users)
    while not control.stop:
        gevent.sleep(STOP_POLL_S)
    if report is not None:
        report.ask()
    runner.quit()
    environment.events.quitting.fire(environment=environment, reverse=True)  # type: ignore[no-untyped-call]
    if report is not None:
        report.write()
    logging.shutdown()
    os._exit(0)


if __name__ == "__main__":
    main()
