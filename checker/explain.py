"""The few operations that a violation found by the smallest holds consists of.

Such a violation lies between few sections (an acquire and what was done under it): two of a mutex,
a writer and somebody else, one more than there are permits, or a single one that contradicts
itself. Any order of effects stays one without the sections of others, as long as nobody was refused
because of them, so these sections alone are impossible, too. Of each, what its smallest hold is
made of is kept, because without its release a section would seem to have no end: the acquire,
the first answer that proves an unknown one, the first release that may have had an effect, the last
one answered ok, the extend that the promise comes from, the first loss or death. A reentrant hold
is kept with all its levels.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lockbench.checker.analysis import Analysis
from lockbench.checker.kinds import REENTRANT, keys_of
from lockbench.checker.rows import owners
from lockbench.history.op import NULL, F, Type


def whole_sections(analysis: Analysis, rows: tuple[int, ...]) -> tuple[int, ...]:
    """The rows that the sections of some rows are made of, and the rows themselves."""
    found = set(rows)
    for acquire in {int(analysis.links.acquire[row]) for row in rows} - {-1}:
        found |= {acquire, *_section(analysis, acquire)}
    return tuple(sorted(found))


def _section(analysis: Analysis, acquire: int) -> Iterator[int]:
    history, links = analysis.history, analysis.links
    if keys_of(history, REENTRANT)[history.key[acquire]]:
        yield from _levels(analysis, acquire)
        return
    mine = np.flatnonzero(links.acquire == acquire)
    f, outcome = history.f[mine], history.type[mine]
    known = outcome == Type.OK
    releases = mine[(f == F.RELEASE) & ((outcome != Type.FAIL) | links.not_held[mine])]
    yield from releases[:1].tolist()
    yield from mine[(f == F.RELEASE) & known][-1:].tolist()
    proofs = mine[((f == F.RELEASE) | (f == F.EXTEND)) & known]
    if history.type[acquire] == Type.INFO and len(proofs):
        yield int(proofs[np.argmin(history.complete_ns[proofs])])
    extends = mine[(f == F.EXTEND) & known]
    yield from extends[-1:].tolist()
    yield from extends[history.valid_until_ns[extends] != NULL][-1:].tolist()
    ends = (f == F.LOST) | (f == F.DEATH)
    yield from mine[ends][:1].tolist()
    died = (history.f == F.DEATH) & (history.process == history.process[acquire])
    died &= history.invoke_ns >= history.invoke_ns[acquire]
    yield from np.flatnonzero(died)[:1].tolist()


def _levels(analysis: Analysis, acquire: int) -> Iterator[int]:
    """All that the owner of a reentrant hold did to the key, up to the release that ended it."""
    history, promises = analysis.history, analysis.promises
    everyone = owners(history)
    mine = (history.key == history.key[acquire]) & (everyone == everyone[acquire])
    mine &= np.isin(history.f, (F.ACQUIRE, F.RELEASE, F.EXTEND, F.LOST, F.DEATH))
    grant = int(analysis.grant_of[acquire])
    last = int(promises.release[grant]) if grant >= 0 else -1
    rows = np.flatnonzero(mine)
    rows = rows[rows >= acquire]
    yield from rows[rows <= last].tolist() if last >= 0 else rows.tolist()
