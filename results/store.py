"""The run folder: everything that one command found out, in files that can be read without us.

    runs/<time>-<name>/
      ending                  one word: running, then ok, safety, inconclusive, regression or bench
      plan.json               the resolved plan, written before anything is started
      machine.json versions.json
      cases/<n>-<lock>-<fault>/history/ logs/ case.json
      cut/                    what was recorded of cases that were cut short and run anew
      results.json report.md *.csv
    runs/latest               symbolic link to the newest run

Every file appears whole or not at all (written beside, synced, renamed). ``ending`` is the last
file of a run. A folder whose ending still says ``running`` is half-written: its bench is at work as
long as somebody holds the lock on ``owner``, which the kernel drops when that process dies, however
it dies. Case by case ``case.json`` appears when the case is done.

The wall clock is read here, for the name of the folder, and nowhere else.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

RUNNING: Final = "running"
ENDINGS: Final = ("ok", "safety", "inconclusive", "regression", "bench")
LATEST: Final = "latest"
# In plan.json and results.json, which run is being shrunk: of a try, and of the one that was kept.
TRY_OF: Final = "try_of"
SHRUNK_FROM: Final = "shrunk_from"
SLUG_CHARS_MAX: Final = 60
SAME_SECOND_MAX: Final = 1000


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
        """The recording."""
        return self.path / "history"

    @property
    def logs(self) -> Path:
        """Logs of servers and clients."""
        return self.path / "logs"

    def write_case(self, case: Mapping[str, Any]) -> None:
        """Says that the case is done; the last thing that is written here."""
        write_json(self.path / "case.json", case)

    def read_case(self) -> dict[str, Any] | None:
        """The case as it was written, None while it is not done."""
        path = self.path / "case.json"
        return _read_object(path) if path.exists() else None

    def history_sha256(self) -> dict[str, str]:
        """File name → digest of every file of the recording, to be put into the results."""
        return sha256_of(self.history)

    def history_differs(self, recorded: Mapping[str, str]) -> list[str]:
        """One sentence per file that is not what it was when its digest was taken."""
        now = sha256_of(self.history)
        return [
            f"{self.history / name} {_difference(recorded.get(name), now.get(name))}"
            for name in sorted({*recorded, *now})
            if recorded.get(name) != now.get(name)
        ]


class RunFolder:
    """A run that is being written or was written. ``create`` makes one, ``open_run`` finds one."""

    def __init__(self, path: Path, owner: int | None = None) -> None:
        self.path = path
        self._owner = owner

    @classmethod
    def create(
        cls, base: Path = Path("runs"), name: str = "run", *, try_of: str | None = None
    ) -> RunFolder:
        """Makes ``base/<time>-<name>/`` and points ``base/latest`` at it, unless it is a try (see
        ``TRY_OF``). Raises StoreError."""
        latest = base / LATEST
        if latest.is_dir() and not latest.is_symlink():
            raise StoreError(f"{latest} is a directory and not our link; move it away")
        try:
            base.mkdir(parents=True, exist_ok=True)
            path = _new_folder(base, f"{_now()}-{slug(name)}")
            run = cls(path, _hold_owner(path))
            (path / "cases").mkdir()
            run._write("ending", RUNNING + "\n")
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
        """Every case folder, in the order of their numbers, the unfinished ones included."""
        found = [path for path in (self.path / "cases").glob("*-*") if path.is_dir()]
        return [CaseFolder(path) for path in sorted(found, key=_case_order)]

    def write_plan(self, plan: Mapping[str, Any]) -> None:
        """The plan with every default and every random choice resolved."""
        write_json(self.path / "plan.json", plan)

    def write_machine(self, facts: Mapping[str, Any]) -> None:
        """See ``results.machine``."""
        write_json(self.path / "machine.json", facts)

    def write_versions(self, versions: Mapping[str, Any]) -> None:
        """Libraries, packages in the images, digests of the images, the engine."""
        write_json(self.path / "versions.json", versions)

    def write_results(self, results: Mapping[str, Any]) -> None:
        """The object of ``lockbench run --json``."""
        write_json(self.path / "results.json", results)

    def write_text(self, name: str, text: str) -> Path:
        """A table or report; returns where it is."""
        self._write(name, text)
        return self.path / name

    def finish(self, ending: str) -> None:
        """Writes the one word that says how it ended, and lets go of the folder."""
        if ending not in ENDINGS:
            raise ValueError(f"{ending!r} is no ending; one of {', '.join(ENDINGS)}")
        self._write("ending", ending + "\n")
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
        self._write("ending", RUNNING + "\n")
        _point_latest(self.path.parent, self.path.name)

    def set_aside(self, folder: CaseFolder) -> None:
        """Moves the folder of a case that was cut to ``cut/``, so that it can be run anew."""
        aside = self.path / "cut"
        aside.mkdir(exist_ok=True)
        names = _candidates(folder.path.name)
        name = next(name for name in names if not (aside / name).exists())
        folder.path.rename(aside / name)

    @property
    def ending(self) -> str:
        """One of ENDINGS, or RUNNING."""
        return (self.path / "ending").read_text(encoding="utf-8").strip()

    def is_alive(self) -> bool:
        """Whether a process still owns this folder (this one counts)."""
        if self._owner is not None:
            return True
        with contextlib.suppress(FileNotFoundError), (self.path / "owner").open("rb") as owner:
            try:
                # Shared, so that onlookers do not take each other for the owner.
                fcntl.flock(owner, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def plan(self) -> dict[str, Any]:
        """The resolved plan. Raises NotARun."""
        return self._read("plan.json", "it ended before it was planned; run it again")

    def machine(self) -> dict[str, Any]:
        """Facts of the machine that ran it. Raises NotARun."""
        return self._read("machine.json", "it ended before the machine was looked at; run it again")

    def versions(self) -> dict[str, Any]:
        """Versions of all that took part. Raises NotARun."""
        return self._read("versions.json", "it ended before the images were there; run it again")

    def results(self) -> dict[str, Any]:
        """The results of a finished run. Raises NotARun if it is not finished."""
        if self.ending == RUNNING:
            remedy = (
                "its bench is still at work: wait for it"
                if self.is_alive()
                else "its bench died: run it again"
            )
            raise NotARun(f"{self.path} is half-written; {remedy}")
        return self._read("results.json", "it ended before there were results; run it again")

    def evidence(self) -> dict[str, Any]:
        """The results of a finished run that shows something. Raises NotARun for a try, too."""
        results = self.results()
        if of := results.get(TRY_OF):
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
        plan[SHRUNK_FROM] = results[SHRUNK_FROM] = results.pop(TRY_OF)
        plan.pop(TRY_OF)
        results["name"] = plan["name"] = name
        for document in results["cases"]:
            document["run"] = str(path)
            CaseFolder(path / "cases" / document["folder"]).write_case(document)
        kept.write_results(results)
        kept.write_plan(plan)
        _point_latest(base, path.name)
        return kept

    def _read(self, name: str, remedy: str) -> dict[str, Any]:
        path = self.path / name
        if not path.exists():
            raise NotARun(f"{path} is missing; {remedy}")
        return _read_object(path)

    def _write(self, name: str, text: str) -> None:
        write_atomically(self.path / name, text)


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
    except (OSError, UnicodeDecodeError):
        raise NotARun(f"{path} is not a run folder (no `ending` in it); {remedy}") from None
    if ending not in {*ENDINGS, RUNNING}:
        raise NotARun(f"{path} is not a run folder (its `ending` says {ending[:40]!r}); {remedy}")
    return run


def sha256_of(folder: Path) -> dict[str, str]:
    """Relative name → SHA-256 of every file below ``folder``."""
    digests = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256")
            digests[path.relative_to(folder).as_posix()] = digest.hexdigest()
    return digests


def slug(name: str) -> str:
    """A name that is safe as part of a path; names that stay different are not promised."""
    return re.sub(r"[^A-Za-z0-9_.=+]+", "-", name).strip("-.")[:SLUG_CHARS_MAX] or "unnamed"


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Whole or not at all; NaN and infinity are refused, because they are not JSON."""
    write_atomically(path, json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n")


def write_atomically(path: Path, text: str) -> None:
    """Written beside, synced, renamed: a reader or a crash never sees half a file."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise


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
    name = next(name for name in _candidates(stem) if not (base / name).exists())
    return path.rename(base / name)


def _candidates(stem: str) -> Iterator[str]:
    yield stem
    for number in range(2, SAME_SECOND_MAX + 1):
        yield f"{stem}-{number}"


def _hold_owner(path: Path) -> int:
    """Locks ``owner`` until the descriptor is closed, and says in it who holds it."""
    owner = os.open(path / "owner", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
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


def _case_order(path: Path) -> tuple[int, str]:
    return (CaseFolder(path).number, path.name)


def _read_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise NotARun(f"{path} cannot be read ({error}); run it again") from error
    if not isinstance(value, dict):
        raise NotARun(f"{path} does not hold a JSON object; run it again")
    return value


def _difference(before: str | None, now: str | None) -> str:
    if now is None:
        return "is missing"
    return "was added later" if before is None else "was changed"
