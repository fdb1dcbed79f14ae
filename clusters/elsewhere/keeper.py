"""The process that has the keys to a cluster elsewhere, and leaves nothing behind there.

It relays (``lockbench.clusters.elsewhere.relay``), runs the file's commands, and outlives the
bench: when its standard input ends, however that comes, it undoes what was done with commands,
removes what is under the prefix, says what is left and ends. It is not reached by Ctrl-C.

Spoken over its standard streams, a line of JSON each way: ``{"open": [[host, port, node, via]]}``,
``{"hand": verb, "whom": [1]}`` (of two servers: ``[[1, 2]]``), ``{"why": node}``,
``{"claim": word}`` (take the prefix for ourselves), ``{"ours": [word]}`` (it is ours already, by
these claims), ``{"undo": [[verb, 1]]}`` (at the end). Answers are ``{}`` or have an ``error``.
Passwords are not spoken of: this process reads them itself.

Does not guarantee anything once it is killed itself; then the bench does the same in its place, and
where both are gone ``lockbench clean --cluster FILE`` does.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from lockbench.clusters.elsewhere import claim
from lockbench.clusters.elsewhere.place import place_of
from lockbench.clusters.elsewhere.relay import Relay, Route
from lockbench.clusters.elsewhere.site import OPPOSITES, Site, SiteError, Whom, read
from lockbench.clusters.wire import PROBE_FAILURES, Address

TRIES: Final = 3  # of what must not stay undone
PAUSE_S: Final = 0.5
LATE_S: Final = 4.0  # in which a server that is joined again applies what it was sent before
FAILURES: Final = (*PROBE_FAILURES, SiteError)
SAID_MAX: Final = 200
LOOP_LIMIT_S: Final = 30.0

T = TypeVar("T")


class Keeper:
    """What the process does."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._loop = asyncio.new_event_loop()
        self._relay = Relay(site)
        self._harness: dict[int, Address] = {}
        self._clients: list[Address] = []
        self._undo: set[tuple[str, Whom]] = set()  # verb, whom
        self._claims: set[str] = set()
        self._ours = False  # what is under the prefix
        threading.Thread(target=self._loop.run_forever, name="relay", daemon=True).start()

    def answer(self, asked: Mapping[str, Any]) -> Mapping[str, object]:
        """Do what a line asks for."""
        if "open" in asked:
            routes = [
                Route((host, port), node, None if via is None else (via[0], via[1]))
                for host, port, node, via in asked["open"]
            ]
            self._harness |= {route.node: route.listen for route in routes if route.via is None}
            self._clients += [route.listen for route in routes if route.via is not None]
            self._run(self._relay.open(routes))
        elif "hand" in asked:
            return self._hand(asked["hand"], list(map(_whom, asked["whom"])))
        elif "why" in asked:
            return {"why": self._relay.reason(asked["why"])}
        elif "claim" in asked:
            return self._claim(asked["claim"])
        elif "ours" in asked:
            self._claims |= set(asked["ours"])
            self._ours = True
        elif "undo" in asked:
            self._undo |= {(verb, _whom(said)) for verb, said in asked["undo"]}
        return {}

    def end(self) -> list[str]:
        """Undo everything. What is left, a sentence each."""
        with suppress(Exception):
            self._run(self._relay.close(self._clients))
        left, undone = [], bool(self._undo)
        for verb in sorted({verb for verb, _ in self._undo}):
            whom = [one for what, one in self._undo if what == verb]
            for attempt in range(1, TRIES + 1):
                error = self._hand(OPPOSITES[verb], whom).get("error")  # type: ignore[index]
                if error is None:
                    break
                if attempt == TRIES:
                    left.append(str(error))
                time.sleep(PAUSE_S)
        until_s = time.monotonic() + (LATE_S if undone else 0.0)
        while self._ours:
            with ThreadPoolExecutor(len(self._harness) or 1) as pool:
                left += [said for said in pool.map(self._clear, self._harness) if said]
            if left or time.monotonic() >= until_s:
                break
            time.sleep(PAUSE_S)
        for word in self._claims if not left else ():
            left += self._give_back(word)
        return left

    def _claim(self, word: str) -> dict[str, str]:
        """On every node, or on none."""
        place = self._relay.place
        try:
            place.learn(self._site, self._harness)
        except FAILURES as error:
            return {"error": self._said(error)}
        for node, at in self._harness.items():
            try:
                found = place.claim(self._site, at, word)
            except FAILURES as error:
                said = self._relay.why.get(node) or self._said(error)
            else:
                said = "" if found == word else f"{claim.told(found)}, was there first"
            if said:
                self._give_back(word)
                return {"error": f"{self._site.nodes[node - 1]} takes no claim: {said}"}
        self._claims.add(word)
        self._ours = True
        return {}

    def _give_back(self, word: str) -> list[str]:
        place, left = place_of(self._site), []
        for node, at in self._harness.items():
            try:
                place.give_back(self._site, at, word)
            except FAILURES as error:
                left.append(f"the claim on {self._site.nodes[node - 1]} ({self._said(error)})")
        return left

    def _said(self, error: Exception) -> str:
        return self._site.hidden(str(error)) or type(error).__name__

    def _clear(self, node: int) -> str:
        place, at = place_of(self._site), self._harness[node]
        said = ""
        for _ in range(TRIES):
            try:
                place.clear(self._site, at)
                count = place.count(self._site, at)
            except FAILURES as error:
                said = self._said(error)
            else:
                if not count:
                    return ""
                said = f"{count} keys are left"
            time.sleep(PAUSE_S)
        return f"what is under {self._site.prefix} on {self._site.nodes[node - 1]} ({said})"

    def _hand(self, verb: str, whom: Sequence[Whom]) -> dict[str, str]:
        """Run a command for each of these at once."""
        undone = {opposite: it for it, opposite in OPPOSITES.items()}.get(verb)
        if undone is None:
            self._undo |= {(verb, one) for one in whom}  # before: half done must be undone too
        with ThreadPoolExecutor(len(whom)) as pool:
            said = [it for it in pool.map(lambda one: self._command(verb, one), whom) if it]
        if undone is not None and not said:
            self._undo -= {(undone, one) for one in whom}
        return {"error": "; ".join(said)} if said else {}

    def _command(self, verb: str, whom: Whom) -> str:
        """Run one. Empty, or a sentence that says how it failed."""
        limit_s = self._site.hands.limit_s
        what = f"the command for {verb} of {self._site.called(whom)}"
        secret = {self._site.password_env}
        environment = {key: value for key, value in os.environ.items() if key not in secret}
        # Not a pipe: the server that it starts may keep it open.
        with tempfile.TemporaryFile() as told:
            try:
                process = subprocess.Popen(
                    self._site.words(verb, whom),
                    stdin=subprocess.DEVNULL,
                    stdout=told,
                    stderr=subprocess.STDOUT,
                    cwd=self._site.file.parent,
                    env=environment,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                return f"{what} cannot be run: {error}"
            try:
                process.wait(limit_s)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return f"{what} did not end within {limit_s:g} s"
            if process.returncode == 0:
                return ""
            told.seek(0)
            output = told.read().decode(errors="replace")
        lines = self._site.hidden(output).strip().splitlines()
        said = f": {lines[-1][:SAID_MAX]}" if lines else ""
        return f"{what} failed (exit {process.returncode}){said}"

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LOOP_LIMIT_S)


def main(file: str, lines: Iterable[str]) -> None:
    """Answer lines until they end, then end everything. The first line has the file's text as the
    bench has read it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    bench = os.getppid()
    keeper: Keeper | None = None
    try:
        rest = iter(lines)
        site = read(Path(file), json.loads(next(rest))["text"])
        keeper = Keeper(site)
        _say({})
        # SIGTERM is an end like any other.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        for line in rest:
            try:
                answer = keeper.answer(json.loads(line))
            except OSError as error:
                answer = {"error": str(error)}
            _say(answer)
    except SiteError as error:
        _say({"error": str(error)})
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if keeper is not None:
            _say({"left": keeper.end()})
        if os.getppid() != bench:
            _remove_near_links()


def _whom(said: int | Sequence[int]) -> Whom:
    """As JSON has it."""
    if isinstance(said, int):
        return said
    node, peer = said
    return node, peer


def _remove_near_links() -> None:
    """What a bench that is gone had as containers; the next start removes what cannot be removed
    now."""
    from lockbench.clusters.engine.docker import EngineError
    from lockbench.clusters.engine.reaper import reap

    with suppress(EngineError):
        reap()


def _say(what: Mapping[str, object]) -> None:
    # A bench that is gone reads nothing.
    with suppress(OSError):
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.stdin)
