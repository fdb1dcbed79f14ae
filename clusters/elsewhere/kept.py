"""The keeper of a cluster (``lockbench.clusters.elsewhere.keeper``), as a process of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from lockbench.clusters.base import ClusterError
from lockbench.clusters.elsewhere.keeper import TRIES
from lockbench.clusters.elsewhere.site import OPPOSITES, Site, Whom
from lockbench.clusters.engine import ports
from lockbench.clusters.wire import Address

# To look through all keys; beside that, each command may take its time in each of its tries.
END_LIMIT_S: Final = 240.0


class Kept:
    """ClusterError when it does not answer."""

    def __init__(self, site: Site, log: Path | None = None) -> None:
        """Raises ClusterError."""
        self._site = site
        self._end_limit_s = END_LIMIT_S + len(OPPOSITES) * TRIES * site.hands.limit_s
        self.undo: set[tuple[str, Whom]] = set()  # what it would be to undo if it were gone
        self._asking = threading.Lock()
        self._over = False
        self._left: list[str] | None = None
        environment = dict(os.environ)
        if site.password is not None and site.password_env:
            environment[site.password_env] = site.password.reveal()
        with ExitStack() as opened:
            said = opened.enter_context(log.open("ab")) if log else subprocess.DEVNULL
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "lockbench.clusters.elsewhere.keeper", str(site.file)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                env=environment,
                start_new_session=True,
            )
        self.ask(text=site.text)

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, **what: object) -> Mapping[str, Any]:
        """One line and its answer. Raises ClusterError."""
        with self._asking:
            try:
                assert self._process.stdin is not None
                self._process.stdin.write(json.dumps(what).encode() + b"\n")
                self._process.stdin.flush()
            except (OSError, ValueError) as error:
                raise ClusterError("the keeper of the cluster ended") from error
            return self._heard()

    def hand(self, verb: str, whom: Sequence[Whom]) -> None:
        """Have a command run for each of these. Raises ClusterError."""
        if not whom:
            return
        if verb in OPPOSITES:
            self.undo |= {(verb, one) for one in whom}
        self.ask(hand=verb, whom=list(whom))
        if verb not in OPPOSITES:
            of = {opposite: it for it, opposite in OPPOSITES.items()}[verb]
            self.undo -= {(of, one) for one in whom}

    def end(self) -> list[str] | None:
        """Let it end. What is left; None: it was gone. Never raises; twice is no error."""
        with suppress(OSError, ValueError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        with self._asking:  # what is under way has its answer first
            self._process.stdin = None
            if not self._over:
                self._left = self._last_word()
                self._over = True
        return self._left

    def _last_word(self) -> list[str] | None:
        try:
            said, _ = self._process.communicate(timeout=self._end_limit_s)
            left = json.loads(said.splitlines()[-1])["left"]
        except (subprocess.TimeoutExpired, ValueError, LookupError, TypeError):
            self._process.kill()
            self._process.wait()
            return None
        return [str(one) for one in left]

    def _heard(self) -> Mapping[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ClusterError("the keeper of the cluster ended")
        answer: Mapping[str, Any] = json.loads(line)
        if "error" in answer:
            raise ClusterError(str(answer["error"]))
        if "left" in answer:  # its last word
            raise ClusterError("the keeper of the cluster ended")
        return answer


@contextmanager
def ways(site: Site) -> Iterator[tuple[Mapping[int, Address], Kept]]:
    """A keeper with a way to every node, and nothing else. Raises ClusterError."""
    nodes = range(1, len(site.nodes) + 1)
    block = ports.take(used=nodes)
    keeper = None
    try:
        keeper = Kept(site)
        at = {node: (ports.LOOPBACK, block.base + node) for node in nodes}
        keeper.ask(open=[(*address, node, None) for node, address in at.items()])
        yield at, keeper
    finally:
        if keeper is not None:
            keeper.end()
        block.close()
