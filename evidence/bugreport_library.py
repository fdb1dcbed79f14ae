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

from bench import clients
from clusters import images
from locks.shared.client_container import ContainerLibrary
from locks.shared.client_programs import LIMIT, THE_LEASE, Program
from report.grid import markdown_table
from results.documents import Client, Versions
from results.wording import escape_markdown

PINS: Final = "pins.txt"
ADAPTER: Final = "adapter.py"


@dataclass(frozen=True)
class Beside:
    """The library of one lock, and what the run recorded of it (empty: nothing)."""

    lock: str
    library: clients.Beside
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
    def source(self) -> Path:
        """The code that calls it."""
        if isinstance(self.library, ContainerLibrary):
            return images.FOLDER / self.library.image / self.library.program.source
        return self.library.adapter


def beside(lock: str, versions: Versions) -> Beside | None:
    """None for a lock whose client runs inside the worker, and for one that is not declared."""
    library = clients.declared(lock)
    if library is None:
        return None
    return Beside(lock, library, (versions.clients or {}).get(clients.name_of(library), Client()))


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
    if of.recorded != Client():
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
    for name, said in (("lease_ttl_s", THE_LEASE), ("client_timeout_s", LIMIT)):
        if name in load:
            number = f"{said} ({load[name]:g} s)"
            given = {k: v.replace(said, number) for k, v in given.items()}
    yield markdown_table(("set", "to"), given.items())
    if program.beside:
        yield f"What the program does beside the library: {escape_markdown(program.beside)}."


def versions(of: Beside) -> list[tuple[str, str]]:
    """Rows of the table of versions."""
    rows = [(f"{of.lock}: {name}", of.pins[name]) for name in of.names]
    if isinstance(of.library, ContainerLibrary):
        inside = ", ".join(f"{k} {v}" for k, v in (of.recorded.versions or {}).items())
        made = of.recorded.digest or of.recorded.id
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
