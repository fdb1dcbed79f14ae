"""Changes to files, as data: drawn from a seed, kept as JSON beside what they broke, made again.

Shares nothing with the product: it knows bytes, text, JSON and files, and no format of ours.

A change is a dictionary with ``file`` (relative; ``also`` names files that get the same change) and
``op``:

    set       ``at`` (path of keys and numbers) becomes ``to`` (``line``: of that line's JSON)
    drop      what is ``at`` a path is removed
    rename    the key ``at`` a path becomes ``to``
    double    what is ``at`` a path comes twice, or a list at a path a thousand times
    bytes     from ``at`` on ``cut`` bytes are replaced by ``put`` (hexadecimal)
    text      the first ``old`` (``all`` of them) becomes ``to``, a token of ``TOKENS``
    line      line ``at`` is written ``times`` times; 0 drops it
    node      the file becomes something else: one of ``NODES``
    digest    the digests in ``file`` are made those of the files in the folder ``of``

``to`` is a name in ``WORDS`` (JSON text that may be none) or {"json": value}.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

Change = dict[str, Any]
Path_ = list[str | int]
DEEP: Final = 100_000
WORDS: Final[Mapping[str, str]] = {
    "null": "null",
    "true": "true",
    "false": "false",
    "zero": "0",
    "one": "1",
    "minus": "-1",
    "minus-zero": "-0.0",
    "half": "0.5",
    "2**31": str(2**31),
    "2**63": str(2**63),
    "2**64": str(2**64),
    "-2**63": str(-(2**63)),
    "1e308": "1e308",
    "1e400": "1e400",
    "1e-320": "1e-320",
    "nan": "NaN",
    "infinity": "Infinity",
    "-infinity": "-Infinity",
    "400-digits": "9" * 400,
    "5000-digits": "9" * 5000,
    "empty": '""',
    "word": '"x"',
    "number-word": '"12"',
    "long": '"' + "A" * 5000 + '"',
    "surrogate": r'"\ud800"',
    "null-character": r'"\u0000"',
    "newline": r'"a\nb"',
    "colour": r'"\u001b[31mred\u001b[0m"',
    "title": r'"\u001b]0;owned\u0007"',
    "c1": r'"\u009b31m"',
    "bidi": r'"\u202egnp.exe\u2066"',
    "markup": '"[red]x[/red]"',
    "markup-end": '"[/]"',
    "link-markup": '"[link=file:///etc/passwd]x[/link]"',
    "html": '"<script>alert(1)</script>"',
    "formula": '"=1+1"',
    "up": '"../../outside/canary"',
    "absolute": '"/etc/passwd"',
    "dots": '".."',
    "code": '"evil.py:SYSTEM"',
    "module": '"evil:SYSTEM"',
    "list": "[]",
    "lists": "[[[]]]",
    "numbers": "[1, 2, 3]",
    "mixed": '[null, "x", 1.5, {}]',
    "object": "{}",
    "objects": '{"a": {"b": null}}',
    "strange-key": r'{"\u001b[31m": 1, "": 2}',
    "long-list": "[" + "0," * 100_000 + "0]",
    "deep-list": "[" * DEEP + "]" * DEEP,
    "deep-object": '{"a":' * DEEP + "1" + "}" * DEEP,
    "unclosed": "[" * DEEP,
    "nothing": "",
}
# Text of any grammar: JSON, TOML, EDN.
TOKENS: Final[Mapping[str, str]] = {
    **{name: WORDS[name] for name in WORDS if name != "long-list"},
    "brackets": "[" * 2000,
    "braces": "{" * 2000,
    "parentheses": "(" * DEEP,
    "deep-toml": "[" * 3000 + "]" * 3000,
    "deep-table": "{ a = " * 800 + "1" + " }" * 800,
    "dotted": ".".join("a" * 20_000),
    "inf": "inf",
    "toml-nan": "nan",
    "date": "2026-01-01T00:00:00Z",
    "late": "9999-12-31T23:59:60Z",
    "octal": "0o777",
    "quotes": '"""',
    "apostrophes": "'''",
    "escape": "\\u0000",
    "comment": "#",
    "raw-escape": "\x1b[31m",
    "keyword": ":x",
    "tagged": "#inst 1",
    "deep-tagged": "#a " * 50_000 + "1",
    "ratio": "1/0",
    "big-decimal": "1e999999999M",
    "char": "\\newline",
    "crlf": "\r\n",
    "nul": "\x00",
    "next-line": "\x85",
    "separator": "\u2028",
    "byte-order": "\ufeff",
}
NODES: Final = (
    "absent",
    "big",
    "directory",
    "dev-null",
    "dev-urandom",
    "dev-zero",
    "empty",
    "fifo",
    "link-loop",
    "link-nowhere",
    "link-outside",
    "link-outside-folder",
    "link-to-proc",
    "loop-of-folders",
    "not-text",
    "socket",
    "sparse",
    "twice-the-text",
)
SPARSE_BYTES: Final = 8 << 30
TOKEN: Final = re.compile(r"-?\d[\d.eE+-]*|\"[^\"\n]*\"|[A-Za-z_:][\w.-]*|[\[\]{}()=,#]")


def apply(folder: Path, changes: Sequence[Change]) -> None:
    """Makes the changes in a folder. Raises LookupError where one has nothing to change, so that
    what is kept in the corpus does not come to mean nothing."""
    for change in changes:
        for name in [change["file"], *change.get("also", ())]:
            OPS[change["op"]](folder / name, change)


def _json(path: Path, change: Change, edit: Callable[[Any], Any]) -> None:
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines() if "line" in change else [text]
    where = change.get("line", 0)
    marks: dict[str, str] = {}
    made = json.dumps(edit(_Marked(json.loads(lines[where]), marks)), ensure_ascii=False)
    for mark, word in marks.items():
        made = made.replace(json.dumps(mark), word)
    lines[where] = made
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


class _Marked:
    """A document and the marks that stand for text that is no JSON."""

    def __init__(self, root: Any, marks: dict[str, str]) -> None:
        self.root = root
        self.marks = marks

    def value(self, to: Any) -> Any:
        if isinstance(to, dict):
            return to["json"]
        mark = f"@@{len(self.marks)}@@"
        self.marks[mark] = WORDS[to]
        return mark

    def parent(self, at: Path_) -> Any:
        found = self.root
        for step in at[:-1]:
            found = found[step]
        return found


def _set(path: Path, change: Change) -> None:
    def edit(it: _Marked) -> Any:
        if not change["at"]:
            return it.value(change["to"])
        it.parent(change["at"])[change["at"][-1]] = it.value(change["to"])
        return it.root

    _json(path, change, edit)


def _drop(path: Path, change: Change) -> None:
    def edit(it: _Marked) -> Any:
        del it.parent(change["at"])[change["at"][-1]]
        return it.root

    _json(path, change, edit)


def _rename(path: Path, change: Change) -> None:
    def edit(it: _Marked) -> Any:
        parent = it.parent(change["at"])
        parent[it.value(change["to"])] = parent.pop(change["at"][-1])
        return it.root

    _json(path, change, edit)


def _double(path: Path, change: Change) -> None:
    def edit(it: _Marked) -> Any:
        parent, last = it.parent(change["at"]), change["at"][-1]
        if isinstance(parent, list):
            parent.insert(last, parent[last])
        elif isinstance(parent[last], list):
            parent[last] = parent[last] * 1000
        else:
            parent[last] = [parent[last], parent[last]]
        return it.root

    _json(path, change, edit)


def _bytes(path: Path, change: Change) -> None:
    held = path.read_bytes()
    at = change["at"]
    if at > len(held):
        raise LookupError(f"{path} has only {len(held)} bytes")
    put = bytes.fromhex(change.get("put", ""))
    path.write_bytes(held[:at] + put + held[at + change.get("cut", 0) :])


def _text(path: Path, change: Change) -> None:
    held = path.read_text(encoding="utf-8")
    if change["old"] not in held:
        raise LookupError(f"{path}: {change['old']!r} is not in it")
    made = held.replace(change["old"], TOKENS[change["to"]], -1 if change.get("all") else 1)
    path.write_bytes(made.encode("utf-8"))


def _line(path: Path, change: Change) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    lines[change["at"]] = lines[change["at"]] * change["times"]
    path.write_bytes(b"".join(lines))


def _node(path: Path, change: Change) -> None:
    held = path.read_bytes() if path.is_file() else b""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    outside = next(p for p in path.parents if (p / "outside").is_dir()) / "outside"
    links = {
        "dev-null": "/dev/null",
        "dev-urandom": "/dev/urandom",
        "dev-zero": "/dev/zero",
        "link-loop": path.name,
        "link-nowhere": "nowhere",
        "link-outside": str(outside / "canary"),
        "link-outside-folder": str(outside),
        "link-to-proc": "/proc/self/mem",
        "loop-of-folders": ".",
    }
    kind = change["to"]
    if kind in links:
        path.symlink_to(links[kind])
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            # The name of a socket has room for some hundred bytes.
            here = Path.cwd()
            os.chdir(path.parent)
            try:
                bound.bind(path.name)
            finally:
                os.chdir(here)
    elif kind == "directory":
        path.mkdir()
    elif kind != "absent":
        path.write_bytes(_content(kind, held))
        if kind == "sparse":
            os.truncate(path, SPARSE_BYTES)


def _content(kind: str, held: bytes) -> bytes:
    made = {
        "big": held * (1 + (64 << 20) // max(1, len(held))),
        "twice-the-text": held * 2,
        "not-text": b"\xff\xfe\x00" + held,
    }
    return made.get(kind, b"")


def _digest(path: Path, change: Change) -> None:
    folder = path.parent / change["of"]
    digests = {
        file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not file.is_symlink() and file.stat().st_size < 1 << 30
    }
    _set(path, {**change, "to": {"json": digests}})


OPS: Final[Mapping[str, Callable[[Path, Change], None]]] = {
    "set": _set,
    "drop": _drop,
    "rename": _rename,
    "double": _double,
    "bytes": _bytes,
    "text": _text,
    "line": _line,
    "node": _node,
    "digest": _digest,
}


def draw(luck: random.Random, folder: Path, name: str) -> Change:
    """A change of a file in a folder."""
    path = folder / name
    if not path.is_file() or luck.random() < 0.06:
        return {"file": name, "op": "node", "to": luck.choice(NODES)}
    held = path.read_bytes()
    if path.suffix in {".json", ".jsonl", ".strings"} and luck.random() < 0.85:
        change = _draw_json(luck, name, held)
        if change is not None:
            return change
    if path.suffix != ".ops" and luck.random() < 0.6:
        change = _draw_text(luck, name, held)
        if change is not None:
            return change
    return _draw_bytes(luck, name, held)


def _draw_json(luck: random.Random, name: str, held: bytes) -> Change | None:
    extra: Change = {}
    text = held.decode()
    if not name.endswith(".json"):
        lines = text.splitlines()
        if not lines:
            return None
        line = luck.randrange(min(len(lines), 3)) if luck.random() < 0.5 else None
        extra["line"] = luck.randrange(len(lines)) if line is None else line
        text = lines[extra["line"]]
    places: list[Path_] = []
    _places(json.loads(text), [], places)
    # Half of the time high up, where there are few: deep lists would get all of it.
    high = [place for place in places if len(place) <= 2]
    at = luck.choice(high if high and luck.random() < 0.5 else places)
    change: Change = {"file": name, "op": "set", "at": at, **extra}
    drawn = luck.random()
    if not at or drawn < 0.7:
        return {**change, "to": luck.choice(list(WORDS))}
    if drawn < 0.85:
        return {**change, "op": "drop"}
    if drawn < 0.93 and isinstance(at[-1], str):
        to = luck.choice([word for word in WORDS if WORDS[word].startswith('"')])
        return {**change, "op": "rename", "to": to}
    return {**change, "op": "double"}


def _places(value: Any, at: Path_, found: list[Path_]) -> None:
    found.append(at)
    if isinstance(value, dict):
        for key, inside in value.items():
            _places(inside, [*at, key], found)
    elif isinstance(value, list):
        for number, inside in enumerate(value):
            _places(inside, [*at, number], found)


def _draw_text(luck: random.Random, name: str, held: bytes) -> Change | None:
    tokens = TOKEN.findall(held.decode("utf-8", "ignore")[:20_000])
    if luck.random() < 0.2 and held.count(b"\n"):
        at = luck.randrange(len(held.splitlines()))
        return {"file": name, "op": "line", "at": at, "times": luck.choice((0, 2, 1000))}
    if not tokens:
        return None
    to = luck.choice(list(TOKENS))
    return {"file": name, "op": "text", "old": luck.choice(tokens), "to": to}


def _draw_bytes(luck: random.Random, name: str, held: bytes) -> Change:
    at = luck.randrange(len(held) + 1)
    drawn = luck.random()
    if drawn < 0.15:
        return {"file": name, "op": "bytes", "at": at, "cut": len(held)}
    put = luck.choice((b"", b"\x00", b"\xff" * 8, luck.randbytes(luck.choice((1, 4, 8)))))
    cut = luck.choice((0, 1, len(put), 8))
    return {"file": name, "op": "bytes", "at": at, "cut": cut, "put": put.hex()}
