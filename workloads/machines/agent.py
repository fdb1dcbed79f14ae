"""``lockbench agent``: the other end of a machine's streams.

Its workers are forked, frozen, killed and recorded as those of the bench are. What they connect to
is forwarded through the streams, and what they record is sent home while they record it.

Guarantees: nothing of it runs on when its streams end, when nobody says anything for ``SILENT_S``,
or when it is killed. Only where it is stopped by a signal, and home is gone meanwhile, is it left
to ``lockbench clean --machines``.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from signal import Signals
from typing import Any, Final

import msgspec
import numpy as np
import psutil

from lockbench.clusters.engine import processes
from lockbench.clusters.engine.owner import is_dead, kill, me, place
from lockbench.history.layout import HEADER_BYTES, RECORD
from lockbench.history.op import Type
from lockbench.history.recorder import SEGMENT_RECORDS
from lockbench.history.recording import records_of
from lockbench.locks.registry import find
from lockbench.workloads.control import WORKER_BYTES, WORKER_FIELDS, Control
from lockbench.workloads.fork_server import RUN_ENVIRONMENT, ForkServer, run_mark
from lockbench.workloads.load import (
    CONTROL,
    ENVIRONMENT,
    HISTORY,
    LOGS,
    WORKER_ENVIRONMENT,
    Load,
    LocustsOwn,
)
from lockbench.workloads.machines.frames import (
    CHUNK,
    OF_A_WORKER,
    BadFrame,
    Forwards,
    Kind,
    Streams,
)
from lockbench.workloads.machines.version import versions
from lockbench.workloads.worker_process import LocalWorker

GREETING: Final = "lockbench-agent "
PREFIX: Final = "lockbench-agent-"
OWNER: Final = "owner.json"
WORKER: Final = "lockbench.workloads.worker"
SILENT_S: Final = 20.0
PAGE_S: Final = 0.02
SHIP_S: Final = 0.5
# Of the bench's side of the page, in this order; the times of it are on the bench's clock.
TOLD: Final = struct.Struct("<qqqqq")
OF_WORKER: Final = struct.Struct(f"<q{WORKER_BYTES // 8}q")
TICKED: Final = 6  # its place in it
STREAM_LIMIT: Final = 1 << 22
PART: Final = CHUNK - CHUNK % RECORD.itemsize  # whole records


class Shipping:
    """What has been sent of the files of a recording. Of a segment everything before the first
    operation that is still open stays as it is, so it is sent once. An open one at the very end is
    left for the next time: it may be half written."""

    def __init__(self, folder: Path, send: Callable[[str, int, bytes], None]) -> None:
        self._folder = folder
        self._send = send
        self._records: dict[str, int] = {}
        self._bytes: dict[str, int] = {}
        self._over: set[str] = set()

    def ship(self, *, last: bool = False) -> None:
        """Sends what is new. ``last``: nobody records any more."""
        history = self._folder / HISTORY
        segments = [path for path in history.glob("*.ops") if path.name not in self._over]
        found = [
            (path, *self._records_of(path, last=last)) for path in sorted(segments, key=_in_order)
        ]
        # After the records were read, and sent before them: they name these strings.
        for path in [*history.glob("*.strings"), *(self._folder / LOGS).iterdir()]:
            self._ship_bytes(path)
        for path, first, rows in found:
            if len(rows):
                name = f"{HISTORY}/{path.name}"
                if first == 0:
                    with path.open("rb") as file:
                        self._send(name, 0, file.read(HEADER_BYTES))
                self._send(name, HEADER_BYTES + first * RECORD.itemsize, rows.tobytes())
            still = np.flatnonzero(rows["type"] == Type.OPEN)
            self._records[path.name] = first + (int(still[0]) if len(still) else len(rows))
            if self._records[path.name] == SEGMENT_RECORDS:
                self._over.add(path.name)

    def sizes(self) -> dict[str, int]:
        """How many bytes each segment that anybody has written into has at home now."""
        found = {}
        for path in (self._folder / HISTORY).glob("*.ops"):
            count = len(records_of(path, 0))
            if count:
                found[path.name] = HEADER_BYTES + count * RECORD.itemsize
        return found

    def _records_of(self, path: Path, *, last: bool) -> tuple[int, np.ndarray[Any, np.dtype[Any]]]:
        first = self._records.get(path.name, 0)
        if path.stat().st_size < HEADER_BYTES:
            return first, np.empty(0, RECORD)
        rows = records_of(path, first)
        if not last and len(rows) and rows["type"][-1] == Type.OPEN:
            rows = rows[:-1]
        return first, rows

    def _ship_bytes(self, path: Path) -> None:
        name = f"{path.parent.name}/{path.name}"
        if OF_A_WORKER.fullmatch(name) is None:
            return
        with path.open("rb") as file:
            file.seek(self._bytes.get(name, 0))
            while data := file.read(CHUNK):
                self._send(name, self._bytes.get(name, 0), data)
                self._bytes[name] = self._bytes.get(name, 0) + len(data)


def _in_order(segment: Path) -> tuple[int, ...]:
    """As they are recorded. What is at home is then never without what was recorded before."""
    return tuple(map(int, segment.stem.split(".")))


class Agent:
    """``serve`` until the streams end."""

    def __init__(self, streams: Streams, folder: Path) -> None:
        self._streams = streams
        self._folder = folder
        self._forwards = Forwards(streams)
        self._shipping = Shipping(folder, self._send_part)
        self._heard_s = time.monotonic()
        self._fork_server: ForkServer | None = None
        self._workers: dict[int, LocalWorker] = {}
        self._ended: set[int] = set()
        self._ahead_ns = 0
        self._tasks: set[asyncio.Task[None]] = set()
        for name in (HISTORY, LOGS):
            (folder / name).mkdir()
        self._control = Control(folder / CONTROL, create=True)

    async def serve(self) -> None:
        reading = asyncio.create_task(self._read())
        watching = [asyncio.create_task(one()) for one in (self._page, self._ship, self._listen)]
        try:
            await asyncio.wait([reading, *watching], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reading, *watching):
                task.cancel()
            self._forwards.close()
            if self._fork_server is not None:
                # Its children die with it, frozen or not.
                self._fork_server.__exit__()

    async def _read(self) -> None:
        async for kind, channel, data in self._streams.frames():
            self._heard_s = time.monotonic()
            if kind == Kind.SAY:
                task = asyncio.create_task(self._answer(json.loads(data)))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            elif kind == Kind.PAGE:
                self._take_page(data)
            else:
                self._forwards.take(kind, channel, data)

    async def _listen(self) -> None:
        """Returns when nobody says anything."""
        while time.monotonic() - self._heard_s < SILENT_S:  # noqa: ASYNC110 - it is a time
            await asyncio.sleep(1)

    async def _answer(self, message: dict[str, Any]) -> None:
        said: dict[str, Any] = {"id": message["id"]}
        try:
            said["done"] = await getattr(self, "do_" + message["do"])(message)
        except Exception as error:  # noqa: BLE001 - told at home, which decides what it means
            said["error"] = str(error) or type(error).__name__
        self._streams.say(said)

    # What may be asked of it.

    async def do_clock(self, _: dict[str, Any]) -> int:
        return time.monotonic_ns()

    async def do_prepare(self, message: dict[str, Any]) -> None:
        """Starts the workers, which wait for the load."""
        _note_owner(self._folder, message["home"])
        self._fork_server = fork_server = ForkServer(message["run"], (WORKER,))
        prepare = find(message["lock"]).prepare
        if prepare is not None:
            await asyncio.to_thread(prepare)
        for worker in message["workers"]:
            environment = {
                ENVIRONMENT: str(self._folder / "load.json"),
                RUN_ENVIRONMENT: run_mark(message["run"]),
                WORKER_ENVIRONMENT: str(worker),
            }
            log = self._folder / LOGS / f"worker-{worker}.log"
            spawn = asyncio.to_thread(fork_server.spawn, WORKER, environment, log)
            self._workers[worker] = LocalWorker(worker, await spawn, self._folder / HISTORY)

    async def do_begin(self, message: dict[str, Any]) -> None:
        """Hands out the load, whose addresses are those of the bench's machine."""
        load = msgspec.json.decode(message["load"], type=Load)
        for host, port in message["addresses"]:
            try:
                await self._forwards.listen((host, port))
            except OSError as error:
                raise OSError(
                    f"{host}:{port} cannot be listened on there: {error.strerror}; give the"
                    " agent a network of its own"
                ) from error
        self._ahead_ns = message["ahead_ns"]
        load = replace(load, folder=str(self._folder), ahead_ns=self._ahead_ns, locust=LocustsOwn())
        draft = self._folder / "load.new"
        load.save(draft)
        draft.rename(self._folder / "load.json")

    async def do_connected(self, _: dict[str, Any]) -> None:
        for worker in self._workers.values():
            worker.find_sidecars()

    async def do_signal(self, message: dict[str, Any]) -> None:
        self._workers[message["worker"]].send_signal(Signals[message["signal"]])

    async def do_frozen(self, message: dict[str, Any]) -> bool:
        return self._workers[message["worker"]].frozen()

    async def do_kill(self, message: dict[str, Any]) -> None:
        """Whose death is recorded by this machine's clock."""
        await asyncio.to_thread(self._workers[message["worker"]].kill)

    async def do_finish(self, _: dict[str, Any]) -> dict[str, int]:
        """When every worker has ended: sends what is left of the recordings, and says how much
        there is of each segment."""
        alive = [worker for worker, child in self._workers.items() if child.alive()]
        if alive:
            raise RuntimeError(f"worker {alive[0]} still runs")
        self._shipping.ship(last=True)
        return self._shipping.sizes()

    async def do_left(self, message: dict[str, Any]) -> list[str]:
        """Ends what dead agents have left here, and agents whose home is among those that ended;
        says what it was."""
        return list(_end_left(self._folder, message["ended"]))

    async def do_homes(self, _: dict[str, Any]) -> list[str]:
        """Who has agents here that live."""
        return [home for _, agent, home in _others(self._folder) if home and not is_dead(agent)]

    # What it tells by itself.

    def _take_page(self, data: bytes) -> None:
        control = self._control
        start_ns, stop, quiet, carried, saturated = TOLD.unpack(data)
        control.carried_per_1000_s, control.saturated = carried, saturated
        control.quiet, control.stop = quiet, stop
        control.start_ns = start_ns + self._ahead_ns if start_ns else 0

    async def _page(self) -> None:
        while True:
            for worker in self._workers:
                at = WORKER_FIELDS + worker * WORKER_BYTES
                fields = bytes(self._control.memory[at : at + WORKER_BYTES])
                said = list(OF_WORKER.unpack(struct.pack("<q", worker) + fields))
                said[TICKED] -= self._ahead_ns if said[TICKED] else 0
                self._streams.send(Kind.PAGE, 0, OF_WORKER.pack(*said))
            await self._streams.drain()
            await asyncio.sleep(PAGE_S)

    async def _ship(self) -> None:
        while True:
            # That it lives, while there are no workers yet.
            self._streams.send(Kind.PAGE)
            ended = {w for w, child in self._workers.items() if not child.alive()} - self._ended
            self._shipping.ship()
            for worker in sorted(ended):
                self._streams.say({"ended": worker})
            self._ended |= ended
            await self._streams.drain()
            await asyncio.sleep(PAGE_S if self._control.stop else SHIP_S)

    def _send_part(self, name: str, at: int, data: bytes) -> None:
        for begin in range(0, len(data), PART):
            head = json.dumps([name, at + begin]).encode() + b"\n"
            self._streams.send(Kind.PART, 0, head + data[begin : begin + PART])


def _note_owner(folder: Path, home: str) -> None:
    """``home``: the bench that it works for; empty while nobody has said."""
    (folder / OWNER).write_text(json.dumps({"agent": me(), "home": home}))


def _others(mine: Path) -> Iterator[tuple[Path, str, str]]:
    """The folders of other agents of this user: with who made each, and for whom."""
    for folder in Path(tempfile.gettempdir()).glob(PREFIX + "*"):
        with suppress(OSError, ValueError, KeyError):
            if folder != mine and folder.stat().st_uid == os.getuid():
                owner = json.loads((folder / OWNER).read_text())
                yield folder, str(owner["agent"]), str(owner["home"])


def _end_left(mine: Path, ended: list[str]) -> Iterator[str]:
    for folder, agent, home in list(_others(mine)):
        if not is_dead(agent):
            # Of a number that means something elsewhere nobody knows whose it is here.
            if home not in ended or not agent.endswith(f":{place()}"):
                continue
            # What it has started dies with it.
            kill(agent)
            yield f"ended agent {agent.partition(':')[0]}"
        for process, mark in processes.marked(RUN_ENVIRONMENT):
            with suppress(psutil.Error, OSError):
                if mark.endswith(f"@{agent}"):
                    process.kill()
                    yield f"ended process {process.pid}"
        shutil.rmtree(folder, ignore_errors=True)
        yield f"removed {folder}"


async def _serve(folder: Path) -> None:
    loop = asyncio.get_running_loop()
    # Nothing else may write to these streams.
    incoming, outgoing = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.write(outgoing, f"{GREETING}{json.dumps(versions())}\n".encode())
    reader = asyncio.StreamReader(STREAM_LIMIT)
    await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(incoming, "rb", 0)
    )
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(outgoing, "wb", 0)
    )
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    with suppress(BadFrame):
        await Agent(Streams(reader, writer), folder).serve()
    # Not by the end of the program, which would wait for what it still prepares.
    shutil.rmtree(folder, ignore_errors=True)
    sys.stderr.flush()
    os._exit(0)


def main() -> None:
    """The whole life of the program."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    _note_owner(folder, home="")
    try:
        asyncio.run(_serve(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        sys.stderr.flush()
