"""The timeline of a bug report: the operations that show a break, and who asked in vain meanwhile.

Times are milliseconds since the first of these operations. It shows calls of the lock and what each
was answered; commands on the wire are not recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from lockbench.history.columns import History
from lockbench.history.op import NULL, F, Fault, Type
from lockbench.nemesis.registry import faults
from lockbench.report.grid import Markdown, markdown_table
from lockbench.results.wording import words

BYSTANDERS_MAX: Final = 12
COLUMNS: Final = ("sent ms", "answered ms", "who", "what", "answer", "hold")
Row = tuple[str, ...]


@dataclass(frozen=True)
class Timeline:
    """``small`` is cut out of ``whole`` (``lockbench.evidence.excerpt``)."""

    whole: History
    small: History

    @property
    def since_s(self) -> float:
        """When in the recording it begins."""
        return (self._zero - int(self.whole.invoke_ns[0])) / 1e9

    @property
    def left_out(self) -> int:
        """How many bystanders are not in the table."""
        return max(0, len(self._bystanders) - BYSTANDERS_MAX)

    @property
    def faults(self) -> list[tuple[str, str, str]]:
        """(name, what it does, whom it struck) of each fault in it."""
        known = faults()
        return [
            (f.name, known[f.name].summary if f.name in known else "", self._struck(f))
            for f in self.small.faults
        ]

    def table(self) -> Markdown:
        """Who asked what when, and what was answered."""
        small, whole = self.small, self.whole
        rows = [(int(small.invoke_ns[row]), self._line(small, row)) for row in range(len(small))]
        for row in self._bystanders[:BYSTANDERS_MAX]:
            at = int(whole.invoke_ns[row]) - self._zero
            rows.append((at, self._line(whole, row, self._zero)))
        for fault in small.faults:
            what = " ".join([fault.name, *fault.targets])
            begin, heal = fault.begin_ns, fault.heal_ns
            rows.append((begin[0], (_ms(begin[0]), "", "fault", what, "begins", "")))
            if heal is not None:
                rows.append((heal[0], (_ms(heal[0]), _ms(heal[1]), "fault", what, "healed", "")))
        rows.sort(key=lambda entry: entry[0])
        return markdown_table(COLUMNS, (line for _, line in rows))

    @cached_property
    def _zero(self) -> int:
        """When in the recording the small history begins, on its clock."""
        whole, small = self.whole, self.small
        same = (whole.process == small.process[0]) & (whole.f == small.f[0])
        same &= whole.key == whole.keys.index(small.keys[int(small.key[0])])
        if small.hold[0] != NULL:
            same &= whole.hold == small.hold[0]
        return int(whole.invoke_ns[np.flatnonzero(same)[0]])

    @cached_property
    def _bystanders(self) -> list[int]:
        """Rows of who asked for the same key in vain meanwhile."""
        whole, small = self.whole, self.small
        holds = {small.hold_name(int(h)) for h in small.hold if h != NULL}
        key = small.keys[int(small.key[0])]
        end = self._zero + int(max(small.invoke_ns.max(), small.complete_ns.max()))
        others = (whole.f == F.ACQUIRE) & (whole.type != Type.OK)
        others &= (whole.invoke_ns >= self._zero) & (whole.invoke_ns <= end)
        others &= whole.key == (whole.keys.index(key) if key in whole.keys else -1)
        return [
            row
            for row in np.flatnonzero(others).tolist()
            if whole.hold[row] == NULL or whole.hold_name(int(whole.hold[row])) not in holds
        ]

    def _struck(self, fault: Fault) -> str:
        if fault.targets:
            return words(fault.targets)
        same = (f for f in self.whole.faults if f.begin_ns[0] - self._zero == fault.begin_ns[0])
        workers = [str(w) for f in same if isinstance(w := f.facts.get("worker"), int)]
        return f"worker process {words(workers)}" if workers else ""

    def _line(self, history: History, row: int, zero: int = 0) -> Row:
        f, outcome = F(int(history.f[row])), Type(int(history.type[row]))
        answer = outcome.word
        if f is F.ACQUIRE and outcome is Type.OK:
            answer = "granted"
            if history.fence[row] != NULL:
                answer += f", fence {int(history.fence[row])}"
        elif outcome is Type.INFO:
            answer = "no answer"
        if history.valid_until_ns[row] != NULL:
            answer += f", valid until {_ms(int(history.valid_until_ns[row]) - zero)}"
        if f in {F.READ, F.WRITE} and history.value[row] != NULL:
            answer += f", version {int(history.value[row])}"
        if history.error[row] >= 0:
            answer += f": {history.errors[int(history.error[row])]}"
        of_resource = "the resource " if f in {F.READ, F.WRITE} else ""
        done = int(history.complete_ns[row])
        return (
            _ms(int(history.invoke_ns[row]) - zero),
            "never" if done == NULL else _ms(done - zero),
            self.whole.client(int(history.process[row])),
            f"{f.word} {of_resource}{history.keys[int(history.key[row])]}",
            answer,
            "" if history.hold[row] == NULL else history.hold_name(int(history.hold[row])),
        )


def _ms(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e6:.3f}"
