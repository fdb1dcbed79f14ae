"""Kills from outside, in the middle of short cases: what is left afterwards, and what is said?

Every attack is drawn from a seed and its number: whom it strikes (the bench, Locust's master, a
worker, the fork server, a link, a server, the connection to the engine), with which signal, on
which topology, under which fault, and when, while it starts or under load. The moment is drawn;
what is going on at that moment is not, so an attack that is played again may find it elsewhere.

Guarantees: a kill counts only if whom it struck was there. What was left is looked for when the
bench has ended, and again when the next one has got through its start. The engine itself is never
touched: what is cut is a socket of ours before its own.
"""

from __future__ import annotations

import math
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from rich.console import Console
from rich.table import Table

from lockbench.bench import interruption, plan
from lockbench.clusters.engine import owner
from lockbench.clusters.engine.docker import Engine
from lockbench.locks.registry import systems
from lockbench.results.store import RUNNING
from soak.aftermath import (
    PROCESS,
    Aftermath,
    Left,
    Said,
    ask,
    documents_of,
    environment,
    files_in,
    left_of,
    readable,
    went_on_after,
    wrong_words,
)
from soak.engine_link import EngineLink, engine_socket
from soak.parts import BENCH, FORK_SERVER
from soak.victims import ENGINE, HOW_ENGINE, LINK, MASTER, SERVER, SIGNALS, WORKER, Victim, Victims

KINDS: Final = (
    *((target, name) for target in (BENCH, MASTER, WORKER, FORK_SERVER) for name in SIGNALS),
    *((target, name) for target in (LINK, SERVER) for name in ("SIGKILL", "SIGTERM")),
    *((ENGINE, how) for how in HOW_ENGINE),
)
UNDER_LOAD: Final = 0.7
FAULTS: Final = ("none", "none", "pause:for=1")
# A bench that clears away itself leaves nothing. These cannot.
CANNOT_CLEAR: Final = frozenset({(BENCH, "SIGKILL"), *((ENGINE, how) for how in HOW_ENGINE)})
COMMAND: Final = (sys.executable, "-m", "lockbench.cli.main")
POLL_S: Final = 0.02
SEARCH_S: Final = 0.1  # to look through all processes costs milliseconds
ENDS_S: Final = 3.0  # what is struck may take that long to end
VANISHES_S: Final = 5.0
RUN_LIMIT_S: Final = 120.0
TRIES: Final = 3
# As many attacks may have come too late.
TOO_LATE_MAX: Final = 0.1


@dataclass(frozen=True, slots=True)
class Attack:
    """``moment``, 0 to 1, is the share of the load that has passed; unless it is ``under_load``, of
    the time from the appearance of whom it strikes to the load, on a machine that is not busy.
    ``draw`` chooses among several workers or containers."""

    number: int
    target: str
    how: str
    topology: str
    fault: str
    moment: float
    draw: float
    under_load: bool = False

    @property
    def kind(self) -> tuple[str, str]:
        return (self.target, self.how)

    def __str__(self) -> str:
        return f"#{self.number} {self.target} {self.how} on {self.topology} under {self.fault}"


def attack(seed: int, number: int, topologies: Sequence[str]) -> Attack:
    """Attack ``number`` of a seed. Kinds and topologies take turns in an order that is drawn."""
    order = random.Random(f"{seed}")
    kinds, places = list(KINDS), list(topologies)
    order.shuffle(kinds)
    order.shuffle(places)
    drawn = random.Random(f"{seed} {number}")
    target, how = kinds[number % len(kinds)]
    # Where the counts have a divisor in common, a kind would always meet the same places.
    place = places[(number + number // math.lcm(len(kinds), len(places))) % len(places)]
    fault = drawn.choice(FAULTS)
    moment, draw = drawn.random(), drawn.random()
    return Attack(number, target, how, place, fault, moment, draw, drawn.random() < UNDER_LOAD)


def plain_lock(topology: str) -> str:
    """The first recipe that runs there and needs nothing to be installed."""
    found = (n for n, s in sorted(systems().items()) if topology in s.topologies)
    return next(name for name in found if systems()[name].prepare is None)


@dataclass
class Found:
    """What came of an attack. ``struck_s``: seconds after the bench began, None: it came too late.
    ``left_at_end`` was there when the bench had ended, ``left`` after the next start."""

    attack: Attack
    struck_s: float | None = None
    ended_s: float = 0.0
    left_at_end: frozenset[Left] = frozenset()
    left: frozenset[Left] = frozenset()
    checked: Said | None = None
    wrong: list[str] = field(default_factory=list)

    def all_wrong(self) -> list[str]:
        """Words, and what was left."""
        stays = [] if self.attack.kind in CANNOT_CLEAR else sorted(map(str, self.left_at_end))
        return [
            *self.wrong,
            *(f"left when it had ended: {one}" for one in stays),
            *(f"left after the next start: {one}" for one in sorted(map(str, self.left))),
        ]


@dataclass
class _Bench:
    """One that runs, as it is seen from outside."""

    process: subprocess.Popen[str]
    name: str  # see lockbench.clusters.engine.owner.me
    began: float
    folder: Path
    known: frozenset[Path]
    before: frozenset[Left]  # of earlier ones

    def run(self) -> Path | None:
        """Its run folder, once it has got through its start."""
        new = {p.parent for p in self.folder.glob("runs/*/ending")} - self.known
        return next((path for path in new if path.name != "latest"), None)

    def loaded(self) -> bool:
        """Whether a client has begun to record."""
        run = self.run()
        return run is not None and any(run.glob("cases/*/history/*.ops"))


class Room:
    """A folder in which one bench after the other is started and struck. A context manager; the
    folder stays if something is wrong."""

    def __init__(
        self,
        folder: Path,
        console: Console,
        *,
        engine: Engine | None = None,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self.folder = folder
        self._command = command
        self._console = console
        self._temporary = folder / "tmp"
        self._temporary.mkdir()
        self._engine = engine or Engine()
        self._link = EngineLink(folder / "engine.sock", engine_socket())
        self._victims = Victims(self._engine, self._link)
        self._running: _Bench | None = None
        self._unsettled: list[tuple[Found, str, int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._running is not None and self._running.process.poll() is None:
            self._running.process.terminate()
            self._end(self._running)
        self._link.cut()
        self._engine.close()

    def play(self, one: Attack) -> Found:
        """One attack; again at half the moment, while it comes too late."""
        found = Found(one)
        for again in range(TRIES):
            found = self._play(replace(one, moment=one.moment / 2**again))
            if found.struck_s is not None:
                break
        return found

    def healthy(self) -> list[str]:
        """A last start, to which nothing is done. What is wrong with it."""
        bench = self._start("redis", "none", None)
        said = self._end(bench)
        self._settle(bench)
        if said.code == 0:
            return []
        return [f"a healthy run afterwards: exit {said.code}: {said.err.strip()[-300:]}"]

    def _play(self, one: Attack) -> Found:
        found = Found(one)
        link = self._link if one.target == ENGINE else None
        if link is not None:
            link.restore()
        bench = self._start(one.topology, one.fault, link)
        struck, at_ns = self._strike(one, bench, found)
        said = self._end(bench)
        ended = time.monotonic()
        if found.struck_s is not None:
            found.ended_s = ended - bench.began - found.struck_s
        self._settle(bench)
        found.left_at_end = self._left(bench)
        self._unsettled.append((found, bench.name, bench.process.pid))
        run = bench.run()
        words = None if run is None else str(run.relative_to(self.folder))
        if found.struck_s is None or words is None or run is None:
            ending, report = None, None
        else:
            ending = (run / "ending").read_text(encoding="utf-8").strip()
            report = None
            if ending == RUNNING:  # otherwise its end has written it
                report = ask(self._command, self.folder, "report", words)
            if bench.loaded():
                found.checked = ask(self._command, self.folder, "check", words)
        if found.struck_s is not None:
            found.wrong += wrong_words(
                Aftermath(
                    target=one.target,
                    topology=one.topology,
                    struck=struck,
                    went_on=run is not None and went_on_after(run, at_ns),
                    said=said,
                    ending=ending,
                    documents=documents_of(run) if run is not None else (),
                    report=report,
                    checked=found.checked,
                    left=found.left_at_end,
                )
            )
        self._say(found)
        if run is not None and not found.all_wrong():
            shutil.rmtree(run)
        return found

    def _start(self, topology: str, fault: str, link: EngineLink | None) -> _Bench:
        lock = plain_lock(topology)
        case = replace(
            plan.make_case(lock, fault, seed=0, topology=topology),
            time_limit_s=plan.TIME_LIMIT_S_MIN,
        )
        words = ["--lock", lock, "--topology", topology, "--fault", fault, "--json"]
        words += ["--time-limit", f"{plan.with_time_for_faults(case).time_limit_s:g}"]
        more = {"TMPDIR": str(self._temporary)} | ({"DOCKER_HOST": link.host} if link else {})
        known = frozenset(p.parent for p in self.folder.glob("runs/*/ending"))
        before = frozenset(files_in(self._temporary))
        with (self.folder / "out").open("w") as out, (self.folder / "err").open("w") as err:
            process = subprocess.Popen(
                [*self._command, "run", *words],
                cwd=self.folder,
                env=environment(**more),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                text=True,
                start_new_session=True,
                preexec_fn=_as_from_a_terminal,  # noqa: PLW1509 - system calls, which take no locks
            )
        name = f"{process.pid}:{owner.start_ticks(process.pid)}:{owner.place()}"
        began = time.monotonic()
        self._running = _Bench(process, name, began, self.folder, known, before)
        return self._running

    def _strike(self, one: Attack, bench: _Bench, found: Found) -> tuple[bool, int]:
        """Waits for whom it strikes, and for the moment. Whether it ended of it, and when."""
        victim: Victim | None = None
        while victim is None:
            interruption.raise_if_asked()
            if bench.process.poll() is not None:
                return False, 0
            time.sleep(SEARCH_S)
            if bench.loaded() or not one.under_load:
                victim = self._victims.find(one.target, bench.process.pid, bench.name, one.draw)
        due = time.monotonic() + one.moment * self._life_s(one)
        while time.monotonic() < due:
            interruption.raise_if_asked()
            if bench.process.poll() is not None:
                return False, 0
            time.sleep(POLL_S)
        if not victim.there():
            return False, 0
        found.struck_s = time.monotonic() - bench.began
        # Before: who is told at once may act at once.
        at_ns = time.monotonic_ns()
        victim.strike(one.how)
        until = time.monotonic() + ENDS_S
        while victim.there() and time.monotonic() < until:
            time.sleep(POLL_S)
        return not victim.there(), at_ns

    def _life_s(self, one: Attack) -> float:
        """How long the load lasts; or what is before it, on a machine that is not busy."""
        case = plan.make_case(plain_lock(one.topology), one.fault, seed=0, topology=one.topology)
        case = plan.with_time_for_faults(replace(case, time_limit_s=plan.TIME_LIMIT_S_MIN))
        load_s = case.time_limit_s
        return load_s if one.under_load else plan.expected_s(case) - load_s

    def _end(self, bench: _Bench) -> Said:
        """Waits for the end; a bench that does not come to one is killed."""
        try:
            code: int | None = bench.process.wait(RUN_LIMIT_S)
        except subprocess.TimeoutExpired:
            code = None
            bench.process.kill()
            bench.process.wait()
        out, err = (
            (self.folder / name).read_text(encoding="utf-8", errors="replace")
            for name in ("out", "err")
        )
        return Said(code, out, err)

    def _settle(self, bench: _Bench) -> None:
        """What the earlier ones left must be gone, if this one got through its start."""
        if bench.run() is None:
            return
        for found, name, session in self._unsettled:
            now = left_of(name, session, self._temporary, self._engine)
            found.left = found.left_at_end & now
            if found.left:
                self._console.print(f"  {found.attack}: {'; '.join(map(str, found.left))} left")
        self._unsettled.clear()

    def _left(self, bench: _Bench) -> frozenset[Left]:
        """What there is of it; what is just going may go."""
        end = time.monotonic() + VANISHES_S
        while True:
            left = left_of(bench.name, bench.process.pid, self._temporary, self._engine)
            left -= bench.before
            if all(one.kind != PROCESS for one in left) or time.monotonic() > end:
                return left
            time.sleep(POLL_S)

    def _say(self, found: Found) -> None:
        when = "too late" if found.struck_s is None else f"{found.struck_s:.1f} s after its start"
        self._console.print(
            f"  {found.attack}, {when}: {'; '.join(found.all_wrong()) or 'clean'}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )


def _as_from_a_terminal() -> None:
    """A shell's job: no signal is ignored, whatever started us. And it dies with us."""
    for name in SIGNALS[1:]:
        signal.signal(signal.Signals[name], signal.SIG_DFL)
    owner.die_with_parent()


# --- what is printed -----------------------------------------------------------------------------


def table(found: Sequence[Found]) -> Table:
    """One line per target and signal."""
    shown = Table(
        "struck", "how", "kills", "too late", "ended within", "left at its end",
        "left after the next start", "histories", "wrong words",
    )  # fmt: skip
    for kind in KINDS:
        all_of_it = [one for one in found if one.attack.kind == kind]
        struck = [one for one in all_of_it if one.struck_s is not None]
        if not all_of_it:
            continue
        checked = [one.checked for one in struck if one.checked is not None]
        refused = sum(said.code == 254 and readable(said) for said in checked)
        bad = sum(not readable(said) for said in checked)
        histories = f"{len(checked) - refused - bad} judged, {refused} refused"
        shown.add_row(
            *kind,
            str(len(struck)),
            str(len(all_of_it) - len(struck)),
            f"{max((one.ended_s for one in struck), default=0.0):.1f} s",
            str(sum(len(one.left_at_end) for one in struck)),
            str(sum(len(one.left) for one in struck)),
            histories + (f", {bad} unreadable" if bad else ""),
            str(sum(len(one.wrong) for one in struck)),
        )
    return shown


def enough(found: Sequence[Found]) -> bool:
    """Whether so few came too late that it says something."""
    late = sum(one.struck_s is None for one in found)
    return late <= TOO_LATE_MAX * len(found)
