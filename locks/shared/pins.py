"""What lock libraries are pinned to: name → version, read from the lists that their builds obey.

``go.mod`` has every module that a program of Go is made of (the build runs with ``-mod=readonly``,
``go.sum`` has their hashes). ``artifacts.sha256`` has every file that the artifacts of each
``requirements.maven`` come to, the build fails where one differs. ``package-lock.json`` has every
package of npm, with hashes, and is all that ``npm ci`` installs. ``debian.lock`` has every package
that the program of PHP needs beyond the base, with hashes. ``requirements.txt`` pins an environment
of Python, with hashes.

Guarantees the name that the library itself goes by: a module's path, ``group:artifact`` of what was
asked for, a package's name. Files whose names end in more than a version keep that as part of it.
Raises ValueError for a list that says something these readers do not know, such as a replaced
module: its line would not be true.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from lockbench.clusters import images
from lockbench.clusters.libraries import PHP


def of_image(image: str) -> dict[str, str]:
    """Everything that the program of a client image is built of."""
    folder = images.FOLDER / image
    if (go := folder / "go.mod").is_file():
        return go_modules(go.read_text(encoding="utf-8"))
    if (files := folder / "artifacts.sha256").is_file():
        return artifacts(images.recipes()[image].wanted(), files.read_text(encoding="utf-8"))
    if (lock := folder / "package-lock.json").is_file():
        return npm_packages(lock.read_text(encoding="utf-8"))
    if images.recipes()[image].language is PHP:
        return debian_packages(images.locked(image))
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


def artifacts(wanted: Mapping[str, str], files: str) -> dict[str, str]:
    """``wanted`` is ``group:artifact`` → version; what is not among the files is left out.
    ``files`` are lines of a digest and a name. Two versions of one name stand together: they are
    of different groups, which a file does not tell."""
    several: dict[str, list[str]] = {}
    for line in files.splitlines():
        name = line.split()[-1]
        parts = re.fullmatch(r"(.+?)-(\d.*)\.jar", name)
        if parts is None:
            raise ValueError(f"artifacts.sha256: {name} has no version")
        several.setdefault(parts[1], []).append(parts[2])
    found = {name: ", ".join(versions) for name, versions in several.items()}
    named: dict[str, str] = {}
    for asked, version in wanted.items():
        name = asked.partition(":")[2]
        if version in several.get(name, ()):
            named[asked] = version
            if len(several[name]) == 1:
                del found[name]
    return named | found


def npm_packages(text: str) -> dict[str, str]:
    """Package → version of all that a ``package-lock.json`` installs, by the name that it is
    imported by. Several versions of one stand together."""
    found: dict[str, set[str]] = {}
    for path, package in json.loads(text)["packages"].items():
        if package.get("link") or (path and "version" not in package):
            raise ValueError(f"package-lock.json: {path} is not a package of a version")
        if path:
            name = path.rpartition("node_modules/")[2]
            found.setdefault(name, set()).add(package["version"])
    return {name: ", ".join(sorted(versions)) for name, versions in found.items()}


def debian_packages(text: str) -> dict[str, str]:
    """Package → version of lines of debian.lock without the image's name."""
    return dict(line.split()[:2] for line in text.splitlines())


def requirements(path: Path) -> dict[str, str]:
    """Package → version of a list of requirements, as far as it says one; extras are left out."""
    line = r"^([\w.\-]+)(?:\[[^\]]*\])?==([^\s;\\]+)"
    return dict(re.findall(line, path.read_text(encoding="utf-8"), re.MULTILINE))


def names(path: Path) -> set[str]:
    """The packages that a list of requirements asks for, with or without a version, as indexes
    write them."""
    found = re.findall(r"^[A-Za-z0-9][\w.\-]*", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {plain(name) for name in found}


def plain(name: str) -> str:
    """The name of a package as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
