"""``--hosts FILE``: whether the engines can be used, and what killed runs have left there."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lockbench.bench.plan import Case, hosts_of
from lockbench.clusters import images
from lockbench.clusters.base import Host
from lockbench.clusters.engine.docker import EngineError
from lockbench.clusters.engine.forward import reached, remove_left
from lockbench.clusters.engine.reaper import reap
from lockbench.clusters.hosts import HostsError, read
from lockbench.report.console import err, out
from lockbench.results.errors import BadInput, Failed

PLATFORM = ("linux", "amd64")  # of our images


def look(cases: Sequence[Case]) -> None:
    """Removes what dead runs have left there. Raises BadInput for an engine that cannot be used."""
    hosts = hosts_of(cases[0])
    with ThreadPoolExecutor(len(hosts)) as pool:
        said = [pool.submit(_look, host) for host in hosts]
    try:
        for one in said:
            one.result()
    except EngineError as error:
        raise BadInput(str(error)) from error


def _look(host: Host) -> None:
    """Raises EngineError."""
    with reached(host) as engine:
        engine.check_platform(*PLATFORM)
        reap(lambda line: err.print(f"host {host.name}: {line}", highlight=False), engine=engine)


def clean(file: Path, *, old_images: bool = False) -> None:
    """Removes what killed runs have left on the engines of a file, on all that can be reached, and
    on demand those of our images that today's recipes do not give. Raises BadInput, Failed."""
    try:
        hosts = read(file)
    except HostsError as error:
        raise BadInput(str(error)) from error
    for folder in remove_left():
        out.print(f"removed {folder}", soft_wrap=True)
    failed = []
    for host in hosts:
        try:
            with reached(host) as engine:
                lines = [f"removed {name}" for name in reap(must=True, engine=engine)]
                if old_images:
                    lines += [f"removed image {ref}" for ref in images.remove_old(engine)]
        except EngineError as error:
            failed.append(str(error))
            continue
        for line in lines or ["nothing is left there"]:
            out.print(f"host {host.name}: {line}", soft_wrap=True, highlight=False)
    if failed:
        raise Failed("; ".join(failed))
