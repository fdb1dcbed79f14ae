"""What the command line reads, each as it should be, and the commands that read it.

Every input is a folder ``work`` with the files in it; ``out`` is where a command is asked to write.
``outside`` holds what nothing may lead to.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from msgspec.structs import replace

from lockbench.bench.plan import make_case, resolve
from lockbench.bench.resume import planned
from lockbench.history.edn import write_edn
from lockbench.history.jsonl import write_jsonl
from lockbench.history.recording import read_recording
from lockbench.results.documents import text_of
from tests.fuzz.mutations import Change, draw
from tests.results.made_run import make_run, record

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
CASE: Final = "01-redis-token-pause"
OBSERVED: Final = "bsm-redislock"
EVIL: Final = 'open("PWNED", "w").write("x")\nSYSTEM = None\n'
TOML: Final = """\
# Two faults, and some that are drawn.
[[fault]]
name = "pause"
at_s = 3.0
for_s = 2.0
times = 2
every_s = 5.0
with = { who = "leader" }

[[fault]]
name = "partition-drop"

[random]
count = 2
weights = { pause = 2, kill = 1.5 }
"""


@dataclass(frozen=True)
class Input:
    """``commands``: of which one is drawn; ``written``: what they may write beside ``out``."""

    make: Callable[[Path], None]
    commands: Sequence[str]
    change: Callable[[random.Random, Path], list[Change]]
    written: Sequence[str] = ()
    entry: str = "lockbench.cli.main:main"

    def command(self, luck: random.Random) -> list[str]:
        """Words after ``lockbench``. ``@`` stands for anything."""
        words = luck.choice(self.commands).split()
        return [luck.choice(ANYTHING) if word == "@" else word for word in words]


def any_file(luck: random.Random, work: Path) -> list[Change]:
    """One to three changes of files."""
    names = [
        path.relative_to(work).as_posix() for path in sorted(work.rglob("*")) if path.is_file()
    ]
    names = [name for name in names if not name.endswith(".py")]
    # One change of a file: a second one is drawn from what it was.
    chosen = luck.sample(names, min(len(names), luck.choice((1, 1, 1, 2, 3))))
    return [draw(luck, work, name) for name in chosen]


def of_a_run(luck: random.Random, work: Path) -> list[Change]:
    """Half of the time the digests are made to fit, and a case says the same in both its files, so
    that the change comes further than to whoever compares them."""
    found: list[Change] = []
    for change in any_file(luck, work):
        name = str(change["file"])
        found.append(change)
        if luck.random() < 0.2:
            continue
        if "/history/" in name:
            folder = name.split("/history/", maxsplit=1)[0]
            run = folder.split("/")[0]
            found += [
                {
                    "file": f"{folder}/case.json",
                    "op": "digest",
                    "at": ["history_sha256"],
                    "of": "history",
                },
                {
                    "file": f"{run}/results.json",
                    "op": "digest",
                    "at": ["cases", 0, "history_sha256"],
                    "of": f"cases/{CASE}/history",
                },
            ]
        elif not isinstance(change.get("at"), list) or "line" in change:
            continue
        elif name.endswith("case.json"):
            whole = f"{name.split('/', maxsplit=1)[0]}/results.json"
            found.append({**change, "file": whole, "at": ["cases", 0, *change["at"]]})
        elif name.endswith("results.json") and change["at"][:2] == ["cases", 0]:
            case = f"{name.split('/', maxsplit=1)[0]}/cases/{CASE}/case.json"
            found.append({**change, "file": case, "at": change["at"][2:]})
    # Digests first: they need files that are still JSON.
    return sorted(found, key=lambda change: (change["op"] == "node", change["op"] == "bytes"))


def no_file(luck: random.Random, work: Path) -> list[Change]:
    return []


def _recording(work: Path) -> None:
    (work / "rec").mkdir()
    record(work / "rec", 40, double=True)


def _history(work: Path, name: str) -> None:
    _recording(work)
    history = read_recording(work / "rec")
    (write_edn if name.endswith(".edn") else write_jsonl)(history, work / name)
    shutil.rmtree(work / "rec")


def _run(work: Path) -> None:
    facts: Mapping[str, Any] = json.loads((HERE / "facts.json").read_text())
    (work / "rec").mkdir()
    phases = record(work / "rec", 40, double=True)
    shutil.rmtree(work / "rec")
    plain = make_run(
        work / "made",
        cycles=40,
        double=True,
        change=lambda case: case.update(
            {
                **{name: value for name, value in facts["case"].items() if name not in case},
                "observed": {name: it["result"] for name, it in case["verdicts"].items()},
                "phases_s": {
                    f"{name}_s": (end - begin) / 1e9
                    for name, (begin, end) in asdict(phases).items()
                },
                "lock": "redis-token",
                "topology": "redis",
                "size": 1,
                "folder": CASE,
                "expected": facts["case"]["expected"],
                "judgement": "broke",
                "why": "double-grant was expected to hold",
                "ending": "safety",
            }
        ),
    )
    run = work / "run"
    plain.path.rename(run)
    shutil.rmtree(work / "made")
    (run / "cases" / "01-etcd-pause").rename(run / "cases" / CASE)
    (run / "ending").write_text("safety\n")
    case = resolve(make_case("redis-token", "pause", seed=0))
    plan = planned("quick", [case], command="lockbench suite quick")
    (run / "plan.json").write_text(text_of(plan))
    for name, value in (
        ("machine", facts["machine"]),
        ("versions", facts["versions"]),
    ):
        (run / f"{name}.json").write_text(json.dumps(value, indent=1) + "\n")
    (run / "evil.py").write_text(EVIL)
    (work / "evil.py").write_text(EVIL)
    shutil.copytree(run, work / "other")


def _toml(work: Path) -> None:
    (work / "faults.toml").write_text(TOML)


def _beside(work: Path) -> None:
    """What arguments may name."""
    _toml(work)
    _history(work, "h.jsonl")
    (work / "folder").mkdir()
    (work / "loop").symlink_to("loop")
    os.mkfifo(work / "pipe")
    (work / "evil.py").write_text(EVIL)


def _observations(work: Path) -> None:
    """Those of one lock that the repository has."""
    from lockbench.evidence import observations

    found = observations.load()
    cases = {key: it for key, it in found.cases.items() if key.lock == OBSERVED}
    costs = {key: it for key, it in found.footprints.items() if key[0] == OBSERVED}
    named = {run for it in cases.values() for run in (it.last.run, *it.runs)}
    named |= {it.run for it in costs.values()}
    runs = {name: replace(found.runs[name], cases=0) for name in sorted(named)}
    first = next(iter(runs))
    runs[first] = replace(runs[first], cases=sum(it.cases for it in cases.values()))
    observations.save(observations.Observations(runs, cases, costs), work / "observed")


def systems() -> None:
    """``python -m lockbench.evidence.systems`` with the observations of this folder and no history
    beside."""
    from lockbench.evidence import observations
    from lockbench.evidence import systems as page

    with patch.multiple(
        page,
        load=partial(observations.load, Path("observed")),
        histories_in=dict,
        PAGE=Path("../out/systems.md"),
    ):
        page.main()


# Words that an argument may be. A NUL cannot be: the kernel refuses it.
ANYTHING: Final = (
    "", " ", "-", "--", "-1", "0", "1", "1e400", "nan", "inf", "9" * 5000, "x", "A" * 5000,
    "é✗", "\x1b[31mred", "\u202e", "[red]x[/red]", "\n", "\udcff", ".", "..", "/", "/dev/zero",
    "/dev/full", "/proc/self/mem", "folder", "loop", "pipe", "h.jsonl", "h.jsonl/x", "absent",
    "absent/x", "faults.toml", "evil.py", "evil.py:SYSTEM", "evil.py:", ":", "=", "a=b", "a:b=c",
    "redis-token", "redis-token,etcd", ",", "redis", "redis=x", "none", "pause", "pause:for=-1",
    "pause:for=1e400", "pause:times=1e9", "pause+pause", "pause then kill", "random:count=1000",
    "random:count=1e9", "correctness", "mutex", "csv", "quick", "*", "[", "../out/x",
    "../out/x.edn", "x" * 300 + "/y", "~", "$HOME", "--json", "--help", "{}", "null", "register",
    "semaphore",
)  # fmt: skip
CHECKS: Final = (
    "check {}",
    "check {} --json",
    "check {} --html ../out/x.html",
    "check {} --write ../out/x.edn",
    "check {} --write ../out/x.jsonl",
    "check {} --model mutex",
)
ARGUMENTS: Final = (
    "check @", "check @ @", "check h.jsonl --model @", "check h.jsonl --model @ --permits @",
    "check h.jsonl --model @ --initial @", "check h.jsonl --html @", "check h.jsonl --write @",
    "check h.jsonl --json --html @ --write @", "report @", "bugreport @", "alerts @",
    "alerts --rules @", "compare @ @", "compare @ @ --junit @ --anyway", "adr @ --output @",
    "adr @ --needs @ --p99-ms @ --ops-per-second @ --already-have @", "adr --output @",
    "adr @ --costs @ --skills @",
    "export @ --format @ --out @", "run --lock @", "run --lock @ --fault @",
    "run --lock redis-token --fault @", "run --lock etcd --fault @ --seed @ --time-limit @",
    "run --lock etcd --clients @ --keys @ --nodes @ --ttl @", "run --lock etcd --image @",
    "run --lock etcd --topology @ --network @", "run --lock etcd --workload @",
    "sweep --lock etcd --rate @ --keys @",
    "sweep --lock @ --hold @ --clients @ --repeats @",
    "run --replay @ --times @", "run --replay @ --shrink",
    "suite @", "suite quick --lock @ --fault @", "suite quick --seed @ --resume @",
    "regress --base @ --new @ --lock @ --fault @ --pairs @", "break --topology @ --lock @",
    "break --topology @ --nodes @ --workload @", "list @", "@", "@ @ @", "--help @",
)  # fmt: skip
WRITES: Final = ("--html", "--write", "--output", "--junit", "--out")
INPUTS: Final[Mapping[str, Input]] = {
    "run": Input(
        _run,
        (
            "report run",
            "compare run other",
            "compare other run --anyway",
            "compare run other --anyway --json",
            "compare run other --anyway --junit ../out/x.xml",
            "export run --format csv --out ../out/x",
            "export run --format json --out ../out/x",
            "export run --format parquet --out ../out/x",
            "export run --format edn --out ../out/x",
            "adr run --needs correctness --anyway",
            "adr run --needs efficiency --json --anyway",
            "adr run other --needs correctness --anyway --output ../out/x.md",
            "bugreport run",
            "alerts run",
            "alerts run --json",
            "check run",
            "run --replay run",
            "run --replay run --shrink",
            "suite quick --resume run",
        ),
        of_a_run,
        ("run/report.html", "run/report.md", "run/report", "run/bugreports"),
    ),
    "recording": Input(_recording, tuple(c.format("rec") for c in CHECKS), any_file),
    "jsonl": Input(
        lambda work: _history(work, "h.jsonl"), tuple(c.format("h.jsonl") for c in CHECKS), any_file
    ),
    "edn": Input(
        lambda work: _history(work, "h.edn"), tuple(c.format("h.edn") for c in CHECKS), any_file
    ),
    "toml": Input(
        _toml,
        ("run --lock etcd --fault faults.toml", "run --lock redis-token --fault faults.toml"),
        any_file,
    ),
    "arguments": Input(_beside, ARGUMENTS, no_file),
    "observations": Input(_observations, ("",), any_file, entry="tests.fuzz.inputs:systems"),
}
