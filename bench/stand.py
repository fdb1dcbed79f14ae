"""``lockbench break``: a cluster that stays up until Ctrl-C, to be used and broken by hand.

It prints where the nodes are and the line with which plain Locust drives one of the locks on it.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from bench import plan
from bench.errors import BadInput
from bench.run import load_of
from clusters import images
from clusters.base import ClusterPlan
from clusters.docker import EngineError
from clusters.reaper import reap
from clusters.registry import topologies
from locks.registry import systems
from workloads.fleet import Fleet
from workloads.load import ENVIRONMENT, Phases

# Whoever drives it by hand comes to the contention soon and stays there for an hour.
PHASES = Phases(floor_s=1.0, own_s=3.0, contended_s=3600.0)


def stand(topology: str, lock: str | None, nodes: int | None, console: Console) -> None:
    """Blocks until interrupted."""
    known = topologies()
    if topology not in known:
        raise plan.unknown("topology", topology, known)
    fitting = [name for name, system in systems().items() if topology in system.topologies]
    if lock is None and not fitting:
        raise BadInput(f"no lock runs on {topology}")
    case = plan.make_case(lock or fitting[0], "none", seed=0, topology=topology)
    case = plan.resolve(replace(case, size=case.size if nodes is None else nodes))
    try:
        images.ensure([known[topology].image, plan.LINK_IMAGE], say=console.print)
        reap()
    except EngineError as error:
        raise BadInput(str(error)) from error
    with tempfile.TemporaryDirectory(prefix="lockbench-") as name:
        folder = Path(name)
        cluster_plan = ClusterPlan(
            topology=topology,
            size=case.size,
            groups=plan.WORKERS + 1,
            run_id=uuid.uuid4().hex[:12],
            lease_ttl_s=case.pace.lease_ttl_s,
            log_dir=str(folder / "logs"),
        )
        with (
            Fleet(folder, cluster_plan.run_id, plan.WORKERS) as fleet,
            known[topology].make(cluster_plan) as cluster,
        ):
            fleet.launch()
            load = load_of(case, fleet, cluster, PHASES)
            load.save(fleet.load_file)
            console.print(f"{topology} with {case.size} nodes is up:", highlight=False)
            for node, (host, port) in zip(cluster.nodes, cluster.addresses(0), strict=True):
                console.print(f"  {cluster.node_name(node)}  {host}:{port}", highlight=False)
            console.print(
                f"plain Locust drives {case.lock} on it with\n"
                f"  {ENVIRONMENT}={fleet.load_file} .venv/bin/locust -f workloads/locustfile.py "
                "--headless -u 12 -r 12 -t 30s\nCtrl-C removes it.",
                highlight=False,
                soft_wrap=True,
            )
            _until_interrupted()


def _until_interrupted() -> None:
    while True:
        time.sleep(3600)
