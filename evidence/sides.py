"""What a REF of ``regress``, ``run`` and ``explore`` names, and what it changes in a case.

    current                  what is installed and built here
    baseline                 what ``evidence/baseline.json`` pins: recipes, client libraries, server
                             images (baseline:FILE: what that file pins)
    redis=redis:7.4          a server image (also image:redis=redis:7.4), which the engine must have
    redis==8.0.1             another version of a Python library: of one that recipes import, and of
                             one that a lock adapts, in its environment
    git+URL@REV, path/, x.whl  the same from a source tree or a wheel; it says itself what it is
    go:MODULE@VERSION        another version of a Go module that a lock adapts
    maven:GROUP:ARTIFACT:VERSION  the same of an artifact of Java
    npm:NAME@VERSION         the same of a package of Node
    topology:NAME            a server configuration, as far as one is declared as a topology
    path.py:Class, etcd      a lock of one's own, or one by name, instead of ``--lock``

Nothing else is accepted; a REF that cannot be honoured is refused in one sentence before anything
is started.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import distributions
from pathlib import Path
from typing import Final

from msgspec.structs import replace as evolved

from lockbench.bench import plan
from lockbench.bench.plan import Case
from lockbench.clusters.images import server_names
from lockbench.clusters.libraries import GO, JAVA, NODE, Language
from lockbench.clusters.recipes import LIBRARIES, recipes
from lockbench.clusters.registry import topologies
from lockbench.declarations import program
from lockbench.evidence import baseline
from lockbench.evidence.baseline import Pinned
from lockbench.locks.base import LockUnusableError
from lockbench.locks.registry import LIBRARY_FILES, is_own, systems
from lockbench.locks.shared import pins
from lockbench.locks.shared.client_container import ContainerLibrary as Contained
from lockbench.locks.shared.library import INSTEAD, AnyLibrary, Library, library_of, python_path
from lockbench.results import machine
from lockbench.results.documents import CURRENT, WITH, Client, Versions, VersionsSide
from lockbench.results.errors import BadInput

BASELINE: Final = "baseline"
LIBRARY: Final = re.compile(r"([A-Za-z0-9_.-]+)==([A-Za-z0-9_.!+-]+)")
GO_REF: Final = re.compile(r"go:(\w[\w./~-]*)@(v[\w.+-]+)")
MAVEN_REF: Final = re.compile(r"maven:([\w.-]+:[\w.-]+):([\w.-]+)")
NPM_REF: Final = re.compile(r"npm:(@?[\w./-]+)@(\d[\w.+-]*)")
INSTALL_S: Final = 300.0  # building from source included
LOGIN: Final = re.compile(r"(?<=http:)//[^/@\s]*@|(?<=https:)//[^/@\s]*@")
COMMAND_CHARS_MAX: Final = 120
SOURCE_FILES: Final = ("pyproject.toml", "setup.py")
PREPARE_S: Final = 900.0  # building a client image
# Imports every lock as the workers do, and says where they are and which versions it got.
PROBE: Final = (
    "import sys, importlib.metadata, lockbench.workloads.fork_server\n"
    "from lockbench import locks\n"
    "from lockbench.locks.registry import systems\n"
    "from lockbench.declarations.lazy import load_all\n"
    "systems()\n"
    "load_all()\n"
    "print(locks.__path__[0])\n"
    "for name in sys.argv[1:]: print(importlib.metadata.version(name))"
)
# Imports an adapter in its own environment, as a module, so that it does not serve.
ADAPTER: Final = (
    "import sys, runpy, importlib.metadata\n"
    "runpy.run_path(sys.argv[1], run_name='adapter')\n"
    "print(importlib.metadata.version(sys.argv[2]))"
)
LOCKS: Final = "from lockbench.locks.registry import systems; print(*systems())"
PREPARE: Final = (
    "import sys\n"
    "from lockbench.locks.registry import find\n"
    "for lock in map(find, sys.argv[1:]):\n"
    "    if lock.prepare is not None: lock.prepare()\n"
)


@dataclass(frozen=True, slots=True)
class Artifact:
    """A Go module, an artifact of Java or a package of Node at another version."""

    language: Language
    name: str
    version: str

    @property
    def image(self) -> str:
        """The client image that it is in."""
        return next(r.name for r in recipes().values() if r.language is self.language)


@dataclass(frozen=True, slots=True)
class Side:
    """A parsed REF; at most one of the fields beside ``ref`` is set."""

    ref: str
    image: tuple[str, str] | None = None
    library: tuple[str, str] | None = None
    source: str | None = None
    artifact: Artifact | None = None
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
        ours = {name: ref for name, ref in self.images.items() if name in used}
        return replace(case, images=tuple((dict(case.images) | ours).items()))

    def described(self, installed: Mapping[str, str]) -> VersionsSide:
        """As ``versions.json`` names it; ``installed`` is what ``install`` returned."""
        libraries = ", ".join(f"{name}=={version}" for name, version in installed.items())
        return VersionsSide(
            self.ref, libraries or None, self.pinned.commit if self.pinned else None
        )


def parse(ref: str) -> Side:
    """Raises BadInput."""
    text = ref.removeprefix("image:")
    if ref == CURRENT:
        return Side(ref)
    if ref == BASELINE:
        return Side(ref, pinned=baseline.read())
    if ref.startswith(f"{BASELINE}:"):
        return Side(ref, pinned=baseline.read(Path(ref.partition(":")[2])))
    if (side := _of_library(ref)) is not None:
        return side
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
        f"{ref!r} names nothing that could be run: give current, baseline, an image "
        "(redis=redis:7.4), a library (redis==8.0.1, git+URL@REV, its source tree or its wheel, "
        "go:MODULE@VERSION, maven:GROUP:ARTIFACT:VERSION, npm:NAME@VERSION), topology:NAME, the "
        "name of a lock, or its file or folder"
    )


def _of_library(ref: str) -> Side | None:
    if (found := LIBRARY.fullmatch(ref)) is not None:
        return Side(ref, library=_library(found[1], found[2]))
    for language, pattern in ((GO, GO_REF), (JAVA, MAVEN_REF), (NODE, NPM_REF)):
        if (found := pattern.fullmatch(ref)) is not None:
            return Side(ref, artifact=_artifact(language, found[1], found[2]))
    source = _source(ref)
    return None if source is None else Side(without_login(ref), source=source)


def without_login(text: str) -> str:
    """As a REF is written down: what lets one into a repository is nobody else's."""
    return LOGIN.sub("//", text)


def _library(name: str, version: str) -> tuple[str, str]:
    known = _of_workers() | {
        pin for one in map(library_of, systems().values()) for pin in _pins(one)
    }
    if pins.plain(name) not in known:
        raise plan.unknown("library that the locks use", name, sorted(known))
    return name, version


def _artifact(language: Language, name: str, version: str) -> Artifact:
    known = language.wanted(language.folders(LIBRARIES))
    if name not in known:
        raise plan.unknown("library that the locks adapt", name, known)
    return Artifact(language, name, version)


def _source(ref: str) -> str | None:
    """What pip takes for a source tree, here or in git, or a wheel; None for any other REF."""
    path = Path(ref)
    if ref.startswith("git+"):
        return ref
    if path.suffix == ".whl":
        if not os.path.isfile(ref):  # noqa: PTH113 - Path raises where a name is too long
            raise BadInput(f"there is no wheel {ref}")
        return str(path.resolve())
    tree = any(os.path.isfile(path / name) for name in SOURCE_FILES)  # noqa: PTH113 - as above
    if not tree or os.path.isfile(path / LIBRARY_FILES[0]):  # noqa: PTH113 - as above
        return None
    return str(path.resolve())


def _of_workers() -> set[str]:
    return {pins.plain(name) for name in machine.versions() if name != machine.PACKAGE}


def _pins(library: AnyLibrary | None) -> set[str]:
    """What is installed in the environment of a lock's library; that of an image is not Python.
    Raises BadInput."""
    if not isinstance(library, Library):
        return set()
    try:
        return {pins.plain(name) for name in library.pinned()}
    except LockUnusableError as error:
        raise BadInput(str(error)) from error


def locks_of(side: Side, locks: Sequence[str]) -> list[str]:
    """The locks that a side runs. Raises BadInput when nothing says which."""
    if side.lock is not None:
        return [side.lock]
    if not locks:
        raise BadInput(f"{side.ref} says nothing about locks: name them with --lock")
    return list(locks)


def known_locks(side: Side) -> set[str]:
    """The names of the locks that a side's tree declares. Raises BadInput."""
    if side.pinned is None:
        return set(systems())
    with tempfile.TemporaryDirectory(prefix="lockbench-") as folder:
        baseline.unpack(side.pinned, Path(folder))
        found = _run([sys.executable, "-P", "-c", LOCKS], _inside(Path(folder)))
    if found.returncode != 0:
        raise BadInput(f"{side.ref} cannot name its locks: {_last_line(found.stderr)}")
    return set(found.stdout.split())


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


def install(side: Side, folder: Path, cases: Sequence[Case] = ()) -> dict[str, str]:
    """Puts a side's libraries and recipes into ``folder``, and sees that every lock can be imported
    with them; returns what it installed, name → version. Raises BadInput."""
    if side.library is not None or side.source is not None:
        return _install_library(side, folder, cases)
    if side.pinned is not None:
        return _install_pinned(side, side.pinned, folder, cases)
    if side.artifact is not None:
        return _install_artifact(side, side.artifact, folder, cases)
    return {}


def _install_library(side: Side, folder: Path, cases: Sequence[Case]) -> dict[str, str]:
    _pip(side, folder, "--no-deps", "==".join(side.library) if side.library else str(side.source))
    found = {d.name: d.version for d in distributions(path=[str(folder)])}
    (name, version), *more = found.items() or [("", "")]
    if not name or more:
        raise BadInput(
            f"{side.ref} is {', '.join(found) or 'no library'}: it has to be one library"
        )
    beside = {one for case in cases if pins.plain(name) in _pins(one := library_of(case.system))}
    if pins.plain(name) in _of_workers():
        _probe(side, folder, found)
    elif not beside:
        locks = ", ".join(dict.fromkeys(case.lock for case in cases))
        raise BadInput(f"{side.ref} is {name} {version}, which {locks} does not use")
    for library in beside:
        assert isinstance(library, Library)
        try:
            library.prepare()
        except LockUnusableError as error:
            raise BadInput(str(error)) from error
        python = str(library.environment / "bin" / "python")
        inside = os.environ | {"PYTHONPATH": python_path(str(folder))}
        done = _run([python, "-P", "-c", ADAPTER, str(library.adapter), name], inside)
        if done.returncode != 0:
            raise BadInput(f"{side.ref}: {library.name} cannot use it: {_last_line(done.stderr)}")
        if _last_line(done.stdout) != version:
            raise BadInput(f"{side.ref}: {library.name} would import {_last_line(done.stdout)}")
    return found


def _install_pinned(
    side: Side, pinned: Pinned, folder: Path, cases: Sequence[Case]
) -> dict[str, str]:
    baseline.check_images(pinned, plan.images_of(map(plan.topology_of, cases)))
    baseline.unpack(pinned, folder)
    wanted: dict[str, str] = {}
    listed = folder / "requirements.txt"
    if listed.is_file():
        wanted = pins.requirements(listed)
        _pip(side, folder, "--no-deps", "--require-hashes", "--requirement", str(listed))
    _prepare(side, cases, _probe(side, folder, wanted))
    return wanted


def _install_artifact(
    side: Side, artifact: Artifact, folder: Path, cases: Sequence[Case]
) -> dict[str, str]:
    """A copy of the recipes that asks for another version, resolved and built as by hand."""
    images = {one.image for case in cases if isinstance(one := library_of(case.system), Contained)}
    if artifact.image not in images:
        locks = ", ".join(dict.fromkeys(case.lock for case in cases))
        raise BadInput(f"{side.ref} is in {artifact.image}, which {locks} does not use")
    baseline.copy_tree(folder)
    language = artifact.language
    for library in language.folders(
        baseline.package(folder) / LIBRARIES.relative_to(baseline.ROOT)
    ):
        listed = library / language.requirements
        text = listed.read_text(encoding="utf-8")
        changed = language.with_version(text, artifact.name, artifact.version)
        listed.write_text(changed, encoding="utf-8")
    inside = _inside(folder)
    resolve = [sys.executable, "-P", "-m", "lockbench.clusters.images", "lock", artifact.image]
    done = _run(resolve, inside, PREPARE_S)
    if done.returncode != 0:
        why = _last_line(done.stdout + done.stderr)
        raise BadInput(f"{side.ref} cannot be resolved: {why}")
    _prepare(side, cases, _probe(side, folder, {}))
    return {artifact.name: artifact.version}


def _prepare(side: Side, cases: Sequence[Case], inside: dict[str, str]) -> None:
    locks = dict.fromkeys(case.lock for case in cases)
    done = _run([sys.executable, "-P", "-c", PREPARE, *locks], inside, PREPARE_S)
    if done.returncode != 0:
        raise BadInput(f"{side.ref}: a lock cannot be prepared: {_last_line(done.stderr)}")


def _probe(side: Side, folder: Path, wanted: Mapping[str, str]) -> dict[str, str]:
    """Sees that the workers' locks can be imported; returns the environment for it."""
    inside = _inside(folder)
    found = _run([sys.executable, "-P", "-c", PROBE, *wanted], inside)
    if found.returncode != 0:
        raise BadInput(
            f"{side.ref}: the locks cannot be imported with it: {_last_line(found.stderr)}"
        )
    where, *versions = found.stdout.splitlines()
    if (side.pinned or side.artifact) and not Path(where).is_relative_to(folder):
        raise BadInput(f"{side.ref}: the workers would import the locks in {where} instead")
    for got, (name, version) in zip(versions, wanted.items(), strict=True):
        if got != version:
            raise BadInput(f"{side.ref}: the workers would import {name} {got} instead")
    return inside


def _inside(folder: Path) -> dict[str, str]:
    """The side's first and this tree's last, as the workers are started."""
    inside = program.environment()
    inside["PYTHONPATH"] = os.pathsep.join([str(folder), inside["PYTHONPATH"]])
    return inside


def _pip(side: Side, folder: Path, *words: str) -> None:
    pip = [sys.executable, "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = _run([*pip, "--target", str(folder), *words], os.environ)
    if done.returncode != 0:
        raise BadInput(f"{side.ref} cannot be installed: {_last_line(done.stderr)}")


@contextmanager
def library_path(side: Side, folder: Path) -> Iterator[None]:
    """Processes started inside import this side's libraries and recipes first."""
    changed = {}
    if side.library or side.source or side.artifact or side.pinned:
        path = filter(None, [str(folder), os.environ.get("PYTHONPATH")])
        changed["PYTHONPATH"] = os.pathsep.join(path)
    if side.library or side.source:
        changed[INSTEAD] = str(folder)
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@dataclass(frozen=True)
class Instead:
    """A side that is run by itself, and what was installed for it."""

    side: Side
    installed: Mapping[str, str]

    @property
    def ref(self) -> str | None:
        """None where it is this tree."""
        return None if self.side.ref == CURRENT else self.side.ref

    def recorded(self, versions: Versions) -> Versions:
        """``versions`` of this tree, as they are with this side in it. What a client was built
        from otherwise is not known."""
        if self.ref is None:
            return versions
        new = {pins.plain(name): version for name, version in self.installed.items()}

        def changed(known: Mapping[str, str | None] | None) -> dict[str, str | None] | None:
            if known is None:
                return None
            return {name: new.get(pins.plain(name), version) for name, version in known.items()}

        clients: dict[str, Client] = {}
        for name, client in (versions.clients or {}).items():
            if new.keys().isdisjoint(map(pins.plain, client.pins or {})):
                clients[name] = client
            else:
                clients[name] = Client(
                    locks=client.locks,
                    pins=changed(client.pins),
                    versions=changed(client.versions),
                )
        return evolved(
            versions,
            libraries=changed(versions.libraries),
            clients=clients or None,
            sides={WITH: self.side.described(self.installed)},
        )


@contextmanager
def instead(side: Side, cases: Sequence[Case]) -> Iterator[Instead]:
    """What is started inside has this side's libraries and recipes. Raises BadInput."""
    if side.lock is not None:
        raise BadInput(f"--with {side.ref} is a lock: name it with --lock")
    check_image_is_used(side, cases)
    with tempfile.TemporaryDirectory(prefix="lockbench-") as name:
        installed = install(side, Path(name), cases)
        with library_path(side, Path(name)):
            yield Instead(side, installed)


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
        said = without_login(shlex.join(command))[:COMMAND_CHARS_MAX]
        raise BadInput(f"`{said}` did not end within {timeout_s:.0f} s") from error


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it said nothing"
