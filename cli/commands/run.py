"""``lockbench run``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lockbench.cli.options import (
    RUNS,
    Cluster,
    Hosts,
    Json,
    Machines,
    Runs,
    Topology,
    With,
    Yes,
    path,
    words,
)
from lockbench.results.errors import BadInput, Unfit

if TYPE_CHECKING:
    from lockbench.bench.plan import Case
    from lockbench.results.documents import Refused


# What goes with --replay.
REPLAYED = frozenset({"replay", "times", "shrink", "trust_plan", "runs", "as_json"})


def run(
    context: typer.Context,
    lock: Annotated[
        str | None, typer.Option(help="Locks by name, file or folder, separated by commas.")
    ] = None,
    fault: Annotated[
        str,
        typer.Option(
            help="Faults, separated by commas: name:parameter=value; a+b at once; 'a then b' in "
            "turn; random:count=N; or a file.toml with a schedule."
        ),
    ] = "none",
    workload: Annotated[str, typer.Option(help="What the clients do under the lock.")] = "mutex",
    resource: Annotated[
        str | None,
        typer.Option(
            help="What the lock guards: a store with a check of its own, name:guard=…, in place of "
            "a resource that applies everything."
        ),
    ] = None,
    clients: Annotated[
        int | None, typer.Option(help="How many clients contend for the keys; default 8.")
    ] = None,
    keys: Annotated[
        int | None, typer.Option(help="How many keys they contend for; default 2.")
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds under load; default: what the faults need, or 20.")
    ] = None,
    brief: Annotated[
        bool,
        typer.Option("--brief", help="Run no longer than the faults need, as in the suite full."),
    ] = False,
    seed: Annotated[int, typer.Option(help="Decides the schedule of the faults.")] = 0,
    topology: Topology = None,
    nodes: Annotated[int | None, typer.Option(help="How many nodes the cluster has.")] = None,
    ttl: Annotated[
        float | None, typer.Option(help="Lease in seconds; default 3, or the lock's own.")
    ] = None,
    cluster: Cluster = None,
    yes: Yes = False,
    machines: Machines = None,
    hosts: Hosts = None,
    network: Annotated[
        str, typer.Option(help="How slow every link is: loopback, rack, az or region.")
    ] = "loopback",
    image: Annotated[
        list[str] | None, typer.Option(help="Replace a server image: NAME=REF.")
    ] = None,
    with_: With = None,
    web: Annotated[
        bool,
        typer.Option("--web", help="Serve Locust's own page during the load, and keep its report."),
    ] = False,
    locust_report: Annotated[
        bool,
        typer.Option("--locust-report", help="Keep Locust's own CSV and HTML of every case."),
    ] = False,
    locustfile: Annotated[
        Path | None,
        typer.Option(
            help="Run this locustfile's listeners (events.request) on every operation.", parser=path
        ),
    ] = None,
    replay: Annotated[
        Path | None, typer.Option(help="Run the schedule of this stored run again.", parser=path)
    ] = None,
    times: Annotated[int, typer.Option(help="How often --replay runs it.")] = 1,
    shrink: Annotated[
        bool,
        typer.Option("--shrink", help="With --replay: find the fewest faults that still break it."),
    ] = False,
    trust_plan: Annotated[
        bool,
        typer.Option(
            "--trust-plan", help="With --replay: run the lock file and images that the plan names."
        ),
    ] = False,
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """Run one case or more: each lock that you name, under each fault that you name."""
    if replay is not None:
        _refuse_beside_replay(context)
        from lockbench.cli.running import play_again

        play_again(replay, times, shrink, as_json, trust_plan, runs=runs or RUNS)
    if lock is None or shrink or times != 1 or trust_plan:
        need = "--times, --shrink and --trust-plan need --replay RUN"
        missing = "--lock is missing" if lock is None else need
        raise BadInput(f"{missing}: see lockbench run --help")
    from lockbench.bench import plan

    _refuse_servers(cluster, topology, nodes, image, with_)
    _refuse_elsewhere(machines, with_, locustfile)
    _refuse_beside_hosts(hosts, cluster, machines, nodes, with_)
    side = None
    if with_ is not None:
        from lockbench.evidence import sides

        side = sides.parse(with_)
        topology = side.topology or topology
    cases: list[Case] = []
    unfit: list[tuple[Refused, Unfit]] = []
    for lock_name in (each for name in words(lock) for each in plan.each_lock(name)):
        for fault_name in words(fault):
            try:
                case = plan.make_case(
                    lock_name,
                    fault_name,
                    seed=seed,
                    topology=topology,
                    workload=workload,
                    cluster=None if cluster is None else str(cluster),
                    resource=resource,
                    hosts=None if hosts is None else str(hosts),
                )
            except Unfit as error:
                from lockbench.results.documents import Refused

                unfit.append((Refused(lock_name, fault_name, str(error), topology), error))
                continue
            if workload == plan.PUBLISHED:
                case = replace(plan.published(lock_name, seed, topology), fault=fault_name)
            case = replace(
                case,
                clients=case.clients if clients is None else clients,
                keys=case.keys if keys is None else keys,
                size=case.size if nodes is None else nodes,
                network=network,
                pace=case.pace if ttl is None else replace(case.pace, lease_ttl_s=ttl),
                images=_images(image or [], plan.topology_of(case).images),
                machines=None if machines is None else str(machines),
            )
            case = _timed(case, time_limit, brief=brief)
            cases.append(plan.resolve(side.apply(case) if side else case))
    if not cases:
        raise unfit[0][1]
    from lockbench.cli import elsewhere, running
    from lockbench.workloads.fleet import free_port
    from lockbench.workloads.load import LocustsOwn

    name = "-".join([*words(lock), *words(fault)])
    refused = [one for one, _ in unfit]
    if locustfile is not None and not locustfile.is_file():
        raise BadInput(f"--locustfile {locustfile}: there is no such file")
    locust = LocustsOwn(
        web_port=free_port() if web else None,
        report=web or locust_report,
        locustfile=str(locustfile.resolve()) if locustfile else None,
    )
    _look(cases)
    recorded = elsewhere.agreed(cases, yes)
    if side is None:
        running.play(
            cases,
            name,
            as_json,
            locust=locust,
            refused=refused,
            recorded=recorded,
            runs=runs or RUNS,
        )
    with sides.instead(side, cases) as installed:
        running.play(
            cases,
            name,
            as_json,
            locust=locust,
            refused=refused,
            recorded=installed.recorded,
            runs=runs or RUNS,
        )


def _refuse_beside_replay(context: typer.Context) -> None:
    """What would be run otherwise than asked for. Raises BadInput."""
    given = [
        param
        for param in context.command.params
        if (source := context.get_parameter_source(param.name or "")) is not None
        and source.name == "COMMANDLINE"
    ]
    if beside := [param.opts[0] for param in given if param.name not in REPLAYED]:
        raise BadInput(f"--replay decides what is run; leave {' and '.join(beside)} out")
    if {"times", "shrink"} <= {param.name for param in given}:
        raise BadInput("--shrink tries as often as it needs; leave --times out")


def _refuse_servers(cluster: Path | None, *said: object) -> None:
    """Raises BadInput for what else ``said`` of the servers of a cluster that a file names."""
    if cluster is not None and any(said):
        raise BadInput(
            "--cluster FILE says what servers there are: leave --topology, --nodes, --image and"
            " --with out"
        )


def _refuse_elsewhere(machines: Path | None, *said: object) -> None:
    """Raises BadInput for what other machines do not have."""
    if machines is not None and any(said):
        raise BadInput("--with and --locustfile change this machine alone; leave --machines out")


def _refuse_beside_hosts(hosts: Path | None, *said: object) -> None:
    """Raises BadInput for what else ``said`` where nodes are, or what does not go with it."""
    if hosts is not None and any(said):
        raise BadInput(
            "--hosts FILE puts a node of a cluster of Lockbench on each host, and clients here:"
            " leave --cluster, --machines, --nodes and --with out"
        )


def _look(cases: Sequence[Case]) -> None:
    """Raises BadInput where a machine that load is to come from, or a host that a node is to be on,
    cannot be used."""
    if cases[0].hosts is not None:
        from lockbench.cli.hosts import look as look_at

        look_at(cases)
    if cases[0].machines is not None:
        from lockbench.cli.machines import look

        look(cases)


def _timed(case: Case, time_limit: float | None, *, brief: bool) -> Case:
    """With the time that was asked for; unless one was, with what its faults need."""
    from lockbench.bench import plan, suites

    if time_limit is not None:
        if brief:
            raise BadInput("--brief and --time-limit both say how long a case lasts; give one")
        return replace(case, time_limit_s=time_limit)
    plan.refuse_impossible(case)
    return suites.brief(case) if brief else plan.with_time_for_faults(case)


def _images(given: list[str], used: Sequence[str]) -> tuple[tuple[str, str], ...]:
    from lockbench.bench.plan import unknown

    pairs = []
    for text in given:
        name, equals, reference = text.partition("=")
        if not equals or not name or not reference:
            raise BadInput(f"--image {text}: it is written NAME=REF, for example redis=redis:7.4")
        if name not in used:
            raise unknown("image of these cases", name, used)
        pairs.append((name, reference))
    return tuple(pairs)
