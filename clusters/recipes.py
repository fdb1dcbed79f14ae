"""What the images are made of: the recipe of each, and the name that follows from it.

Guaranteed: an image's tag changes with everything that we decide about it (its Dockerfile, its
pins, its lines in debian.lock, the sources and requirements of the libraries in it, the images
below it), and with nothing else. Standard library only: setup looks at names before anything is
installed. How an image is built: `lockbench.clusters.images`.

`python -m lockbench.clusters.recipes [NAME…]` prints the names of the server images and of these,
a line each: what a cache of images is called by (`docs/ci.md`).
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lockbench.clusters.libraries import GO, JAVA, NODE, PHP, Language

FOLDER = Path(__file__).resolve().parent / "images"
LOCK = FOLDER / "debian.lock"
LIBRARIES = (
    FOLDER.parents[1] / "locks" / "libraries"
)  # a folder each, with the source that drives it
BUILDERS = ("base", "golang", "compiler", "maven", "npm")
# Servers that take minutes to build; the first case that needs one builds it.
WHEN_ASKED = ("kubernetes", "versitygw")
CLIENTS = ("go-sidecar", "jvm-sidecar", "node-sidecar", "php-sidecar")


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one image is made: a folder with a Dockerfile, the image below it (the base has none of
    ours below it), and the arguments."""

    name: str
    folder: str
    parent: str | None
    args: Mapping[str, str] = field(default_factory=dict)
    language: Language | None = None
    """Of the libraries that it is built of besides its folder."""
    takes_s: float = 0.0
    """To build it on two quiet cores beside another, from a mirror nearby; an estimate."""

    def folders(self) -> list[Path]:
        """Return its folder, then those of its libraries by name."""
        own = FOLDER / self.folder
        return [own, *(self.language.folders(LIBRARIES) if self.language else [])]

    def files(self) -> dict[str, Path]:
        """Return the files that it is built of, by name. A client's program is one, so no two
        sources of its libraries may have one name."""
        own, *libraries = self.folders()
        found = [*own.iterdir()]
        if self.language:
            found += [path for each in libraries for path in self.language.sources(each)]
        named = {path.name: path for path in sorted(found, key=lambda path: path.name)}
        if len(named) < len(found):
            twice = sorted({str(path) for path in found} - {str(path) for path in named.values()})
            raise ValueError(f"{self.name} has another file of the same name: {', '.join(twice)}")
        return named

    def context(self) -> dict[str, bytes]:
        """Return all that the engine is given to build it, by name: its files, and what follows
        from its libraries' requirements."""
        files = {name: path.read_bytes() for name, path in self.files().items()}
        return files | (self.language.composed(self.folders(), files) if self.language else {})

    def wanted(self) -> dict[str, str]:
        """Return what the requirements of its folders ask for: name → version."""
        return self.language.wanted(self.folders()) if self.language else {}

    def check(self) -> None:
        """Raise ValueError, in a sentence, for a library's folder that is not whole."""
        if self.language:
            self.language.check(self.folders())

    def check_locks(self, locks: Mapping[str, bytes]) -> None:
        """Raise ValueError, in a sentence, for locks, by name, that the requirements of its
        libraries did not come to."""
        if self.language:
            self.language.check_locks(self.wanted(), locks)

    @property
    def ref(self) -> str:
        """The name to run it by."""
        return f"lockbench-{self.name}:{fingerprint(self.name)}"


def pins() -> dict[str, str]:
    """Return the versions that versions.toml pins for images."""
    return tomllib.loads((FOLDER / "versions.toml").read_text())


def recipes() -> dict[str, Recipe]:
    """Return every image that we can build, by name."""
    pin = pins()

    def go(
        name: str, module: str, package: str = "", ldflags: str = "", *, takes_s: float
    ) -> Recipe:
        made_of = {"MODULE": module, "VERSION": pin[name]}
        args = {**made_of, "PACKAGE": module + package, "LDFLAGS": ldflags}
        return Recipe(name, name, "golang", args, takes_s=takes_s)

    def debian(name: str, packages: str, *, takes_s: float) -> Recipe:
        return Recipe(name, "debian", "compiler", {"PACKAGES": packages}, takes_s=takes_s)

    # Toxiproxy's clients choose the API by the version it reports, which only the linker sets.
    toxiproxy = "github.com/Shopify/toxiproxy/v2"
    version_flag = f"-X {toxiproxy}.Version={pin['toxiproxy'].removeprefix('v')}"
    # Which version it emulates follows from the version it reports, which only the linker sets.
    kubernetes = "k8s.io/kubernetes"
    kubernetes_flags = f"-X k8s.io/component-base/version.gitVersion={pin['kubernetes']}"
    postgres = {"PACKAGES": f"postgresql-{pin['postgres']}", "MAJOR": pin["postgres"]}
    mariadb = "mariadb-server galera-4 rsync"
    consul = {"PACKAGES": "consul", "SUITE": pin["consul_suite"]}
    base = {"IMAGE": pin["debian_image"], "SUITE": pin["debian_suite"]}
    found = [
        Recipe("base", "base", None, base, takes_s=30),
        Recipe("golang", "golang", "base", {"GO_SUITE": pin["go_suite"]}, takes_s=50),
        Recipe("compiler", "compiler", "base", takes_s=25),
        go("toxiproxy", toxiproxy, "/cmd/server", version_flag, takes_s=30),
        go("etcd", "go.etcd.io/etcd/server/v3", takes_s=60),
        go("nats", "github.com/nats-io/nats-server/v2", takes_s=35),
        go("kubernetes", kubernetes, "/cmd/kube-apiserver", kubernetes_flags, takes_s=420),
        go("versitygw", "github.com/versity/versitygw", "/cmd/versitygw", takes_s=120),
        Recipe("consul", "consul", "base", consul, takes_s=12),
        debian("redis", "redis-server", takes_s=12),
        debian("valkey", "valkey-server", takes_s=12),
        Recipe("postgres", "postgres", "compiler", postgres, takes_s=40),
        Recipe("pgbouncer", "pgbouncer", "postgres", {"PACKAGES": "pgbouncer"}, takes_s=10),
        Recipe("mariadb", "mariadb", "compiler", {"PACKAGES": mariadb}, takes_s=45),
        # Not Debian's `zookeeper` package, which pulls in a desktop toolkit.
        debian("zookeeper", "libzookeeper-java openjdk-21-jre-headless", takes_s=30),
        Recipe("maven", "maven", "base", takes_s=30),
        Recipe("npm", "npm", "base", takes_s=60),
        Recipe("go-sidecar", "go-sidecar", "golang", language=GO, takes_s=150),
        Recipe("jvm-sidecar", "jvm-sidecar", "maven", language=JAVA, takes_s=60),
        Recipe("node-sidecar", "node-sidecar", "npm", language=NODE, takes_s=20),
        Recipe("php-sidecar", "php-sidecar", "base", language=PHP, takes_s=30),
    ]
    return {recipe.name: recipe for recipe in found}


def server_names() -> list[str]:
    """Return the names of the images that run in clusters; those of clients and ``WHEN_ASKED`` are
    built when a lock needs one."""
    return [name for name in recipes() if name not in (*BUILDERS, *CLIENTS, *WHEN_ASKED)]


@functools.cache
def fingerprint(name: str) -> str:
    """Name everything that we decide about an image, its parents' included. A process that goes on
    while files are edited keeps the images with which it began."""
    recipe = recipes()[name]
    below = fingerprint(recipe.parent) if recipe.parent else ""
    decided = [dict(recipe.args), below, locked(name)]
    digest = hashlib.sha256(json.dumps(decided, sort_keys=True).encode())
    for file, content in recipe.context().items():
        digest.update(file.encode() + b"\0" + content)
    return digest.hexdigest()[:12]


def locked(name: str) -> str:
    """Return an image's lines of debian.lock: package, version, architecture, SHA-256."""
    lines = (line.partition(" ") for line in LOCK.read_text().splitlines())
    return "".join(f"{rest}\n" for image, _, rest in lines if image == name)


def lineage(name: str) -> list[str]:
    """Return the image after all that it stands on, the base first."""
    parent = recipes()[name].parent
    return [*(lineage(parent) if parent else []), name]


if __name__ == "__main__":
    _known = recipes()
    for _name in dict.fromkeys((*server_names(), *sys.argv[1:])):
        if _name not in _known:
            sys.exit(f"no image is called {_name}; there are {', '.join(_known)}")
        print(_known[_name].ref)
