"""What cannot be run here, and why: such a case is shown as "could not run", never as kept.

Three ways to notice it: the case was refused before anything started (``refused_case``), the lock
could not be prepared (``why_unusable``), or the servers were there and yet no call ever succeeded
before the first fault (``nothing_worked``), as with a server that lacks a command.

And what ran, but shows nothing: on the keys that the load shares, some operation never succeeded
(``never_succeeded``). Such a case is inconclusive.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from lockbench.checker.leaks import quiet_ns
from lockbench.checker.rows import AIMED_ROLES, FOREVER, keys_with
from lockbench.history.columns import History
from lockbench.history.op import F, Mode, Type
from lockbench.locks.base import LockUnusableError, System
from lockbench.locks.shared.library import CacheUnusableError
from lockbench.results import documents
from lockbench.results.cases import COULD_NOT_RUN
from lockbench.results.documents import Refused
from lockbench.results.errors import BadInput
from lockbench.results.wording import printable

TEXT_CHARS_MAX = 300
CLASSES_MAX = 20
# What a lock may answer without an error.
PLAIN = frozenset({"held", "gave-up", "not-held", "no-effect", "not-granted"})


def refused_case(refused: Refused) -> documents.CaseResult:
    """A case that was asked for beside others and cannot be made, as it stands in
    ``results.json``."""
    return documents.CaseResult(
        lock=refused.lock,
        topology=refused.topology or "unknown",
        fault=refused.fault,
        numbers="void",
        exposed=False,
        judgement=COULD_NOT_RUN,
        why=refused.why,
        ending="bench",
    )


def why_unusable(system: System) -> str | None:
    """Prepares a lock, once in the life of this process. A sentence where that failed. Raises
    BadInput where the cache of environments cannot be written, which is no matter of the lock."""
    return None if system.prepare is None else _prepared(system.prepare)


@cache
def _prepared(prepare: Callable[[], None]) -> str | None:
    try:
        prepare()
    except CacheUnusableError as error:
        raise BadInput(str(error)) from error
    except LockUnusableError as error:
        return str(error)
    return None


def nothing_worked(history: History, until_ns: int) -> str | None:
    """A sentence where every acquire, or every release, that was asked for before ``until_ns``
    failed; with what the service said most often."""
    early = history.invoke_ns < until_ns
    for f, what in ((F.ACQUIRE, "nothing was granted"), (F.RELEASE, "nothing was released")):
        asked = early & (history.f == f)
        if not asked.any() or (asked & (history.type == Type.OK)).any():
            continue
        most = _most_said(history, asked) or "no answer came"
        return f"{what} in {int(asked.sum())} tries before any fault: {most}"
    return None


def never_succeeded(history: History, *, too_late: bool = False) -> str | None:
    """A sentence where acquire, release, extend or acquire to read was asked for on shared keys and
    never succeeded while the load lasted, or where nobody acquired or released any of them at all.
    An extend has to succeed only where some were asked for outside of faults, which may be aimed at
    the only one. ``too_late``: holds outlast their leases, so that nothing may be left to
    release."""
    shared = keys_with(history, AIMED_ROLES)[history.key] & (history.invoke_ns < quiet_ns(history))
    reads = history.mode == Mode.READ
    calm = np.ones(len(history), np.bool_)
    for fault in history.faults:
        healed = history.invoke_ns > (FOREVER if fault.heal_ns is None else fault.heal_ns[1])
        calm &= healed | (history.invoke_ns < fault.begin_ns[0])
    for asked, what, due in (
        ((history.f == F.ACQUIRE) & ~reads, "granted", True),
        ((history.f == F.ACQUIRE) & reads, "granted to read", False),
        (history.f == F.RELEASE, "released", not too_late),
        ((history.f == F.EXTEND) & calm, "extended", False),
    ):
        tried = shared & asked
        if (tried & (history.type == Type.OK)).any() or not (due or tried.any()):
            continue
        if what == "released" and too_late:
            continue
        said = _most_said(history, tried)
        return f"nothing was {what} in {int(tried.sum())} tries" + (f": {said}" if said else "")
    return None


def said_to_idle_clients(history: History) -> str | None:
    """What clients that were never granted anything heard most often, or None."""
    asked = history.f == F.ACQUIRE
    granted = np.unique(history.process[asked & (history.type == Type.OK)])
    return _most_said(history, asked & ~np.isin(history.process, granted))


def turned_away(history: History) -> bool:
    """Whether the service refused a client itself, as a full server does. Then idle clients were
    not just waiting for the lock. A client that asks until its wait is over shows it only then."""
    refused = history.error[(history.f == F.ACQUIRE) & (history.type == Type.FAIL)]
    told = (history.errors[error] for error in np.unique(refused[refused >= 0]))
    return any(error.removeprefix("gave-up: ").startswith("no-effect") for error in told)


def _most_said(history: History, rows: NDArray[np.bool_]) -> str | None:
    said = history.error[rows & (history.error >= 0)]
    return shown(history.errors[int(np.bincount(said).argmax())]) if len(said) else None


def error_texts(history: History) -> dict[str, str]:
    """Class of error → the first text of it, of all that services and clients said; without the
    plain answers of a lock. At most CLASSES_MAX."""
    rows = np.flatnonzero(history.error >= 0)
    said, first = np.unique(history.error[rows], return_index=True)
    found: dict[str, str] = {}
    for number in said[np.argsort(first)].tolist():
        text = history.errors[number]
        if text not in PLAIN and len(found) < CLASSES_MAX:
            found.setdefault(shown(_class_of(text)), shown(text))
    return found


def _class_of(text: str) -> str:
    """What stands before the text itself: ``no-effect: ResponseError`` of ``no-effect:
    ResponseError: ERR value is not an integer``."""
    return ": ".join(takewhile(lambda part: " " not in part, text.split(": "))) or "other"


def shown(text: str) -> str:
    """As it can be printed anywhere: bounded, what is no printable character escaped."""
    cut = text if len(text) <= TEXT_CHARS_MAX else text[:TEXT_CHARS_MAX] + "…"
    return printable(cut, keep="")
