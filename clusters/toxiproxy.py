"""The Toxiproxy of one pod. No other module imports toxiproxy-python.

The library supplies the calls and the objects (proxies, toxics, its own errors); what it cannot do
is put right underneath it, in the transport that its objects send through:

- it keeps the server's address in class attributes, so a process could speak to one server only:
  here each call goes to the server that the calling thread is working with;
- it sets no time limits: here two seconds, since Toxiproxy has hung for good before;
- it swallows answers of 5xx: here every answer that is no success is an error;
- it opens a connection per call: here one is kept per server;
- its ``populate`` asks for the whole list for every proxy: here Toxiproxy's own /populate is used.

Toxicity is always 1 and there is never jitter: Toxiproxy ignores its ``-seed``, so nothing that it
draws could be replayed. Calls are not atomic; who cuts records the interval.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any

import requests
import toxiproxy
from toxiproxy.api import validate_response
from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists

from clusters import links
from clusters.base import ClusterError
from clusters.links import ProxyCut, Toxic

CALL_TIMEOUT_S = 2.0
POLL_S = 0.01

# What a stall consists of, and how long it takes what it has held back to flow.
STALL = {toxic.name: toxic for toxic in links.toxics("stall")}
FLOW_S = 0.03


class LinkError(ClusterError):
    """A Toxiproxy did not do what it was told; the message names the pod and the proxy."""


@dataclass(frozen=True, slots=True)
class Listen:
    """A proxy to be made: both addresses as ``host:port``, seen from inside the pod."""

    name: str
    listen: str
    upstream: str


class LinkServer:
    """The links that live in one pod. May be used from several threads, one call at a time."""

    def __init__(self, name: str, host: str, port: int) -> None:
        self.name = name
        self._url = f"http://{host}:{port}"
        self._session = requests.Session()
        # Proxies of the environment are for the outside; asking for them costs as much as the call.
        self._session.trust_env = False
        self._lock = threading.Lock()
        self._server = toxiproxy.Toxiproxy()
        self._proxies: dict[str, Any] = {}

    def wait_until_up(self, limit_s: float) -> str:
        """Return Toxiproxy's version as soon as it answers; LinkError after ``limit_s``."""
        until = time.monotonic() + limit_s
        while True:
            try:
                return str(self._call(lambda: _Transport.get("/version").json()["version"]))
            except LinkError:
                if time.monotonic() > until:
                    raise
                time.sleep(POLL_S)

    def populate(self, listens: Iterable[Listen]) -> None:
        """Make these proxies too, in one call; each listens when this returns."""
        listens = tuple(listens)
        wanted = [
            {"name": link.name, "listen": link.listen, "upstream": link.upstream, "enabled": True}
            for link in listens
        ]

        answer = self._call(lambda: _Transport.post("/populate", json=wanted).json())
        made = {found["name"]: toxiproxy.Proxy(**found) for found in answer["proxies"]}
        missing = {link.name for link in listens} - made.keys()
        idle = {name for name, proxy in made.items() if not proxy.enabled}
        self._proxies |= made
        if missing or idle:
            raise LinkError(f"{self.name}: these links do not listen: {sorted(missing | idle)}")

    def apply(self, cut: ProxyCut) -> None:
        """Disable one proxy or add toxics to it."""
        proxy = self._proxy(cut.proxy)
        if cut.disable:
            self._call(proxy.disable)
        for toxic in cut.toxics:
            self.add(cut.proxy, toxic)

    def add(self, proxy: str, toxic: Toxic) -> None:
        """Add a toxic to a proxy."""
        self._call(
            lambda: self._proxy(proxy).add_toxic(
                type=toxic.type,
                stream=toxic.stream,
                name=toxic.name,
                toxicity=1.0,
                attributes=dict(toxic.attributes),
            )
        )

    def remove(self, proxy: str, toxic: Toxic) -> None:
        """Remove a toxic from a proxy."""
        self._call(lambda: self._proxy(proxy).destroy_toxic(toxic.name))

    def set_enabled(self, proxy: str, enabled: bool) -> None:
        """Let a proxy listen, or close it and all its connections. Never disable one towards a
        paused node: it would wait for a dial that nobody answers, and the whole API with it."""
        found = self._proxy(proxy)
        self._call(found.enable if enabled else found.disable)

    def reset(self) -> None:
        """Enable every proxy and remove every toxic, in one call."""
        self._call(self._server.reset)

    def broken(self) -> list[str]:
        """Return what is not as ``populate`` left it, as Toxiproxy itself tells: one line each."""
        found = self._states()
        lines = sorted(f"{name}: missing" for name in self._proxies.keys() - found.keys())
        for name, state in sorted(found.items()):
            if not state["enabled"]:
                lines.append(f"{name}: disabled")
            lines += [f"{name}: {toxic['name']}" for toxic in state["toxics"]]
        return lines

    def heal(self) -> None:
        """Reset, and see that nothing is left; LinkError names what is."""
        self._let_go()
        self.reset()
        if left := self.broken():
            raise LinkError(f"{self.name}: not healed: {'; '.join(left)}")

    def _let_go(self) -> None:
        """Let what a stall has kept back flow, before its toxics are removed.

        Removing a toxic waits until the data it holds has gone on. When the receiver has given up
        in the meantime, the second write to it fails, nobody takes the rest, and Toxiproxy hangs
        for good with its whole API (its issue 558). Toxics that are only changed let the data flow
        with no lock held, so connections to receivers that are gone end and leave the list. Then
        the ends of connections that were kept back follow, which a removal would forget.
        """
        present = [
            (name, {toxic["name"] for toxic in state["toxics"]})
            for name, state in self._states().items()
        ]
        stalled = [name for name, toxics in present if toxics >= STALL.keys()]
        if not stalled:
            return
        for kind, setting in (("latency", {"latency": 0}), ("slow_close", {"delay": 0})):
            for proxy in stalled:
                for toxic in STALL.values():
                    if toxic.type == kind:
                        self._change(proxy, toxic, setting)
            time.sleep(FLOW_S)

    def _change(self, proxy: str, toxic: Toxic, attributes: dict[str, int]) -> None:
        path = f"/proxies/{proxy}/toxics/{toxic.name}"
        self._call(partial(_Transport.post, path, json={"attributes": attributes}))

    def _states(self) -> dict[str, dict[str, Any]]:
        states: dict[str, dict[str, Any]] = self._call(lambda: _Transport.get("/proxies").json())
        return states

    def close(self) -> None:
        """Close the connection; Toxiproxy itself runs on."""
        self._session.close()

    def _proxy(self, name: str) -> Any:
        proxy = self._proxies.get(name)
        if proxy is None:
            raise LinkError(f"{self.name} has no link called {name}")
        return proxy

    def _call(self, send: Callable[[], Any]) -> Any:
        with self._lock, _Transport.to(self._session, self._url):
            try:
                return send()
            except (InvalidToxic, NotFound, ProxyExists) as error:
                said = error.args[0] if error.args else b""
                raise LinkError(f"{self.name}: Toxiproxy refused: {_text(said)}") from error
            except requests.RequestException as error:
                raise LinkError(f"{self.name}: Toxiproxy does not answer: {error}") from error


class _Transport:
    """Stands in for the library's ``APIConsumer``: the same three calls, with the calling thread's
    server, a time limit, a kept connection, and no failure swallowed."""

    _current = threading.local()

    @classmethod
    @contextmanager
    def to(cls, session: requests.Session, url: str) -> Iterator[None]:
        """Send this thread's calls to a server."""
        cls._current.target = (session, url)
        try:
            yield
        finally:
            del cls._current.target

    @classmethod
    def get(cls, url: str, **options: Any) -> requests.Response:
        return cls._send("GET", url, options)

    @classmethod
    def post(cls, url: str, **options: Any) -> requests.Response:
        return cls._send("POST", url, options)

    @classmethod
    def delete(cls, url: str, **options: Any) -> requests.Response:
        return cls._send("DELETE", url, options)

    @classmethod
    def _send(cls, method: str, path: str, options: dict[str, Any]) -> requests.Response:
        session, url = cls._current.target
        answer: requests.Response = session.request(
            method, url + path, timeout=CALL_TIMEOUT_S, **options
        )
        validate_response(answer)
        if answer.status_code >= HTTPStatus.BAD_REQUEST:
            raise requests.HTTPError(f"{answer.status_code} to {method} {path}: {answer.text}")
        return answer


def _text(said: object) -> str:
    return said.decode(errors="replace").strip() if isinstance(said, bytes) else str(said)


# The seam that the library's objects send through.
toxiproxy.proxy.APIConsumer = _Transport
toxiproxy.server.APIConsumer = _Transport
