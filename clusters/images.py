"""The images: built from our own Dockerfiles when first needed, and tagged by what decides them.

The tag is the fingerprint of the recipe (`lockbench.clusters.recipes`), so that building is a no-op
when nothing has changed. Guaranteed of what is downloaded: Go modules, Maven's artifacts and npm's
packages are those whose digests are committed, and so is the base image where it is pulled.
Debian's mirror keeps only the newest version of a package, so there the rule is: what apt has
verified is compared with debian.lock. Another version is built with, told, and recorded
(`Described.differs`); the same version with another digest is refused. `python -m
lockbench.clusters.images lock` writes what there is now into the locks; with names of client
images, it resolves the requirements of their libraries.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from lockbench.clusters import debian
from lockbench.clusters.builds import Build, Builds
from lockbench.clusters.debian import PACKAGES_FILE
from lockbench.clusters.engine import owner
from lockbench.clusters.engine.docker import Engine, EngineError
from lockbench.clusters.engine.image_store import BUILD_TIMEOUT_S
from lockbench.clusters.libraries import GO
from lockbench.clusters.recipes import (
    BUILDERS,
    CLIENTS,
    FOLDER,
    LOCK,
    Recipe,
    fingerprint,
    lineage,
    locked,
    pins,
    recipes,
    server_names,
)

__all__ = [
    "BUILDERS", "CLIENTS", "FOLDER", "PACKAGES_FILE", "Builds", "Described", "begin", "describe",
    "ensure", "fingerprint", "is_current", "lineage", "locked", "pins", "read", "recipes",
    "remove_old", "send", "server_names",
]  # fmt: skip

POLL_S = 0.1
FINGERPRINT = "lockbench.fingerprint"
VERSIONS = "lockbench.versions"
DIFFERS = "lockbench.differs"
VERSIONS_FILE = "/etc/lockbench-versions"
KEPT_TAG = "baseline"  # of the nightly suite; only a person moves it
HOST_CA = "host-ca.crt"
# Builder → the settings of this user that its image is given, where they are to be found, and what
# stands for none. They may name a mirror or a proxy.
HOST_SETTINGS = {
    "maven": ("host-maven-settings.xml", ".m2/settings.xml", b"<settings/>"),
    "npm": ("host-npmrc", ".npmrc", b""),
}
DISK_NEEDED_BYTES = 3_000_000_000

# From the environment of whoever builds: how to reach the outside. Never part of a fingerprint.
NETWORK = (
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("GOPROXY", "GOSUMDB", "GONOSUMDB", "GOPRIVATE", "MAVEN_OPTS", "NPM_CONFIG_REGISTRY"),
)


@dataclass(frozen=True, slots=True)
class Described:
    """An image as a result records it."""

    ref: str
    id: str
    digest: str | None
    versions: Mapping[str, str]
    differs: Mapping[str, str] = field(default_factory=dict)
    """Debian package → "version and architecture in debian.lock → those it was built with"."""


@dataclass(frozen=True, slots=True)
class _Making:
    """One go at building: the tags that are built and stood on."""

    engine: Engine
    say: Callable[[str], None]
    ref: Callable[[str], str] = lambda name: recipes()[name].ref
    fresh: bool = False
    """Nothing is taken from the engine's cache, and the base is bootstrapped."""


def is_current(engine: Engine, name: str) -> bool:
    """Tell whether the image is there and made by today's recipe."""
    image = engine.image(recipes()[name].ref)
    return image is not None and image.labels.get(FINGERPRINT) == fingerprint(name)


def ours_among(images: Mapping[str, str]) -> frozenset[str]:
    """Of names → references, those that a recipe of ours has made, today's or an earlier one. None
    where no engine answers."""
    if not images:
        return frozenset()
    with suppress(EngineError), Engine() as engine:
        found = {name: engine.image(ref) for name, ref in images.items()}
        return frozenset(n for n, image in found.items() if image and FINGERPRINT in image.labels)
    return frozenset()


def ensure(
    names: Sequence[str],
    *,
    engine: Engine | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Build what is missing of these images, and of what they stand on; EngineError if it fails."""
    builds = begin(names, engine=engine or Engine(), say=say)
    builds.wait()
    if failure := builds.failure(builds.names):
        raise failure


def begin(names: Sequence[str], *, engine: Engine, say: Callable[[str], None]) -> Builds:
    """Begin to build what is missing of these images, the first ones first, and of what they stand
    on. Raises EngineError for a name that is none, and where there is no room."""
    known = recipes()
    if unknown := [name for name in names if name not in known]:
        raise EngineError(f"no image is called {unknown[0]}; there are {', '.join(known)}")
    needed = [each for name in names if not is_current(engine, name) for each in lineage(name)]
    missing = [name for name in dict.fromkeys(needed) if not is_current(engine, name)]
    if missing:
        free = engine.free_disk_bytes()
        if free is not None and free < DISK_NEEDED_BYTES:
            raise EngineError(
                f"building images needs {DISK_NEEDED_BYTES / 1e9:.0f} GB free where Docker keeps"
                f" its data, and {free / 1e9:.1f} GB are: make room, then build again"
            )
    making = _Making(engine, say)
    told: set[str] = set()

    def make(name: str) -> None:
        with _alone(name):
            if is_current(engine, name):  # another process has built it meanwhile
                return
            say(f"{name}: started")
            _build(making, known[name])
            for package, change in _finish(making, known[name]).items():
                if package not in told:  # of an image below
                    say(f"{name}: {package} is not as in {LOCK.name}: {change}")
                    told.add(package)

    wanted = [Build(name, known[name].parent, known[name].takes_s) for name in missing]
    return Builds(wanted, make, say)


def describe(names: Sequence[str], *, engine: Engine | None = None) -> dict[str, Described]:
    """Return what these images (names of ours, or any reference) are, as results record it."""
    engine = engine or Engine()
    known = recipes()
    described = {}
    for name in names:
        ref = known[name].ref if name in known else name
        image = engine.image(ref)
        if image is None:
            raise EngineError(f"there is no image {ref}: `docker pull` it")
        versions = json.loads(image.labels.get(VERSIONS, "{}"))
        differs = json.loads(image.labels.get(DIFFERS, "{}"))
        described[name] = Described(ref, image.id, image.digest, versions, differs)
    return described


def send(ref: str, source: Engine, target: Engine) -> None:
    """Put an image into another engine's store unless the same one is there. EngineError: it cannot
    be read, or there is no room."""
    ours, theirs = source.image(ref), target.image(ref)
    if ours is None:
        raise EngineError(f"there is no image {ref}: `docker pull` it")
    if theirs is None or theirs.id != ours.id:
        source.send_image(ref, target)


def read(engine: Engine, ref: str, path: str) -> bytes:
    """Return a file of an image; empty where there is none."""
    return engine.read_image_file(ref, path, labels=owner.labels("images", "images")) or b""


def remove_old(engine: Engine) -> list[str]:
    """Remove the tags of ours that today's recipes do not give; returns them. Baselines stay, and
    so does an image that a container uses."""
    current = {recipe.ref for recipe in recipes().values()}
    names = tuple(f"lockbench-{name}" for name in recipes())
    removed = []
    for ref in engine.image_refs("lockbench-*"):
        repository, _, tag = ref.rpartition(":")
        if repository in names and tag != KEPT_TAG and ref not in current:
            with suppress(EngineError):  # a container that runs needs it
                engine.remove_image(ref)
                removed.append(ref)
    return removed


def main(args: Sequence[str]) -> int:
    """Run `python -m lockbench.clusters.images build [NAME…]` (all server images when none is
    named), or `lock [NAME…]` (build all anew and write what they came to into the locks; when
    client images are named, only resolve the requirements of their libraries)."""
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"[images] {time.monotonic() - began:6.1f} s  {line}", flush=True)

    try:
        match list(args):
            case ["build", *names]:
                ensure(names or server_names(), say=say)
            case ["lock"]:
                _lock(Engine(), say)
            case ["lock", *names]:
                _resolve(Engine(), names, say)
            case _:
                usage = "usage: python -m lockbench.clusters.images build [NAME…] | lock [NAME…]"
                print(usage, file=sys.stderr)
                return 254
    except EngineError as error:
        say(f"failed: {error}")
        return 255
    return 0


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """One process at a time builds an image: it is there without its labels for a moment. A name
    that only one socket can have, and that ends with its process. Raises EngineError."""
    end = time.monotonic() + BUILD_TIMEOUT_S
    with socket.socket(socket.AF_UNIX) as mark:
        while True:
            try:
                mark.bind(f"\0lockbench-image-{name}")
                break
            except OSError:
                if time.monotonic() > end:
                    said = f"another process has been building {name} for too long"
                    raise EngineError(said) from None
                time.sleep(POLL_S)
        yield


# --- making one ----------------------------------------------------------------------------------


def _build(making: _Making, recipe: Recipe) -> None:
    """Build an image under its tag, without the labels that say that it may be used."""
    files = _checked(recipe)
    try:
        recipe.check_locks(files)
    except ValueError as error:
        what = f"`python -m lockbench.clusters.images lock {recipe.name}` resolves it"
        raise EngineError(f"{error}: {what}") from error
    if recipe.parent:
        parent = making.ref(recipe.parent)
    else:
        parent = debian.image(making.engine, making.say, fresh=making.fresh)
    files[HOST_CA] = host_ca()
    if recipe.name in HOST_SETTINGS:
        name, path, none = HOST_SETTINGS[recipe.name]
        files[name] = host_settings(path, none)
    args = {**recipe.args, **_network(), "PARENT": parent, "BASE": making.ref("base")}
    try:
        making.engine.build(files, making.ref(recipe.name), args=args, cache=not making.fresh)
    except EngineError as error:
        raise EngineError(
            f"{error}\nwhat to do: if a digest is missing or not as committed, find out why"
            " (`python -m lockbench.clusters.images lock` writes the locks again); otherwise see"
            " that the Debian mirror, the Go module proxy, Maven's repository or npm's registry can"
            " be reached (HTTP_PROXY, GOPROXY, MAVEN_OPTS, NPM_CONFIG_REGISTRY, SSL_CERT_FILE,"
            " Maven's settings.xml and npm's .npmrc are handed in), then build again"
        ) from error
    finally:
        if parent == debian.BOOTSTRAPPED:
            making.engine.remove_image(parent)  # only its name: the base stands on it


def _checked(recipe: Recipe) -> dict[str, bytes]:
    """Return what an image is built of, of which the folders of its libraries are whole."""
    try:
        recipe.check()
        return recipe.context()
    except ValueError as error:
        raise EngineError(str(error)) from error


def _finish(making: _Making, recipe: Recipe) -> dict[str, str]:
    """Compare an image with the lock and label it, which makes it current; return what differs.
    Raises EngineError for a digest that is not as locked."""
    engine, made = making.engine, making.ref(recipe.name)
    packages = read(engine, made, PACKAGES_FILE).decode()
    wanted = "".join(locked(name) for name in lineage(recipe.name))
    parent = engine.image(making.ref(recipe.parent)) if recipe.parent else None
    inherited = json.loads(parent.labels.get(DIFFERS, "{}")) if parent else {}
    differs = inherited | debian.differences(wanted, packages)
    versions = parse_versions(read(engine, made, VERSIONS_FILE))
    labels = {
        FINGERPRINT: fingerprint(recipe.name),
        VERSIONS: json.dumps(versions, sort_keys=True),
        DIFFERS: json.dumps(differs, sort_keys=True),
    }
    engine.build({"Dockerfile": f"FROM {made}\n".encode()}, recipe.ref, labels=labels)
    return differs


# --- the locks -----------------------------------------------------------------------------------


def _lock(engine: Engine, say: Callable[[str], None]) -> None:
    """Build everything anew from what the mirrors have now, and write that down.

    The images that were built stand for the locks that follow from them, so nothing is built twice.
    """
    making = _Making(engine, say, lambda name: f"lockbench-{name}:unlocked", fresh=True)
    lines: list[str] = []
    found: dict[str, set[str]] = {}
    for recipe in recipes().values():
        say(f"{recipe.name}: started")
        for path, text in _resolved(making, recipe).items():
            path.write_bytes(text)
        _build(making, recipe)
        packages = read(engine, making.ref(recipe.name), PACKAGES_FILE).decode()
        # A client is only built in its parent; what runs stands on the base.
        under = ["base"] if recipe.name in CLIENTS else lineage(recipe.name)[:-1]
        below = set().union(*(found[name] for name in under))
        own = found[recipe.name] = set(packages.splitlines()) - below
        lines += [f"{recipe.name} {line}\n" for line in sorted(own)]
        say(f"{recipe.name}: {len(own)} packages")
    head = LOCK.read_text().partition("\nbase ")[0].rstrip("\n")
    LOCK.write_text(head + "\n" + "".join(lines))
    fingerprint.cache_clear()
    for recipe in recipes().values():
        _finish(_Making(engine, say, making.ref), recipe)
    for recipe in recipes().values():
        engine.remove_image(making.ref(recipe.name))


def _resolve(engine: Engine, names: Sequence[str], say: Callable[[str], None]) -> None:
    """Write the locks of client images as they come out of the requirements."""
    if wrong := [name for name in names if name not in CLIENTS]:
        raise EngineError(f"{wrong[0]} is none of {', '.join(CLIENTS)}")
    for name in names:
        recipe = recipes()[name]
        ensure(lineage(name)[:-1], engine=engine, say=say)
        for path, text in _resolved(_Making(engine, say), recipe).items():
            same = path.is_file() and path.read_bytes() == text
            path.write_bytes(text)
            say(f"{name}: {path.name} is {'unchanged' if same else 'written'}")


# What is resolved in the builder: the command, and the files that it leaves to be committed.
_GO_SERVER = """
go mod init lockbench/server
go mod edit -go=$(go env GOVERSION | sed -E 's/^go([0-9]+[.][0-9]+).*/\\1.0/')
go get "${PACKAGE}@${VERSION}"
"""
# Kubernetes' modules name each other by their folders in its repository. The same code is published
# for each of them, as v0 with its own minor and patch numbers, and these are put in their place.
_OWN_MODULES = """
from="$(go env GOMODCACHE)/${MODULE}@${VERSION}/go.mod"
go mod download "${MODULE}@${VERSION}"
echo "replace (" >> go.mod
sed -nE "s#^.(k8s.io/[a-z-]+) =>.*#\\1 => \\1 v0${VERSION#v1}#p" "$from" >> go.mod
echo ")" >> go.mod
go get "${PACKAGE}@${VERSION}"
go get "$(go list -m -f '{{.Path}}@{{.Version}}' go.etcd.io/etcd/server/v3)"
"""
# `go get` raises the go line to the least that all modules want. What a source imports and nobody
# asks for would come in its newest version; then `check_locks` refuses what came out.
_GO_CLIENT = """
go mod init lockbench/go-sidecar
go mod edit -go=1.21.0
sed 's/ /@/' requirements.mod | xargs go get
go get .
"""
# Without the address of each package, which is that of this machine's registry.
_NPM = "npm install --package-lock-only --ignore-scripts --omit-lockfile-registry-resolved"
_RESOLVING = {
    "golang": (_GO_SERVER, ("go.mod", "go.sum")),
    "npm": (_NPM, ("package-lock.json",)),
    "maven": ("sh resolve.sh record", ("artifacts.sha256", "checksums.sha256")),
}


def _resolved(making: _Making, recipe: Recipe) -> dict[Path, bytes]:
    """Return the locks of Go modules, of Maven's artifacts or of npm's packages as they come out
    now."""
    if recipe.parent not in _RESOLVING:
        return {}
    script, names = _RESOLVING[recipe.parent]
    if recipe.language is GO:
        script = _GO_CLIENT
    elif recipe.name == "kubernetes":
        script = _GO_SERVER.replace('go get "${PACKAGE}@${VERSION}"', _OWN_MODULES.strip())
    command = " && ".join(script.strip().splitlines())
    made = f"lockbench-{recipe.name}:resolved-{os.getpid()}"
    arguments = "".join(f"ARG {name}\n" for name in (*recipe.args, *NETWORK))
    dockerfile = (
        f"FROM {making.ref(recipe.parent)}\n{arguments}WORKDIR /build\nCOPY . .\nRUN {command}\n"
    )
    files = _checked(recipe) if recipe.language else {}
    unlocked = {name: content for name, content in files.items() if name not in names}
    making.engine.build(
        {**unlocked, "Dockerfile": dockerfile.encode()},
        made,
        args={**recipe.args, **_network()},
        cache=False,
    )
    found = {name: read(making.engine, made, f"/build/{name}") for name in names}
    making.engine.remove_image(made)
    try:
        recipe.check_locks(found)
    except ValueError as error:
        raise EngineError(str(error)) from error
    return {FOLDER / recipe.folder / name: text for name, text in found.items()}


# --- what the machine adds -----------------------------------------------------------------------


def _network() -> dict[str, str]:
    return {key: os.environ[key] for key in NETWORK if os.environ.get(key)}


def parse_versions(text: bytes) -> dict[str, str]:
    """Read the `name=version` lines that a Dockerfile of ours leaves in its image."""
    lines = [line.partition("=") for line in text.decode().split()]
    return {name: version for name, _, version in lines}


def host_ca() -> bytes:
    """Return the certificates that this machine trusts, which may include a proxy's own."""
    usual = Path("/etc/ssl/certs/ca-certificates.crt")
    named = os.environ.get("SSL_CERT_FILE") or os.environ.get("REQUESTS_CA_BUNDLE")
    for path in (Path(named) if named else usual, usual):
        if path.is_file():
            return path.read_bytes()
    import certifi

    return Path(certifi.where()).read_bytes()


def host_settings(name: str, none: bytes) -> bytes:
    """Return a file of this user's home; `none` where there is none."""
    path = Path.home() / name
    return path.read_bytes() if path.is_file() else none


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
