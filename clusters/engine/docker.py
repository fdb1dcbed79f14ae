"""The Docker engine's containers and networks. With its images (``image_store``) and the calls
themselves (``connection``) this is an `Engine`, all that the bench knows of Docker.

Every object that is made carries the labels that the caller gives, so that what has no live owner
can be found and removed. Ending a container that is already gone is no error: cleaning up has to
work from any state. Only the streams of `attach` and `events` last longer than a call may.
"""

from __future__ import annotations

import tarfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, BinaryIO

from lockbench.clusters.engine import ledger
from lockbench.clusters.engine.connection import EngineError, EngineUnreachable
from lockbench.clusters.engine.image_store import (
    ImageStore,
    Labels,
    files_of,
    new_entry,
    pack,
    unpack,
)
from lockbench.declarations.lazy import lazy

if TYPE_CHECKING:
    import docker
    from urllib3 import exceptions as urllib3_errors
else:
    docker = lazy("docker")
    urllib3_errors = lazy("urllib3.exceptions")

__all__ = [
    "Act", "Container", "ContainerState", "Engine", "EngineError", "EngineUnreachable", "Event",
    "EventStream", "Labels", "Network",
]  # fmt: skip

# Below the hard limit that engines usually run under: a limited root may not exceed its own.
NOFILE = 16384
# What the engine tells of a container that is killed; it leaves its network, if it has one.
ENDS = ("kill", "die", "disconnect")
CLOCK_READINGS = 5
# What two clocks drift apart in a case, and a microsecond that is cut off.
CLOCK_SLACK_NS = 5_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Ports = Mapping[int, Sequence[tuple[str, int]]]
"""TCP port in the container → the (host address, host port) pairs where it is published."""


@dataclass(frozen=True, slots=True)
class Container:
    """A container's handle."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ContainerState:
    """What a container was doing when asked."""

    running: bool
    paused: bool
    pid: int
    """Of its first process, on the engine's host; 0: it has none."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Network name → address in it; empty for one that joined another's network namespace."""
    labels: Labels = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Network:
    """A network's handle."""

    id: str
    name: str
    labels: Labels = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a container. `at_ns` is this machine's wall clock; `attributes`
    are the container's labels, and what the engine adds (`exitCode`, `signal`)."""

    container_id: str
    name: str
    action: str
    """Docker's word: kill, die, oom, pause, unpause, start, stop, destroy, disconnect…"""
    at_ns: int
    attributes: Labels


@dataclass(slots=True)
class Act:
    """What an `Engine` was asked to do to a container, and the events that this makes once each.
    Noted before the engine is asked. `refused`: the engine said no, so it makes none. `host`: whose
    engine that is, as in `Connection.host`."""

    container_id: str
    actions: tuple[str, ...]
    at_ns: int
    """Wall clock."""
    refused: bool = False
    host: str = ""


class Engine(ImageStore):
    """A Docker engine that answered; it notes what it is asked to do to containers."""

    def __init__(self, at: str = "", host: str = "") -> None:
        super().__init__(at, host)
        self.acts: list[Act] = []
        """Everything that was done to containers through this object, in order."""
        self.ahead_ns = self._ahead_ns() if host else (0, 0)
        """How far the wall clock of its host is ahead of this machine's: at least and at most."""

    def _ahead_ns(self) -> tuple[int, int]:
        least, most = [], []
        with self._asking("ask about the engine") as api:
            for _ in range(CLOCK_READINGS):
                before_ns = time.time_ns()
                said = datetime.fromisoformat(api.info()["SystemTime"])
                after_ns = time.time_ns()
                there_ns = (said - EPOCH) // timedelta(microseconds=1) * 1000
                least.append(there_ns - after_ns)
                most.append(there_ns - before_ns)
        return max(least) - CLOCK_SLACK_NS, min(most) + CLOCK_SLACK_NS

    @contextmanager
    def _acting(
        self,
        container: Container,
        doing: str,
        *actions: str,
        fine: Callable[[docker.errors.APIError], bool] = lambda _: False,
    ) -> Iterator[docker.APIClient]:
        """As `_asking`, for what an event will tell of: it is noted before it can happen. An error
        that is `fine` is none."""
        act = Act(container.id, actions, time.time_ns(), host=self.host)
        self.acts.append(act)
        with self._asking(f"{doing} container {container.name}") as api:
            try:
                yield api
            except docker.errors.APIError as error:
                act.refused = True
                if not fine(error):
                    raise

    # --- networks ---

    def create_network(self, name: str, *, labels: Labels | None = None) -> Network:
        """Make a bridge network."""
        ledger.made(name, self.host)
        with self._asking(f"create network {name}") as api:
            made = api.create_network(
                name, driver="bridge", labels=dict(labels or {}), check_duplicate=True
            )
        return Network(made["Id"], name, dict(labels or {}))

    def remove_network(self, network: Network) -> None:
        """Remove a network; its containers must be gone."""
        with (
            self._asking(f"remove network {network.name}") as api,
            suppress(docker.errors.NotFound),
        ):
            api.remove_network(network.id)
        ledger.gone(network.name, self.host)

    def networks(self, labels: Labels) -> list[Network]:
        """List the networks that carry all these labels."""
        with self._asking("list networks") as api:
            found = api.networks(filters={"label": _label_filter(labels)})
        return [Network(n["Id"], n["Name"], dict(n["Labels"] or {})) for n in found]

    # --- containers: life ---

    def create_container(
        self,
        image: str,
        name: str,
        command: Sequence[str] | None = None,
        *,
        entrypoint: Sequence[str] | None = None,
        network: Network | None = None,
        network_of: Container | None = None,
        host_network: bool = False,
        memory_of: Container | None = None,
        shares_memory: bool = False,
        ports: Ports | None = None,
        labels: Labels | None = None,
        env: Mapping[str, str] | None = None,
        files: Mapping[str, bytes] | None = None,
        user: str | None = None,
        auto_remove: bool = False,
    ) -> Container:
        """Make a container without starting it.

        It is in the engine's default bridge, in a `network`, or in the namespace of another
        container or of the host, which then publish its `ports`. It can join the /dev/shm of a
        container that `shares_memory`. `files` (absolute path → content, mode 0644) are there
        before it starts and survive restarts. With `auto_remove` the engine removes it at its end.
        """
        if (network_of or host_network) and (network or ports):
            raise ValueError("who joins another's network namespace has no network or ports itself")
        joined = f"container:{network_of.id}" if network_of else None
        memory = "shareable" if shares_memory else None
        ledger.made(name, self.host)
        with self._asking(f"create container {name}") as api:
            host = api.create_host_config(
                network_mode="host" if host_network else network.name if network else joined,
                ipc_mode=f"container:{memory_of.id}" if memory_of else memory,
                port_bindings={f"{at}/tcp": list(where) for at, where in (ports or {}).items()},
                ulimits=[docker.types.Ulimit(name="nofile", soft=NOFILE, hard=NOFILE)],
                auto_remove=auto_remove,
            )
            made = api.create_container(
                image,
                command=None if command is None else list(command),
                entrypoint=None if entrypoint is None else list(entrypoint),
                name=name,
                ports=list(ports or ()),
                labels=dict(labels or {}),
                environment=dict(env or {}),
                user=user,
                host_config=host,
            )
        container = Container(made["Id"], name)
        try:
            self.put_files(container, files or {})
        except EngineError:
            self.remove(container)
            raise
        return container

    def start(self, container: Container) -> None:
        """Start a container that was made, stopped or killed; it keeps its files."""
        with self._acting(container, "start", "start", "connect") as api:
            api.start(container.id)

    def stop(self, container: Container, *, grace_s: int = 5) -> None:
        """Ask a container to end, and kill it after `grace_s`."""
        with self._acting(container, "stop", *ENDS, "kill", "stop") as api:
            api.stop(container.id, timeout=grace_s)

    def kill(self, container: Container, signal: str = "SIGKILL") -> None:
        """Send a signal; no error when the container does not run."""
        with self._acting(container, "kill", *ENDS, fine=_not_running) as api:
            api.kill(container.id, signal=signal)

    def pause(self, container: Container) -> None:
        """Freeze every process of a container; the kernel goes on answering for its sockets."""
        with self._acting(container, "pause", "pause") as api:
            api.pause(container.id)

    def unpause(self, container: Container) -> None:
        """Thaw a container; no error when it is not frozen."""
        with self._acting(container, "unpause", "unpause", fine=_not_paused) as api:
            api.unpause(container.id)

    def remove(self, container: Container) -> None:
        """Remove a container and its anonymous volumes, whatever it is doing; none is no error."""
        # Engines have refused to kill what is frozen, so it is thawed first.
        ends = (*ENDS, "destroy")
        with self._acting(container, "remove", *ends, fine=_being_removed) as api:
            with suppress(docker.errors.NotFound):
                if api.inspect_container(container.id)["State"]["Paused"]:
                    self.unpause(container)
                api.remove_container(container.id, v=True, force=True)
            ledger.gone(container.name, self.host)

    # --- containers: looking inside ---

    def state(self, container: Container) -> ContainerState | None:
        """Tell what a container is doing; None when it is gone."""
        with self._asking(f"inspect container {container.name}") as api:
            try:
                found = api.inspect_container(container.id)
            except docker.errors.NotFound:
                return None
        state = found["State"]
        networks = found["NetworkSettings"]["Networks"] or {}
        return ContainerState(
            running=state["Running"],
            paused=state["Paused"],
            pid=state["Pid"],
            addresses={
                name: net["IPAddress"] for name, net in networks.items() if net["IPAddress"]
            },
            labels=dict(found["Config"].get("Labels") or {}),
        )

    def containers(self, labels: Labels) -> list[Container]:
        """List the containers, running or not, that carry all these labels."""
        with self._asking("list containers") as api:
            found = api.containers(all=True, filters={"label": _label_filter(labels)})
        return [Container(c["Id"], c["Names"][0].lstrip("/")) for c in found]

    def last_words(self, container: Container, lines: int) -> str:
        """Return the end of what a container has printed, both streams together."""
        with self._asking(f"read the log of container {container.name}") as api:
            said = api.logs(container.id, tail=lines)
        return bytes(said).decode(errors="replace")

    def save_log(self, container: Container, file: BinaryIO) -> None:
        """Write all that a container has printed, both streams together, piece by piece: it may be
        more than is good to hold in memory."""
        with self._asking(f"read the log of container {container.name}") as api:
            # A stream follows a container that runs unless it is told not to.
            said = api.logs(container.id, stream=True, follow=False)
            # docker-py takes its limit of time off a stream.
            limit = threading.Timer(api.timeout, _close, (said,))
            limit.start()
            try:
                file.writelines(_until_its_end(said))
            finally:
                limit.cancel()

    def attach(self, container: Container) -> Generator[bytes, None, None]:
        """What a container prints from now on, running or not yet, both streams together, until it
        ends. A connection of its own, which closing the generator ends."""
        with self._asking(f"attach to container {container.name}") as api:
            said = api.attach(container.id, stream=True, logs=True)
        return _until_its_end(said)

    def events(self, since_ns: int, until_ns: int | None = None) -> EventStream:
        """What happens to containers, anybody's, from a time of the wall clock on: for ever, or
        what the engine remembers up to `until_ns`. No limit of time: an engine that hangs says
        nothing. An event's time is this machine's, and no earlier than it was."""
        kinds = {"type": ["container", "network"]}
        least_ns, most_ns = self.ahead_ns
        until = None if until_ns is None else _stamp(until_ns + most_ns)
        with self._asking("read the engine's events") as api:
            # The SDK's types know whole seconds; the engine takes fractions.
            said = api.events(  # type: ignore[call-overload]
                since=_stamp(since_ns + least_ns), until=until, filters=kinds, decode=True
            )
        return EventStream(said, least_ns)

    def put_files(self, container: Container, files: Mapping[str, bytes]) -> None:
        """Put files (absolute path → content) into a container, running or not."""
        if not files:
            return
        with self._asking(f"put files into container {container.name}") as api:
            api.put_archive(container.id, "/", pack(files))

    def read_folder(self, container: Container, path: str) -> dict[str, bytes]:
        """Read every file below a folder of a container, running or not, by absolute path; none is
        no error."""
        with self._asking(f"read {path} of container {container.name}") as api:
            return unpack(api, container.id, path)

    def cut_files(self, container: Container, folder: str, lengths: Mapping[str, int]) -> int:
        """Cut every file below a folder to its length (absolute path → bytes; 0 where none is
        named), and return how many bytes that were. On disk, because files may be large."""
        cut = 0
        doing = f"cut the files of container {container.name}"
        with self._asking(doing) as api, TemporaryFile() as kept:
            with tarfile.open(fileobj=kept, mode="w") as target:
                for path, size, content in files_of(api, container.id, folder):
                    length = lengths.get(path, 0)
                    if size > length:
                        cut += size - length
                        target.addfile(new_entry(path, length), content)
            kept.seek(0)
            if cut:
                api.put_archive(container.id, "/", kept)
        return cut


class EventStream:
    """Iterate over it in one thread; `close` it from any. It ends when the engine goes away."""

    def __init__(self, said: Any, ahead_ns: int = 0) -> None:
        self._said = said
        self._ahead_ns = ahead_ns

    def __iter__(self) -> Iterator[Event]:
        return (_event(one, self._ahead_ns) for one in _until_its_end(self._said))

    def close(self) -> None:
        """End the iteration."""
        _close(self._said)


# --- helpers -------------------------------------------------------------------------------------


def _until_its_end(said: Any) -> Generator[Any, None, None]:
    """A stream of docker-py. A socket that was closed and a line that was cut off are ends like any
    other."""
    try:
        with suppress(OSError, urllib3_errors.HTTPError, ValueError, AttributeError):
            yield from said
    finally:
        _close(said)
        said._response.close()  # noqa: SLF001 - the stream leaves it to the garbage collector


def _close(said: Any) -> None:
    with suppress(OSError, AttributeError):
        said.close()


def _not_running(error: docker.errors.APIError) -> bool:
    return isinstance(error, docker.errors.NotFound) or "is not running" in str(error)


def _not_paused(error: docker.errors.APIError) -> bool:
    return "not paused" in str(error) or _not_running(error)


def _being_removed(error: docker.errors.APIError) -> bool:
    return "already in progress" in str(error)


def _event(said: Mapping[str, Any], ahead_ns: int) -> Event:
    """What the engine says of a network is about the container that joins or leaves it."""
    about = said.get("Actor") or {}
    attributes = about.get("Attributes") or {}
    of_network = said.get("Type") == "network"
    return Event(
        container_id=str(attributes.get("container", "") if of_network else about.get("ID", "")),
        name=str(attributes.get("name", "")),
        action=str(said.get("Action", "")),
        at_ns=int(said.get("timeNano", 0)) - ahead_ns,
        attributes={} if of_network else attributes,
    )


def _stamp(wall_ns: int) -> str:
    return f"{wall_ns // 10**9}.{wall_ns % 10**9:09d}"


def _label_filter(labels: Labels) -> list[str]:
    return [f"{key}={value}" if value else key for key, value in labels.items()]
