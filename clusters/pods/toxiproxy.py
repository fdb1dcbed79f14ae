"""The Toxiproxy of one pod. No other module imports toxiproxy-python.

The library supplies the objects and the errors; Toxiproxy itself is our build of it, with a toxic
and two calls of our own (``images/toxiproxy``): one call says what many links are to be, and its
answer is what they then are. What the library cannot do is put right in the transport:

- it keeps the server's address in class attributes, so a process could speak to one server only:
  here each server has its own;
- it sets no time limits: here two seconds, since Toxiproxy has hung for good before;
- it swallows answers of 5xx: here every answer that is no success is an error;
- it opens a connection per call: here one is kept per server;
- its ``populate`` asks for the whole list for every proxy: here Toxiproxy's own /populate is used.

Nothing is random here: Toxiproxy ignores its ``-seed``, so nothing that it draws could be replayed.
The links of one pod change within a millisecond of each other, those of several pods do not;
callers record the interval.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from lockbench.clusters.base import ClusterError
from lockbench.clusters.pods.links import Direction, Link, ProxyCut, Stream
from lockbench.declarations.lazy import lazy

if TYPE_CHECKING:
    import requests
    import toxiproxy
    from toxiproxy import api, exceptions
else:
    requests = lazy("requests")
    toxiproxy = lazy("toxiproxy")
    api = lazy("toxiproxy.api")
    exceptions = lazy("toxiproxy.exceptions")

CALL_TIMEOUT_S = 2.0
HEAL_TRIES = 3
TOXIC = "link"  # the type of our toxic; one of them is on each stream


class LinkError(ClusterError):
    """A Toxiproxy did not do what it was told; the message names the pod and the proxy."""


class SilentError(LinkError):
    """It did not answer; what it was told may be done."""


@dataclass(frozen=True, slots=True)
class Listen:
    """A proxy to be made: both addresses as ``host:port``, seen from inside the pod, and what the
    link is while nothing is wrong with it."""

    name: str
    listen: str
    upstream: str
    base: Link = field(default_factory=Link)


class LinkServer:
    """The links that live in one pod. May be used from several threads, one call at a time."""

    def __init__(self, name: str, host: str, port: int) -> None:
        self.name = name
        self._url = f"http://{host}:{port}"
        self._session = requests.Session()
        # Proxies of the environment are for the outside; asking for them costs as much as the call.
        self._session.trust_env = False
        self._lock = threading.RLock()
        self._base: dict[str, Link] = {}
        self._wanted: dict[str, Link] = {}

    def check_up(self) -> None:
        """Any answer of Toxiproxy. Raises OSError."""
        self._session.get(f"{self._url}/version", timeout=CALL_TIMEOUT_S).raise_for_status()

    def populate(self, listens: Iterable[Listen]) -> None:
        """Make these proxies too; when this returns, each listens and is in its base state."""
        listens = tuple(listens)
        bases = {link.name: link.base for link in listens}
        wanted = [
            {"name": link.name, "listen": link.listen, "upstream": link.upstream, "enabled": True}
            for link in listens
        ]
        answer = self._send("POST", "/populate", wanted)
        made = {found["name"]: toxiproxy.Proxy(**found) for found in answer["proxies"]}
        idle = {name for name in bases if name not in made or not made[name].enabled}
        if idle:
            raise LinkError(f"{self.name}: these links do not listen: {sorted(idle)}")
        with self._lock:
            self._base |= bases
            self._set(bases)

    def cut(self, cuts: Iterable[ProxyCut]) -> None:
        """Cut these proxies, in one call. A link keeps its shape, and what else is cut of it."""
        self._change((one.proxy, partial(_cut, cut=one)) for one in cuts)

    def shape(self, names: Iterable[str], shape: Link) -> None:
        """Give these proxies the shape of a link, in one call; what is cut stays cut."""
        self._change((name, partial(_reshaped, shape=shape)) for name in names)

    def reset(self, names: Iterable[str]) -> int:
        """End all open connections of these proxies with RST, towards both sides. Returns how many
        there were on either side."""
        with self._lock:
            known = [name for name in names if self._link(name)]
            return int(self._send("POST", "/links/reset", known)["ended"])

    def heal(self) -> None:
        """Restore every proxy to its base state; LinkError names what is not. A Toxiproxy that does
        not answer is told again: a link that stays cut voids the case."""
        with self._lock:
            self._wanted = dict(self._base)
            found = self._order(self._base, HEAL_TRIES)
        if left := self._differing(self._base, found):
            raise LinkError(f"{self.name}: not healed: {'; '.join(left)}")

    def broken(self) -> list[str]:
        """Return what is not in its base state, as Toxiproxy itself tells: one line each."""
        return self._differing(self._base, self._send("GET", "/proxies"))

    # --- what the pod's containers share (``lockbench.clusters.pods.shim``) ---

    def set_clock(self, offset_ns: int) -> None:
        """Move the wall clock of the pod's server, if it runs with our library."""
        self._send("POST", "/clock", {"offset_ns": offset_ns})

    def synced(self) -> Mapping[str, int]:
        """Return the bytes that are synced of each file, by absolute path in the server's
        container. A file that was never synced is not there. Certain once the server is dead."""
        found: Mapping[str, int] = self._send("GET", "/synced")
        return found

    def forget_synced(self) -> None:
        """Forget all files: their container is gone."""
        self._send("DELETE", "/synced")

    def close(self) -> None:
        """Close the connection; Toxiproxy itself runs on."""
        self._session.close()

    def _link(self, name: str) -> Link:
        link = self._wanted.get(name)
        if link is None:
            raise LinkError(f"{self.name} has no link called {name}")
        return link

    def _change(self, edits: Iterable[tuple[str, Callable[[Link], Link]]]) -> None:
        with self._lock:
            changes: dict[str, Link] = {}
            for name, edit in edits:
                changes[name] = edit(changes.get(name) or self._link(name))
            self._set(changes)

    def _set(self, changes: Mapping[str, Link]) -> None:
        """Make links what they are to be, and see that they are."""
        self._wanted |= changes  # before the call: what is half done must be healed too
        if wrong := self._differing(changes, self._order(changes)):
            raise LinkError(f"{self.name}: not as ordered: {'; '.join(wrong)}")

    def _order(self, links: Mapping[str, Link], tries: int = 1) -> Mapping[str, Any]:
        orders = {
            name: {
                "enabled": link.enabled,
                **{way: asdict(stream) for way, stream in link.streams.items()},
            }
            for name, link in links.items()
        }
        found: Mapping[str, Any]
        for _ in range(tries - 1):
            with suppress(SilentError):
                found = self._send("POST", "/links", orders)
                return found
        found = self._send("POST", "/links", orders)
        return found

    def _differing(self, wanted: Mapping[str, Link], found: Mapping[str, Any]) -> list[str]:
        """Compare what links are to be with an answer of Toxiproxy; one line per difference."""
        lines = []
        for name, link in sorted(wanted.items()):
            if name not in found:
                lines.append(f"{name}: missing")
                continue
            state = found[name]
            if state["enabled"] != link.enabled:
                lines.append(f"{name}: {'enabled' if state['enabled'] else 'disabled'}")
            toxics = {toxic["name"]: toxic for toxic in state["toxics"]}
            for way, stream in link.streams.items():
                toxic = toxics.pop(f"{TOXIC}_{way}", None)
                is_ = toxic["attributes"] if toxic else "without its toxic"
                if is_ != asdict(stream):
                    lines.append(f"{name}: {way} is {is_}")
            lines += [f"{name}: {extra}" for extra in sorted(toxics)]
        return lines

    def _send(self, method: str, path: str, body: object = None) -> Any:
        with self._lock:
            try:
                answer = self._session.request(
                    method, self._url + path, json=body, timeout=CALL_TIMEOUT_S
                )
                api.validate_response(answer)
                if answer.status_code >= HTTPStatus.BAD_REQUEST:
                    raise LinkError(
                        f"{self.name}: Toxiproxy answers {answer.status_code} to {method} {path}:"
                        f" {answer.text.strip()}"
                    )
                return answer.json()
            except (exceptions.InvalidToxic, exceptions.NotFound, exceptions.ProxyExists) as error:
                said = error.args[0] if error.args else b""
                raise LinkError(f"{self.name}: Toxiproxy refused: {_text(said)}") from error
            except requests.RequestException as error:
                raise SilentError(f"{self.name}: Toxiproxy does not answer: {error}") from error


def _cut(link: Link, cut: ProxyCut) -> Link:
    if cut.how == "reject":
        return replace(link, enabled=False)
    streams: dict[Direction, Stream] = dict(link.streams)
    for way in cut.streams:
        streams[way] = replace(streams[way], cut=cut.how)
    return replace(link, streams=streams)


def _reshaped(link: Link, shape: Link) -> Link:
    streams = {
        way: replace(stream, cut=link.streams[way].cut) for way, stream in shape.streams.items()
    }
    return replace(link, streams=streams)


def _text(said: object) -> str:
    return said.decode(errors="replace").strip() if isinstance(said, bytes) else str(said)
