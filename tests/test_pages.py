"""What the Markdown pages name exists: files, modules and what is in them, make targets, links."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from typer.main import get_command

from lockbench.cli.main import app
from tools.setup import ROOT

# What a name ends with that is a file beside a run or a user, not an attribute of a module.
FILES: Final = "json|jsonl|edn|html|md|csv|toml|parquet|yml|py|log|gz"
PLACEHOLDER: Final = re.compile(r"<[^>/]+>|NAME|\bID\b")


@cache
def tracked() -> frozenset[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    files = {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}
    folders = {str(parent) for name in files for parent in Path(name).parents}
    return frozenset(files | folders - {"."})


@cache
def packages() -> frozenset[str]:
    """The top-level folders that have Python in them."""
    return frozenset(name.split("/")[0] for name in tracked() if re.match(r"\w+/.*\.py$", name))


def pages() -> list[str]:
    return sorted(name for name in tracked() if name.endswith(".md"))


def code(text: str) -> list[str]:
    """What stands in code blocks and between backticks."""
    blocks = re.findall(r"^```.*?\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    rest = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return [*blocks, *re.findall(r"`([^`]+)`", rest)]


def missing_paths(text: str) -> set[str]:
    """Paths that begin in a folder of the repository and lead to nothing."""
    first = "|".join(sorted(packages() | {"docs"}))
    named = re.findall(rf"(?<![\w/.<>-])(?:{first})/[\w./*<>-]*", "\n".join(code(text)))
    # A case has a folder of this name as well.
    ours = (it for it in named if not it.startswith("history/") or it.endswith(".py"))
    return {path for path in ours if not exists(path.rstrip("./"))}


def exists(path: str) -> bool:
    wanted = PLACEHOLDER.sub("*", path)
    if "*" in wanted:
        return any(ROOT.glob(wanted))
    return wanted in tracked()


def missing_modules(text: str) -> set[str]:
    first = "|".join(sorted(packages()))
    dotted = re.findall(
        rf"(?<![\w/.-])(?:{first})(?:\.[A-Za-z_]\w*)+(?![\w/(*-])", "\n".join(code(text))
    )
    return {
        name for name in dotted if not re.search(rf"\.(?:{FILES})$", name) and not importable(name)
    }


def importable(dotted: str) -> bool:
    """Whether a module has this name, or a module defines it at its top."""
    *parents, last = dotted.split(".")
    if module(dotted):
        return True
    found = module(".".join(parents))
    return found is not None and last in defined(found)


def module(dotted: str) -> str | None:
    first, _, rest = dotted.partition(".")
    if (ROOT / "lockbench" / first).is_dir():
        return None  # a folder, but its name as a module begins with that of the package
    path = (rest if first == "lockbench" else dotted).replace(".", "/")
    return next((it for it in (f"{path}.py", f"{path}/__init__.py") if it in tracked()), None)


@cache
def defined(path: str) -> frozenset[str]:
    names: set[str] = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {it.id for it in targets if isinstance(it, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.ImportFrom(names=aliases) | ast.Import(names=aliases):
                names |= {alias.asname or alias.name for alias in aliases}
    return frozenset(names)


def dead_links(page: str, text: str) -> set[str]:
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.DOTALL | re.MULTILINE)
    return {
        target
        for target in re.findall(r"\]\(([^)\s]+)\)", prose)
        if not re.match(r"[a-z]+:", target) and not leads_somewhere(page, target)
    }


def leads_somewhere(page: str, target: str) -> bool:
    name, _, anchor = target.partition("#")
    path = (ROOT / page).parent / name if name else ROOT / page
    try:
        relative = str(path.resolve().relative_to(ROOT.resolve()))
    except ValueError:
        return False
    return relative in tracked() and (not anchor or anchor in anchors(relative))


@cache
def anchors(page: str) -> frozenset[str]:
    """The headings of a page as GitHub names them in links."""
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", it.lower()).replace(" ", "-") for it in headings}
    return frozenset(slugs | set(re.findall(r'<a (?:id|name)="([^"]+)"', text)))


def missing_targets(text: str) -> set[str]:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    return (
        set(re.findall(r"^(?:.* && )?make ([a-z-]+)", "\n".join(code(text)), re.MULTILINE))
        - targets
    )


def missing_commands(text: str) -> set[str]:
    known = vars(get_command(app))["commands"]
    named = re.findall(
        r"^(?:\$ )?(?:\.venv/bin/)?lockbench ([a-z-]+)", "\n".join(code(text)), re.MULTILINE
    )
    return {name for name in named if not name.startswith("-")} - set(known)


@pytest.mark.parametrize("page", pages())
def test_what_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text()
    assert missing_paths(text) == set()
    assert missing_modules(text) == set()
    assert missing_targets(text) == set()
    assert missing_commands(text) == set()
    assert dead_links(page, text) == set()


def test_a_page_that_the_code_names_exists() -> None:
    named = {
        (page, name)
        for name in tracked()
        if re.search(r"\.(py|go|java|c|toml)$", name) and not name.startswith("tests/")
        for page in re.findall(
            r"(?<![\w/])(?:docs/[\w/-]+|[A-Z]{4,})\.md", (ROOT / name).read_text()
        )
    }
    assert {it for it in named if it[0] not in tracked()} == set()


@pytest.mark.parametrize(
    "text",
    [
        "`bench/gone.py` runs it",
        "see `docs/gone.md`",
        "```\nlocks/gone/*.py\n```",
        "`locks/libraries/<name>/gone.py`",
    ],
)
def test_a_path_that_is_not_there_is_found(text: str) -> None:
    assert missing_paths(text)


@pytest.mark.parametrize(
    "text",
    [
        "`bench/run.py` and `docs/`",
        "`locks/redis/token.py:SYSTEM`",
        "`locks/libraries/<name>/lock.py`",
        "`runs/locks/gone.py`, `/tmp/bench/gone.py`",
    ],
)
def test_a_path_that_is_there_or_elsewhere_is_not(text: str) -> None:
    assert not missing_paths(text)


def test_modules_are_looked_up() -> None:
    assert missing_modules(
        "`lockbench.bench.gone`, `lockbench.locks.base.Gone`, `locks.base`, `results.json`, "
        "`lockbench.locks.base.Lock`, `perf.run`, `python -m lockbench.clusters.images`"
    ) == {"lockbench.bench.gone", "lockbench.locks.base.Gone", "locks.base"}


def test_links_and_their_anchors_are_looked_up() -> None:
    text = (
        "[a](gone.md) [b](checker.md#gone) [c](checker.md#what-is-judged) [d](https://example.org)"
    )
    assert dead_links("docs/nemesis.md", text) == {"gone.md", "checker.md#gone"}
    assert dead_links("docs/nemesis.md", "[e](../../../etc/passwd)") == {"../../../etc/passwd"}


def test_targets_are_looked_up() -> None:
    assert missing_targets("`make gone`, `make bench`, they make gone things") == {"gone"}


def test_commands_are_looked_up() -> None:
    text = "`lockbench gone`, `lockbench run --lock x`\n```\n$ .venv/bin/lockbench away\n```"
    assert missing_commands(text) == {"gone", "away"}
