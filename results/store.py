"""The run folder: everything that one command found out, in files that can be read without us.

    runs/<time>-<name>/
      ending                  one word: running, then ok, safety, inconclusive, regression or bench
      plan.json               the resolved plan, written before anything is started
      machine.json versions.json
      cases/<n>-<lock>-<fault>/history/ logs/ case.json
      cut/                    what was recorded of cases that were cut short and run anew
      results.json report.md *.csv
    runs/latest               symbolic link to the newest run

Every file appears whole or not at all (written beside, synced, renamed), also on a disk that is
full: ``.reserve`` keeps some room for what is to be said of a run that met its end there, and
``ending`` is rewritten in place where even that is gone. ``ending`` is the last file of a run. A
folder whose ending still says ``running`` is half-written: its bench is at work as long as somebody
holds the lock on ``owner``, which the kernel drops when that process dies, however it dies. Case by
case ``case.json`` appears when the case is done.

A run folder may come from anybody (``lockbench.history.files``): only regular files inside of it
are read, of a bounded size, and nothing is read or written through a link below it.

The wall clock is read here, for the name of the folder, and nowhere else.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from lockbench.history import files
from lockbench.history.files import BadFile, MissingFile
from lockbench.history.text import write_whole
from lockbench.results import digests
from lockbench.results.documents import (
    CaseResult,
    D,
    Machine,
    Plan,
    Results,
    Versions,
    read,
    text_of,
)
from lockbench.results.errors import Ending

RUNNING: Final = "running"
ENDINGS: Final = tuple(ending.word for ending in Ending)
LATEST: Final = "latest"
# In a run folder while the run is written; given up where the disk is full.
RESERVE: Final = ".reserve"
RESERVE_BYTES: Final = 4 * 2**20
# What the system says where there is no room: of the disk, of a quota, of a limit.
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
SLUG_CHARS_MAX: Final = 60
SAME_SECOND_MAX: Final = 1000
ENDING_BYTES_MAX: Final = 100


class NotARun(Exception):
    """The path is no run folder, or not a finished one; the message names the remedy."""


class StoreError(Exception):
    """The run folder could not be made; the message says why."""


@dataclass(frozen=True, slots=True)
class CaseFolder:
    """What one case leaves behind."""

    path: Path

    @property
    def number(self) -> int:
        """Which case of the plan it is, from 1; the tries of a case share theirs. 0: none of it."""
        number = self.path.name.split("-", 1)[0]
        return int(number) if number.isdigit() else 0

    @property
    def history(self) -> Path:
        return self.path / "history"

    @property
    def logs(self) -> Path:
        """Logs of servers and clients."""
        return self.path / "logs"

    @property
    def locust_page(self) -> Path:
        """Locust's own report, where a run was asked to keep it; its CSV files are beside it."""
        return self.path / "locust" / "locust.html"

    @property
    def run(self) -> Path:
        return self.path.parent.parent

    def write_case(self, case: CaseResult) -> None:
        """Says that the case is done; the last thing that is written here."""
        write_atomically(self.path / "case.json", text_of(case), inside=self.run)

    def read_case(self) -> CaseResult | None:
        """The case as it was written, None while it is not done. Raises NotARun."""
        try:
            return _read(self.path / "case.json", CaseResult, self.run)
        except MissingFile:
            return None

    def history_sha256(self) -> dict[str, str]:
        """File name → digest of every file of the recording, to be put into the results. Raises
        NotARun."""
        with understood():
            return digests.of_files(self.history, inside=self.run)

    def history_differs(self, recorded: Mapping[str, str]) -> list[str]:
        """One sentence per file that is not what it was when its digest was taken. Raises
        NotARun."""
        with understood():
            return digests.differences(self.history, recorded, inside=self.run)


class RunFolder:
    """A run that is being written or was written. ``create`` makes one, ``open_run`` finds one."""

    def __init__(self, path: Path, owner: int | None = None) -> None:
        self.path = path
        self._owner = owner

    @classmethod
    def create(
        cls, base: Path = Path("runs"), name: str = "run", *, try_of: str | None = None
    ) -> RunFolder:
        """Makes ``base/<time>-<name>/`` and points ``base/latest`` at it, unless it is a try of
        another run, which is shrunk. Raises StoreError."""
        latest = base / LATEST
        if latest.is_dir() and not latest.is_symlink():
            raise StoreError(f"{latest} is a directory and not our link; move it away")
        try:
            base.mkdir(parents=True, exist_ok=True)
            path = _new_folder(base, f"{_now()}-{slug(name)}")
            run = cls(path, _hold_owner(path))
            (path / "cases").mkdir()
            run._write("ending", RUNNING + "\n")
            _reserve(path)
            if try_of is None:
                _point_latest(base, path.name)
        except OSError as error:
            raise StoreError(f"no run folder could be made in {base}: {error.strerror}") from error
        return run

    def case(self, number: int, lock: str, fault: str) -> CaseFolder:
        """Makes the folder of case ``number`` (from 1), empty ``history`` and ``logs`` in it."""
        folder = CaseFolder(self.path / "cases" / f"{number:02d}-{slug(lock)}-{slug(fault)}")
        folder.history.mkdir(parents=True)
        folder.logs.mkdir()
        return folder

    def cases(self) -> list[CaseFolder]:
        """Every case folder, in the order of their numbers, the unfinished ones included. Raises
        NotARun."""
        folder = self.path / "cases"
        with understood():
            found = [folder / name for name in digests.names(folder, self.path)]
        found = [p for p in found if "-" in p.name and files.is_folder(p, inside=self.path)]
        folders = [CaseFolder(path) for path in found]
        return sorted(folders, key=lambda folder: (folder.number, folder.path.name))

    def write_plan(self, plan: Plan) -> None:
        """The plan with every default and every random choice resolved."""
        self._write("plan.json", text_of(plan))

    def write_machine(self, facts: Machine) -> None:
        self._write("machine.json", text_of(facts))

    def write_versions(self, versions: Versions) -> None:
        """Libraries, packages in the images, digests of the images, the engine."""
        self._write("versions.json", text_of(versions))

    def write_results(self, results: Results) -> None:
        """The object of ``lockbench run --json``."""
        self._write("results.json", text_of(results))

    def write_text(self, name: str, text: str) -> Path:
        """A table or report; returns where it is."""
        self._write(name, text)
        return self.path / name

    def make_folder(self, name: str) -> Path:
        """A folder of that name in it, new or not. Raises OSError where there is something else, a
        link too: nothing is written through it."""
        path = self.path / name
        if not os.path.lexists(path):
            path.mkdir()
        if not files.is_folder(path, inside=self.path):
            raise OSError(f"{path} is not a folder of this run; move it away")
        return path

    def finish(self, ending: str) -> None:
        """Writes the one word that says how it ended, and lets go of the folder."""
        if ending not in ENDINGS:
            raise ValueError(f"{ending!r} is no ending; one of {', '.join(ENDINGS)}")
        try:
            self._write("ending", ending + "\n")
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            _overwrite(self.path / "ending", ending + "\n")
        (self.path / RESERVE).unlink(missing_ok=True)
        self.let_go()

    def let_go(self) -> None:
        """Gives up ownership without an ending: what a run interrupted by an error does."""
        if self._owner is not None:
            os.close(self._owner)
            self._owner = None

    def take_over(self) -> None:
        """Becomes the owner of a run that nobody writes, to resume it; it is the latest then.
        Raises StoreError if it lives."""
        try:
            self._owner = _hold_owner(self.path)
        except BlockingIOError as error:
            raise StoreError(f"{self.path}: another bench is still writing this run") from error
        except OSError as error:
            raise StoreError(f"{self.path} cannot be taken over: {error.strerror}") from error
        self._write("ending", RUNNING + "\n")
        _reserve(self.path)
        _point_latest(self.path.parent, self.path.name)

    def set_aside(self, folder: CaseFolder) -> None:
        """Moves the folder of a case that was cut to ``cut/``, so that it can be run anew."""
        _renamed(folder.path, self.make_folder("cut"), folder.path.name)

    @property
    def ending(self) -> str:
        """One of ENDINGS, or RUNNING. Raises NotARun."""
        path = self.path / "ending"
        with understood():
            return files.read_text(path, inside=self.path, most=ENDING_BYTES_MAX).strip()

    def is_alive(self) -> bool:
        """Whether a process still owns this folder (this one counts)."""
        if self._owner is not None:
            return True
        with (
            contextlib.suppress(BadFile),
            files.open_file(self.path / "owner", inside=self.path) as owner,
        ):
            try:
                # Shared, so that onlookers do not take each other for the owner.
                fcntl.flock(owner, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def plan(self) -> Plan:
        """The resolved plan. Raises NotARun."""
        return self._read("plan.json", Plan, "it ended before it was planned; run it again")

    def machine(self) -> Machine:
        """Facts of the machine that ran it. Raises NotARun."""
        remedy = "it ended before the machine was looked at; run it again"
        return self._read("machine.json", Machine, remedy)

    def versions(self) -> Versions:
        """Versions of all that took part. Raises NotARun."""
        remedy = "it ended before the images were there; run it again"
        return self._read("versions.json", Versions, remedy)

    def results(self) -> Results:
        """The results of a finished run. Raises NotARun if it is not finished."""
        if self.ending == RUNNING:
            remedy = (
                "its bench is still at work: wait for it"
                if self.is_alive()
                else "its bench died: run it again"
            )
            raise NotARun(f"{self.path} is half-written; {remedy}")
        remedy = "it ended before there were results; run it again"
        return self._read("results.json", Results, remedy)

    def evidence(self) -> Results:
        """The results of a finished run that shows something. Raises NotARun for a try and for the
        folder of a night, whose histories lie in its parts, too."""
        results = self.results()
        if parts := results.parts:
            raise NotARun(f"{self.path} sums up a night; give one of its runs: {', '.join(parts)}")
        if of := results.try_of:
            raise NotARun(
                f"{self.path} is a try of `--shrink` on {of}: whether it broke decided how the "
                "search went on, and it is evidence for nothing; give the run that was kept"
            )
        return results

    def keep(self, name: str) -> RunFolder:
        """Of a finished try: makes it the run ``name`` that the search has found, and the latest.
        It says from which run it was shrunk and where it lies now. Answers the renamed run."""
        base = self.path.parent
        path = _renamed(self.path, base, f"{_now()}-{slug(name)}")
        kept = RunFolder(path)
        results, plan = kept.results(), kept.plan()
        cases = tuple(replace(case, run=str(path)) for case in results.cases)
        for case in cases:
            CaseFolder(path / "cases" / str(case.folder)).write_case(case)
        now = {"name": name, "shrunk_from": results.try_of, "try_of": None}
        kept.write_results(replace(results, cases=cases, **now))
        kept.write_plan(replace(plan, **now))
        _point_latest(base, path.name)
        return kept

    def _read(self, name: str, kind: type[D], remedy: str) -> D:
        try:
            return _read(self.path / name, kind, self.path)
        except MissingFile:
            raise NotARun(f"{self.path / name} is missing; {remedy}") from None

    def _write(self, name: str, text: str) -> None:
        write_atomically(self.path / name, text, inside=self.path)


def open_run(path: Path) -> RunFolder:
    """Finds a stored run, finished or half-written. Raises NotARun."""
    remedy = "give a folder that `lockbench run` or `suite` made, such as runs/latest"
    if not path.exists():
        raise NotARun(f"{path} does not exist; {remedy}")
    if not path.is_dir():
        raise NotARun(f"{path} is a file and not a run folder; {remedy}")
    run = RunFolder(path.resolve() if path.is_symlink() else path)
    try:
        ending = run.ending
    except NotARun as error:
        raise NotARun(f"{path} is not a run folder (no `ending`: {error}); {remedy}") from None
    if ending not in {*ENDINGS, RUNNING}:
        raise NotARun(f"{path} is not a run folder (its `ending` says {ending[:40]!r}); {remedy}")
    return run


@contextlib.contextmanager
def understood() -> Iterator[None]:
    """Raises NotARun for a file that is not read."""
    try:
        yield
    except BadFile as error:
        raise NotARun(str(error)) from error


def slug(name: str) -> str:
    """A name that is safe as part of a path; names that stay different are not promised."""
    return re.sub(r"[^A-Za-z0-9_.=+]+", "-", name).strip("-.")[:SLUG_CHARS_MAX] or "unnamed"


def write_atomically(path: Path, text: str, *, inside: Path | None = None) -> None:
    """As ``write_whole``. Inside a run folder on a disk that is full, the room is used that was
    reserved. Raises OSError."""
    try:
        write_whole(path, text, inside=inside)
    except OSError as error:
        if error.errno not in NO_ROOM or not _give_up_reserve(path):
            raise
        write_whole(path, text, inside=inside)


def _overwrite(path: Path, text: str) -> None:
    """In place, which takes no room. Whoever looks just then may see one word over another."""
    with path.open("r+b") as file:
        file.write(text.encode())
        file.flush()
        file.truncate()
        os.fsync(file.fileno())


def _reserve(run: Path) -> None:
    """Takes room on the disk, of real blocks."""
    (run / RESERVE).unlink(missing_ok=True)
    with (run / RESERVE).open("xb") as file:
        os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)


def _give_up_reserve(path: Path) -> bool:
    """Of the run that a file belongs to; whether there was any."""
    run = next((folder for folder in path.parents if (folder / "ending").is_file()), None)
    if run is None or not (run / RESERVE).is_file():
        return False
    (run / RESERVE).unlink()
    return True


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H%M%SZ")


def _new_folder(base: Path, stem: str) -> Path:
    """``mkdir`` decides who of several in the same second gets which name."""
    for name in _candidates(stem):
        with contextlib.suppress(FileExistsError):
            (base / name).mkdir()
            return base / name
    raise StoreError(f"{base}: {SAME_SECOND_MAX} runs named {stem} already")


def _renamed(path: Path, base: Path, stem: str) -> Path:
    """Moves a folder to the first of these names in ``base`` that is free."""
    name = next(name for name in _candidates(stem) if not (base / name).exists())
    return path.rename(base / name)


def _candidates(stem: str) -> Iterator[str]:
    yield stem
    for number in range(2, SAME_SECOND_MAX + 1):
        yield f"{stem}-{number}"


def _hold_owner(path: Path) -> int:
    """Locks ``owner`` until the descriptor is closed, and says in it who holds it. Raises OSError
    where there is something else of that name."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    owner = os.open(path / "owner", flags, 0o644)
    if not stat.S_ISREG(os.fstat(owner).st_mode):
        os.close(owner)
        raise OSError(None, f"{path / 'owner'} is not a file")
    try:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(owner, 0)
        os.write(owner, f"{os.getpid()}\n".encode())
    except BaseException:
        os.close(owner)
        raise
    return owner


def _point_latest(base: Path, name: str) -> None:
    beside = base / f".{LATEST}.{os.getpid()}.tmp"
    beside.unlink(missing_ok=True)
    beside.symlink_to(name)
    try:
        beside.replace(base / LATEST)
    except OSError:
        beside.unlink()
        raise


def _read(path: Path, kind: type[D], inside: Path) -> D:
    """Raises NotARun, MissingFile."""
    try:
        return read(path, kind, inside=inside)
    except MissingFile:
        raise
    except BadFile as error:
        raise NotARun(f"{path} cannot be read ({error.why}); run it again") from error
