"""What a bug report says of the library behind a lock: which one, how it is called, how it is set.

The run says what was there, as far as it recorded it (``bench.clients``); what calls the library is
the code of this tree. Where the run recorded no fingerprint, or another one than this tree has, the
report says so: then neither versions nor settings are proven to be those of the run.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd

from bench import clients
from clusters import images
from locks.client_container import ContainerLibrary
from locks.client_programs import LEASE, LIMIT, PROGRAMS, Program
from locks.library import ADAPTERS
from results.tables import markdown_table
from results.wording import escape_markdown

PINS: Final = "pins.txt"
ADAPTER: Final = "adapter.py"


@dataclass(frozen=True)
class Beside:
    """The library of one lock, and what the run recorded of it (empty: nothing)."""

    lock: str
    library: clients.Beside
    recorded: Mapping[str, Any]

    @property
    def _here(self) -> dict[str, Any]:
        return clients.as_pinned(self.library)

    @property
    def pins(self) -> Mapping[str, str]:
        """Name → version of everything it stands on."""
        found: Mapping[str, str] = self.recorded.get("pins") or self._here["pins"]
        return found

    @property
    def is_proven(self) -> bool:
        """Whether the run was made with what is in this tree."""
        return bool(self.recorded.get("fingerprint") == self._here["fingerprint"])

    @property
    def program(self) -> Program | None:
        """None for an adapter in Python, whose own code says it."""
        return PROGRAMS[self.library.lock] if isinstance(self.library, ContainerLibrary) else None

    @property
    def names(self) -> list[str]:
        """The pins that matter, the library first."""
        if self.program is not None:
            wanted = [self.program.library, *self.program.stands_on]
        else:
            asked_for = self.recorded.get("versions") or self._here["versions"]
            wanted = [*asked_for, *sorted(self.pins)]
        return [name for name in dict.fromkeys(wanted) if name in self.pins]

    @property
    def source(self) -> Path:
        """The code that calls it."""
        if isinstance(self.library, ContainerLibrary):
            return images.FOLDER / self.library.image / PROGRAMS[self.library.lock].source
        return ADAPTERS / self.library.folder / ADAPTER


def beside(lock: str, versions: Mapping[str, Any]) -> Beside | None:
    """None for a lock whose client runs inside the worker, and for one that is not declared."""
    library = clients.declared(lock)
    if library is None:
        return None
    if isinstance(library, ContainerLibrary) and library.lock not in PROGRAMS:
        return None  # of a file from elsewhere
    return Beside(lock, library, versions.get("clients", {}).get(clients.name_of(library), {}))


def headline(of: Beside) -> str:
    """The library, its version, the call and who the client is."""
    name, *_ = [*of.names, clients.name_of(of.library)]
    version = of.pins.get(name, "of an unknown version")
    said = f"**{escape_markdown(name)} {escape_markdown(version)}**"
    if of.program is None:
        return f"{said}, by the adapter in `{ADAPTER}`."
    return (
        f"{said}: an acquire is `{of.program.call}`, a client of the timeline is "
        f"{of.program.client}."
    )


def doubt(of: Beside) -> str:
    """What is not proven of versions and settings; empty where all is."""
    if of.is_proven:
        return ""
    if of.recorded:
        return (
            "The code that called the library has changed since the run: its settings are those of "
            "today; the versions are the run's own."
        )
    return (
        "This run was made before versions of libraries were recorded: versions and settings of "
        "the library are those that are pinned today."
    )


def settings(of: Beside, load: Mapping[str, Any]) -> Iterator[str]:
    """What is set on the library, as a list where it is declared as one. ``load`` is what the run
    says of its lease and its client timeout."""
    program = of.program
    if program is None:
        kind = "`safe`" if of.library.safe else "as it comes, not `safe`"
        yield (
            f"How the library is called and set, in the words of `{ADAPTER}` beside this file. "
            f"This lock is {kind}."
        )
        yield _quoted(ast.get_docstring(ast.parse(of.source.read_text(encoding="utf-8"))) or "")
        return
    given = {**program.settings, **(program.safe if of.library.safe else {})}
    yield (
        f"Set on the library and its runtime; everything else is their default. `{of.source.name}` "
        "beside this file is the code that does it."
    )
    for name, said in (("lease_ttl_s", LEASE), ("client_timeout_s", LIMIT)):
        if name in load:
            number = f"{said} ({load[name]:g} s)"
            given = {k: v.replace(said, number) for k, v in given.items()}
    yield markdown_table(pd.DataFrame([*given.items()], columns=["set", "to"]))
    if program.beside:
        yield f"What the program does beside the library: {escape_markdown(program.beside)}."


def versions(of: Beside) -> list[tuple[str, str]]:
    """Rows of the table of versions."""
    rows = [(f"{of.lock}: {name}", of.pins[name]) for name in of.names]
    if isinstance(of.library, ContainerLibrary):
        inside = ", ".join(f"{k} {v}" for k, v in (of.recorded.get("versions") or {}).items())
        made = of.recorded.get("digest") or of.recorded.get("id")
        said = f"{inside} ({made})" if made else "not recorded"
        rows.append((f"image {of.library.image}", said))
    return rows


def copy(of: Beside, target: Path) -> None:
    """The code that calls the library, and all of its pins, into a folder."""
    shutil.copy(of.source, target / of.source.name)
    lines = [f"{name} {version}\n" for name, version in of.pins.items()]
    (target / PINS).write_text("".join(lines), encoding="utf-8")


def _quoted(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())
