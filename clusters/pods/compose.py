"""A ``docker-compose.yml`` of a cluster that runs, for use without Lockbench.

It is made of the same parts that the engine is asked for (``launch.Part``), and differs from what
was started in this alone: containers have no labels of ours, so that nobody clears them away;
Toxiproxy reads its links from a file, so that they are there before their servers are, and has a
port of its own; and a container is found by its service's name, not by an address. Data stays in
the containers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lockbench.clusters.engine.docker import NOFILE
from lockbench.clusters.pods.launch import Part
from lockbench.declarations.lazy import lazy

if TYPE_CHECKING:
    import jinja2
else:
    jinja2 = lazy("jinja2")

LINKS = "/lockbench/links.json"


def text(topology: str, parts: Sequence[Part]) -> str:
    """Return the file of these parts, in their order."""
    # It is no page: nothing is escaped but by the filters.
    environment = jinja2.Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"quoted": quoted, "block": block}
    template = environment.from_string(Path(__file__).with_suffix(".yml.j2").read_text())
    return template.render(
        topology=topology,
        parts=parts,
        networks=sorted({part.network for part in parts if part.network}),
        images=sorted({part.image for part in parts}),
        files=list(files(parts)),
        links=LINKS,
        nofile=NOFILE,
    )


def files(parts: Sequence[Part]) -> Iterator[tuple[str, str, str, str]]:
    """List the files: the part that has it, what its config is called, its path, its text."""
    for part in parts:
        contents = {path: content.decode() for path, content in part.files.items()}
        if part.links:
            proxies = [
                {"name": one.name, "listen": one.listen, "upstream": one.upstream, "enabled": True}
                for one in part.links
            ]
            contents[LINKS] = json.dumps(proxies, indent=1) + "\n"
        for path, content in contents.items():
            # Compose takes no empty ones. Of these only the names count.
            yield part.name, f"{part.name}-{Path(path).name}", path, content or "\n"


def quoted(value: object) -> str:
    """A text, or a list of them, as YAML, with nothing in it that means something to Compose."""
    return json.dumps(value, ensure_ascii=False).replace("$", "$$")


def block(content: str) -> str:
    """A text of several lines as YAML: as it is where that can be read back, else quoted."""
    lines = content.removesuffix("\n").split("\n")
    plain = content.endswith("\n") and lines[0][:1].strip() and lines[-1]
    if not (plain and all(line.isprintable() for line in lines)):
        return quoted(content)
    return "|\n" + "\n".join(f"      {line}" for line in lines).replace("$", "$$")
