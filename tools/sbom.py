"""``make sbom``: bills of materials of the images and of the environments of Python.

``python -m tools.sbom FOLDER`` writes one file of CycloneDX 1.6 (JSON) per image that is built, for
the environment that runs the bench, and for that of each lock library. Guaranteed: what is listed
was read from the image or the installed environment itself, or (lock libraries) from the pins with
which it is installed; the same content gives the same bytes. Not listed: licences, what depends on
what, and the standard libraries of Go and Java beyond the package that they came in.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable
from email.parser import Parser
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from lockbench.clusters import images
from lockbench.clusters.engine.docker import Engine, EngineError
from lockbench.locks.shared.library import ADAPTERS
from lockbench.locks.shared.pins import plain, requirements

Component = dict[str, Any]
DPKG_STATUS: Final = "/var/lib/dpkg/status"
MODULES: Final = "/etc/lockbench-modules"


def component(purl: str, name: str, version: str, sha256: str | None = None) -> Component:
    """One library. ``purl`` is its package URL (purl-spec), by which scanners know it."""
    hashes = [{"alg": "SHA-256", "content": sha256}] if sha256 else []
    made = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    return made | ({"hashes": hashes} if hashes else {})


def debian(status: str, packages: str) -> list[Component]:
    """The packages that ``dpkg`` has as installed; ``packages`` are lines of package, version,
    architecture and SHA-256 of the file that it came in, as far as they are known."""
    digests = {tuple(line.split()[:3]): line.split()[3] for line in packages.splitlines()}
    found = []
    for paragraph in status.split("\n\n"):
        fields = Parser().parsestr(paragraph, headersonly=True)
        if "installed" not in fields.get("Status", "").split():
            continue
        name, version, arch = fields["Package"], fields["Version"], fields["Architecture"]
        purl = f"pkg:deb/debian/{quote(name)}@{quote(version)}?arch={arch}"
        found.append(component(purl, name, version, digests.get((name, version, arch))))
    return found


def go(modules: str) -> list[Component]:
    """What ``go version -m`` says of a program: Go itself, and every module in it. A module that we
    changed keeps the name and version of what it was made from."""
    found = []
    for words in filter(None, (line.split() for line in modules.splitlines())):
        if words[0].endswith(":"):
            version = words[1].removeprefix("go")
            found.append(component(f"pkg:golang/stdlib@{version}", "stdlib", version))
        elif words[0] in {"mod", "dep"} and words[2] != "(devel)":
            path, version = words[1], words[2]
            found.append(component(f"pkg:golang/{path}@{quote(version)}", path, version))
    return found


def jars(artifacts: str, checksums: str) -> list[Component]:
    """The jars of ``artifacts`` (lines of SHA-256 and file name), named by the path under which the
    same file stands in ``checksums`` (group/artifact/version/file)."""
    paths = {line.split()[0]: line.split()[1] for line in checksums.splitlines() if line.strip()}
    found = []
    for line in artifacts.splitlines():
        digest, _ = line.split()
        *group, name, version, file = paths[digest].split("/")
        purl = f"pkg:maven/{'.'.join(group)}/{name}@{quote(version)}"
        if classifier := file.removesuffix(".jar").removeprefix(f"{name}-{version}").strip("-"):
            purl += f"?classifier={classifier}"
        found.append(component(purl, f"{'.'.join(group)}:{name}", version, digest))
    return found


def npm(lock: str) -> list[Component]:
    """Every package that a ``package-lock.json`` installs, with the SHA-512 of its file."""
    found = []
    for path, package in json.loads(lock)["packages"].items():
        if path:
            name = package.get("name", path.rpartition("node_modules/")[2])
            version, digest = package["version"], package["integrity"].removeprefix("sha512-")
            made = component(f"pkg:npm/{quote(name)}@{quote(version)}", name, version)
            content = base64.b64decode(digest, validate=True).hex()
            found.append(made | {"hashes": [{"alg": "SHA-512", "content": content}]})
    return found


def python(pins: Iterable[tuple[str, str]]) -> list[Component]:
    """Packages of the Python package index: name and version."""
    found = []
    for name, version in pins:
        usual = plain(name)
        found.append(component(f"pkg:pypi/{usual}@{quote(version)}", usual, version))
    return found


def document(kind: str, name: str, version: str, parts: Iterable[Component]) -> str:
    """The text of one bill; ``kind`` is CycloneDX's word (container, application)."""
    unique = {part["bom-ref"]: part for part in parts}
    return json.dumps(
        {
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": {"component": {"type": kind, "name": name, "version": version}},
            "components": [unique[ref] for ref in sorted(unique)],
        },
        indent=2,
    )


def of_image(engine: Engine, name: str) -> str | None:
    """The bill of an image of ours; None where today's image is not built."""
    recipe = images.recipes()[name]
    if not images.is_current(engine, name):
        return None
    image = images.describe([name], engine=engine)[name]

    def read(path: str) -> str:
        return images.read(engine, recipe.ref, path).decode()

    folder = images.FOLDER / recipe.folder
    parts = debian(read(DPKG_STATUS), read(images.PACKAGES_FILE)) + go(read(MODULES))
    if (listed := folder / "artifacts.sha256").is_file():
        parts += jars(listed.read_text(), (folder / "checksums.sha256").read_text())
    if (listed := folder / "package-lock.json").is_file():
        parts += npm(listed.read_text())
    return document("container", recipe.ref, image.id, parts)


def main(args: list[str]) -> int:
    """``FOLDER`` is made if need be."""
    if len(args) != 1:
        print("usage: python -m tools.sbom FOLDER", file=sys.stderr)
        return 254
    folder = Path(args[0])
    folder.mkdir(parents=True, exist_ok=True)
    here = [(each.metadata["Name"], each.version) for each in distributions()]
    own = dict(here).get("lockbench", "0")
    others = [pin for pin in here if pin[0] != "lockbench"]
    texts: dict[str, str | None] = {
        "lockbench": document("application", "lockbench", own, python(others))
    }
    for pins in sorted(ADAPTERS.glob("*/requirements.txt")):
        name = f"library-{pins.parent.name}"
        texts[name] = document("application", name, own, python(requirements(pins).items()))
    try:
        with Engine() as engine:
            texts |= {f"image-{name}": of_image(engine, name) for name in images.recipes()}
    except EngineError as error:
        print(str(error), file=sys.stderr)
        return 255
    for name, text in texts.items():
        if text is None:
            print(f"{name.removeprefix('image-')}: not built, so it has no bill")
        else:
            (folder / f"{name}.cdx.json").write_text(text + "\n")
            print(folder / f"{name}.cdx.json")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
