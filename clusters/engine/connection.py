"""Calls to the Docker engine: a connection each, a time limit, and errors that are sentences.

No call waits for ever: one that hears nothing for `CALL_TIMEOUT_S` ends with EngineUnreachable,
and until the engine has answered again no other waits longer than `SILENT_TIMEOUT_S`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from lockbench.declarations.lazy import lazy

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


class EngineError(Exception):
    """The engine refused or failed; the text is one sentence, or ends with the log's last lines."""


class EngineUnreachable(EngineError):
    """No engine answers; whether it did what it was last asked for is not known."""


def _why_nobody_answers(error: BaseException, at: str, host: str) -> str:
    """One sentence. The SDK's own words wrap what the kernel said in several layers."""
    where = at or os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    cause: BaseException = error
    while (below := cause.__cause__ or cause.__context__) is not None:
        cause = below
    if isinstance(cause, PermissionError):
        return (
            f"the Docker engine at {where} does not let this user in: join the group `docker` (and"
            " log in again), or run this as root"
        )
    why = (isinstance(cause, OSError) and cause.strerror) or str(error)
    if host:
        return f"no Docker engine of host {host} answers at {where} ({why}): start Docker there"
    todo = "start Docker, or set DOCKER_HOST to where it listens"
    return f"no Docker engine answers at {where} ({why}): {todo}"


class Connection:
    """A Docker engine that answered. May be used from several threads at once."""

    host: str = ""
    """Whose engine it is; empty: this machine's."""

    def __init__(self, at: str = "", host: str = "") -> None:
        """Connect to the engine ``at`` this URL, which is that of another ``host``; else to
        DOCKER_HOST or the usual socket. EngineUnreachable when nobody answers."""
        self.host = host
        self._at = at
        self._on = f" on host {host}" if host else ""
        self._timeout_s = CALL_TIMEOUT_S
        # The SDK's HTTP session is not safe to share: each call has one for itself, and returns it.
        self._idle: list[docker.APIClient] = []
        self._silent = False
        self._api_version = "auto"
        try:
            client = self._client()
            self._api_version = client.api_version
            client.ping()
        except (docker.errors.DockerException, requests.RequestException) as error:
            raise EngineUnreachable(_why_nobody_answers(error, at, host)) from error
        self._idle.append(client)

    def version(self) -> str:
        """Return the engine's version."""
        with self._asking("ask the engine's version") as api:
            return str(api.version()["Version"])

    def identity(self) -> str:
        """What the engine calls itself; one of a machine that was copied may say the same."""
        with self._asking("ask about the engine") as api:
            return str(api.info()["ID"])

    def check_platform(self, system: str, processor: str) -> None:
        """EngineError where it runs no programs for these (``linux``, ``amd64``)."""
        with self._asking("ask the engine's version") as api:
            said = api.version()
        if (found := (said["Os"], said["Arch"])) != (system, processor):
            raise EngineError(
                f"the Docker engine{self._on} runs programs for {'/'.join(found)}, and ours are for"
                f" {system}/{processor}"
            )

    def close(self) -> None:
        """Close the connections that no call is using; a later call opens a new one."""
        while self._idle:
            self._idle.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _client(self) -> docker.APIClient:
        settings = {"base_url": self._at} if self._at else docker_utils.kwargs_from_env()
        return docker.APIClient(**settings, version=self._api_version, timeout=self._timeout_s)

    @contextmanager
    def _asking(self, doing: str, timeout_s: int | None = None) -> Iterator[docker.APIClient]:
        """Lend a client, and turn the SDK's errors into a sentence that names what was done."""
        try:
            client = self._idle.pop()
        except IndexError:
            client = self._client()
        usual_s = min(self._timeout_s, SILENT_TIMEOUT_S) if self._silent else self._timeout_s
        client.timeout = timeout_s or usual_s
        try:
            yield client
            self._silent = False
        except docker.errors.APIError as error:
            self._silent = False
            raise EngineError(f"cannot {doing}{self._on}: {error.explanation or error}") from error
        except requests.Timeout as error:
            self._silent = True
            silent = f"the Docker engine does not answer for {client.timeout} s"
            hangs = f"cannot {doing}{self._on}: {silent}"
            raise EngineUnreachable(hangs) from error
        except requests.ConnectionError as error:
            gone = f"cannot {doing}{self._on}: the Docker engine went away ({error})"
            raise EngineUnreachable(gone) from error
        except (
            docker.errors.DockerException,
            requests.RequestException,
            urllib3_errors.HTTPError,
        ) as error:
            raise EngineError(f"cannot {doing}{self._on}: {error}") from error
        finally:
            self._idle.append(client)
