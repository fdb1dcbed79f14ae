"""What has to be the same on all machines: this program, and the libraries that its workers use."""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Container
from importlib import metadata
from typing import Final

from lockbench.declarations.program import ROOT

PACKAGE: Final = "lockbench"
DIGITS: Final = 8


def versions() -> dict[str, str]:
    """Name → version. Lockbench's own is a digest of its modules, so that two checkouts with
    different changes differ."""
    found = {PACKAGE: digest(), "Python": ".".join(platform.python_version_tuple()[:2])}
    try:
        needed = metadata.requires(PACKAGE) or ()
    except metadata.PackageNotFoundError:
        needed = ()
    for requirement in needed:
        name = re.split(r"[^A-Za-z0-9_.-]", requirement, maxsplit=1)[0]
        if "extra ==" not in requirement:
            found[name] = _version(name)
    return found


def differing(machine: str, there: dict[str, str]) -> str | None:
    """A sentence about what a machine has otherwise than this one, or None."""
    here = versions()
    for name in dict.fromkeys([*here, *there]):
        if here.get(name) != there.get(name):
            theirs, ours = (found.get(name) or "none" for found in (there, here))
            verb = "runs" if name == PACKAGE else "has"
            return f"machine {machine} {verb} {name} {theirs}, this is {ours}: install the same"
    return None


def digest(only: Container[str] | None = None) -> str:
    """Of Lockbench's modules, or of those in some of its folders."""
    whole = hashlib.sha256()
    # Each folder by itself: in a checkout it is a link.
    for folder in sorted((ROOT / PACKAGE).iterdir()):
        if only is not None and folder.name not in only:
            continue
        files = sorted(folder.rglob("*.py")) if folder.is_dir() else [folder]
        for file in files:
            if file.suffix == ".py":
                whole.update(f"{folder.name}/{file.relative_to(folder)}\n".encode())
                whole.update(file.read_bytes())
    return whole.hexdigest()[:DIGITS]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
