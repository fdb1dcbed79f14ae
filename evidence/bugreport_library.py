"""What a bug report knows of the library behind a lock: which one, how it is called, how it is set.

The run says what was there, as far as it recorded it (``lockbench.bench.clients``); what calls the
library is the code of this tree. Where the run recorded no fingerprint, or another one than this
tree has, the report says so: then neither versions nor settings are proven to be those of the run.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lockbench.bench import clients
from lockbench.locks.shared.client_container import ContainerLibrary
from lockbench.locks.shared.client_programs import LIMIT, THE_LEASE, Program
from lockbench.locks.shared.library import AnyLibrary
from lockbench.results.documents import Client, Pace, Versions

PINS: Final = "pins.txt"


@dataclass(frozen=True)
class Beside:
    """The library of one lock, and what the run recorded of it (empty: nothing)."""

    lock: str
    library: AnyLibrary
    recorded: Client

    @property
    def _here(self) -> dict[str, Any]:
        return clients.as_pinned(self.library)

    @property
    def pins(self) -> Mapping[str, str]:
        """Name → version of everything it stands on."""
        pins = self.recorded.pins or self._here["pins"]
        return {name: str(version) for name, version in pins.items()}

    @property
    def is_recorded(self) -> bool:
        """Whether the run recorded anything of it."""
        return self.recorded != Client()

    @property
    def is_proven(self) -> bool:
        """Whether the run was made with what is in this tree."""
        return bool(self.recorded.fingerprint == self._here["fingerprint"])

    @property
    def program(self) -> Program | None:
        """None for an adapter in Python, whose own code says it."""
        return self.library.program if isinstance(self.library, ContainerLibrary) else None

    @property
    def names(self) -> list[str]:
        """The pins that matter, the library first."""
        if self.program is not None:
            wanted = [self.program.library, *self.program.stands_on]
        else:
            asked_for = self.recorded.versions or self._here["versions"]
            wanted = [*asked_for, *sorted(self.pins)]
        return [name for name in dict.fromkeys(wanted) if name in self.pins]

    @property
    def first(self) -> str:
        """The name of the library itself."""
        return next(iter([*self.names, clients.name_of(self.library)]))

    @property
    def version(self) -> str:
        return self.pins.get(self.first, "of an unknown version")

    @property
    def source(self) -> Path:
        """The code that calls it."""
        if isinstance(self.library, ContainerLibrary):
            return self.library.source
        return self.library.adapter

    @property
    def says(self) -> str:
        """What an adapter in Python says of itself."""
        return ast.get_docstring(ast.parse(self.source.read_text(encoding="utf-8"))) or ""

    def settings(self, pace: Pace) -> dict[str, str]:
        """What is set on the library of a program, with the times that the load asked for."""
        assert self.program is not None
        given = {**self.program.settings, **(self.program.safe if self.library.safe else {})}
        for seconds, said in ((pace.lease_ttl_s, THE_LEASE), (pace.client_timeout_s, LIMIT)):
            if seconds is not None:
                given = {k: v.replace(said, f"{said} ({seconds:g} s)") for k, v in given.items()}
        return given

    def versions(self) -> list[tuple[str, str]]:
        """Rows of the table of versions."""
        rows = [(f"{self.lock}: {name}", self.pins[name]) for name in self.names]
        if isinstance(self.library, ContainerLibrary):
            inside = ", ".join(f"{k} {v}" for k, v in (self.recorded.versions or {}).items())
            made = self.recorded.digest or self.recorded.id
            said = f"{inside} ({made})" if made else "not recorded"
            rows.append((f"image {self.library.image}", said))
        return rows

    def copy(self, target: Path) -> None:
        """The code that calls the library, and all of its pins, into a folder."""
        shutil.copy(self.source, target / self.source.name)
        lines = [f"{name} {version}\n" for name, version in self.pins.items()]
        (target / PINS).write_text("".join(lines), encoding="utf-8")


def beside(lock: str, versions: Versions, side: str | None = None) -> Beside | None:
    """None for a lock whose client runs inside the worker, and for one that is not declared.
    ``side``: that of a change, of which only what it installed is recorded."""
    library = clients.declared(lock)
    if library is None:
        return None
    recorded = (versions.clients or {}).get(clients.name_of(library), Client())
    of_side = (versions.sides or {}).get(side or "")
    if recorded == Client() and of_side is not None and (installed := of_side.installed):
        pins = clients.as_pinned(library)["pins"]
        recorded = Client(pins={name: installed.get(name, str(pins[name])) for name in pins})
    return Beside(lock, library, recorded)
