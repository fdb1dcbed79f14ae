"""A lock library as people install it: in an environment of its own, behind a sidecar.

``locks/libraries/<folder>`` has the adapter and two lists of requirements: ``requirements.in`` says
what is wanted, ``requirements.txt`` pins everything with hashes (``make lock`` writes it). The
environment is built by the first ``prepare`` into ``.libraries/<folder>-<fingerprint>``, by this
Python and this pip, once: concurrent builds wait for each other, and a changed list makes another
fingerprint. Names of modules collide between libraries, so no two share an environment.

Does not guarantee: that a library can be installed here. Then the error says which, and pip's word.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from locks.base import Address, LockUnusableError, Observer, System
from locks.client_container import ContainerLibrary
from locks.sidecar import ExtendableSidecarLock, Sidecar, SidecarError, SidecarLock, shared

ADAPTERS: Final = Path(__file__).resolve().parent / "libraries"
SHARED: Final = ADAPTERS / "shared"
ENVIRONMENTS: Final = ADAPTERS.parents[1] / ".libraries"
BUILD_S: Final = 600.0


@dataclass(frozen=True)
class Library:
    """One library and how it is set. ``connect`` and ``prepare`` are those of a ``System``.

    ``folder`` is that of its adapter. ``safe``: one call is one attempt, as far as the library lets
    its user have that; else the library's defaults.
    """

    folder: str
    safe: bool = False
    extends: bool = False

    @property
    def environment(self) -> Path:
        """Where the library is installed, or will be."""
        pins = self._requirements.read_bytes()
        fingerprint = hashlib.sha256(f"{platform.python_version()}\n".encode() + pins).hexdigest()
        return ENVIRONMENTS / f"{self.folder}-{fingerprint[:12]}"

    def prepare(self) -> None:
        """Builds the environment unless it is there. Raises LockUnusableError."""
        environment = self.environment
        if _whole(environment).exists():
            return
        ENVIRONMENTS.mkdir(exist_ok=True)
        with _alone(ENVIRONMENTS / f"{self.folder}.lock"):
            if not _whole(environment).exists():
                self._build(environment)

    def connect(
        self, nodes: Sequence[Address], *, timeout_s: float, ttl_s: float, observer: Observer
    ) -> SidecarLock:
        """A client. Raises LockUnusableError."""
        self.prepare()
        command = [
            str(self.environment / "bin" / "python"),
            "-P",  # the adapter's folder must not shadow anything
            str(self._adapter),
        ]
        kind = ExtendableSidecarLock if self.extends else SidecarLock
        try:
            sidecar = shared(
                self.folder,
                lambda: Sidecar(self.folder, command, {"PYTHONPATH": str(SHARED)}),
            )
            return kind(
                sidecar,
                nodes,
                timeout_s=timeout_s,
                ttl_s=ttl_s,
                observer=observer,
                safe=self.safe,
            )
        except SidecarError as error:
            raise LockUnusableError(str(error)) from error

    @property
    def _requirements(self) -> Path:
        return ADAPTERS / self.folder / "requirements.txt"

    @property
    def _adapter(self) -> Path:
        return ADAPTERS / self.folder / "adapter.py"

    def _build(self, environment: Path) -> None:
        shutil.rmtree(environment, ignore_errors=True)
        python = str(environment / "bin" / "python")
        try:
            venv.create(environment, with_pip=False, symlinks=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise LockUnusableError(f"{self.folder} has no environment here: {error}") from error
        self._run(
            "cannot be installed",
            *(sys.executable, "-m", "pip", "--python", python, "--quiet"),
            *("--disable-pip-version-check", "install", "--no-input", "--no-deps"),
            *("--require-hashes", "-r", str(self._requirements)),
        )
        # As a module, so that it does not serve.
        trial = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='adapter')"
        self._run("cannot be imported", python, "-P", "-c", trial, str(self._adapter))
        _whole(environment).touch()

    def _run(self, otherwise: str, *command: str) -> None:
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
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise LockUnusableError(f"{self.folder} {otherwise}: {error}") from error
        if done.returncode != 0:
            said = done.stdout.strip().splitlines() or ["it does not say why"]
            raise LockUnusableError(f"{self.folder} {otherwise}: {said[-1]}")


def as_safe(plain: System, library: Library | ContainerLibrary, **changed: Any) -> System:
    """``NAME-safe``: the same declaration for the library set ``safe``, with the bench's own lease
    and whatever else is ``changed``."""
    return replace(
        plain,
        name=f"{plain.name}-safe",
        connect=library.connect,
        prepare=library.prepare,
        **{"pace": {}, **changed},
    )


def _whole(environment: Path) -> Path:
    """The last thing that a build makes."""
    return environment / "built"


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Only one process at a time is inside."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
