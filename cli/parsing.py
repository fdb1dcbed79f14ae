"""Where the parser of the command line differs from typer.

typer imports pydantic, which takes longer than all the rest, to turn ``None`` into None and a text
into itself. Here it is asked only for what has to be converted.
"""

from __future__ import annotations

from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

PLAIN: Final = (bool, int, float, str)


class _Value:
    """In the place of typer's ``RuntimeParam``: takes what fits as it is."""

    def __init__(self, parameter: Any) -> None:
        self._typer = parameter.get_runtime_param
        self._kind = parameter.type_descriptor.annotation
        self._many = parameter.multiple or parameter.nargs == -1

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value, converted by typer where that is needed. Raises typer's errors."""
        if value is None:
            return () if self._many else None
        if type(value) is self._kind and self._kind in PLAIN:
            return value
        return self._typer().coerce(value, param=param, ctx=ctx)


def _quick(parameter: Any) -> Any:
    if "get_runtime_param" not in vars(parameter):
        value = _Value(parameter)
        parameter.get_runtime_param = lambda: value
    return parameter


class Command(TyperCommand):
    """One command."""

    def get_params(self, ctx: Any) -> Any:
        return [_quick(parameter) for parameter in super().get_params(ctx)]


class Commands(TyperGroup):
    """All of them. The parser ends the program with 1 for every broken pipe, its own or not. Those
    of a command are errors of the bench: its output raises OutputGone."""

    def get_params(self, ctx: Any) -> Any:
        return [_quick(parameter) for parameter in super().get_params(ctx)]

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise RuntimeError(f"the other end of a connection is gone: {error}") from error
