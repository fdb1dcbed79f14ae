"""``--machines FILE``: whether the machines can be used, and what killed runs have left there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from lockbench.bench.plan import WORKERS, Case, machines_of
from lockbench.clusters.engine.owner import is_dead
from lockbench.report.console import out
from lockbench.results.errors import BadInput, Failed
from lockbench.workloads.machines.file import Machine, MachinesError, read
from lockbench.workloads.machines.remote import Remote
from lockbench.workloads.worker_process import LoadError


def look(cases: Sequence[Case]) -> None:
    """Raises BadInput for a machine that cannot be used."""
    if find_spec("scipy") is None:
        raise BadInput(
            "what several machines record needs scipy, which is not installed here:"
            " pip install 'lockbench[machines]'"
        )
    with _reached(machines_of(cases[0])):
        pass


def clean(file: Path) -> None:
    """Ends and removes what killed runs have left on the machines of a file. Raises BadInput,
    Failed."""
    try:
        machines = read(file, WORKERS + 1)
    except MachinesError as error:
        raise BadInput(str(error)) from error
    with _reached(machines) as remotes:
        for remote in remotes:
            try:
                ended = [home for home in remote.ask("homes") if is_dead(home)]
                lines = remote.ask("left", ended=ended)
            except LoadError as error:
                raise Failed(str(error)) from error
            for line in lines or ["nothing is left there"]:
                out.print(f"machine {remote.machine.name}: {line}", soft_wrap=True)


@contextmanager
def _reached(machines: Sequence[Machine]) -> Iterator[list[Remote]]:
    """An agent on each of them, at the same time. Raises BadInput."""
    with tempfile.TemporaryDirectory() as folder:
        remotes: list[Remote] = []
        try:
            for machine in machines:
                remotes += [Remote(machine, Path(folder), Path(folder, machine.name))]
            for remote in remotes:
                remote.greet()
            yield remotes
        except MachinesError as error:
            raise BadInput(str(error)) from error
        finally:
            for remote in remotes:
                remote.close()
