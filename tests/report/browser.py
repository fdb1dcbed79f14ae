"""Drives a headless Chromium over DevTools on a pipe: no port, no driver, no library."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# Where a browser has to be there, its tests fail without one.
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None and "LOCKBENCH_CHROMIUM" not in os.environ, reason="chromium is not installed"
)
REPLY_S_MAX = 30.0


class Browser:
    """One page. ``errors`` collects every exception, console error and refused request."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to = to_browser
        self._from = from_browser
        self._poll = select.poll()
        self._poll.register(self._from, select.POLLIN)
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._events: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + REPLY_S_MAX
        while time.monotonic() < until:
            reply = self._read()
            if reply.get("id") == self._number:
                assert "error" not in reply, reply
                result: dict[str, Any] = reply["result"]
                return result
            self._note(reply)
        raise TimeoutError(method)

    def open(self, url: str) -> None:
        """Returns when the page has been loaded; not for another place in the same page."""
        self._events.clear()
        self.call("Page.navigate", url=url)
        until = time.monotonic() + REPLY_S_MAX
        while "Page.loadEventFired" not in self._events:
            assert time.monotonic() < until, "the page did not load"
            self._note(self._read())

    def ask(self, expression: str) -> Any:
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """A real click with the mouse in the middle of the element."""
        place = self.ask(
            "(() => {const e = document.querySelector("
            + json.dumps(selector)
            + "); e.scrollIntoView({block: 'center', inline: 'center'});"
            "const r = e.getBoundingClientRect();"
            "return [r.x + r.width / 2, r.y + r.height / 2]})()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=place[0],
                y=place[1],
                button="left",
                clickCount=1,
            )

    def screen(
        self, width: int, height: int, *, scheme: str = "light", phone: bool = False
    ) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def picture(self, path: Path) -> None:
        shot = self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(shot["data"]))

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            # Not select, which knows only the first 1,024 descriptors of a process.
            assert self._poll.poll(1e3 * REPLY_S_MAX), "the browser says nothing"
            part = os.read(self._from, 1 << 20)
            assert part, "the browser is gone"
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        method, said = event.get("method", ""), event.get("params", {})
        self._events.append(method)
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(said["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and said["type"] in {"error", "warning"}:
            self.errors.append(json.dumps(said["args"]))
        elif method == "Log.entryAdded" and said["entry"]["level"] in {"error", "warning"}:
            self.errors.append(said["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser whose profile and downloads are in ``folder``; gone afterwards."""
    assert CHROMIUM is not None, "chromium is not installed"
    command_read, command_write = os.pipe()
    answer_read, answer_write = os.pipe()

    def pipes() -> None:
        # Chromium reads commands from 3 and answers on 4.
        os.dup2(command_read, 3)
        os.dup2(answer_write, 4)

    ours = [command_read, command_write, answer_read, answer_write]
    # Above 4, so that one duplicate does not overwrite the other.
    command_read, answer_write = (os.dup(fd) for fd in (command_read, answer_write))
    ours += [command_read, answer_write]
    # Killed, it leaves a folder with a socket there, whose whole path may have 107 letters.
    temporary = tempfile.mkdtemp()
    process = subprocess.Popen(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            "--remote-debugging-pipe", "--no-first-run", f"--user-data-dir={folder / 'profile'}",
        ],
        preexec_fn=pipes,  # noqa: PLW1509 - only duplicates descriptors
        close_fds=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"TMPDIR": temporary},
    )  # fmt: skip
    try:
        yield Browser(command_write, answer_read)
    finally:
        process.kill()
        process.wait(10)
        for fd in ours:
            os.close(fd)
        shutil.rmtree(temporary, ignore_errors=True)
