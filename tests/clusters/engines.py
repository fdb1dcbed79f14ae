"""Hosts that are network namespaces of this machine, with a Docker engine in each.

They hang on a switch that is a namespace, too: over a bridge of this machine's own namespace
packets would meet the firewall of its Docker engine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Self

import psutil

from lockbench.clusters.base import Host
from lockbench.clusters.engine.docker import Engine, EngineError
from tests.eventually import eventually

UP_S = 60.0
END_S = 30.0


@cache
def why_not() -> str | None:
    """Why there can be no such hosts here, or None."""
    if os.geteuid() != 0:
        return "network namespaces with a Docker engine each need root"
    missing = [name for name in ("dockerd", "ip", "nsenter") if shutil.which(name) is None]
    if missing:
        return f"no hosts can be made without {missing[0]}"
    tried = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    return f"no namespaces: {tried.stderr.decode().strip()}" if tried.returncode else None


class Engines:
    """A context manager; ``hosts`` are there meanwhile, named by letters. ``home`` is this machine,
    as they reach it."""

    def __init__(self, names: str = "abc") -> None:
        self._tag = f"lb{os.getpid()}"
        self._net = f"198.18.{os.getpid() % 250}"  # for tests between networks (RFC 2544)
        self._spaces: list[str] = []
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._folder = Path(tempfile.mkdtemp())
        self.hosts = tuple(
            Host(name, f"unix://{self._folder}/{name}/s", f"{self._net}.{10 + number}")
            for number, name in enumerate(names)
        )
        here = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
        self.home = Host("home", here, f"{self._net}.1")

    def __enter__(self) -> Self:
        try:
            self._wire()
            for host in self.hosts:
                self.begin(host.name)
            numbers = range(len(self.hosts))
            eventually(lambda: all(map(self.is_up, numbers)), limit_s=UP_S)
        except BaseException:
            self.__exit__()
            raise
        return self

    def engine(self, number: int) -> Engine:
        host = self.hosts[number]
        return Engine(host.engine, host.name)

    def file(self, folder: Path, hosts: Sequence[Host] | None = None) -> Path:
        """A file that names them."""
        file = folder / "hosts.toml"
        file.write_text(
            "".join(
                f"[[host]]\nname = {json.dumps(one.name)}\nengine = {json.dumps(one.engine)}\n"
                f"address = {json.dumps(one.address)}\n\n"
                for one in hosts or self.hosts
            )
        )
        return file

    def begin(self, name: str) -> None:
        """Start the engine of a host."""
        root = self._folder / name
        root.mkdir(exist_ok=True)
        # What has the number of a containerd that was killed would be taken for that one.
        for file in (root / "pid", root / "exec" / "containerd" / "containerd.pid"):
            file.unlink(missing_ok=True)
        with (root / "log").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                [
                    *("nsenter", f"--net=/run/netns/{self._tag}{name}", "dockerd"),
                    *("--data-root", str(root / "data"), "--exec-root", str(root / "exec")),
                    *("--pidfile", str(root / "pid"), "--host", f"unix://{root}/s"),
                    *("--bridge=none", "--log-level=warn"),
                ],
                stdout=log,
                stderr=log,
                # There containerd says where it stands, if its engine finds it too slow.
                env=os.environ | {"TMPDIR": str(root)},
            )

    def kill(self, name: str) -> None:
        """Kill the engine of a host; its containers live.

        So is its containerd: an engine that finds one alive when it starts waits for it, and one
        whose engine was killed often answers no more.
        """
        started = _with_word(f"{self._folder}/{name}/exec")
        ours = [process for process in started if process.name() == "containerd"]
        self._daemons[name].kill()
        self._daemons[name].wait()
        for process in ours:
            process.kill()
        assert not psutil.wait_procs(ours, END_S)[1]

    def is_up(self, number: int) -> bool:
        """Whether the engine of a host answers. AssertionError: it has ended."""
        host = self.hosts[number]
        if self._daemons[host.name].poll() is not None:
            log = (self._folder / host.name / "log").read_text()
            raise AssertionError(f"dockerd of {host.name} ended: {log[-1000:]}")
        try:
            Engine(host.engine, host.name).close()
        except EngineError:
            return False
        return True

    def _wire(self) -> None:
        switch = f"{self._tag}s"
        for space in (switch, *(self._tag + host.name for host in self.hosts)):
            _ip("netns", "add", space)
            self._spaces.append(space)
            _ip("-n", space, "link", "set", "lo", "up")
        _ip("-n", switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", switch, "link", "set", "br0", "up")
        _ip("link", "add", self._tag, "type", "veth", "peer", "name", "home", "netns", switch)
        _ip("addr", "add", f"{self._net}.1/24", "dev", self._tag)
        _ip("link", "set", self._tag, "up")
        _ip("-n", switch, "link", "set", "home", "master", "br0", "up")
        for host in self.hosts:
            space, port = self._tag + host.name, f"to-{host.name}"
            veth = ("type", "veth", "peer", "name", port, "netns", switch)
            _ip("-n", space, "link", "add", "eth0", *veth)
            _ip("-n", switch, "link", "set", port, "master", "br0", "up")
            _ip("-n", space, "addr", "add", f"{host.address}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")

    def __exit__(self, *_: object) -> None:
        for daemon in self._daemons.values():
            daemon.terminate()
        for daemon in self._daemons.values():
            try:
                daemon.wait(END_S)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        # What an engine that was killed has left: its containerd.
        for process in _with_word(str(self._folder)):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            if (place := line.split()[1]).startswith(str(self._folder)):
                subprocess.run(["umount", "--lazy", place], check=False)
        # With one end, both are gone.
        subprocess.run(["ip", "link", "del", self._tag], check=False, capture_output=True)
        for space in self._spaces:
            _ip("netns", "del", space)
        shutil.rmtree(self._folder, ignore_errors=True)


def _with_word(text: str) -> list[psutil.Process]:
    """Those with this in their command line (why not by ``psutil.process_iter``:
    ``lockbench.clusters.engine.processes``)."""
    found = []
    for pid in psutil.pids():
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            if any(text in word for word in process.cmdline()):
                found.append(process)
    return found


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
