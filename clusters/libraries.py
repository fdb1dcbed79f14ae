"""What the folders of lock libraries in Go, Java, Node and PHP bring into the one program of their
language.

A folder (`locks/libraries/<name>`) has the sources that call its library, and a list of what they
need, a requirement a line: modules in `requirements.mod`, artifacts of Maven in
`requirements.maven`, packages of npm in `requirements.npm`, of Debian in `requirements.debian`.
What all of a language share says so in the folder of the image. A folder in Java also has a class
that implements `Library`, which knows its locks by name.

Nothing is resolved here. The locks in the image's folder (`go.mod` and `go.sum`, `artifacts.sha256`
and `checksums.sha256`, or `package-lock.json`) follow from the lists by `python -m
lockbench.clusters.images lock`; Debian's packages are in `debian.lock`. Standard library only.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

SERVICES = "lockbench.Library"  # as java.util.ServiceLoader names it
_IMPLEMENTS = re.compile(rb"\bpublic final class \w+ implements Library\b")


class Language(ABC):
    """A language of libraries. `folders` are that of the image and those of its libraries."""

    source: ClassVar[str]
    """How the names of its sources end."""
    requirements: ClassVar[str]
    """The name of a folder's list."""
    form: ClassVar[str]
    """A line of that list, in words."""
    line: ClassVar[str]
    """The same as a pattern, with a name and a version."""

    def folders(self, libraries: Path) -> list[Path]:
        """Return the folders of its libraries, by name."""
        marks = (f"*/*{self.source}", f"*/{self.requirements}")
        return sorted({path.parent for mark in marks for path in libraries.glob(mark)})

    def sources(self, folder: Path) -> list[Path]:
        """Return the files that call a library."""
        return sorted(folder.glob(f"*{self.source}"))

    def wanted(self, folders: Sequence[Path]) -> dict[str, str]:
        """Return what is asked for by name: name → version."""
        lines = (line for folder in folders for line in self._lines(folder))
        found = (re.fullmatch(self.line, line) for line in lines)
        return {one[1]: one[2] for one in found if one}

    def with_version(self, requirements: str, name: str, version: str) -> str:
        """Return the text of a list that asks for another version of what it asks for by name."""
        line = re.compile(rf"^({re.escape(name)}[ :@](?:.+@)?).*$", re.MULTILINE)
        return line.sub(rf"\g<1>{version}", requirements)

    def composed(self, folders: Sequence[Path], files: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return the files that follow from all folders, by name; `files` are those of the image.
        What all share comes first. Folders that are not whole bring what they have."""
        lines = dict.fromkeys(line for folder in folders for line in self._lines(folder))
        return {self.requirements: "".join(f"{line}\n" for line in lines).encode()}

    def check(self, folders: Sequence[Path]) -> None:
        """Raise ValueError, in a sentence, for a folder that is not whole, and for two that do not
        fit together."""
        first: dict[str, tuple[str, str]] = {}
        for folder in folders:
            lines, where = self._lines(folder), f"{folder.name}/{self.requirements}"
            if not lines:
                raise ValueError(
                    f"{folder.name} has no {self.requirements} that says what it needs:"
                    f" {self.form}, a line each"
                )
            for line in lines:
                found = re.fullmatch(self.line, line)
                if found is None:
                    raise ValueError(f"{where}: {line!r} is not {self.form}")
                name, version = found.groups()
                other, elsewhere = first.setdefault(name, (version, where))
                if version != other:
                    raise ValueError(
                        f"{where} asks for {name} {version}, {elsewhere} for {other}: all of a"
                        " language are one program, which has one version of it"
                    )

    @abstractmethod
    def check_locks(self, wanted: Mapping[str, str], locks: Mapping[str, bytes]) -> None:
        """Raise ValueError, in a sentence, for locks, by name, that are not those of what is
        wanted."""

    def _lines(self, folder: Path) -> list[str]:
        path = folder / self.requirements
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        return [line.strip() for line in text.splitlines() if line.strip()]


class _Go(Language):
    source = ".go"
    requirements = "requirements.mod"
    form = "a module and its version"
    line = r"(\w[\w./~-]*) (v[\w.+-]+)"

    def check_locks(self, wanted: Mapping[str, str], locks: Mapping[str, bytes]) -> None:
        line = re.compile(r"^(?:require)?\s+(\S+) (v\S+)( // indirect)?$", re.MULTILINE)
        found = line.findall(locks["go.mod"].decode())
        if missing := wanted.items() - {(name, version) for name, version, _ in found}:
            name, version = min(missing)
            raise ValueError(f"{self.requirements} asks for {name} {version}, and go.mod does not")
        for name, version, indirect in found:
            if not indirect and name not in wanted:
                raise ValueError(
                    f"go.mod has {name} {version} as a direct requirement, and no"
                    f" {self.requirements} asks for it"
                )


class _Java(Language):
    source = ".java"
    requirements = "requirements.maven"
    form = "group:artifact:version"
    line = r"([\w.-]+:[\w.-]+):([\w.-]+)"

    def composed(self, folders: Sequence[Path], files: Mapping[str, bytes]) -> dict[str, bytes]:
        dependencies = "".join(
            f"    <dependency>\n      <groupId>{group}</groupId>\n"
            f"      <artifactId>{artifact}</artifactId>\n      <version>{version}</version>\n"
            "    </dependency>\n"
            for name, version in self.wanted(folders).items()
            for group, artifact in [name.split(":")]
        )
        mark = b"  <dependencies>\n"
        return super().composed(folders, files) | {
            "pom.xml": files["pom.xml"].replace(mark, mark + dependencies.encode()),
            SERVICES: "".join(
                f"lockbench.{source.stem}\n"
                for folder in folders
                for source in self._services(folder)
            ).encode(),
        }

    def check(self, folders: Sequence[Path]) -> None:
        super().check(folders)
        for folder in folders[1:]:
            if not self._services(folder):
                raise ValueError(
                    f"{folder.name} has no public final class that implements Library, which knows"
                    " its locks by name"
                )

    def _services(self, folder: Path) -> list[Path]:
        return [each for each in self.sources(folder) if _IMPLEMENTS.search(each.read_bytes())]

    def check_locks(self, wanted: Mapping[str, str], locks: Mapping[str, bytes]) -> None:
        jars = {line.split()[-1] for line in locks["artifacts.sha256"].decode().splitlines()}
        for name, version in wanted.items():
            if f"{name.partition(':')[2]}-{version}.jar" not in jars:
                raise ValueError(
                    f"{self.requirements} asks for {name} {version}, and artifacts.sha256 has none"
                )


class _Node(Language):
    source = ".js"
    requirements = "requirements.npm"
    form = "package@version"
    # Two versions of a package are had under two names: name@npm:package@version.
    line = r"(@?[\w./-]+)@((?:npm:@?[\w./-]+@)?\d[\w.+-]*)"

    def composed(self, folders: Sequence[Path], files: Mapping[str, bytes]) -> dict[str, bytes]:
        package = {"private": True, "dependencies": self.wanted(folders)}
        text = json.dumps(package, indent=2, sort_keys=True) + "\n"
        return super().composed(folders, files) | {"package.json": text.encode()}

    def check_locks(self, wanted: Mapping[str, str], locks: Mapping[str, bytes]) -> None:
        found = json.loads(locks["package-lock.json"])["packages"][""].get("dependencies", {})
        if missing := wanted.items() - found.items():
            name, version = min(missing)
            raise ValueError(
                f"{self.requirements} asks for {name} {version}, and package-lock.json does not"
            )
        if more := found.keys() - wanted.keys():
            raise ValueError(
                f"package-lock.json has {min(more)}, and no {self.requirements} asks for it"
            )


class _Php(Language):
    source = ".php"
    requirements = "requirements.debian"
    form = "a package of Debian"
    line = r"([a-z0-9][a-z0-9.+-]+)()"  # its version is what the mirror has

    def check_locks(self, wanted: Mapping[str, str], locks: Mapping[str, bytes]) -> None:
        """Nothing here is one: what apt installed is compared with debian.lock afterwards."""


GO = _Go()
JAVA = _Java()
NODE = _Node()
PHP = _Php()
