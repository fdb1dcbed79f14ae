"""What the checker answers. Worst wins: invalid > unknown > valid.

A verdict that does not apply to a history is absent and counts for nothing. A history to which no
verdict applies is unknown: a run in which nothing happened is never green.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

Result = Literal["valid", "invalid", "unknown"]

RANK: Final[Mapping[Result, int]] = {"valid": 0, "unknown": 1, "invalid": 2}


def worst(results: Iterable[Result]) -> Result:
    """The worst of some results; unknown if there are none."""
    return max(results, key=RANK.__getitem__, default="unknown")


@dataclass(frozen=True, slots=True)
class Verdict:
    """One answer.

    ``reason`` is a sentence for people. ``evidence`` holds the operations that suffice to see the
    violation, as plain JSON objects, in the order of time.
    """

    result: Result
    reason: str
    evidence: tuple[Mapping[str, object], ...] = ()

    def to_json(self) -> dict[str, object]:
        return {
            "result": self.result,
            "reason": self.reason,
            "evidence": [dict(item) for item in self.evidence],
        }


@dataclass(frozen=True, slots=True)
class Report:
    """Everything the checker has to say about one history. ``seconds`` maps ``read`` and ``check``
    to the time they took. ``cut``: the recording ends before its load does, so what is valid so far
    is unknown. ``confirmed``: anything was answered ok; else nothing is shown."""

    operations: int
    grants: int
    verdicts: Mapping[str, Verdict]
    measurements: Mapping[str, object] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    cut: bool = False
    confirmed: bool = True

    @property
    def result(self) -> Result:
        results = [verdict.result for verdict in self.verdicts.values()]
        return worst([*results, "unknown"] if self.cut or not self.confirmed else results)

    def to_json(self) -> dict[str, object]:
        """The object that ``lockbench check --json`` prints."""
        cut = {"cut": True} if self.cut else {}
        return {
            "result": self.result,
            **cut,
            "operations": self.operations,
            "grants": self.grants,
            "verdicts": {name: verdict.to_json() for name, verdict in self.verdicts.items()},
            "measurements": dict(self.measurements),
            "seconds": dict(self.seconds),
        }
