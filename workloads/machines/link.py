"""This machine's end of the streams of another one: ``python -m lockbench.workloads.machines.link
FOLDER COMMAND…``. A process of its own for each machine, so that the bench's work is in
nobody's way.

It starts the command, carries connections, writes what is recorded there into the case's folder,
and keeps the control page the same at both ends. In between it passes on what the bench asks of the
agent, and what that answers: one JSON object a line. Before anything else it says ``hello`` with
what the agent is, or ``refused`` with a sentence; in the end ``lost``, and why.

It dies with the bench, and the command with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL
from typing import Any, Final

from lockbench.clusters.engine.owner import die_with_parent
from lockbench.workloads.control import WORKER_BYTES, WORKER_FIELDS, Control
from lockbench.workloads.load import CONTROL
from lockbench.workloads.machines.agent import (
    GREETING,
    OF_WORKER,
    SILENT_S,
    STREAM_LIMIT,
    TOLD,
)
from lockbench.workloads.machines.frames import OF_A_WORKER, BadFrame, Forwards, Kind, Streams
from lockbench.workloads.worker_process import DEATHS

HELLO_S: Final = 60.0
LOOK_S: Final = 0.1
LINES: Final = 5
POLL_S: Final = 0.005
ALIVE_S: Final = 1.0
END_S: Final = 5.0
CLOCK_READINGS: Final = 8
WORDS_MAX: Final = 200
LINE_MAX: Final = 1 << 14
ASKS: Final = re.compile(
    r"(password|passphrase|verification code|yes/no).*[:?\])]\s*$", re.IGNORECASE
)


class Refused(Exception):
    """There is no agent at the other end: what to say after the name of the machine."""


def tell(message: dict[str, Any]) -> None:
    """To the bench. Short lines to a pipe that is read: it does not wait."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


class Link:
    """``run`` until one end is gone."""

    def __init__(self, folder: Path, command: list[str]) -> None:
        self._folder = folder
        self._command = command
        self._words: deque[str] = deque(maxlen=LINES)
        self._unfinished = b""
        self._heard_s = time.monotonic()
        self._clock: dict[int, asyncio.Future[int]] = {}
        self._control: Control | None = None
        self._files: dict[str, int] = {}
        self._workers: set[int] = set()

    async def run(self) -> None:
        environment = os.environ | {"SSH_ASKPASS_REQUIRE": "never"}
        try:
            # Without a terminal nobody is asked anything.
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=STREAM_LIMIT,
                start_new_session=True,
                env=environment,
                preexec_fn=die_with_parent,
            )
        except OSError as error:
            tell({"refused": f"cannot be reached: {self._command[0]}: {error.strerror}"})
            return
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        listening = asyncio.create_task(self._keep_words(process.stderr))
        try:
            try:
                tell({"hello": await self._greeted(process, process.stdout)})
            except Refused as error:
                tell({"refused": str(error)})
                return
            self._streams = Streams(process.stdout, process.stdin)
            self._forwards = Forwards(self._streams)
            why = await self._carry()
            if why is not None:
                tell({"lost": why})
        finally:
            process.stdin.close()
            try:
                await asyncio.wait_for(process.wait(), END_S)
            except TimeoutError:
                # It leads a session of its own.
                with suppress(ProcessLookupError):
                    if process.returncode is None:
                        os.killpg(process.pid, SIGKILL)
                await process.wait()
            listening.cancel()

    async def _carry(self) -> str | None:
        """Why it is over; None where the bench has ended it."""
        bench = asyncio.create_task(self._from_bench())
        tasks = [asyncio.create_task(one()) for one in (self._from_agent, self._page, self._listen)]
        done, _ = await asyncio.wait([bench, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in (bench, *tasks):
            task.cancel()
        self._forwards.close()
        if bench in done:
            return None
        for task in done:
            if (error := task.exception()) is not None:
                return f"{type(error).__name__}: {error}"
        if time.monotonic() - self._heard_s >= SILENT_S:
            return f"nothing came from there for {SILENT_S:.0f} s"
        # What it said last may be under way.
        await asyncio.sleep(LOOK_S)
        return "its streams ended" + self._said()

    async def _greeted(
        self, process: asyncio.subprocess.Process, stdout: asyncio.StreamReader
    ) -> dict[str, Any]:
        """What the agent is. Raises Refused."""
        end = time.monotonic() + HELLO_S
        line = b""
        while time.monotonic() < end:
            try:
                # Byte by byte: what follows the line is no text.
                async with asyncio.timeout(LOOK_S):
                    byte = await stdout.read(1)
            except TimeoutError:
                self._raise_if_asked(line.decode(errors="replace"))
                continue
            if not byte:
                code = await process.wait()
                await asyncio.sleep(LOOK_S)
                self._raise_if_asked("")
                raise Refused(
                    f"runs no agent: the command ended with {code}{self._said()};"
                    " lockbench has to be in its PATH, with Python 3.11 or newer"
                )
            line += byte
            if byte != b"\n" and len(line) < LINE_MAX:
                continue
            text, line = line.decode(errors="replace").strip(), b""
            if text.startswith(GREETING):
                found: dict[str, Any] = json.loads(text.removeprefix(GREETING))
                return found
            self._words.append(text)
        raise Refused(f"runs no agent: nothing came in {HELLO_S:.0f} s{self._said()}")

    def _raise_if_asked(self, unfinished: str) -> None:
        """Raises Refused where the last thing that was said is a question."""
        for text in (unfinished, self._unfinished_text(), *list(self._words)[-1:]):
            if ASKS.search(text):
                raise Refused(
                    f"asks {text.strip()[-WORDS_MAX:]!r}, and nobody answers: let its command in"
                    " without a question (with a key, for example)"
                )

    async def _keep_words(self, stderr: asyncio.StreamReader) -> None:
        while data := await stderr.read(4096):
            sys.stderr.buffer.write(data)
            sys.stderr.flush()
            *lines, self._unfinished = (self._unfinished + data).split(b"\n")
            self._unfinished = self._unfinished[-4096:]
            self._words.extend(
                text for line in lines if (text := line.decode(errors="replace").strip())
            )

    def _unfinished_text(self) -> str:
        return self._unfinished.decode(errors="replace")

    def _said(self) -> str:
        words = [word for word in (*self._words, self._unfinished_text().strip()) if word]
        return f" ({words[-1][:WORDS_MAX]})" if words else ""

    async def _from_bench(self) -> None:
        reader = asyncio.StreamReader(STREAM_LIMIT)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            message = json.loads(line)
            if message["do"] == "prepare":
                self._workers.update(message["workers"])
            if message["do"] == "begin":
                self._forwards.allowed.update((host, port) for host, port in message["addresses"])
                message["ahead_ns"] = await self._ahead_ns()
                self._control = Control(self._folder / CONTROL)
            self._streams.say(message)

    async def _ahead_ns(self) -> int:
        """By how much the clock there is ahead, about: the middle of the quickest answer."""
        best: tuple[int, int] | None = None
        for number in range(-CLOCK_READINGS, 0):
            answered = self._clock[number] = asyncio.get_running_loop().create_future()
            asked_ns = time.monotonic_ns()
            self._streams.say({"do": "clock", "id": number})
            there_ns = await answered
            now_ns = time.monotonic_ns()
            del self._clock[number]
            reading = (now_ns - asked_ns, there_ns - (asked_ns + now_ns) // 2)
            best = reading if best is None else min(best, reading)
        assert best is not None
        return best[1]

    async def _from_agent(self) -> None:
        async for kind, channel, data in self._streams.frames():
            self._heard_s = time.monotonic()
            if kind == Kind.SAY:
                message = json.loads(data)
                waiting = self._clock.get(message.get("id", 0))
                if waiting is not None:
                    waiting.set_result(int(message["done"]))
                else:
                    tell(message)
            elif kind == Kind.PAGE:
                self._take_page(data)
            elif kind == Kind.PART:
                self._write(data)
            else:
                self._forwards.take(kind, channel, data)

    async def _listen(self) -> None:
        """Returns when nothing comes any more."""
        while time.monotonic() - self._heard_s < SILENT_S:  # noqa: ASYNC110 - it is a time
            await asyncio.sleep(LOOK_S)

    async def _page(self) -> None:
        """Tells the bench's side of the page when it changes, and now and then."""
        before, told_s = b"", 0.0
        while True:
            page, now_s = self._page_bytes(), time.monotonic()
            if page != before or now_s - told_s > ALIVE_S:
                self._streams.send(Kind.PAGE, 0, page)
                before, told_s = page, now_s
            await asyncio.sleep(POLL_S)

    def _page_bytes(self) -> bytes:
        page = self._control
        if page is None:
            return TOLD.pack(0, 0, 0, 0, 0)
        return TOLD.pack(
            page.start_ns, page.stop, page.quiet, page.carried_per_1000_s, page.saturated
        )

    def _take_page(self, data: bytes) -> None:
        if not data:
            return
        worker, *_ = OF_WORKER.unpack(data)
        if self._control is not None and worker in self._workers:
            at = WORKER_FIELDS + worker * WORKER_BYTES
            self._control.memory[at : at + WORKER_BYTES] = data[8:]

    def _write(self, data: bytes) -> None:
        head, _, part = data.partition(b"\n")
        name, at = json.loads(head)
        # The other machine decides nothing about this one's files.
        found = OF_A_WORKER.fullmatch(name)
        worker = -1 if found is None else int(found["worker"] or found["recorder"])
        if worker not in {w + more for w in self._workers for more in (0, DEATHS)}:
            raise BadFrame(f"a part of {name!r}")
        if name not in self._files:
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW
            self._files[name] = os.open(self._folder / name, flags, 0o644)
        os.pwrite(self._files[name], part, at)


def main() -> None:
    """The whole life of the process."""
    asyncio.run(Link(Path(sys.argv[1]), sys.argv[2:]).run())


if __name__ == "__main__":
    main()
