"""What lock libraries are pinned to: name → version, read from the lists that their builds obey.

``go.mod`` has every module that a program of Go is made of (the build runs with ``-mod=readonly``,
``go.sum`` has their hashes). ``artifacts.sha256`` has every file that ``pom.xml`` comes to, the
build fails where one differs. ``requirements.txt`` pins an environment of Python, with hashes.

Guarantees the name that the library itself goes by: a module's path, ``group:artifact`` of what
``pom.xml`` asks for, a package's name. Files whose names end in more than a version keep that as
part of it. Raises ValueError for a list that says something these readers do not know, such as a
replaced module: its line would not be true.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from clusters import images

POM: Final = "{http://maven.apache.org/POM/4.0.0}"


def of_image(image: str) -> dict[str, str]:
    """Everything that the program of a client image is built of."""
    folder = images.FOLDER / image
    if (go := folder / "go.mod").is_file():
        return go_modules(go.read_text(encoding="utf-8"))
    if (pom := folder / "pom.xml").is_file():
        files = (folder / "artifacts.sha256").read_text(encoding="utf-8")
        return artifacts(pom.read_text(encoding="utf-8"), files)
    return {}


def go_modules(text: str) -> dict[str, str]:
    """Module → version of all that a ``go.mod`` requires. Its ``go`` is left out: that is the least
    that will do, not what it is built with."""
    found: dict[str, str] = {}
    block = ""
    for line in (whole.partition("//")[0].strip() for whole in text.splitlines()):
        words = line.split()
        if not words or words[0] == "module":
            continue
        if words == [")"]:
            block = ""
        elif words[-1] == "(":
            block = words[0]
        else:
            verb, *rest = [block, *words] if block else words
            if verb not in {"require", "go", "toolchain"} or len(rest) > 2:
                raise ValueError(f"go.mod: {line!r} is not known")
            if verb == "require":
                found[rest[0]] = rest[-1]
    return found


def artifacts(pom: str, files: str) -> dict[str, str]:
    """``files`` are lines of a digest and a name. Two versions of one name stand together: they are
    of different groups, which a file does not tell."""
    from xml.etree import ElementTree as ET

    several: dict[str, list[str]] = {}
    for line in files.splitlines():
        name = line.split()[-1]
        parts = re.fullmatch(r"(.+?)-(\d.*)\.jar", name)
        if parts is None:
            raise ValueError(f"artifacts.sha256: {name} has no version")
        several.setdefault(parts[1], []).append(parts[2])
    found = {name: ", ".join(versions) for name, versions in several.items()}
    wanted = ET.fromstring(pom).findall(f"{POM}dependencies/{POM}dependency")  # noqa: S314 - ours
    named: dict[str, str] = {}
    for each in wanted:
        group, name, version = (
            each.findtext(f"{POM}{field}", "") for field in ("groupId", "artifactId", "version")
        )
        if version not in several.get(name, ()):
            raise ValueError(f"pom.xml: {group}:{name} {version} is not among the files")
        named[f"{group}:{name}"] = version
        if len(several[name]) == 1:
            del found[name]
    return named | found


def requirements(path: Path) -> dict[str, str]:
    """Package → version of a list of requirements, as far as it says one; extras are left out."""
    line = r"^([\w.\-]+)(?:\[[^\]]*\])?==([^\s;\\]+)"
    return dict(re.findall(line, path.read_text(encoding="utf-8"), re.MULTILINE))


def names(path: Path) -> set[str]:
    """The packages that a list of requirements asks for, with or without a version, as indexes
    write them."""
    found = re.findall(r"^[A-Za-z0-9][\w.\-]*", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower() for name in found}
