"""Make this machine ready for the bench: virtual environment, Docker engine, server images.

Runs under the system's Python before anything is installed, so it uses the standard library alone
(and modules of ours that do so too).
It says beforehand what it will install, does only what is missing, and a step that fails says why
and what to do (exit code 255). It does not remove or upgrade anything that it did not make. With
`--no-images` none are built: a run builds those that it needs.
"""

from __future__ import annotations

import os
import sys

# Before the imports that an older Python does not have.
if sys.version_info < (3, 11):  # noqa: UP036
    sys.stderr.write("[setup] Python 3.11 or newer is needed: make PYTHON=python3.12 ...\n")
    sys.exit(254)
# An isolated Python (-I) does not look here. Last, so that nothing here can stand for a library.
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120

import contextlib
import fcntl
import hashlib
import http.client
import importlib.util
import json
import platform
import shutil
import socket
import subprocess
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from lockbench.bench.private import NotPrivate, private_folder
from lockbench.clusters.recipes import recipes

ROOT = Path(__file__).resolve().parent.parent
DOCKERD_LOG = Path("/var/log/lockbench-dockerd.log")
DOCKERD_PID = Path("/var/run/docker.pid")
DOCKERD_WAIT_S = 60.0
FAILED = 255
STAMP = "lockbench-stamp"
NO_IMAGES = "--no-images"


class SetupError(Exception):
    """A step that failed: why, and what to do about it."""


@dataclass(frozen=True)
class Step:
    """One thing that is missing: its short name, what it will do, and how."""

    name: str
    does: str
    run: Callable[[], None]
    on_machine: bool = False
    quiet: bool = False
    """Prints its own progress, and nothing when there is nothing to do."""


def main(args: Sequence[str] = ()) -> int:
    """Do what is missing; the exit code is 0, or 255 when a step failed."""
    began = time.monotonic()
    try:
        with only_setup():
            steps = plan(images=NO_IMAGES not in args)
            for line in announcement(steps, base_missing=base_image_is_missing()):
                say(line)
            for step in steps:
                run(step)
        say(f"everything is in place ({time.monotonic() - began:.1f} s)")
    except SetupError as error:
        say(f"failed: {error}")
        return FAILED
    except KeyboardInterrupt:
        say("interrupted; run it again to continue")
        return FAILED
    return 0


def plan(*, images: bool) -> list[Step]:
    """List the steps that this machine still needs, in order."""
    steps = []
    if venv_stamped(ROOT) != venv_stamp(ROOT):
        if importlib.util.find_spec("ensurepip") is None:
            steps.append(
                Step("python3-venv", "apt-get install python3-venv", install_venv_package, True)
            )
        steps.append(
            Step("venv", f"{ROOT / '.venv'} from requirements.lock", lambda: make_venv(ROOT))
        )
    engine = engine_problem()
    if engine is not None:
        steps.append(engine_step(engine))
    if images:
        does = "build the server images that are missing"
        steps.append(Step("images", does, build_images, quiet=True))
    return steps


def announcement(steps: Sequence[Step], *, base_missing: bool) -> list[str]:
    """Say what will be done and what changes the machine; empty when nothing is missing."""
    if all(step.quiet for step in steps) and not base_missing:
        return []
    lines = ["this will be set up:"]
    lines += [
        f"  {step.name}: {step.does}" + (" (on this machine, as root)" if step.on_machine else "")
        for step in steps
    ]
    if base_missing:
        lines.append(
            "  base image: pulled; where no registry can be reached, apt-get install debootstrap"
            " (on this machine, as root) and a bootstrap of Debian"
        )
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        lines.append(
            f"note: this is {sys.platform} on {platform.machine()}; Lockbench is tested on Linux on"
            " x86_64 only, and elsewhere uses a Docker engine that is already running"
        )
    return lines


def run(step: Step) -> None:
    """Do one step, and say how long it took."""
    began = time.monotonic()
    if step.quiet:
        step.run()
        return
    say(f"{step.name}: {step.does} ...")
    step.run()
    say(f"{step.name}: done in {time.monotonic() - began:.1f} s")


@contextlib.contextmanager
def only_setup() -> Iterator[None]:
    """Hold this user's setup lock: two setups at once would fight over apt and dockerd."""
    try:
        path = private_folder() / "setup.lock"
    except NotPrivate as error:
        raise SetupError(str(error)) from error
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another setup is running; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# --- the virtual environment ---------------------------------------------------------------------


def venv_stamp(root: Path) -> list[str]:
    """Name what the environment is made from: this Python at this place, and the pins."""
    project = tomllib.loads((root / "pyproject.toml").read_text())
    pins = [
        project["project"],
        project["tool"]["setuptools"],
        (root / "requirements.lock").read_text(),
    ]
    return [fingerprint([sys.version, str(root)]), fingerprint(pins)]


def fingerprint(content: object) -> str:
    """Name a content."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def venv_stamped(root: Path) -> list[str]:
    """Return the stamp of the environment that is there, which was completed if it has one."""
    stamp = root / ".venv" / STAMP
    return stamp.read_text().split() if stamp.is_file() else ["", ""]


def install_venv_package() -> None:
    """Install Debian's python3-venv, without which Python cannot make an environment with pip."""
    apt_install(["python3-venv"], reason="this Python has no ensurepip")


def make_venv(root: Path) -> None:
    """Install the pinned packages and this project, in an environment made anew if need be."""
    venv = root / ".venv"
    if venv_stamped(root)[0] != venv_stamp(root)[0]:
        if venv.is_symlink():  # to that of another checkout, which would be emptied
            raise SetupError(f"{venv} is a link: remove it, then run it again")
        command([sys.executable, "-m", "venv", "--clear", str(venv)], "install python3-venv")
    # What is interrupted from here on is made anew.
    (venv / STAMP).unlink(missing_ok=True)
    remedy = "check that the Python package index can be reached, then run it again"
    broken = "see that the checkout is complete (`git status`), then run it again"
    python = str(venv / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # Compiling all of every library takes as long as fetching it; Python compiles what is used.
    lock = ["--no-compile", "--require-hashes", "-r", str(root / "requirements.lock")]
    command([*pip, *lock], remedy)
    command([*pip, "--no-deps", "--no-build-isolation", "-e", str(root)], broken)
    (venv / STAMP).write_text("\n".join(venv_stamp(root)))


# --- the engine ----------------------------------------------------------------------------------


def docker_host() -> str:
    """Where the engine listens: DOCKER_HOST, or the usual socket."""
    return os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"


class _SocketConnection(http.client.HTTPConnection):
    """HTTP to a socket of this machine."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def ask_engine(path: str, timeout_s: float = 5.0) -> int:
    """Return the status of a GET from the engine; OSError when it cannot be reached."""
    where = urlsplit(docker_host())
    connection: http.client.HTTPConnection
    if where.scheme == "unix":
        connection = _SocketConnection(where.path, timeout_s)
    elif where.scheme in {"tcp", "http"}:
        connection = http.client.HTTPConnection(where.netloc, timeout=timeout_s)
    else:
        raise SetupError(
            f"DOCKER_HOST={docker_host()} is not supported: unset it or use unix:// or tcp://"
        )
    with contextlib.closing(connection):
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except http.client.HTTPException as error:
            raise OSError(str(error)) from error


def engine_problem() -> OSError | None:
    """Tell why no engine answers, or None when one does."""
    try:
        status = ask_engine("/_ping")
    except OSError as error:
        return error
    return None if status == http.client.OK else OSError(f"it answered {status}")


def base_image_is_missing() -> bool:
    """Tell whether the base image still has to be fetched or made."""
    try:
        return ask_engine(f"/images/{recipes()['base'].ref}/json") != http.client.OK
    except OSError:
        return True


def engine_step(problem: OSError) -> Step:
    """Say how this machine gets a running engine; an error where only its user can arrange that."""
    if isinstance(problem, PermissionError):
        raise SetupError(
            f"the Docker engine at {docker_host()} does not let this user in: join the group"
            " `docker` (and log in again), or run this as root"
        )
    if "DOCKER_HOST" in os.environ:
        raise SetupError(
            f"no Docker engine answers at DOCKER_HOST={docker_host()} ({problem}): start it,"
            " or unset DOCKER_HOST"
        )
    if os.geteuid() != 0 or not is_debian():
        raise SetupError(
            "no Docker engine is running and this script installs one only as root on Debian or"
            " Ubuntu: start Docker, then run this again"
        )
    if shutil.which("dockerd"):
        return Step("engine", "start dockerd, which stays running", start_engine, True)
    return Step(
        "engine",
        "apt-get install docker.io and start dockerd, which stays running",
        install_engine,
        True,
    )


def is_debian() -> bool:
    """Tell whether apt-get is how this machine installs software."""
    return shutil.which("apt-get") is not None and Path("/etc/debian_version").exists()


def install_engine() -> None:
    """Install Debian's engine and have it running."""
    apt_install(["docker.io"], reason="no Docker engine is installed")
    start_engine()


def start_engine() -> None:
    """Have dockerd running and answering, in a way that outlives this process."""
    if Path("/run/systemd/system").is_dir():
        command(["systemctl", "start", "docker"], "see `journalctl -u docker`")
        wait_for_engine(lambda: None)
        return
    # The package's own init script may be starting it already.
    if dockerd_is_running():
        wait_for_engine(lambda: None)
        return
    try:
        start_dockerd(os.environ.get("PATH", ""))
    except SetupError as error:
        legacy = shutil.which("iptables-legacy")
        if legacy is None or "iptables" not in str(error):
            raise
        say("engine: dockerd cannot use this kernel's nftables; trying with iptables-legacy")
        start_dockerd(legacy_iptables_path(legacy))


def dockerd_is_running() -> bool:
    """Tell whether some dockerd has announced itself and lives."""
    try:
        pid = int(DOCKERD_PID.read_text())
        return Path(f"/proc/{pid}/comm").read_text().strip() == "dockerd"
    except (OSError, ValueError):
        return False


def start_dockerd(path: str) -> None:
    """Start dockerd in a session of its own, its output in a log, and wait until it answers."""
    say(f"engine: dockerd's log is {DOCKERD_LOG}")
    with DOCKERD_LOG.open("ab") as log:
        begin = log.tell()
        process = subprocess.Popen(
            ["dockerd"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
            env={**os.environ, "PATH": path},
        )

    def raise_if_ended() -> None:
        if process.poll() is not None:
            said = tail(DOCKERD_LOG.read_bytes()[begin:].decode(errors="replace"))
            raise SetupError(
                f"dockerd ended with {process.returncode}; the end of {DOCKERD_LOG}:\n{said}\n"
                "remedy what it names, or start Docker yourself, then run this again"
            )

    wait_for_engine(raise_if_ended)


def wait_for_engine(raise_if_ended: Callable[[], None]) -> None:
    """Wait until the engine answers; `raise_if_ended` raises when waiting has become pointless."""
    deadline = time.monotonic() + DOCKERD_WAIT_S
    while (problem := engine_problem()) is not None:
        raise_if_ended()
        if time.monotonic() > deadline:
            raise SetupError(
                f"dockerd does not answer after {DOCKERD_WAIT_S:.0f} s ({problem}): see its log"
                f" ({DOCKERD_LOG}), then run this again"
            )
        time.sleep(0.1)


def legacy_iptables_path(legacy: str) -> str:
    """Return a PATH on which `iptables` is the legacy one: for dockerd alone, not the machine."""
    folder = Path("/var/lib/lockbench/iptables-legacy")
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("iptables", "iptables-save", "iptables-restore"):
        for family in (name, name.replace("ip", "ip6", 1)):
            link = folder / family
            target = Path(legacy).parent / family.replace("tables", "tables-legacy")
            link.unlink(missing_ok=True)
            link.symlink_to(target)
    return f"{folder}:{os.environ.get('PATH', '')}"


# --- the images ----------------------------------------------------------------------------------


def build_images() -> None:
    """Build the server images that are missing; it prints its own steps."""
    python = ROOT / ".venv" / "bin" / "python"
    done = subprocess.run(
        [str(python), "-m", "lockbench.clusters.images", "build"], cwd=ROOT, check=False
    )
    if done.returncode != 0:
        raise SetupError("the images above could not be built")


# --- helpers -------------------------------------------------------------------------------------


def apt_install(packages: Sequence[str], *, reason: str) -> None:
    """Install Debian packages, or say who has to."""
    names = " ".join(packages)
    if os.geteuid() != 0 or not is_debian():
        raise SetupError(f"{reason}: install {names} (as root), then run this again")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    remedy = f"`apt-get update && apt-get install {names}` by hand, then run this again"
    # A foreign source that cannot be updated must not stop us; the install tells what counts.
    subprocess.run(["apt-get", "update"], env=quiet, capture_output=True, check=False)
    apt = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends"]
    # Another apt may be running, as on a machine that has just booted.
    command([*apt, "-o", "DPkg::Lock::Timeout=120", *packages], remedy, env=quiet)


def command(args: Sequence[str], remedy: str, *, env: dict[str, str] | None = None) -> None:
    """Run a command; when it fails, show the end of what it said and what to do."""
    done = subprocess.run(
        args,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=env,
        check=False,
    )
    if done.returncode != 0:
        raise SetupError(
            f"`{' '.join(args)}` ended with {done.returncode}; it said last:\n"
            f"{tail(done.stdout)}\nwhat to do: {remedy}"
        )


def tail(text: str, lines: int = 15) -> str:
    """Return the last lines of a text, indented."""
    return "\n".join(f"    {line}" for line in text.strip().splitlines()[-lines:])


def say(line: str) -> None:
    """Print a line of progress at once."""
    print(f"[setup] {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
