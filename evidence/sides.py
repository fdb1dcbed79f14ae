"""The two sides of ``lockbench regress``: what a REF names, and what it changes in a case.

    current                  what is installed and built here
    baseline                 what ``evidence/baseline.json`` pins: recipes, client libraries, server
                             images (baseline:FILE: what that file pins)
    redis=redis:7.4          a server image (also image:redis=redis:7.4), which the engine must have
    redis==8.0.1             another version of a library that Lockbench pins, in the workers only
    topology:NAME            a server configuration, as far as one is declared as a topology
    path.py:Class, etcd      a lock of one's own, or one by name, instead of ``--lock``

Nothing else is accepted; a REF that cannot be honoured is refused in one sentence before anything
is started.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bench import plan
from bench.plan import Case
from clusters.images import server_names
from clusters.registry import topologies
from declarations import program
from evidence import baseline
from evidence.baseline import Pinned
from locks.registry import is_own, systems
from locks.shared import pins
from results import machine
from results.errors import BadInput

CURRENT: Final = "current"
BASELINE: Final = "baseline"
LIBRARY: Final = re.compile(r"([A-Za-z0-9_.-]+)==([A-Za-z0-9_.!+-]+)")
INSTALL_S: Final = 120.0
PREPARE_S: Final = 900.0  # building a client image
# Imports every lock as the workers do, and says which versions it got.
PROBE: Final = (
    "import sys, importlib.metadata, workloads.fork_server\n"
    "from locks.registry import systems\n"
    "from declarations.lazy import load_all\n"
    "systems()\n"
    "load_all()\n"
    "for name in sys.argv[1:]: print(importlib.metadata.version(name))"
)
PREPARE: Final = (
    "import sys\n"
    "from locks.registry import find\n"
    "for lock in map(find, sys.argv[1:]):\n"
    "    if lock.prepare is not None: lock.prepare()\n"
)


@dataclass(frozen=True, slots=True)
class Side:
    """A parsed REF; at most one of the fields beside ``ref`` is set."""

    ref: str
    image: tuple[str, str] | None = None
    library: tuple[str, str] | None = None
    topology: str | None = None
    lock: str | None = None
    pinned: Pinned | None = None

    @property
    def images(self) -> Mapping[str, str]:
        """Name → reference of the server images that are not those of this tree."""
        if self.pinned is not None:
            return self.pinned.images
        return dict([self.image] if self.image else [])

    def apply(self, case: Case) -> Case:
        """The case with this side's images."""
        used = plan.images_of([plan.topology_of(case)])
        instead = [(name, ref) for name, ref in self.images.items() if name in used]
        return replace(case, images=tuple(instead)) if self.pinned or self.image else case


def parse(ref: str) -> Side:
    """Raises BadInput."""
    text = ref.removeprefix("image:")
    if ref == CURRENT:
        return Side(ref)
    if ref == BASELINE:
        return Side(ref, pinned=baseline.read())
    if ref.startswith(f"{BASELINE}:"):
        return Side(ref, pinned=baseline.read(Path(ref.partition(":")[2])))
    if (found := LIBRARY.fullmatch(ref)) is not None:
        return Side(ref, library=_library(found[1], found[2]))
    if ref.startswith("topology:"):
        name = ref.partition(":")[2]
        if name not in topologies():
            raise plan.unknown("topology", name, topologies())
        return Side(ref, topology=name)
    known = server_names()
    name, equals, image = text.partition("=")
    if equals and image and name in known:  # the image's name may look like a path
        return Side(ref, image=(name, image))
    if is_own(ref) or ref in systems():
        plan.find_system(ref)
        return Side(ref, lock=ref)
    if equals and image:
        raise plan.unknown("image", name, known)
    raise BadInput(
        f"{ref!r} names nothing to compare: give current, baseline, an image (redis=redis:7.4), a "
        "library (redis==8.0.1), topology:NAME, the name of a lock, or its file or folder"
    )


def _library(name: str, version: str) -> tuple[str, str]:
    known = machine.versions()
    if name not in known or name == machine.PACKAGE:
        raise plan.unknown(
            "library that the locks use", name, [n for n in known if n != machine.PACKAGE]
        )
    return name, version


def locks_of(side: Side, locks: Sequence[str]) -> list[str]:
    """The locks that a side runs. Raises BadInput when nothing says which."""
    if side.lock is not None:
        return [side.lock]
    if not locks:
        raise BadInput(f"{side.ref} says nothing about locks: name them with --lock")
    return list(locks)


def check_image_is_used(side: Side, cases: Sequence[Case]) -> None:
    """Raises BadInput for an image that no case of this side would run."""
    if side.image is None:
        return
    used = plan.images_of(map(plan.topology_of, cases))
    if side.image[0] not in used:
        raise BadInput(
            f"{side.ref}: none of these cases runs the image {side.image[0]}; they run "
            f"{', '.join(used)}"
        )


def install(side: Side, folder: Path, cases: Sequence[Case] = ()) -> None:
    """Puts a side's libraries and recipes into ``folder``, and sees that every lock can be imported
    with them. Raises BadInput."""
    wanted: dict[str, str] = {}
    if side.library is not None:
        name, version = side.library
        wanted = {name: version}
        _pip(side, folder, "--no-deps", f"{name}=={version}")
    elif side.pinned is not None:
        baseline.check_images(side.pinned, plan.images_of(map(plan.topology_of, cases)))
        baseline.unpack(side.pinned, folder)
        listed = folder / "requirements.txt"
        if listed.is_file():
            wanted = pins.requirements(listed)
            _pip(side, folder, "--no-deps", "--require-hashes", "--requirement", str(listed))
    else:
        return
    # As the workers are started: the side's first, this tree's last.
    inside = program.environment()
    inside["PYTHONPATH"] = os.pathsep.join([str(folder), inside["PYTHONPATH"]])
    found = _run([sys.executable, "-P", "-c", PROBE, *wanted], inside)
    if found.returncode != 0:
        raise BadInput(
            f"{side.ref}: the locks cannot be imported with it: {_last_line(found.stderr)}"
        )
    for got, (name, version) in zip(found.stdout.split(), wanted.items(), strict=True):
        if got != version:
            raise BadInput(f"{side.ref}: the workers would import {name} {got} instead")
    if side.pinned is not None:
        locks = dict.fromkeys(case.lock for case in cases)
        done = _run([sys.executable, "-P", "-c", PREPARE, *locks], inside, PREPARE_S)
        if done.returncode != 0:
            raise BadInput(f"{side.ref}: a lock cannot be prepared: {_last_line(done.stderr)}")


def _pip(side: Side, folder: Path, *words: str) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = _run([*pip, "--target", str(folder), *words], os.environ)
    if done.returncode != 0:
        raise BadInput(f"{side.ref} cannot be installed: {_last_line(done.stderr)}")


@contextmanager
def library_path(side: Side, folder: Path) -> Iterator[None]:
    """Processes started inside import this side's libraries and recipes first."""
    if side.library is None and side.pinned is None:
        yield
        return
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = _python_path(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _python_path(folder: Path) -> str:
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


def _run(
    command: Sequence[str],
    environment: os._Environ[str] | dict[str, str],
    timeout_s: float = INSTALL_S,
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise BadInput(f"{command[2]} did not end within {timeout_s:.0f} s") from error


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it said nothing"
