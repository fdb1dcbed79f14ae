"""The images: built from our own Dockerfiles when first needed, and tagged by what decides them.

The tag is the fingerprint of the recipe (`clusters.recipes`), so that building is a no-op when
nothing has changed. Guaranteed of what is downloaded: Go modules and Maven's artifacts are those
whose digests are committed, and so is the base image where it is pulled. Debian's mirror keeps only
the newest version of a package, so there the rule is: what apt has verified is compared with
debian.lock. Another version is built with, told, and recorded (`Described.differs`); the same
version with another digest is refused. `python -m clusters.images lock` writes what there is now
into the locks.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from clusters.engine import owner
from clusters.engine.docker import Engine, EngineError
from clusters.recipes import (
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
    "BUILDERS", "CLIENTS", "FOLDER", "PACKAGES_FILE", "Described", "describe", "ensure",
    "fingerprint", "is_current", "lineage", "pins", "read", "recipes", "remove_old",
    "server_names",
]  # fmt: skip

FINGERPRINT = "lockbench.fingerprint"
VERSIONS = "lockbench.versions"
DIFFERS = "lockbench.differs"
VERSIONS_FILE = "/etc/lockbench-versions"
PACKAGES_FILE = "/etc/lockbench-packages"
KEPT_TAG = "baseline"  # of the nightly suite; only a person moves it
HOST_CA = "host-ca.crt"
HOST_MAVEN_SETTINGS = "host-maven-settings.xml"
BUILDS_AT_ONCE = 2
DISK_NEEDED_BYTES = 3_000_000_000
DEBIAN_MIRROR = "http://deb.debian.org/debian"
BOOTSTRAPPED = "lockbench-debian:bootstrapped"
RELEASE_FILE = "/etc/lockbench-release"
ARCHIVES = "var/cache/apt/archives/*.deb"
RELEASES = "var/lib/apt/lists/*_Release"  # the words of the InRelease beside it, verified

# From the environment of whoever builds: how to reach the outside. Never part of a fingerprint.
NETWORK_ARGS = (
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("GOPROXY", "GOSUMDB", "GONOSUMDB", "GOPRIVATE", "MAVEN_OPTS"),
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
    """One go at building: the tags that are built and stood on, and what the lock says."""

    engine: Engine
    say: Callable[[str], None]
    ref: Callable[[str], str] = lambda name: recipes()[name].ref
    locked: Callable[[str], str] = locked
    fresh: bool = False
    """Nothing is taken from the engine's cache, and the base is bootstrapped."""


def is_current(engine: Engine, name: str) -> bool:
    """Tell whether the image is there and made by today's recipe."""
    image = engine.image(recipes()[name].ref)
    return image is not None and image.labels.get(FINGERPRINT) == fingerprint(name)


def ensure(
    names: Sequence[str],
    *,
    engine: Engine | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Build what is missing of these images, and of what they stand on; EngineError if it fails."""
    engine = engine or Engine()
    known = recipes()
    if unknown := [name for name in names if name not in known]:
        raise EngineError(f"no image is called {unknown[0]}; there are {', '.join(known)}")
    levels: dict[int, set[str]] = {}
    missing = [name for name in names if not is_current(engine, name)]
    for name in missing:
        line = lineage(name)
        for depth, ancestor in enumerate(line):
            if not is_current(engine, ancestor):
                levels.setdefault(depth, set()).add(ancestor)
    if levels:
        free = engine.free_disk_bytes()
        if free is not None and free < DISK_NEEDED_BYTES:
            raise EngineError(
                f"building images needs {DISK_NEEDED_BYTES / 1e9:.0f} GB free where Docker keeps"
                f" its data, and {free / 1e9:.1f} GB are: make room, then build again"
            )
        say(f"to build: {', '.join(sorted(set().union(*levels.values())))}")
    making = _Making(engine, say)

    def make(name: str) -> None:
        began = time.monotonic()
        say(f"{name}: started")
        _build(making, recipes()[name])
        for package, change in _finish(making, recipes()[name]).items():
            say(f"{name}: {package} is not as in {LOCK.name}: {change}")
        say(f"{name}: done in {time.monotonic() - began:.1f} s")

    for _, level in sorted(levels.items()):
        _each(sorted(level), make)


def _each(names: Sequence[str], make: Callable[[str], None]) -> None:
    """A few at once; raises the first failure when all have ended. In threads that an interrupted
    command does not wait for: a build takes minutes, and the engine gives it up when its connection
    is closed, as it is when the process ends."""
    free = threading.Semaphore(BUILDS_AT_ONCE)
    failures: list[Exception] = []

    def one(name: str) -> None:
        with free:
            try:
                make(name)
            except Exception as error:  # noqa: BLE001 - raised below
                failures.append(error)

    threads = [threading.Thread(target=one, args=(name,), daemon=True) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def describe(names: Sequence[str], *, engine: Engine | None = None) -> dict[str, Described]:
    """Return what these images (names of ours, or any reference) are, as results record it."""
    engine = engine or Engine()
    known = recipes()
    described = {}
    for name in names:
        ref = known[name].ref if name in known else name
        image = engine.image(ref)
        if image is None:
            raise EngineError(f"there is no image {ref}: run `make setup`, or pull it")
        versions = json.loads(image.labels.get(VERSIONS, "{}"))
        differs = json.loads(image.labels.get(DIFFERS, "{}"))
        described[name] = Described(ref, image.id, image.digest, versions, differs)
    return described


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
    """Run `python -m clusters.images build [NAME…]` (all server images when none is named), or
    `lock` (build all anew and write what they came to into the locks)."""
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"[images] {time.monotonic() - began:6.1f} s  {line}", flush=True)

    try:
        match list(args):
            case ["build", *names]:
                ensure(names or server_names(), say=say)
            case ["lock"]:
                _lock(Engine(), say)
            case _:
                print("usage: python -m clusters.images build [NAME…] | lock", file=sys.stderr)
                return 254
    except EngineError as error:
        say(f"failed: {error}")
        return 255
    return 0


# --- making one ----------------------------------------------------------------------------------


def _build(making: _Making, recipe: Recipe) -> None:
    """Build an image under its tag, without the labels that say that it may be used."""
    parent = making.ref(recipe.parent) if recipe.parent else _debian(making)
    network = {key: os.environ[key] for key in NETWORK_ARGS if os.environ.get(key)}
    files = {path.name: path.read_bytes() for path in (FOLDER / recipe.folder).iterdir()}
    files[HOST_CA] = host_ca()
    if recipe.name == "maven":
        files[HOST_MAVEN_SETTINGS] = host_maven_settings()
    args = {**recipe.args, **network, "PARENT": parent, "BASE": making.ref("base")}
    try:
        making.engine.build(files, making.ref(recipe.name), args=args, cache=not making.fresh)
    except EngineError as error:
        raise EngineError(
            f"{error}\nwhat to do: if a digest is missing or not as committed, find out why"
            " (`python -m clusters.images lock` writes the locks again); otherwise see that"
            " the Debian mirror, the Go module proxy or Maven's repository can be reached"
            " (HTTP_PROXY, GOPROXY, MAVEN_OPTS, SSL_CERT_FILE and Maven's settings.xml are handed"
            " in), then build again"
        ) from error
    finally:
        if parent == BOOTSTRAPPED:
            making.engine.remove_image(parent)  # only its name: the base stands on it


def _finish(making: _Making, recipe: Recipe) -> dict[str, str]:
    """Compare an image with the lock and label it, which makes it current; return what differs.
    Raises EngineError for a digest that is not as locked."""
    engine, made = making.engine, making.ref(recipe.name)
    packages = read(engine, made, PACKAGES_FILE).decode()
    wanted = "".join(making.locked(name) for name in dict.fromkeys(("base", recipe.name)))
    parent = engine.image(making.ref(recipe.parent)) if recipe.parent else None
    inherited = json.loads(parent.labels.get(DIFFERS, "{}")) if parent else {}
    differs = inherited | differences(wanted, packages)
    versions = parse_versions(read(engine, made, VERSIONS_FILE))
    labels = {
        FINGERPRINT: fingerprint(recipe.name),
        VERSIONS: json.dumps(versions, sort_keys=True),
        DIFFERS: json.dumps(differs, sort_keys=True),
    }
    engine.build({"Dockerfile": f"FROM {made}\n".encode()}, recipe.ref, labels=labels)
    return differs


def differences(wanted: str, found: str) -> dict[str, str]:
    """Compare two lists of package, version, architecture, SHA-256. Returns what was found and is
    not wanted so: package → "version architecture → version architecture". Raises EngineError for
    one version with two digests: Debian never publishes that."""
    expected = _packages(wanted)
    told = {}
    for package, (what, digest) in _packages(found).items():
        was, locked_digest = expected.get(package, ("not there", ""))
        if what != was:
            told[package] = f"{was} → {what}"
        elif digest != locked_digest:
            raise EngineError(
                f"{package} {what} has the SHA-256 {digest}, and {LOCK.name} has {locked_digest}:"
                " do not use the mirror that it came from, and find out why"
            )
    return told


def _packages(text: str) -> dict[str, tuple[str, str]]:
    """Package → (version and architecture, SHA-256)."""
    lines = (line.split() for line in text.splitlines())
    return {package: (f"{version} {arch}", digest) for package, version, arch, digest in lines}


# --- the locks -----------------------------------------------------------------------------------


def _lock(engine: Engine, say: Callable[[str], None]) -> None:
    """Build everything anew from what the mirrors have now, and write that down.

    The images that were built stand for the locks that follow from them, so nothing is built twice.
    """
    making = _Making(
        engine, say, lambda name: f"lockbench-{name}:unlocked", lambda _: "", fresh=True
    )
    lines: list[str] = []
    base: list[str] = []
    for recipe in recipes().values():
        say(f"{recipe.name}: started")
        for path, text in _resolved(making, recipe).items():
            path.write_bytes(text)
        _build(making, recipe)
        packages = read(engine, making.ref(recipe.name), PACKAGES_FILE).decode()
        own = [line for line in packages.splitlines() if line not in base]
        if recipe.name == "base":
            base = own
        lines += [f"{recipe.name} {line}\n" for line in sorted(own)]
        say(f"{recipe.name}: {len(own)} packages")
    head = LOCK.read_text().partition("\nbase ")[0].rstrip("\n")
    LOCK.write_text(head + "\n" + "".join(lines))
    fingerprint.cache_clear()
    for recipe in recipes().values():
        _finish(_Making(engine, say, making.ref), recipe)
    for recipe in recipes().values():
        engine.remove_image(making.ref(recipe.name))


# What is resolved in the builder: the command, and the files that it leaves to be committed.
_GO = """
go mod init lockbench/server
go mod edit -go=$(go env GOVERSION | sed -E 's/^go([0-9]+[.][0-9]+).*/\\1.0/')
go get "${PACKAGE}@${VERSION}"
"""
_RESOLVING = {
    "golang": (" && ".join(_GO.strip().splitlines()), ("go.mod", "go.sum")),
    "maven": ("sh resolve.sh record", ("artifacts.sha256", "checksums.sha256")),
}


def _resolved(making: _Making, recipe: Recipe) -> dict[Path, bytes]:
    """Return the locks of Go modules or of Maven's artifacts as they come out now. The modules of
    go-sidecar are not among them: its own sources say which it needs (`go mod tidy`)."""
    if recipe.parent not in _RESOLVING or recipe.name == "go-sidecar":
        return {}
    command, names = _RESOLVING[recipe.parent]
    made = f"lockbench-{recipe.name}:resolved"
    arguments = "".join(f"ARG {name}\n" for name in (*recipe.args, *NETWORK_ARGS))
    dockerfile = (
        f"FROM {making.ref(recipe.parent)}\n{arguments}WORKDIR /build\nCOPY . .\nRUN {command}\n"
    )
    folder = FOLDER / recipe.folder
    files = {
        name: (folder / name).read_bytes()
        for name in ("pom.xml", "resolve.sh")
        if (folder / name).is_file()
    }
    network = {key: os.environ[key] for key in NETWORK_ARGS if os.environ.get(key)}
    making.engine.build(
        {**files, "Dockerfile": dockerfile.encode()},
        made,
        args={**recipe.args, **network},
        cache=False,
    )
    found = {folder / name: read(making.engine, made, f"/build/{name}") for name in names}
    making.engine.remove_image(made)
    return found


# --- what the machine adds -----------------------------------------------------------------------


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


def host_maven_settings() -> bytes:
    """Return this user's settings for Maven, which may name a mirror or a proxy; none are empty."""
    path = Path.home() / ".m2" / "settings.xml"
    return path.read_bytes() if path.is_file() else b"<settings/>"


# --- the base ------------------------------------------------------------------------------------


def _debian(making: _Making) -> str:
    """Return an image of Debian: the official one by its digest, or one bootstrapped here."""
    official = pins()["debian_image"]
    if making.fresh:
        return _bootstrap(making.engine, pins()["debian_suite"])
    try:
        making.engine.pull(official)
    except EngineError as error:
        making.say(f"base: {str(error).splitlines()[0]}")
        making.say("base: no registry, so Debian is bootstrapped from its mirror instead")
        return _bootstrap(making.engine, pins()["debian_suite"])
    return official


def _bootstrap(engine: Engine, suite: str) -> str:
    """Make an image with debootstrap, with what Debian's own image has set for containers. The
    suite's Release file is verified with Debian's keys; its digest and those of all packages stay
    in the image."""
    if os.geteuid() != 0:
        raise EngineError(
            "the base image can be bootstrapped only by root: run this as root, or make"
            f" {pins()['debian_image']} available to the engine"
        )
    if shutil.which("debootstrap") is None:
        _install_debootstrap()
    # Not /tmp, which is often mounted so that no device nodes can be made there.
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="lockbench-") as work:
        tree = Path(work) / "root"
        keyring = "--keyring=/usr/share/keyrings/debian-archive-keyring.gpg"
        # Without this it goes on, with a warning, where it cannot verify.
        checked = ["--force-check-gpg", keyring]
        bootstrap = ["debootstrap", "--variant=minbase", *checked, suite, str(tree), DEBIAN_MIRROR]
        _command([*bootstrap, "/usr/share/debootstrap/scripts/sid"])
        for path, text in {**_container_settings(suite), **_bootstrapped(tree)}.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(text)
        (tree / "usr/sbin/policy-rc.d").chmod(0o755)
        for leftover in [*tree.glob(ARCHIVES), *tree.glob("var/lib/apt/lists/*")]:
            if leftover.is_file():
                leftover.unlink()
        (tree / "etc/apt/sources.list").unlink(missing_ok=True)
        packed = Path(work) / "root.tar"
        with tarfile.open(packed, "w") as archive:
            archive.add(tree, arcname=".")
        engine.import_rootfs(packed, BOOTSTRAPPED)
    return BOOTSTRAPPED


def _bootstrapped(tree: Path) -> dict[str, str]:
    """Return files that say what a tree was made of: its Release file, and every package."""
    releases = [_sha256(path) for path in sorted(tree.glob(RELEASES))]
    lines = []
    for path in sorted(tree.glob(ARCHIVES)):
        # The names are those of apt: package_version_architecture.deb
        package, version, arch = unquote(path.stem).split("_")
        lines.append(f"{package} {version} {arch} {_sha256(path)}\n")
    return {
        PACKAGES_FILE.removeprefix("/"): "".join(lines),
        RELEASE_FILE.removeprefix("/"): f"release=sha256:{','.join(releases)}\n",
    }


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _container_settings(suite: str) -> dict[str, str]:
    """Return files of the base: no service starts by itself, no manuals, security updates."""
    keyring = "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg"
    return {
        "usr/sbin/policy-rc.d": "#!/bin/sh\nexit 101\n",
        "etc/dpkg/dpkg.cfg.d/no-docs": (
            "path-exclude /usr/share/doc/*\npath-exclude /usr/share/man/*\n"
        ),
        "etc/apt/sources.list.d/debian.sources": (
            f"Types: deb\nURIs: {DEBIAN_MIRROR}\nSuites: {suite} {suite}-updates\n"
            f"Components: main\n{keyring}\n\n"
            f"Types: deb\nURIs: {DEBIAN_MIRROR}-security\nSuites: {suite}-security\n"
            f"Components: main\n{keyring}\n"
        ),
    }


def _install_debootstrap() -> None:
    if shutil.which("apt-get") is None:
        raise EngineError("the base image needs debootstrap: install it, then build again")
    # A foreign source that cannot be updated must not stop us; the install tells what counts.
    subprocess.run(["apt-get", "update"], capture_output=True, check=False)
    apt = ["apt-get", "install", "--yes", "--no-install-recommends"]
    wait = ["-o", "DPkg::Lock::Timeout=120"]
    _command([*apt, *wait, "debootstrap", "debian-archive-keyring"])


def _command(args: Sequence[str]) -> None:
    done = subprocess.run(
        args,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        said = "\n".join(f"    {line}" for line in done.stdout.strip().splitlines()[-15:])
        raise EngineError(
            f"`{' '.join(args)}` ended with {done.returncode}; it said last:\n{said}\n"
            "what to do: see that the Debian mirror can be reached, then build again"
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
