"""The JSON documents of a run folder as types: what each holds, in which unit, within which bounds.

    plan.json      Plan        lockbench.results.documents.plan
    machine.json   Machine     lockbench.results.documents.environment
    versions.json  Versions    lockbench.results.documents.environment
    case.json      CaseResult  lockbench.results.documents.case and .measured
    results.json   Results     lockbench.results.documents.results
    nights.jsonl   Night       lockbench.results.documents.night, one a line

There is one reader (``read``) and one writer (``text_of``). A document is validated whole when it
is read: what does not fit, and a field that is not declared here, is refused with one sentence that
names the file and the field. Numbers are finite and bounded, so that arithmetic on them neither
overflows nor asks for memory without end; text is Unicode without halves of surrogate pairs.

A field that was not known or does not apply is None, and is not written. ``format`` says which
declaration a document was written for; 0, or missing, is what was written before there was a
number. Until format 1 a document could hold fields that nobody read: they are dropped.

Does not guarantee that what is said is true: ``lockbench.results.stored`` holds it against the
history.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct, inspect
from msgspec.structs import asdict

from lockbench.history.files import BadFile, json_error, read_bytes
from lockbench.history.text import json_text
from lockbench.results.documents.case import *  # noqa: F403 - whoever reads documents takes them from here
from lockbench.results.documents.environment import *  # noqa: F403
from lockbench.results.documents.measured import *  # noqa: F403
from lockbench.results.documents.night import *  # noqa: F403
from lockbench.results.documents.part import *  # noqa: F403
from lockbench.results.documents.part import Document, Part
from lockbench.results.documents.plan import *  # noqa: F403
from lockbench.results.documents.results import *  # noqa: F403
from lockbench.results.documents.results import Results

FORMAT: Final = 4
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
DECLARED_FROM: Final = 3  # the first format that holds what is declared today and nothing else

D = TypeVar("D", bound=Document)
S = TypeVar("S", bound=Part)


class _Numbered(Struct):
    """Of any document, the number of its declaration."""

    format: Annotated[int, Meta(ge=0, le=FORMAT)] = 0


def read(path: Path, kind: type[D], *, inside: Path) -> D:
    """A document of today's declaration, from whichever format. Raises BadFile, MissingFile."""
    return _read(read_bytes(path, inside=inside), kind, path)


def read_lines(path: Path, kind: type[D], *, inside: Path) -> list[D]:
    """The same of a file with a document a line. Raises BadFile, MissingFile."""
    lines = read_bytes(path, inside=inside).splitlines()
    return [_read(line, kind, f"{path}, line {n}") for n, line in enumerate(lines, 1)]


def _read(data: bytes, kind: type[D], where: Path | str) -> D:
    try:
        number = msgspec.json.decode(data, type=_Numbered).format
        plain = msgspec.json.decode(data, type=dict[str, Any])
        plain.pop("format", None)
        if number < DECLARED_FROM:
            plain = _upgraded(plain, inspect.type_info(kind))
        return msgspec.convert(plain, kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadFile(where, json_error(error, data)) from None


def text_of(document: Document) -> str:
    """A document as it is written: JSON, with the number of today's declaration first."""
    plain = {"format": FORMAT, **_plain(document)}
    return json_text(plain, indent=1) + "\n"


def line_of(document: Document) -> str:
    """The same on one line."""
    return json_text({"format": FORMAT, **_plain(document)}) + "\n"


def known(part: Part) -> dict[str, Any]:
    """Field → value, of those that are not None."""
    return {name: value for name, value in asdict(part).items() if value is not None}


def made(kind: type[S], value: object) -> S:
    """A part from plain values or from objects with such attributes: what a reader would get if it
    was written. Raises msgspec.ValidationError, ValueError (no JSON)."""
    return msgspec.json.decode(json_text(_plain(value)), type=kind)


def _plain(value: object) -> Any:
    return msgspec.to_builtins(value, enc_hook=_number)


def _number(value: object) -> float:
    """NumPy's numbers are floats to ``json`` and unknown to ``msgspec``."""
    if not isinstance(value, float):
        raise TypeError(f"{type(value).__name__} is no JSON")
    return float(value)


def _upgraded(value: Any, declared: inspect.Type) -> Any:
    """The value without the fields that are not declared, anywhere in it."""
    if isinstance(declared, inspect.UnionType):
        for one in declared.types:
            value = _upgraded(value, one)
    elif isinstance(declared, inspect.StructType) and isinstance(value, dict):
        fields = _fields(declared.cls)
        return {name: _upgraded(value[name], fields[name]) for name in value if name in fields}
    elif isinstance(declared, inspect.DictType) and isinstance(value, dict):
        return {name: _upgraded(one, declared.value_type) for name, one in value.items()}
    elif isinstance(declared, inspect.VarTupleType) and isinstance(value, list):
        return [_upgraded(one, declared.item_type) for one in value]
    return value


@functools.cache
def _fields(kind: type[Struct]) -> Mapping[str, inspect.Type]:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return {field.encode_name: field.type for field in info.fields}


def schema() -> str:
    """JSON Schema of ``results.json``, as ``docs/results.schema.json`` has it."""
    found = msgspec.json.schema(Results)
    found["$defs"]["Results"]["properties"]["format"] = {"type": "integer", "const": FORMAT}
    return json_text({"$schema": DIALECT, **found}, indent=1) + "\n"
