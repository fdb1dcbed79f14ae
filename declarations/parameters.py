"""What may be chosen of a declared thing, behind its name: ``name:parameter=value:…``.

Locks, faults and workloads declare a ``Parameter`` for each, and one rule reads what was asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

Value = str | float


class ParameterError(ValueError):
    """What was asked for cannot be. The message is one sentence: what was written, and what would
    do."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One thing to choose: one of ``choices``, or a finite number from ``least`` to ``most``.

    ``unit`` is that of the number; it may be written behind it (``for=2s``).
    """

    summary: str
    default: Value
    choices: tuple[str, ...] = ()
    least: float = -math.inf
    most: float = math.inf
    unit: str = ""

    def read(self, text: str) -> Value:
        """The value that ``text`` stands for. Raises ParameterError."""
        if self.choices:
            if text not in self.choices:
                raise ParameterError(f"it is one of {', '.join(self.choices)}")
            return text
        try:
            number = float(text.removesuffix(self.unit))
        except ValueError:
            number = math.nan
        if not self.least <= number <= self.most or not math.isfinite(number):
            raise ParameterError(f"it is a number{self._bounds()}")
        return number

    def _bounds(self) -> str:
        low = f" from {_plain(self.least)}" if math.isfinite(self.least) else ""
        high = f" to {_plain(self.most)}" if math.isfinite(self.most) else ""
        return low + high + (f" {self.unit}" if self.unit else "")


def _plain(number: float) -> str:
    return f"{number:,.10g}"


def split(spec: str) -> tuple[str, dict[str, str]]:
    """``name:parameter=value:…`` as the name and what is said of it. Raises ParameterError."""
    name, *settings = spec.split(":")
    said: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ParameterError(f"{spec}: {setting!r} is not parameter=value")
        if key in said:
            raise ParameterError(f"{spec}: {key} is said twice")
        said[key] = value
    return name, said


def decided(
    name: str, parameters: Mapping[str, Parameter], said: Mapping[str, str]
) -> dict[str, Value]:
    """Every parameter of ``name`` with its value: what was said, else its default. Raises
    ParameterError."""
    values = {key: parameter.default for key, parameter in parameters.items()}
    for key, text in said.items():
        if key not in parameters:
            known = ", ".join(parameters) or "none"
            raise ParameterError(f"{name} has no parameter {key!r}; its parameters: {known}")
        try:
            values[key] = parameters[key].read(text)
        except ParameterError as error:
            raise ParameterError(f"{name}:{key}={text}: {error}") from None
    return values
