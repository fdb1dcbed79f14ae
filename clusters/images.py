"""The images: built from our own Dockerfiles when first needed, and named by their content.

An image carries a fingerprint of everything that we decide about it (its Dockerfile, its pins, its
parent), so that building is a no-op when nothing has changed. What we do not decide, the versions
of Debian's packages, is read from the finished image and labelled on it: `describe` returns it.
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
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import certifi

from clusters.docker import Engine, EngineError

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(__file__).resolve().parent / "images"
FINGERPRINT = "lockbench.fingerprint"
VERSIONS = "lockbench.versions"
VERSIONS_FILE = "/etc/lockbench-versions"
HOST_CA = "host-ca.crt"
HOST_MAVEN_SETTINGS = "host-maven-settings.xml"
BUILDERS = ("golang", "compiler", "maven")
CLIENTS = ("go-sidecar", "jvm-sidecar")
BUILDS_AT_ONCE = 2
DISK_NEEDED_BYTES = 3_000_000_000
DEBIAN_MIRROR = "http://deb.debian.org/debian"

# From the environment of whoever builds: how to reach the outside. Never part of a fingerprint.
NETWORK_ARGS = (
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("GOPROXY", "GOSUMDB", "GONOSUMDB", "GOPRIVATE", "MAVEN_OPTS"),
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one image is made: a folder with a Dockerfile, the image below it, and the arguments."""

    name: str
    folder: str
    parent: str
    args: Mapping[str, str] = field(default_factory=dict)

    @property
    def ref(self) -> str:
        """The name to run it by."""
        return f"lockbench-{self.name}:latest"


@dataclass(frozen=True, slots=True)
class Described:
    """An image as a result records it."""

    ref: str
    id: str
    digest: str | None
    versions: Mapping[str, str]


def pins() -> dict[str, str]:
    """Return the versions that pyproject.toml pins for images."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return dict(settings["tool"]["lockbench"]["versions"])


def base_ref() -> str:
    """Return the name of the image that all others stand on."""
    return f"lockbench-base:{pins()['debian_suite']}"


def recipes() -> dict[str, Recipe]:
    """Return every image that we can build, by name."""
    pin = pins()

    def go(name: str, package: str, ldflags: str = "", folder: str = "gomodule") -> Recipe:
        made_of = {"PACKAGE": package, "VERSION": pin[name], "LDFLAGS": ldflags, "PROGRAM": name}
        return Recipe(name, folder, "golang", made_of)

    def debian(name: str, packages: str) -> Recipe:
        return Recipe(name, "debian", "compiler", {"PACKAGES": packages})

    # Toxiproxy's clients choose the API by the version it reports, which only the linker sets.
    toxiproxy = "github.com/Shopify/toxiproxy/v2"
    version_flag = f"-X {toxiproxy}.Version={pin['toxiproxy'].removeprefix('v')}"
    postgres = {"PACKAGES": f"postgresql-{pin['postgres']}", "MAJOR": pin["postgres"]}
    found = [
        Recipe("golang", "golang", "base", {"GO_SUITE": pin["go_suite"]}),
        Recipe("compiler", "compiler", "base"),
        go("toxiproxy", f"{toxiproxy}/cmd/server", version_flag, folder="toxiproxy"),
        go("etcd", "go.etcd.io/etcd/server/v3"),
        debian("redis", "redis-server"),
        Recipe("postgres", "postgres", "compiler", postgres),
        # Not Debian's `zookeeper` package, which pulls in a desktop toolkit.
        debian("zookeeper", "libzookeeper-java openjdk-21-jre-headless"),
        Recipe("maven", "maven", "base"),
        Recipe("go-sidecar", "go-sidecar", "golang"),
        Recipe("jvm-sidecar", "jvm-sidecar", "maven"),
    ]
    return {recipe.name: recipe for recipe in found}


def server_names() -> list[str]:
    """Return the names of the images that run in clusters; those of clients are built when a lock
    needs one."""
    return [name for name in recipes() if name not in (*BUILDERS, *CLIENTS)]


def fingerprint(name: str) -> str:
    """Name everything that we decide about an image, its parents' included."""
    if name == "base":
        return hashlib.sha256(base_ref().encode()).hexdigest()[:12]
    recipe = recipes()[name]
    decided = [dict(recipe.args), fingerprint(recipe.parent)]
    digest = hashlib.sha256(json.dumps(decided, sort_keys=True).encode())
    for path in sorted((FOLDER / recipe.folder).iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def is_current(engine: Engine, name: str) -> bool:
    """Tell whether the image is there and made by today's recipe."""
    if name == "base":
        return engine.image(base_ref()) is not None
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
    for _, level in sorted(levels.items()):
        with ThreadPoolExecutor(BUILDS_AT_ONCE) as pool:
            list(pool.map(lambda name: _make(engine, name, say), sorted(level)))


def lineage(name: str) -> list[str]:
    """Return the image after all that it stands on, the base first."""
    return ["base"] if name == "base" else [*lineage(recipes()[name].parent), name]


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
        described[name] = Described(ref, image.id, image.digest, versions)
    return described


def main(args: Sequence[str]) -> int:
    """Run `python -m clusters.images build [NAME…]`; all server images when none is named."""
    if not args or args[0] != "build":
        print("usage: python -m clusters.images build [NAME…]", file=sys.stderr)
        return 254
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"[images] {time.monotonic() - began:6.1f} s  {line}", flush=True)

    try:
        ensure(args[1:] or server_names(), say=say)
    except EngineError as error:
        say(f"failed: {error}")
        return 255
    return 0


# --- making one ----------------------------------------------------------------------------------


def _make(engine: Engine, name: str, say: Callable[[str], None]) -> None:
    began = time.monotonic()
    say(f"{name}: started")
    if name == "base":
        _make_base(engine, say)
    else:
        _build(engine, recipes()[name])
    say(f"{name}: done in {time.monotonic() - began:.1f} s")


def _build(engine: Engine, recipe: Recipe) -> None:
    mark = fingerprint(recipe.name)
    repository = recipe.ref.rpartition(":")[0]
    parent = base_ref() if recipe.parent == "base" else recipes()[recipe.parent].ref
    network = {key: os.environ[key] for key in NETWORK_ARGS if os.environ.get(key)}
    files = {path.name: path.read_bytes() for path in (FOLDER / recipe.folder).iterdir()}
    files[HOST_CA] = host_ca()
    if recipe.name == "maven":
        files[HOST_MAVEN_SETTINGS] = host_maven_settings()
    made = f"{repository}:{mark}"
    try:
        args = {**recipe.args, **network, "PARENT": parent, "BASE": base_ref()}
        engine.build(files, made, args=args)
    except EngineError as error:
        raise EngineError(
            f"{error}\nwhat to do: see that the Debian mirror, the Go module proxy"
            " or Maven's repository can be reached (HTTP_PROXY, GOPROXY, MAVEN_OPTS, SSL_CERT_FILE"
            " and Maven's settings.xml are handed in), then build again"
        ) from error
    versions = parse_versions(engine.read_image_file(made, VERSIONS_FILE) or b"")
    labels = {FINGERPRINT: mark, VERSIONS: json.dumps(versions, sort_keys=True)}
    engine.build({"Dockerfile": f"FROM {made}\n".encode()}, made, labels=labels)
    engine.tag(made, recipe.ref)


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
    return Path(certifi.where()).read_bytes()


def host_maven_settings() -> bytes:
    """Return this user's settings for Maven, which may name a mirror or a proxy; none are empty."""
    path = Path.home() / ".m2" / "settings.xml"
    return path.read_bytes() if path.is_file() else b"<settings/>"


# --- the base ------------------------------------------------------------------------------------


def _make_base(engine: Engine, say: Callable[[str], None]) -> None:
    official = pins()["debian_image"]
    try:
        engine.pull(official)
    except EngineError as error:
        say(f"base: {str(error).splitlines()[0]}")
        say("base: no registry, so Debian is bootstrapped from its mirror instead")
        _bootstrap(engine, pins()["debian_suite"])
    else:
        engine.tag(official, base_ref())


def _bootstrap(engine: Engine, suite: str) -> None:
    """Make the base with debootstrap, with what Debian's own image has set for containers."""
    if os.geteuid() != 0:
        raise EngineError(
            "the base image can be bootstrapped only by root: run this as root, or make"
            f" {pins()['debian_image']} available to the engine and tag it {base_ref()}"
        )
    if shutil.which("debootstrap") is None:
        _install_debootstrap()
    # Not /tmp, which is often mounted so that no device nodes can be made there.
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="lockbench-") as work:
        tree = Path(work) / "root"
        keyring = "--keyring=/usr/share/keyrings/debian-archive-keyring.gpg"
        bootstrap = ["debootstrap", "--variant=minbase", keyring, suite, str(tree), DEBIAN_MIRROR]
        _command([*bootstrap, "/usr/share/debootstrap/scripts/sid"])
        for path, text in _container_settings(suite).items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(text)
        (tree / "usr/sbin/policy-rc.d").chmod(0o755)
        for leftover in (tree / "var/cache/apt/archives").glob("*.deb"):
            leftover.unlink()
        (tree / "etc/apt/sources.list").unlink(missing_ok=True)
        packed = Path(work) / "root.tar"
        with tarfile.open(packed, "w") as archive:
            archive.add(tree, arcname=".")
        engine.import_rootfs(packed, base_ref())


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
