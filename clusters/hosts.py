"""The file of ``--hosts``: other machines with a Docker engine, a node of the cluster on each.

Who may use an engine is the business of whoever makes its socket appear here (``ssh -L``).
"""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Annotated, Final

import msgspec

from lockbench.clusters.base import Host, Topology
from lockbench.clusters.engine.forward import SOCKET, UNIX
from lockbench.history.files import BadFile, read_toml

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
OVER_HOSTS: Final = "-over-hosts"  # ends the names of topologies that are over several


class HostsError(Exception):
    """The file is wrong: one sentence."""


class _Host(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    engine: str
    address: str


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    host: Annotated[list[_Host], msgspec.Meta(min_length=1)]


def read(file: Path) -> tuple[Host, ...]:
    """The hosts of a file, in its order. Raises HostsError."""
    try:
        said = msgspec.convert(read_toml(file), _File).host
    except BadFile as error:
        raise HostsError(str(error)) from error
    except msgspec.ValidationError as error:
        raise HostsError(f"{file}: {str(error).replace('`', '')}") from error
    hosts = tuple(Host(one.name, one.engine, one.address) for one in said)
    for one in hosts:
        if why := _wrong(one):
            raise HostsError(f"{file}: {why}")
    for values in zip(*map(astuple, hosts), strict=True):
        twice = [value for value, times in Counter(values).items() if times > 1]
        if twice:
            raise HostsError(f"{file} says {twice[0]} of two hosts, and each is to be another one")
    return hosts


def _wrong(host: Host) -> str | None:
    """What is wrong with it, or None."""
    if NAME.fullmatch(host.name) is None:
        return f"{host.name!r} is no name for a host; it has letters and digits"
    try:
        address = ipaddress.IPv4Address(host.address)
    except ValueError:
        return f"host {host.name} has the address {host.address!r}, which is no IPv4 address"
    if address.is_loopback or address.is_unspecified or address.is_multicast:
        return f"host {host.name} has the address {address}, where no other machine reaches it"
    if host.engine.startswith(UNIX):
        return None
    try:
        words = shlex.split(host.engine)
    except ValueError as error:
        return f"the command of host {host.name}: {error}"
    if not any(SOCKET in word for word in words):
        return (
            f"host {host.name} has the engine {host.engine!r}, which neither begins with {UNIX} nor"
            f" is a command that makes a socket at {SOCKET}"
        )
    return None


def why_not(topology: Topology, hosts: Sequence[Host]) -> str | None:
    """Why a topology is not put on these hosts, or None."""
    if not topology.over_hosts:
        return f"{topology.name} is not run over several hosts: its servers need one network"
    if len(hosts) not in topology.sizes:
        return (
            f"{topology.name} is not offered with {len(hosts)} nodes, one for each host of the"
            f" file; it is with {', '.join(map(str, topology.sizes))}"
        )
    return None
