"""A lock library as people install it: in an environment of its own, behind a sidecar.

A library is a folder, ``locks/libraries/<name>`` or one anywhere else: ``lock.py`` declares its
locks, ``adapter.py`` drives it, ``requirements.in`` says what is wanted and ``requirements.txt``
pins everything with hashes (``lockbench library lock`` writes it). The environment is built by the
first ``prepare`` into ``lockbench/libraries/<name>-<fingerprint>`` of this user's cache
(``$XDG_CACHE_HOME``, else ``~/.cache``), by this Python and this pip, once: concurrent builds wait
for each other, and a changed list makes another fingerprint. Names of modules collide between
libraries, so no two share an environment.

Does not guarantee: that a library can be installed here. Then the error says which, and pip's word.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from lockbench.locks.base import Address, LockUnusableError, Observer, System
from lockbench.locks.shared import pins
from lockbench.locks.shared.client_container import ContainerLibrary
from lockbench.locks.shared.sidecar import (
    ExtendableSidecarLock,
    Sidecar,
    SidecarError,
    SidecarLock,
    shared,
)
from lockbench.locks.shared.template import TEMPLATE, Template

ADAPTERS: Final = Path(__file__).resolve().parents[1] / "libraries"
SHARED: Final = ADAPTERS / "shared"
_CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME", ""))
ENVIRONMENTS: Final = (
    (_CACHE if _CACHE.is_absolute() else Path("~/.cache").expanduser()) / "lockbench" / "libraries"
)
BUILD_S: Final = 600.0
# In the environment of a worker: a folder whose libraries stand in for those of the environment.
INSTEAD: Final = "LOCKBENCH_LIBRARIES"


class CacheUnusableError(LockUnusableError):
    """No environment can be kept here, whatever the library."""


@dataclass(frozen=True)
class Library:
    """One library and how it is set. ``connect`` and ``prepare`` are those of a ``System``.

    ``declared_in`` is the ``__file__`` of its declaration, beside which the adapter and the
    requirements stand. ``safe``: one call is one attempt, as far as the library lets its user have
    that; else the library's defaults.
    """

    declared_in: str
    safe: bool = False
    extends: bool = False

    @cached_property
    def folder(self) -> Path:
        """Absolute, without links."""
        return Path(self.declared_in).resolve().parent

    @property
    def name(self) -> str:
        """The folder's name; the whole path of one that is not of this package, where two may have
        the same."""
        return self.folder.name if self.folder.parent == ADAPTERS else str(self.folder)

    @property
    def requirements(self) -> Path:
        """The pins of its environment. ``requirements.in`` beside it says what is wanted."""
        return self.folder / "requirements.txt"

    @property
    def adapter(self) -> Path:
        """The program that drives it."""
        return self.folder / "adapter.py"

    @property
    def environment(self) -> Path:
        """Where the library is installed, or will be. Raises LockUnusableError without pins."""
        fingerprint = hashlib.sha256(
            f"{sys.base_prefix} {'.'.join(map(str, sys.version_info[:3]))}\n".encode()
            + self._pins()
        ).hexdigest()
        return ENVIRONMENTS / f"{self.folder.name}-{fingerprint[:12]}"

    def pinned(self) -> dict[str, str]:
        """Package → version of its environment. Raises LockUnusableError without pins."""
        self._pins()
        return pins.requirements(self.requirements)

    def _pins(self) -> bytes:
        try:
            return self.requirements.read_bytes()
        except OSError as error:
            raise LockUnusableError(
                f"{self.name} has no pins: lockbench library lock {self.folder} writes "
                f"requirements.txt ({error.strerror})"
            ) from error

    def prepare(self) -> None:
        """Builds the environment unless it is there, and imports the adapter in it, once for each
        version of that. Raises LockUnusableError."""
        environment = self.environment
        if self._is_tried(environment):
            return
        try:
            ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
            with _alone(ENVIRONMENTS / f"{self.folder.name}.lock") as lock:
                if not _whole(environment).exists():
                    self._build(environment, lock)
                if not self._is_tried(environment):
                    self._try(environment)
        except OSError as error:
            raise CacheUnusableError(
                f"{self.name} has no environment: {ENVIRONMENTS} cannot be written "
                f"({error.strerror}): set XDG_CACHE_HOME to a folder that can be"
            ) from error

    def connect(
        self, nodes: Sequence[Address], *, timeout_s: float, ttl_s: float, observer: Observer
    ) -> SidecarLock:
        """A client. Raises LockUnusableError."""
        kind = ExtendableSidecarLock if self.extends else SidecarLock
        try:
            return kind(
                self.started(),
                nodes,
                timeout_s=timeout_s,
                ttl_s=ttl_s,
                observer=observer,
                safe=self.safe,
            )
        except SidecarError as error:
            raise LockUnusableError(str(error)) from error

    def started(self) -> Sidecar:
        """What the clients of this process run in. Raises LockUnusableError, SidecarError."""
        self.prepare()
        path, template = {"PYTHONPATH": python_path()}, os.environ.get(TEMPLATE)
        return shared(self.name, lambda: Sidecar(self.name, self._command(), path, template))

    def template(self, environment: Mapping[str, str]) -> Template:
        """What forks sidecars for processes that have its ``path`` as ``TEMPLATE`` in their
        environment. Raises LockUnusableError."""
        self.prepare()
        return Template(
            self._command(), os.environ | {"PYTHONPATH": python_path()} | dict(environment)
        )

    def _command(self) -> list[str]:
        # -P: the adapter's folder must not shadow anything.
        return [str(self.environment / "bin" / "python"), "-P", str(self.adapter)]

    def _build(self, environment: Path, lock: int) -> None:
        """``lock`` is held by pip, too, which goes on when this process is killed."""
        import venv

        shutil.rmtree(environment, ignore_errors=True)
        python = str(environment / "bin" / "python")
        try:
            venv.create(environment, with_pip=False, symlinks=True)
            self._run(
                "cannot be installed",
                *(sys.executable, "-P", "-m", "pip", "--python", python, "--quiet"),
                *("--disable-pip-version-check", "install", "--no-input", "--no-deps"),
                *("--require-hashes", "-r", str(self.requirements)),
                held=(lock,),
            )
            _whole(environment).touch()
        except BaseException:
            shutil.rmtree(environment, ignore_errors=True)
            raise

    def _try(self, environment: Path) -> None:
        # As a module, so that it does not serve.
        trial = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='adapter')"
        python = str(environment / "bin" / "python")
        self._run("cannot be imported", python, "-P", "-c", trial, str(self.adapter))
        _tried(environment).write_text(self._adapter_digest(), encoding="ascii")

    def _is_tried(self, environment: Path) -> bool:
        tried = _tried(environment)
        return tried.exists() and tried.read_text(encoding="ascii") == self._adapter_digest()

    def _adapter_digest(self) -> str:
        try:
            return hashlib.sha256(self.adapter.read_bytes()).hexdigest()
        except OSError as error:
            raise LockUnusableError(f"{self.adapter}: {error.strerror}") from error

    def _run(self, otherwise: str, *command: str, held: Sequence[int] = ()) -> None:
        try:
            done = subprocess.run(
                command,
                env=os.environ | {"PYTHONPATH": str(SHARED)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=BUILD_S,
                pass_fds=held,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise LockUnusableError(f"{self.name} {otherwise}: {error}") from error
        if done.returncode != 0:
            if os.strerror(errno.ENOSPC) in done.stdout:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            said = done.stdout.strip().splitlines() or ["it does not say why"]
            raise LockUnusableError(f"{self.name} {otherwise}: {said[-1]}")


def python_path(instead: str | None = None) -> str:
    """What an adapter is started with; ``instead`` is what the environment says unless given."""
    first = os.environ.get(INSTEAD) if instead is None else instead
    return os.pathsep.join(filter(None, [first, str(SHARED)]))


AnyLibrary = Library | ContainerLibrary


# What the conformance tests do not ask of most libraries of Python.
ERRORS_SAY_LITTLE: Final = {
    "a_server_that_is_not_there_has_no_effect": "its error does not say whether anything was sent"
}


def library_of(system: System) -> AnyLibrary | None:
    """What a lock is an adapter of; None: its client runs inside the worker."""
    owner = getattr(system.connect, "__self__", None)
    return owner if isinstance(owner, AnyLibrary) else None


def is_in_container(system: System) -> bool:
    """Whether its clients run in containers of this machine's engine."""
    return isinstance(library_of(system), ContainerLibrary)


def as_safe(plain: System, *, extends: bool = False, **changed: Any) -> System:
    """``NAME-safe``: the same declaration for the library set ``safe``, with the bench's own lease
    and whatever else is ``changed``. ``extends``: so set, its holders can lengthen the promise."""
    library = library_of(plain)
    assert library is not None
    safe = replace(library, safe=True, extends=extends or library.extends)
    return plain.derived(
        name=f"{plain.name}-safe",
        connect=safe.connect,
        prepare=safe.prepare,
        **{"pace": {}, "variant": True, "elsewhere": plain.elsewhere, **changed},
    )


def _whole(environment: Path) -> Path:
    """The last thing that a build makes."""
    return environment / "built"


def _tried(environment: Path) -> Path:
    """Holds the digest of the adapter that could be imported last."""
    return environment / "adapter.sha256"


@contextmanager
def _alone(path: Path) -> Iterator[int]:
    """Only one process at a time is inside, with those that it gives this descriptor to."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()
