"""The Docker engine, as far as the bench needs it. No other module imports the Docker SDK.

Every object that is made carries the labels that the caller gives, so that what has no live owner
can be found and removed. An `Engine` may be used from several threads at once. Ending a container
that is already gone is no error: cleaning up has to work from any state.

No call waits for ever: one that hears nothing for `CALL_TIMEOUT_S` ends with EngineUnreachable,
and until the engine has answered again no other waits longer than `SILENT_TIMEOUT_S`. Only the
stream of `attach` lasts as long as its container.
"""

from __future__ import annotations

import io
import shutil
import tarfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

from clusters.engine import ledger
from declarations.lazy import lazy

if TYPE_CHECKING:
    import docker
    import requests
    from docker import utils as docker_utils
    from urllib3 import exceptions as urllib3_errors
else:
    docker = lazy("docker")
    docker_utils = lazy("docker.utils")
    requests = lazy("requests")
    urllib3_errors = lazy("urllib3.exceptions")

CALL_TIMEOUT_S = 30
SILENT_TIMEOUT_S = 5
BUILD_TIMEOUT_S = 1200
LOG_LINES = 15
# Below the hard limit that engines usually run under: a limited root may not exceed its own.
NOFILE = 16384
# What the engine tells of a container that is killed; it leaves its network, if it has one.
ENDS = ("kill", "die", "disconnect")

Labels = Mapping[str, str]
"""An empty value in a filter means: whatever its value."""

Ports = Mapping[int, Sequence[tuple[str, int]]]
"""TCP port in the container → the (host address, host port) pairs where it is published."""


class EngineError(Exception):
    """The engine refused or failed; the text is one sentence, or ends with the log's last lines."""


class EngineUnreachable(EngineError):
    """No engine answers; whether it did what it was last asked for is not known."""


@dataclass(frozen=True, slots=True)
class Container:
    """A container's handle."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ContainerState:
    """What a container was doing when asked. `status` is Docker's word: running, paused, exited…"""

    status: str
    running: bool
    paused: bool
    pid: int
    exit_code: int
    oom_killed: bool
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
class Image:
    """An image: its id names its content, its digest (if any) names it in a registry."""

    id: str
    tags: tuple[str, ...]
    digest: str | None
    labels: Labels


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a container. `at_ns` is the engine's wall clock; `attributes` are
    the container's labels, and what the engine adds (`exitCode`, `signal`)."""

    container_id: str
    name: str
    action: str
    """Docker's word: kill, die, oom, pause, unpause, start, stop, destroy, disconnect…"""
    at_ns: int
    attributes: Labels


@dataclass(slots=True)
class Act:
    """What an `Engine` was asked to do to a container, and the events that this makes once each.
    Noted before the engine is asked. `refused`: the engine said no, so it makes none."""

    container_id: str
    actions: tuple[str, ...]
    at_ns: int
    """Wall clock."""
    refused: bool = False


class ContainerOptions(TypedDict, total=False):
    """What may be said about a container that is to be made; everything may be left out."""

    network: Network | None
    """The network it is in (the engine's default bridge otherwise)."""
    host_network: bool
    """It has the host's network namespace, and none of its own."""
    network_of: Container | None
    """Joins the network namespace of this container, which alone can publish ports."""
    shares_memory: bool
    """Others may join its /dev/shm."""
    memory_of: Container | None
    """Joins the /dev/shm of this container."""
    ports: Ports | None
    labels: Labels | None
    env: Mapping[str, str] | None
    files: Mapping[str, bytes] | None
    """Absolute path → content (mode 0644), put there before it starts; they survive restarts."""
    volumes: Mapping[str, str] | None
    """Host path or volume name → path in the container."""
    tmpfs: Mapping[str, str] | None
    """Path in the container → mount options."""
    user: str | None
    entrypoint: Sequence[str] | None
    stop_signal: str | None
    memory_bytes: int | None
    nofile: int
    auto_remove: bool
    """The engine removes it as soon as it has ended."""


class Engine:
    """A Docker engine that answered."""

    def __init__(self, *, timeout_s: int = CALL_TIMEOUT_S) -> None:
        """Connect to DOCKER_HOST or the usual socket; EngineUnreachable when nobody answers."""
        self._timeout_s = timeout_s
        # The SDK's HTTP session is not safe to share: each call has one for itself, and returns it.
        self._idle: list[docker.APIClient] = []
        self._silent = False
        self._api_version = "auto"
        self.acts: list[Act] = []
        """Everything that was done to containers through this object, in order."""
        try:
            client = self._client()
            self._api_version = client.api_version
            client.ping()
        except (docker.errors.DockerException, requests.RequestException) as error:
            raise EngineUnreachable(
                f"no Docker engine answers ({error}): start Docker, or run `make setup`"
            ) from error
        self._idle.append(client)

    def _client(self) -> docker.APIClient:
        settings = docker_utils.kwargs_from_env()
        return docker.APIClient(**settings, version=self._api_version, timeout=self._timeout_s)

    @contextmanager
    def _asking(self, doing: str) -> Iterator[docker.APIClient]:
        """Lend a client, and turn the SDK's errors into a sentence that names what was done."""
        try:
            client = self._idle.pop()
        except IndexError:
            client = self._client()
        client.timeout = min(self._timeout_s, SILENT_TIMEOUT_S) if self._silent else self._timeout_s
        try:
            yield client
            self._silent = False
        except docker.errors.APIError as error:
            self._silent = False
            raise EngineError(f"cannot {doing}: {error.explanation or error}") from error
        except requests.Timeout as error:
            self._silent = True
            hangs = f"cannot {doing}: the Docker engine does not answer for {client.timeout} s"
            raise EngineUnreachable(hangs) from error
        except requests.ConnectionError as error:
            gone = f"cannot {doing}: the Docker engine went away ({error})"
            raise EngineUnreachable(gone) from error
        except (
            docker.errors.DockerException,
            requests.RequestException,
            urllib3_errors.HTTPError,
        ) as error:
            raise EngineError(f"cannot {doing}: {error}") from error
        finally:
            self._idle.append(client)

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
        act = Act(container.id, actions, time.time_ns())
        self.acts.append(act)
        with self._asking(f"{doing} container {container.name}") as api:
            try:
                yield api
            except docker.errors.APIError as error:
                act.refused = True
                if not fine(error):
                    raise

    # --- the engine ---

    def version(self) -> str:
        """Return the engine's version."""
        with self._asking("ask the engine's version") as api:
            return str(api.version()["Version"])

    def free_disk_bytes(self) -> int | None:
        """Return what is free where the engine keeps its data; None when that is not this host."""
        with self._asking("ask about the engine") as api:
            root = Path(api.info()["DockerRootDir"])
        try:
            return shutil.disk_usage(root).free
        except OSError:
            return None

    # --- images ---

    def image(self, ref: str) -> Image | None:
        """Look an image up in the engine's own store; None when it is not there."""
        with self._asking(f"inspect image {ref}") as api:
            try:
                found = api.inspect_image(ref)
            except docker.errors.ImageNotFound:
                return None
        digests = found.get("RepoDigests") or []
        return Image(
            id=found["Id"],
            tags=tuple(found.get("RepoTags") or ()),
            digest=digests[0] if digests else None,
            labels=dict(found["Config"].get("Labels") or {}),
        )

    def image_refs(self, pattern: str) -> list[str]:
        """List the tags in the engine's store whose repository is like this (`lockbench-*`)."""
        with self._asking(f"list images {pattern}") as api:
            found = api.images(filters={"reference": pattern})
        return sorted(tag for image in found for tag in image["RepoTags"] or ())

    def pull(self, ref: str) -> None:
        """Fetch an image from its registry, by a tag or a digest; what it says of both counts."""
        name, at, tag = ref.partition("@")
        if not at:
            name, _, tag = (
                ref.rpartition(":") if ":" in ref.rsplit("/", 1)[-1] else (ref, "", "latest")
            )
        with self._asking(f"pull {ref}") as api:
            for event in api.pull(name, tag=tag, stream=True, decode=True):
                if "error" in event:
                    raise EngineError(f"cannot pull {ref}: {event['error']}")

    def import_rootfs(self, tar: Path, ref: str, *, labels: Labels | None = None) -> None:
        """Make an image out of a root file system's tar file."""
        name, _, tag = ref.rpartition(":")
        changes = [f"LABEL {key}={value}" for key, value in (labels or {}).items()]
        with self._asking(f"import {ref}") as api, _long_calls(api):
            api.import_image_from_file(
                str(tar), repository=name, tag=tag, changes=[*changes, 'CMD ["bash"]']
            )

    def build(
        self,
        files: Mapping[str, bytes],
        ref: str,
        *,
        args: Mapping[str, str] | None = None,
        labels: Labels | None = None,
        cache: bool = True,
    ) -> str:
        """Build an image from a context held in memory, on the host's network; return its id."""
        log: list[str] = []
        image_id = ""
        with self._asking(f"build {ref}") as api, _long_calls(api):
            for event in api.build(
                fileobj=_tar(files),
                custom_context=True,
                tag=ref,
                buildargs=dict(args or {}),
                labels=dict(labels or {}),
                network_mode="host",
                nocache=not cache,
                rm=True,
                forcerm=True,
                decode=True,
            ):
                log += str(event.get("stream", "")).splitlines()
                image_id = event.get("aux", {}).get("ID", image_id)
                if "error" in event:
                    said = "\n".join(f"    {line}" for line in log[-LOG_LINES:] if line.strip())
                    raise EngineError(f"cannot build {ref}: {event['error']}\n{said}")
        return image_id

    def tag(self, image: str, ref: str) -> None:
        """Give an image one more name."""
        name, _, tag = ref.rpartition(":")
        with self._asking(f"tag {image} as {ref}") as api:
            api.tag(image, name, tag)

    def remove_image(self, ref: str) -> None:
        """Remove an image's name, and the image when it was its last."""
        with self._asking(f"remove image {ref}") as api:
            try:
                api.remove_image(ref, force=True)
            except docker.errors.ImageNotFound:
                return

    def read_image_file(
        self, image: str, path: str, *, labels: Labels | None = None
    ) -> bytes | None:
        """Read one file out of an image, without running it; None when there is no such file. It
        takes a container that is never started."""
        with self._asking(f"read {path} of {image}") as api:
            made = api.create_container(image, command=["none"], labels=dict(labels or {}))["Id"]
            try:
                return _read(api, made, path)
            finally:
                api.remove_container(made, force=True)

    # --- networks ---

    def create_network(self, name: str, *, labels: Labels | None = None) -> Network:
        """Make a bridge network."""
        ledger.made(name)
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
        ledger.gone(network.name)

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
        **options: Unpack[ContainerOptions],
    ) -> Container:
        """Make a container without starting it; `command` goes to the image's entrypoint."""
        network, owner = options.get("network"), options.get("network_of")
        ports = options.get("ports") or {}
        joins = owner or options.get("host_network")
        if joins and (network or ports):
            raise ValueError("who joins another's network namespace has no network or ports itself")
        mode = network.name if network else f"container:{owner.id}" if owner else None
        mode = "host" if options.get("host_network") else mode
        nofile = options.get("nofile", NOFILE)
        entrypoint = options.get("entrypoint")
        memory_of = options.get("memory_of")
        memory = "shareable" if options.get("shares_memory") else None
        ledger.made(name)
        with self._asking(f"create container {name}") as api:
            host = api.create_host_config(
                network_mode=mode,
                ipc_mode=f"container:{memory_of.id}" if memory_of else memory,
                port_bindings={f"{port}/tcp": list(where) for port, where in ports.items()},
                binds=[f"{source}:{to}" for source, to in (options.get("volumes") or {}).items()],
                tmpfs=dict(options.get("tmpfs") or {}),
                mem_limit=options.get("memory_bytes"),
                ulimits=[docker.types.Ulimit(name="nofile", soft=nofile, hard=nofile)],
                auto_remove=options.get("auto_remove", False),
            )
            made = api.create_container(
                image,
                command=None if command is None else list(command),
                entrypoint=None if entrypoint is None else list(entrypoint),
                name=name,
                ports=list(ports),
                labels=dict(options.get("labels") or {}),
                environment=dict(options.get("env") or {}),
                user=options.get("user"),
                stop_signal=options.get("stop_signal"),
                host_config=host,
            )
        container = Container(made["Id"], name)
        try:
            self.put_files(container, options.get("files") or {})
        except EngineError:
            self.remove(container)
            raise
        return container

    def run_container(
        self,
        image: str,
        name: str,
        command: Sequence[str] | None = None,
        **options: Unpack[ContainerOptions],
    ) -> Container:
        """Make and start a container; when it cannot start (a port in use), nothing is left."""
        container = self.create_container(image, name, command, **options)
        try:
            self.start(container)
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
            ledger.gone(container.name)

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
            status=state["Status"],
            running=state["Running"],
            paused=state["Paused"],
            pid=state["Pid"],
            exit_code=state["ExitCode"],
            oom_killed=state["OOMKilled"],
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

    def logs(self, container: Container, *, last_lines: int | None = None) -> str:
        """Return what a container has printed, both streams together."""
        with self._asking(f"read the log of container {container.name}") as api:
            said = api.logs(container.id, tail=last_lines or "all")
        return bytes(said).decode(errors="replace")

    def attach(self, container: Container) -> Generator[bytes, None, None]:
        """What a container prints from now on, running or not yet, both streams together, until it
        ends. A connection of its own, which closing the generator ends."""
        with self._asking(f"attach to container {container.name}") as api:
            said = api.attach(container.id, stream=True, logs=True)
        return _until_its_end(said)

    def events(self, since_ns: int, until_ns: int | None = None) -> EventStream:
        """What happens to containers, anybody's, from a time of the wall clock on: for ever, or
        what the engine remembers up to `until_ns`. No limit of time: an engine that hangs says
        nothing."""
        kinds = {"type": ["container", "network"]}
        until = None if until_ns is None else _stamp(until_ns)
        with self._asking("read the engine's events") as api:
            # The SDK's types know whole seconds; the engine takes fractions.
            said = api.events(  # type: ignore[call-overload]
                since=_stamp(since_ns), until=until, filters=kinds, decode=True
            )
        return EventStream(said)

    def wait(self, container: Container, *, timeout_s: int) -> int:
        """Wait until a container ends; its exit code."""
        with self._asking(f"wait for container {container.name}") as api:
            return int(api.wait(container.id, timeout=timeout_s)["StatusCode"])

    def execute(self, container: Container, command: Sequence[str]) -> tuple[int, str]:
        """Run a command that ends soon in a running container; its exit code and output."""
        doing = f"execute {command[0]} in container {container.name}"
        with self._asking(doing) as api:
            made = api.exec_create(container.id, list(command))["Id"]
            # docker-py waits for what a command says without any limit.
            answer: Any = api.exec_start(made, stream=True)
            limit = threading.Timer(self._timeout_s, answer.close)
            limit.start()
            try:
                said = b"".join(answer)
            finally:
                limit.cancel()
                answer._response.close()  # noqa: SLF001 - nothing else ends it
            code = api.exec_inspect(made)["ExitCode"]
        if code is None:
            raise EngineError(f"cannot {doing}: it does not end within {self._timeout_s} s")
        return int(code), said.decode(errors="replace")

    def put_files(self, container: Container, files: Mapping[str, bytes]) -> None:
        """Put files (absolute path → content) into a container, running or not."""
        if not files:
            return
        with self._asking(f"put files into container {container.name}") as api:
            api.put_archive(container.id, "/", _tar(files))

    def read_file(self, container: Container, path: str) -> bytes | None:
        """Read one file out of a container, running or not; None when it is not there."""
        with self._asking(f"read {path} of container {container.name}") as api:
            return _read(api, container.id, path)

    def read_folder(self, container: Container, path: str) -> dict[str, bytes]:
        """Read every file below a folder of a container, by absolute path; none is no error."""
        with self._asking(f"read {path} of container {container.name}") as api:
            try:
                chunks, _ = api.get_archive(container.id, path)
            except docker.errors.NotFound:
                return {}
            packed = io.BytesIO(b"".join(chunks))
        files = {}
        with tarfile.open(fileobj=packed) as archive:
            for member in archive.getmembers():
                if content := archive.extractfile(member):
                    files[str(Path(path).parent / member.name)] = content.read()
        return files

    # --- lifetime ---

    def close(self) -> None:
        """Close the connections that no call is using; a later call opens a new one."""
        while self._idle:
            self._idle.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class EventStream:
    """Iterate over it in one thread; `close` it from any. It ends when the engine goes away."""

    def __init__(self, said: Any) -> None:
        self._said = said

    def __iter__(self) -> Iterator[Event]:
        try:
            # An end like any other: a closed socket, a line that was cut off.
            with suppress(OSError, urllib3_errors.HTTPError, ValueError, AttributeError):
                for one in self._said:
                    yield _event(one)
        finally:
            self._said._response.close()  # noqa: SLF001 - nothing else ends it

    def close(self) -> None:
        """Whoever reads it is at its end."""
        with suppress(OSError, AttributeError):
            self._said.close()


# --- helpers -------------------------------------------------------------------------------------


def _until_its_end(said: Any) -> Generator[bytes, None, None]:
    """A stream of docker-py, whose own ``close`` leaves the socket to the garbage collector."""
    try:
        with suppress(OSError, urllib3_errors.HTTPError):  # an end like any other
            yield from said
    finally:
        said.close()
        said._response.close()  # noqa: SLF001 - nothing else ends it


@contextmanager
def _long_calls(api: docker.APIClient) -> Iterator[None]:
    """Allow one call to take as long as a build."""
    usual, api.timeout = api.timeout, BUILD_TIMEOUT_S
    try:
        yield
    finally:
        api.timeout = usual


def _read(api: docker.APIClient, container_id: str, path: str) -> bytes | None:
    try:
        chunks, _ = api.get_archive(container_id, path)
    except docker.errors.NotFound:
        return None
    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
        content = archive.extractfile(archive.getmembers()[0])
        return content.read() if content else None


def _not_running(error: docker.errors.APIError) -> bool:
    return isinstance(error, docker.errors.NotFound) or "is not running" in str(error)


def _not_paused(error: docker.errors.APIError) -> bool:
    return "not paused" in str(error) or _not_running(error)


def _being_removed(error: docker.errors.APIError) -> bool:
    return "already in progress" in str(error)


def _event(said: Mapping[str, Any]) -> Event:
    """What the engine says of a network is about the container that joins or leaves it."""
    about = said.get("Actor") or {}
    attributes = about.get("Attributes") or {}
    of_network = said.get("Type") == "network"
    return Event(
        container_id=str(attributes.get("container", "") if of_network else about.get("ID", "")),
        name=str(attributes.get("name", "")),
        action=str(said.get("Action", "")),
        at_ns=int(said.get("timeNano", 0)),
        attributes={} if of_network else attributes,
    )


def _stamp(wall_ns: int) -> str:
    return f"{wall_ns // 10**9}.{wall_ns % 10**9:09d}"


def _label_filter(labels: Labels) -> list[str]:
    return [f"{key}={value}" if value else key for key, value in labels.items()]


def _tar(files: Mapping[str, bytes]) -> io.BytesIO:
    """Pack files; fixed times and owners, so that equal content is an equal archive."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path, content in sorted(files.items()):
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size = len(content)
            entry.mode = 0o644
            archive.addfile(entry, io.BytesIO(content))
    packed.seek(0)
    return packed
