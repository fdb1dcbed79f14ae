"""The command ``lockbench``. This module prints; nothing below it does.

Exit codes: see ``bench.errors``. With ``--json`` standard output holds the JSON alone; everything
else goes to standard error.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, TypeVar

import typer
from rich.console import Console

from bench import interruption, plan, suites
from bench.errors import BAD_INPUT, BadInput, Unfit
from bench.usable import Refused

if TYPE_CHECKING:
    from bench.suite import Finished

T = TypeVar("T")
app = typer.Typer(
    name="lockbench",
    help="Find out what distributed locks promise and keep, on real clusters.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
INTERRUPTED = FAILED = 255
# Tables need room; what is not a terminal has no width of its own.
WIDTH = None if sys.stdout.isatty() else 120
out = Console(width=WIDTH)
err = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


class Done(Exception):
    """A command ended with this exit code. Not SystemExit, which the parser uses for its own."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def main() -> None:
    """The entry point: every ending has its exit code."""
    interruption.arm()
    code = 0
    try:
        app()
    except Done as done:
        code = done.code
    except BadInput as error:
        code = _fail(str(error), BAD_INPUT)
    except SystemExit as parsed:
        # The parser has said what is wrong; its 2 is our 254, and its 1 is an interruption.
        code = {"0": 0, "None": 0, "1": INTERRUPTED, "130": INTERRUPTED}.get(
            str(parsed.code), BAD_INPUT
        )
        if code and "--json" in sys.argv:
            print(json.dumps({"error": "see standard error", "exit": code}))
    except KeyboardInterrupt:
        code = _fail("interrupted", INTERRUPTED)
    except Exception as error:  # noqa: BLE001 - our own failure must not look like a lock's
        traceback.print_exc()
        code = _fail(f"the bench itself failed: {type(error).__name__}: {error}", FAILED)
    sys.exit(code)


def _fail(sentence: str, code: int) -> int:
    if "--json" in sys.argv:
        print(json.dumps({"error": sentence, "exit": code}))
    err.print(f"lockbench: {sentence}", markup=False, highlight=False)
    return code


@app.command("list")
def list_(as_json: Json = False) -> None:
    """Every topology, lock, fault, workload and suite."""
    from bench.catalogue import catalogue, show

    if as_json:
        print(json.dumps(catalogue(), indent=1))
    else:
        show(out)


@app.command()
def run(
    lock: Annotated[
        str | None, typer.Option(help="Locks, separated by commas; or path.py:Class for your own.")
    ] = None,
    fault: Annotated[
        str,
        typer.Option(
            help="Faults, separated by commas; name:parameter=value, a+b together, 'a then b' one "
            "after the other, random:count=N, or a schedule file.toml."
        ),
    ] = "none",
    workload: Annotated[str, typer.Option(help="What the clients do.")] = plan.MUTEX,
    clients: Annotated[
        int | None, typer.Option(help="Clients that contend for the keys; 8 unless said.")
    ] = None,
    keys: Annotated[
        int | None, typer.Option(help="Keys that they contend for; 2 unless said.")
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds under load; as many as the faults need, or 20.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides the schedule of the faults.")] = 0,
    topology: Annotated[
        str | None, typer.Option(help="The cluster, where a lock runs on several.")
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="Size of the cluster.")] = None,
    ttl: Annotated[
        float | None, typer.Option(help="Lease in seconds; 3, where the lock has no other.")
    ] = None,
    network: Annotated[str, typer.Option(help="Base state of every link.")] = "loopback",
    image: Annotated[list[str] | None, typer.Option(help="NAME=REF: another server image.")] = None,
    web: Annotated[bool, typer.Option("--web", help="Keep Locust's own page open.")] = False,
    ramp: Annotated[
        bool, typer.Option("--ramp", help="Find the highest rate with a p99 within --p99-ms.")
    ] = False,
    p99_ms: Annotated[
        float, typer.Option("--p99-ms", help="For --ramp; from the intended start.")
    ] = 100.0,
    replay: Annotated[
        Path | None, typer.Option(help="Play the schedule of this stored run again.")
    ] = None,
    times: Annotated[int, typer.Option(help="How often it is played again.")] = 1,
    shrink: Annotated[
        bool, typer.Option("--shrink", help="Drop faults while the violation still shows.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run one or more cases: every lock under every fault that is named."""
    if replay is not None:
        if lock is not None:
            raise BadInput("--replay says which lock is run; leave --lock out")
        _replay(replay, times, shrink, as_json)
    if lock is None or shrink or times != 1:
        missing = "--lock is missing" if lock is None else "--times and --shrink need --replay RUN"
        raise BadInput(f"{missing}: see lockbench run --help")
    cases = []
    unfit: list[tuple[Refused, Unfit]] = []
    for lock_name in _words(lock):
        for fault_name in _words(fault):
            try:
                case = plan.make_case(
                    lock_name, fault_name, seed=seed, topology=topology, workload=workload
                )
            except Unfit as error:
                unfit.append((Refused(lock_name, topology, fault_name, str(error)), error))
                continue
            if workload == plan.PUBLISHED:
                case = replace(plan.published(lock_name, seed, topology), fault=fault_name)
            case = replace(
                case,
                clients=case.clients if clients is None else clients,
                keys=case.keys if keys is None else keys,
                time_limit_s=plan.TIME_LIMIT_S if time_limit is None else time_limit,
                size=case.size if nodes is None else nodes,
                network=network,
                pace=case.pace if ttl is None else replace(case.pace, lease_ttl_s=ttl),
                images=_images(image or [], plan.topology_of(case).images),
            )
            if time_limit is None:
                plan.check(case)
                case = plan.roomy(case)
            cases.append(plan.resolve(case))
    if not cases:
        raise unfit[0][1]
    if ramp:
        _ramp(cases, p99_ms, as_json)
    name = "-".join([*_words(lock), *_words(fault)])
    _run(cases, name, as_json, web=web, refused=[refused for refused, _ in unfit])


@app.command()
def suite(
    name: Annotated[str, typer.Argument(help="Which: " + ", ".join(suites.SUITES))],
    lock: Annotated[
        str | None, typer.Option(help="Only these locks, separated by commas; * is wild.")
    ] = None,
    fault: Annotated[
        str | None, typer.Option(help="Only these faults, separated by commas; * is wild.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides the schedules of the faults.")] = 0,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with this run of the same words where it stopped.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a declared matrix of cases, or a slice of it."""
    declared = suites.sliced(
        suites.suite(name, seed), _words(lock) if lock else [], _words(fault) if fault else []
    )
    console = err if as_json else out
    console.print(f"suite {name}: {declared.duration}; {declared.summary}", highlight=False)
    words = [f"lockbench suite {name}"]
    words += [f"--{option} '{word}'" for option, word in (("lock", lock), ("fault", fault)) if word]
    words += [f"--seed {seed}"] if seed else []
    _run(list(declared.cases), name, as_json, command=" ".join(words), resume=resume)


@app.command()
def check(
    files: Annotated[list[Path], typer.Argument(help="Run folders, JSON Lines, Jepsen EDN.")],
    model: Annotated[str | None, typer.Option(help="Judge every key by this model.")] = None,
    permits: Annotated[int | None, typer.Option(help="Of a semaphore.")] = None,
    initial: Annotated[str | None, typer.Option(help="First value of a register.")] = None,
    html: Annotated[Path | None, typer.Option(help="Draw what is wrong into this file.")] = None,
    write: Annotated[
        Path | None, typer.Option(help="Save the history as this .edn or .jsonl file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Judge any saved history; needs no Docker."""
    from bench.check import check as check_files

    raise Done(
        check_files(
            files,
            model=model,
            permits=permits,
            initial=initial,
            json=as_json,
            html=html,
            write=write,
        )
    )


@app.command()
def compare(
    base: Annotated[Path, typer.Argument(help="A run folder, or a folder of runs.")],
    new: Annotated[Path, typer.Argument(help="The same, of what is new.")],
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Compare what is not the same experiment too.")
    ] = False,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML into this file.")] = None,
    as_json: Json = False,
) -> None:
    """Show what changed between stored runs; verdicts count, numbers inform."""
    from bench.compare import compare as compare_runs

    raise Done(compare_runs(base, new, anyway=anyway, as_json=as_json, junit=junit, out=out))


@app.command()
def regress(
    base: Annotated[
        str,
        typer.Option(
            help="current, redis=redis:7.4, redis==8.0.1, topology:NAME, path.py:Class or a lock."
        ),
    ],
    new: Annotated[str, typer.Option(help="The same, of what is new.")],
    lock: Annotated[str | None, typer.Option(help="Locks, separated by commas.")] = None,
    fault: Annotated[str, typer.Option(help="Faults, separated by commas.")] = "none",
    pairs: Annotated[
        int | None, typer.Option(help="Runs of each side per case; 10 or more unless said.")
    ] = None,
    time_limit: Annotated[float, typer.Option(help="Seconds under load of each run.")] = 8.0,
    seed: Annotated[int, typer.Option(help="Decides the order and the faults.")] = 0,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML into this file.")] = None,
    as_json: Json = False,
) -> None:
    """Measure both sides of a change in turn, and judge what got worse."""
    from bench.order import order
    from bench.regress import command

    asked = order(
        base,
        new,
        locks=_words(lock) if lock else [],
        faults=_words(fault),
        pairs=pairs,
        time_limit_s=time_limit,
        seed=seed,
    )
    raise Done(command(asked, as_json=as_json, junit=junit, out=out, err=err))


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run's folder.")],
) -> None:
    """Write RUN/report.html and RUN/report.md, anew from what was recorded."""
    from bench import reports

    print(reports.report(folder))


@app.command()
def bugreport(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run's folder.")],
) -> None:
    """Write what a maintainer needs for every broken verdict: RUN/bugreports/."""
    from bench import bugreport as reporting

    print(reporting.sentence(folder, reporting.bugreport(folder)))


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run's folder.")],
    form: Annotated[str, typer.Option("--format", help="csv, json, parquet or edn.")],
    out_dir: Annotated[Path, typer.Option("--out", help="A folder, new or empty.")],
) -> None:
    """Write every table and every history of a run."""
    from bench import reports

    print(reports.export(folder, form, out_dir))


@app.command()
def adr(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders of runs.")],
    needs: Annotated[str | None, typer.Option(help="correctness or efficiency.")] = None,
    p99_ms: Annotated[
        float | None, typer.Option("--p99-ms", help="What an uncontended acquire may take.")
    ] = None,
    ops_per_second: Annotated[
        float | None, typer.Option(help="Locks per second, all keys.")
    ] = None,
    already_have: Annotated[
        str | None, typer.Option(help="What you run already, separated by commas.")
    ] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Put runs of other machines and versions together.")
    ] = False,
    output: Annotated[Path | None, typer.Option(help="Write the record into this file.")] = None,
    as_json: Json = False,
) -> None:
    """Write a decision record from stored runs; asks what is not answered, in a terminal."""
    from bench.adr import adr as write
    from bench.adr import answers

    if sys.stdin.isatty() and not as_json:
        needs = needs or typer.prompt("Is a double grant a disaster? correctness/efficiency")
    asked = answers(needs, p99_ms, ops_per_second, already_have)
    raise Done(write(runs, asked, anyway=anyway, output=output, as_json=as_json, out=out))


@app.command()
def alerts(
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="RUN...", help="Finished runs' folders.")
    ] = None,
    rules: Annotated[
        bool, typer.Option("--rules", help="Print the rules for Prometheus, nothing else.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Replay stored runs against alert rules: which violation would have been noticed."""
    from bench import monitoring

    if rules == bool(runs):
        raise BadInput("give either run folders, or --rules for the file of alert rules")
    if rules:
        print(monitoring.file_of_rules(), end="")
        return
    raise Done(monitoring.alerts(runs or [], as_json=as_json, out=out))


@app.command("break")
def break_(
    topology: Annotated[str | None, typer.Option(help="Which cluster to start.")] = None,
    lock: Annotated[str | None, typer.Option(help="For the line that starts Locust.")] = None,
    workload: Annotated[str, typer.Option(help="For the same.")] = plan.MUTEX,
    nodes: Annotated[int | None, typer.Option(help="Size of the cluster.")] = None,
    do: Annotated[
        str | None, typer.Option(help="Send a command to the cluster that stands.")
    ] = None,
) -> None:
    """Start a cluster to use and to break by hand, at a prompt; Ctrl-C removes it."""
    from bench import stand

    if (do is None) == (topology is None):
        raise BadInput("give either --topology T, or --do COMMAND for the cluster that stands")
    if do is not None:
        out.print(stand.tell(do).rstrip(), highlight=False, markup=False)
        return
    assert topology is not None
    try:
        stand.stand(topology, lock, nodes, out, workload)
    except KeyboardInterrupt:
        out.print()
    out.print("the cluster is gone")


@app.command()
def doctor() -> None:
    """What is missing on this machine."""
    from bench.upkeep import doctor as look

    raise Done(look(out))


@app.command()
def clean() -> None:
    """Remove every container, network and process of ours that has no living owner."""
    from bench.upkeep import clean as tidy

    tidy(out)


def _run(
    cases: list[plan.Case],
    name: str,
    as_json: bool,
    *,
    web: bool = False,
    refused: Sequence[Refused] = (),
    command: str | None = None,
    resume: Path | None = None,
) -> None:
    from bench.suite import run_cases
    from workloads.fleet import free_port

    console = err if as_json else out
    web_port = free_port() if web else None
    if web_port is not None:
        console.print(f"Locust's page: http://127.0.0.1:{web_port}/ while the load runs")
    began = time.monotonic()
    finished = _uninterrupted(
        lambda: run_cases(
            cases,
            name,
            console,
            web_port=web_port,
            refused=refused,
            command=command,
            resume=resume,
        )
    )
    _show(finished, len(finished.results["cases"]), time.monotonic() - began, as_json)
    raise Done(finished.ending.code)


def _ramp(cases: list[plan.Case], p99_ms: float, as_json: bool) -> NoReturn:
    from bench import ramp
    from bench.suite import run_cases

    console = err if as_json else out
    if not p99_ms > 0:
        raise BadInput(f"--p99-ms is {p99_ms:g}; it has to be more than 0")
    for case in cases:
        ramp.check(case)
    ramps, done = [], []
    for case in cases:
        found, played = _uninterrupted(
            lambda: ramp.ramp(
                case,  # noqa: B023
                p99_ms,
                lambda one, name: run_cases(one, name, console),
                lambda step: ramp.say_step(case, step, console),  # noqa: B023
            )
        )
        ramps.append(found)
        done += played
    results = ramp.results(ramps, done)
    if as_json:
        print(json.dumps(results, indent=1))
    else:
        ramp.say(ramps, console)
    raise Done(ramp.ending_of(done).code)


def _replay(folder: Path, times: int, shrink: bool, as_json: bool) -> NoReturn:
    from bench import replay
    from bench.suite import run_cases

    console = err if as_json else out

    def play(cases: list[plan.Case], name: str) -> Finished:
        return run_cases(cases, name, console, try_of=replay.where(folder) if shrink else None)

    began = time.monotonic()
    if shrink:
        finished, case = _uninterrupted(lambda: replay.shrink(folder, play, console))
        _show(finished, 1, time.monotonic() - began, as_json)
        console.print(
            f"what is left of the schedule: --fault '{replay.schedule_words(case)}'",
            highlight=False,
            soft_wrap=True,
        )
        raise Done(finished.ending.code)
    finished = _uninterrupted(lambda: replay.replay(folder, times, play))
    _show(finished, len(finished.results["cases"]), time.monotonic() - began, as_json)
    replay.say(finished.results, console)
    raise Done(finished.ending.code)


def _uninterrupted(work: Callable[[], T]) -> T:
    try:
        return work()
    except KeyboardInterrupt:
        raise Done(_fail("interrupted; everything that was started is gone", INTERRUPTED)) from None


def _show(finished: Finished, cases: int, took_s: float, as_json: bool) -> None:
    from bench.reports import report_after
    from results import tables
    from results.store import open_run

    if as_json:
        print(json.dumps(finished.results, indent=1))
    else:
        tables.show(open_run(finished.folder), finished.results, out)
        count = f"{cases} case{'s' * (cases != 1)}"
        out.print(
            f"\n{finished.ending.word}: {count} in {took_s / 60:.1f} minutes, "
            f"saved in {finished.folder} (report.md, results.json, *.csv)",
            highlight=False,
        )
    console = err if as_json else out
    for case in finished.results["cases"]:
        if lines := case.get("declare"):
            console.print(
                f"\nTo declare what {case['lock']} is expected to do under {case['fault']}, if "
                "somebody says so, put this into its file and name them as source:\n"
                + "\n".join(lines),
                highlight=False,
                markup=False,
                soft_wrap=True,
            )
    console.print(report_after(finished.folder), highlight=False, markup=False, soft_wrap=True)


def _words(text: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise BadInput("nothing is named: give at least one lock and one fault")
    return words


def _images(given: list[str], used: Sequence[str]) -> tuple[tuple[str, str], ...]:
    pairs = []
    for text in given:
        name, equals, reference = text.partition("=")
        if not equals or not name or not reference:
            raise BadInput(f"--image {text}: it is written NAME=REF, for example redis=redis:7.4")
        if name not in used:
            raise plan.unknown("image of these cases", name, used)
        pairs.append((name, reference))
    return tuple(pairs)


if __name__ == "__main__":
    main()
