"""Debian, on which all images stand: pulled by its digest, or bootstrapped from its mirror; and
what its packages came to, held against `debian.lock`.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

from lockbench.clusters.engine.docker import Engine, EngineError
from lockbench.clusters.recipes import LOCK, pins

PACKAGES_FILE = "/etc/lockbench-packages"
BOOTSTRAPPED = "lockbench-debian:bootstrapped"
MIRROR = "http://deb.debian.org/debian"
RELEASE_FILE = "/etc/lockbench-release"
END_S = 5.0
ARCHIVES = "var/cache/apt/archives/*.deb"
# How packages are unpacked, the first ones too: without manuals, and without waiting for the disk
# after each file.
PACKAGING = {
    "etc/dpkg/dpkg.cfg.d/no-docs": (
        "path-exclude /usr/share/doc/*\npath-exclude /usr/share/man/*\n"
    ),
    "etc/dpkg/dpkg.cfg.d/unsafe-io": "force-unsafe-io\n",
}
RELEASES = "var/lib/apt/lists/*_Release"  # the words of the InRelease beside it, verified


def image(engine: Engine, say: Callable[[str], None], *, fresh: bool) -> str:
    """Return an image of Debian: the official one by its digest, or (always, if ``fresh``) one
    bootstrapped here."""
    official, suite = pins()["debian_image"], pins()["debian_suite"]
    if fresh:
        return _bootstrap(engine, suite)
    try:
        engine.pull(official)
    except EngineError as error:
        say(f"base: {str(error).splitlines()[0]}")
        say("base: no registry, so Debian is bootstrapped from its mirror instead")
        return _bootstrap(engine, suite)
    return official


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
        _write(tree, PACKAGING)
        # Without this it goes on, with a warning, where it cannot verify.
        checked = ["--force-check-gpg", keyring]
        bootstrap = ["debootstrap", "--variant=minbase", *checked, suite, str(tree), MIRROR]
        _command([*bootstrap, "/usr/share/debootstrap/scripts/sid"], Path(work))
        _write(tree, {**_container_settings(suite), **_bootstrapped(tree)})
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


def _write(tree: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)


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
    """Return files of the base: no service starts by itself, security updates."""
    keyring = "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg"
    return {
        "usr/sbin/policy-rc.d": "#!/bin/sh\nexit 101\n",
        "etc/apt/sources.list.d/debian.sources": (
            f"Types: deb\nURIs: {MIRROR}\nSuites: {suite} {suite}-updates\n"
            f"Components: main\n{keyring}\n\n"
            f"Types: deb\nURIs: {MIRROR}-security\nSuites: {suite}-security\n"
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


def _command(args: Sequence[str], work: Path | None = None) -> None:
    """Run a command that writes to a folder, which is removed if it is cut short."""
    process = subprocess.Popen(
        args,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        text=True,
        errors="replace",
        start_new_session=True,
    )
    # A thread that is not waited for runs this: when the program ends, so does the command.
    atexit.register(_end, process, work)
    try:
        said, _ = process.communicate()
    finally:
        atexit.unregister(_end)
    if process.returncode != 0:
        last = "\n".join(f"    {line}" for line in said.strip().splitlines()[-15:])
        raise EngineError(
            f"`{' '.join(args)}` ended with {process.returncode}; it said last:\n{last}\n"
            "what to do: see that the Debian mirror can be reached, then build again"
        )


def _end(process: subprocess.Popen[str], work: Path | None) -> None:
    """It is asked first, so that it unmounts what it has mounted."""
    with suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(END_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    if work is not None:
        shutil.rmtree(work, ignore_errors=True)
