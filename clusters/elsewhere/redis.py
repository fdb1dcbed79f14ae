"""Redis, or Valkey, elsewhere: single primaries, one or several."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import hiredis

from lockbench.clusters.elsewhere.place import ASK_LIMIT_S, LOOK_LIMIT_S, Place, Refused, Side
from lockbench.clusters.elsewhere.site import Site, SiteError
from lockbench.clusters.redis import protocol as resp
from lockbench.clusters.wire import Address, Line, ProbeFailed

SCANNED_AT_ONCE = "1000"
SPECIAL = str.maketrans({char: f"\\{char}" for char in "\\*?[]^-"})


class RedisPlace(Place):
    """See the module."""

    sizes = (1, 3, 5, 7)

    async def enter(self, site: Site, server: Side, client: Side) -> None:
        """AUTH, whose answer is kept from the client."""
        if site.password is None:
            return
        words = ("AUTH", *([site.user] if site.user else []), site.password.reveal())
        server.writer.write(hiredis.pack_command(words))  # type: ignore[arg-type]  # its stub
        answer = (await server.reader.readline()).decode(errors="replace").strip()
        if not answer:
            raise EOFError
        if answer != "+OK":
            who = f" of the user {site.user}" if site.user else ""
            raise Refused(f"does not take the password{who}: {answer.removeprefix('-')}")

    def identify(self, site: Site, at: Sequence[Address]) -> str:
        """Primaries, of which none is another one by another name."""
        seen: dict[str, str] = {}
        version = ""
        for node, address in zip(site.nodes, at, strict=True):
            said = _info(address, str(node), site)
            if (mode := said.get("redis_mode", "standalone")) != "standalone":
                raise SiteError(
                    f"{node} is a Redis {mode.title()}, and {site.file.name} says {site.topology}"
                )
            if said.get("role") != "master":
                raise SiteError(
                    f"{node} is a replica of {said.get('master_host')}:{said.get('master_port')}:"
                    f" name its primary in {site.file.name}"
                )
            run_id = said.get("run_id", str(node))
            if run_id in seen:
                raise SiteError(f"{seen[run_id]} and {node} are one and the same server")
            seen[run_id] = str(node)
            version = said.get("redis_version", "")
        return version

    def count(self, site: Site, at: Address) -> int:
        return sum(len(names) for names in _under(site, at))

    def clear(self, site: Site, at: Address) -> None:
        for names in _under(site, at):
            with Line(at, ASK_LIMIT_S) as line:
                resp.ask(line, "DEL", *names)


def _info(address: Address, name: str, site: Site) -> dict[str, str]:
    try:
        with Line(address, ASK_LIMIT_S) as line:
            said = "\n".join(
                str(resp.ask(line, "INFO", part)) for part in ("server", "replication")
            )
    except ProbeFailed as error:
        if "NOAUTH" in str(error):
            raise SiteError(
                f"{name} asks for a password: name where it is in {site.file.name}"
                " (password-env or password-file)"
            ) from error
        raise
    lines = (line.strip().partition(":") for line in said.splitlines())
    return {key: value for key, _, value in lines}


def _under(site: Site, at: Address) -> Iterator[list[str]]:
    """The keys under the prefix, some at a time; each may come twice."""
    until = time.monotonic() + LOOK_LIMIT_S
    pattern = site.prefix.translate(SPECIAL) + "*"
    cursor = "0"
    with Line(at, LOOK_LIMIT_S) as line:
        while True:
            found = resp.items(
                resp.ask(line, "SCAN", cursor, "MATCH", pattern, "COUNT", SCANNED_AT_ONCE)
            )
            cursor = str(found[0])
            if names := [str(name) for name in resp.items(found[1])]:
                yield names
            if cursor == "0":
                return
            if time.monotonic() > until:
                raise ProbeFailed(f"it has too many keys to look through in {LOOK_LIMIT_S:g} s")
