"""``lockbench break``: a cluster that stays up until Ctrl-C, to use and to break by hand.

It prints where the nodes are for an application, and the line with which plain Locust drives one of
the locks on it. Commands are typed at its prompt, or sent from another terminal
(``lockbench break --do 'pause:who=leader'``) through a Unix socket that only this user can open.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, TextIO

from rich.console import Console

from lockbench import workloads
from lockbench.api.cluster import Cluster
from lockbench.bench import plan
from lockbench.bench.private import NotPrivate, private_folder
from lockbench.bench.run import load_of
from lockbench.bench.suites import sampled
from lockbench.clusters import base
from lockbench.clusters.base import ClusterError, Composable
from lockbench.clusters.engine.connection import EngineError
from lockbench.clusters.registry import topologies
from lockbench.locks.base import System
from lockbench.locks.registry import systems
from lockbench.locks.shared.library import library_of
from lockbench.nemesis.base import NemesisError
from lockbench.nemesis.by_hand import ByHand
from lockbench.nemesis.registry import faults
from lockbench.nemesis.schedule import ScheduleError, parse
from lockbench.results.errors import BadInput
from lockbench.workloads.fleet import Fleet
from lockbench.workloads.load import ENVIRONMENT, Phases

# Driven by hand, the contended phase begins soon and lasts an hour.
PHASES = Phases(floor_s=1.0, own_s=3.0, contended_s=3600.0)
# The client group of an application; group 0 is the harness, whose links are never cut.
GROUP: Final = 1
COMMANDS: Final = ("heal", "status", "faults", "help", "quit", "exit", "?")
ANSWER_S: Final = 60.0
HELP: Final = """\
FAULT[:parameter=value...]   inject a fault, for example pause, pause:who=all, partition-drop:for=5
heal [FAULT]                 heal it, or everything
status                       what is on, and which nodes serve
faults                       what there is
quit                         heal everything, remove the cluster (Ctrl-C does the same)"""


def serve(
    topology: str,
    lock: str | None,
    nodes: int | None,
    console: Console,
    workload: str = plan.MUTEX,
    *,
    compose: Path | None = None,
) -> None:
    """Starts a cluster and serves the prompt until it is interrupted or told to quit. ``compose``
    is the file that gets what was started. Where nobody could talk to it, nothing is started."""
    known = topologies()
    if topology not in known:
        raise plan.unknown("topology", topology, known)
    case = plan.make_case(
        lock or plain_recipe(topology), "none", seed=0, topology=topology, workload=workload
    )
    case = plan.resolve(replace(case, size=case.size if nodes is None else nodes))
    with tempfile.TemporaryDirectory(prefix="lockbench-") as name:
        folder = Path(name)
        cluster_plan = plan.cluster_plan_of(case, uuid.uuid4().hex[:12], folder / "logs")
        with (
            _listening() as listener,
            Fleet(folder, cluster_plan.run_id, plan.WORKERS) as fleet,
            Cluster.planned(cluster_plan, console.print) as made,
        ):
            cluster, by_hand = made.running()
            fleet.launch()
            load = load_of(case, fleet, cluster, PHASES)
            load.save(fleet.load_file)
            _say_where(cluster, case, console)
            if compose is not None and isinstance(cluster, Composable):
                compose.write_text(cluster.compose(), encoding="utf-8")
                console.print(
                    f"{compose} has it without Lockbench: once this one is gone,\n"
                    f"  docker compose --file {compose} up --wait",
                    soft_wrap=True,
                )
            console.print(
                f"plain Locust drives {case.lock} on it with\n"
                f"  {ENVIRONMENT}={fleet.load_file} {Path(sys.executable).with_name('locust')} "
                f"-f {Path(workloads.__file__).with_name('locustfile.py')} "
                "--headless -u 12 -r 12 -t 30s\nCtrl-C removes it.",
                soft_wrap=True,
            )
            _serve(Prompt(by_hand), console, listener)


def plain_recipe(topology: str) -> str:
    """The lock that is driven on a topology unless another is named: one of ``quick`` if any runs
    on it, else the recipe of the shortest name that no source calls wrong, rather than a library or
    a variant. Raises BadInput where no lock runs on it."""
    fitting = [system for system in systems().values() if topology in system.topologies]
    if not fitting:
        raise BadInput(f"no lock runs on {topology}")
    return min(fitting, key=_oddness).name


def _oddness(system: System) -> tuple[bool, bool, bool, bool, int, str]:
    wrong = not system.kinds_expected.isdisjoint({"control", "defect"})
    library = library_of(system) is not None
    plain = system.kind == "mutex" and not system.variant
    first = system.name in sampled()
    return not first, wrong, library, not plain, len(system.name), system.name


class Prompt:
    """Answers one command after the other."""

    def __init__(self, by_hand: ByHand) -> None:
        self._by_hand = by_hand

    def answer(self, line: str) -> str | None:
        """What to say to a command; None: it is the end."""
        word, _, rest = line.strip().partition(" ")
        try:
            match word:
                case "quit" | "exit":
                    return None
                case "" | "help" | "?":
                    return HELP
                case "status":
                    return self._by_hand.status()
                case "heal":
                    return self._by_hand.heal(rest.strip())
                case "faults":
                    return "\n".join(f"{f.name}: {f.summary}" for f in faults().values())
                case _:
                    return self._by_hand.inject(line.strip())
        except (ScheduleError, NemesisError, ClusterError, EngineError) as error:
            return str(error)


def tell(command: str) -> str:
    """Sends one command to the running cluster, from another terminal, and returns the answer.
    Raises BadInput for what is no command, and where no cluster is running."""
    _check(command)
    found = [path for path in _folder().glob("break-*.sock") if _alive(path)]
    if len(found) != 1:
        which = "no cluster is running" if not found else f"{len(found)} clusters are running"
        raise BadInput(f"{which}: start one with lockbench break --topology T")
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(ANSWER_S)
            line.connect(str(found[0]))
            line.sendall(command.encode() + b"\n")
            parts = []
            while part := line.recv(65536):
                parts.append(part)
    except OSError as error:
        why = "it is stopped, or busy" if isinstance(error, TimeoutError) else error.strerror
        raise BadInput(f"the running lockbench break does not answer: {why}") from error
    if not parts:
        raise BadInput("the running lockbench break ended without an answer")
    return b"".join(parts).decode()


def _check(command: str) -> None:
    word, _, rest = command.strip().partition(" ")
    try:
        if word == "heal" and rest.strip():
            parse(rest.strip())
        elif word not in COMMANDS:
            parse(command.strip())
    except ScheduleError as error:
        known = f"; commands are {', '.join(COMMANDS[:-1])} and every fault"
        raise BadInput(f"--do {command}: {error}{known}") from error


def _say_where(cluster: base.Cluster, case: plan.Case, console: Console) -> None:
    console.print(f"{case.topology} with {case.size} nodes is up:")
    for node, (host, port) in zip(cluster.nodes, cluster.addresses(GROUP), strict=True):
        console.print(f"  {cluster.node_name(node)}  {host}:{port}")
    console.print(
        "Point your application at these addresses; type help to see how to break it.\n"
        "From another terminal: lockbench break --do 'pause:for=5'",
    )


def _serve(prompt: Prompt, console: Console, listener: socket.socket) -> None:
    """Answers the terminal and the socket until one of them asks for the end."""
    sources: list[socket.socket | TextIO] = [listener]
    if sys.stdin.isatty():
        sources.append(sys.stdin)
    while True:
        if sys.stdin in sources:
            console.print("> ", end="")
        ready, _, _ = select.select(sources, [], [])
        if listener in ready:
            with listener.accept()[0] as line:
                if not _answer(prompt, line):
                    return
        if sys.stdin in ready:
            typed = sys.stdin.readline()
            said = prompt.answer(typed) if typed else None
            if said is None:
                return
            console.print(said)


def _answer(prompt: Prompt, line: socket.socket) -> bool:
    """One command from another terminal; whether the cluster stays."""
    line.settimeout(ANSWER_S)
    said: str | None = ""
    with suppress(OSError):
        asked = line.makefile("r", encoding="utf-8").readline()
        # A caller that only checks for a listener sends nothing.
        said = prompt.answer(asked) if asked else ""
        line.sendall((("the cluster is being removed" if said is None else said) + "\n").encode())
    return said is not None


@contextmanager
def _listening() -> Iterator[socket.socket]:
    path = _folder() / f"break-{os.getpid()}.sock"
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(str(path))
        except OSError as error:
            why = error.strerror or error
            raise BadInput(f"{path} cannot be listened on ({why}): set TMPDIR") from error
        listener.listen()
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


def _folder() -> Path:
    try:
        return private_folder()
    except NotPrivate as error:
        raise BadInput(str(error)) from error


def _alive(path: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(path))
    except OSError:
        path.unlink(missing_ok=True)
        return False
    return True
