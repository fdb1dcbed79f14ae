"""The reference itself: histories small enough to be decided by reading them.

Operations are written as: process, what, answer, invocation, completion (``-`` where the outcome is
unknown), and what was recorded: ``h`` hold, ``o`` owner, ``u`` valid_until, ``f`` fence, and
``r`` for a read lock.
"""

from __future__ import annotations

import pytest

from lockbench.history.builder import Builder
from lockbench.history.columns import History
from lockbench.history.op import NULL, F, Mode, Object, Type
from tests.checker.reference import explainable

FUNCTIONS = {"a": F.ACQUIRE, "r": F.RELEASE, "e": F.EXTEND, "lost": F.LOST, "death": F.DEATH}
NUMBERS = {"u": "valid_until_ns", "f": "fence", "o": "owner"}


def history(kind: str, text: str) -> History:
    """``kind`` may be followed by ``strict``, the number of permits and ``eps=…``."""
    name, *more = kind.split()
    permits = next((int(word) for word in more if word.isdigit()), None)
    builder = Builder()
    builder.objects["k"] = Object(name, permits=permits, strict_try="strict" in more)
    builder.epsilon_ns = next((int(word[4:]) for word in more if word.startswith("eps=")), 0)
    for line in text.split(";"):
        process, f, answer, begin, end, *recorded = line.split()
        words = dict(word.split("=") for word in recorded if "=" in word)
        failed = answer in {"held", "not-held"}
        builder.add(
            process=int(process),
            f=int(FUNCTIONS[f]),
            outcome=int(Type.FAIL if failed else Type[answer.upper()]),
            key="k",
            invoke_ns=int(begin),
            complete_ns=NULL if end == "-" else int(end),
            mode=int(Mode.READ if "r" in recorded else Mode.NONE),
            hold=words.get("h"),
            error=answer if failed else None,
            numbers={NUMBERS[name]: int(n) for name, n in words.items() if name in NUMBERS},
        )
    return builder.finish()


EXPLAINED = {
    "one after the other": ("mutex", "1 a ok 0 1; 1 r ok 2 3; 2 a ok 4 5"),
    "they touch": ("mutex", "1 a ok 0 1; 1 r ok 2 3; 2 a ok 1 2"),
    "concurrent, in the right order": ("mutex", "1 a ok 0 9; 1 r ok 10 11; 2 a ok 0 3; 2 r ok 4 5"),
    "released by an unknown release": ("mutex", "1 a ok 0 1; 1 r info 2 -; 2 a ok 4 5"),
    "an unknown acquire never happened": ("mutex", "1 a info 0 -; 2 a ok 4 5"),
    "an unknown acquire happened late": (
        "mutex", "1 a info 0 -; 2 a ok 2 3; 2 r ok 4 5; 1 r ok 6 7",
    ),
    "not held after the release": ("mutex", "1 a ok 0 1; 1 r ok 2 3; 1 r not-held 4 5"),
    "not held, by another hold": ("mutex", "1 a ok 0 1 h=a; 1 r not-held 2 3 h=b"),
    "owners share their hold": ("mutex", "1 a ok 0 1 o=7; 2 r ok 2 3 o=7; 3 a ok 4 5 o=3"),
    "refused, but not strict": ("mutex", "1 a held 0 1; 2 a ok 2 3"),
    "refused while held": ("mutex strict", "1 a ok 0 1; 2 a held 2 3; 1 r ok 4 5"),
    "refused by an unknown acquire": ("mutex strict", "1 a info 0 -; 2 a held 2 3; 1 r ok 4 5"),
    "clocks are off": ("mutex eps=2", "1 a ok 0 1; 1 r ok 8 9; 2 a ok 4 5"),
    "lost": ("mutex", "1 a ok 0 1; 1 lost ok 2 2; 2 a ok 3 4"),
    "died": ("mutex", "1 a ok 0 1 h=a; 1 death ok 2 2; 2 a ok 3 4 h=b"),
    "the lease is over": ("lease", "1 a ok 0 1 u=5; 2 a ok 4 6 u=11"),
    "the service did not end the lease": ("lease", "1 a ok 0 1 u=5; 1 r ok 8 9; 2 a ok 10 11 u=20"),
    "over by ε": ("lease eps=2", "1 a ok 0 1 u=7; 2 a ok 2 3 u=9"),
    "of two extends at once the short one": (
        "lease", "1 a ok 0 1 u=5 h=a; 1 e ok 2 6 u=8 h=a; 1 e ok 3 6 u=30 h=a; 2 a ok 9 10 h=b",
    ),
    "of two extends at once the long one": (
        "lease", "1 a ok 0 1 u=5 h=a; 1 e ok 2 6 u=30 h=a; 1 e ok 3 6 u=8 h=a; 1 e ok 20 21 h=a",
    ),
    "an unknown grant ran out": ("lease strict", "1 a info 0 -; 2 a held 2 3; 3 a ok 20 21 u=30"),
    "and an extend proved it before": (
        "lease", "1 a info 0 - h=a; 1 e ok 2 3 h=a u=6; 2 a ok 7 8 u=20 h=b",
    ),
    "an unknown grant ran out when it said": (
        "lease strict", "1 a info 0 - u=10; 2 a held 2 3; 3 a ok 9 10 u=30",
    ),
    "nothing says that there are no leases": (
        "lease strict", "1 a info 0 - h=a; 2 a held 2 3 h=b; 1 r not-held 8 9 h=a",
    ),
    "an extend before its acquire was answered": (
        "lease", "1 a ok 0 9 h=a u=5; 1 e ok 2 3 h=a u=7",
    ),
    "fences grow": ("fenced", "1 a ok 0 1 f=1; 1 r ok 2 3; 2 a ok 4 5 f=2"),
    "concurrent fences": ("fenced", "1 a ok 0 9 f=2; 1 r info 10 -; 2 a ok 0 3 f=1; 2 r ok 4 5"),
    "a fence that nobody knows": ("fenced", "1 a ok 0 1; 1 r ok 2 3; 2 a ok 4 5 f=2"),
    "entered again": ("reentrant", "1 a ok 0 1; 1 a ok 2 3; 1 r ok 4 5; 1 r ok 6 7; 2 a ok 8 9"),
    "entered again after the lease": (
        "reentrant", "1 a ok 0 1 u=3; 1 a ok 5 6 u=9; 1 r ok 7 8; 1 r ok 8 9; 2 a ok 10 11 u=20",
    ),
    "entered again as a new hold": (
        "reentrant", "1 a ok 0 1 u=3; 1 a ok 5 6 u=20; 1 r ok 7 8; 2 a ok 10 11 u=20",
    ),
    "another owner is refused": (
        "reentrant strict", "1 a ok 0 1; 1 a ok 2 3; 1 r ok 4 5; 2 a held 6 7",
    ),
    "both permits": ("semaphore 2", "1 a ok 0 1; 2 a ok 2 3"),
    "two permits of one process": (
        "semaphore 2", "1 a ok 0 1; 1 a ok 2 3; 1 r ok 4 5; 1 r ok 6 7; 2 a ok 8 9; 3 a ok 8 9",
    ),
    "the other permit is not held": (
        "semaphore 2", "1 a ok 0 1 h=a; 1 a ok 2 3 h=b; 1 r ok 4 5 h=a; 1 r not-held 6 7 h=a",
    ),
    "one of two permits is not held": (
        "semaphore 2", "1 a ok 0 1; 1 a ok 2 3 u=3; 1 r not-held 5 6; 1 r ok 7 8",
    ),
    "no permit left": ("semaphore 2 strict", "1 a ok 0 1; 1 a ok 2 3; 2 a held 4 5"),
    "readers": ("read-write", "1 a ok 0 1 r; 2 a ok 2 3 r; 3 a ok 4 5 r"),
    "downgraded": ("read-write", "1 a ok 0 1; 1 a ok 2 3 r; 1 r ok 4 5; 1 r ok 6 7; 2 a ok 8 9"),
    "a writer enters again": (
        "read-write", "1 a ok 0 1 h=a; 1 a ok 2 3 h=b; 1 r ok 4 5 h=a; 1 r ok 6 7 h=b",
    ),
    "the sole reader upgrades": ("read-write", "1 a ok 0 1 r; 1 a ok 2 3"),
    "the upgrade is refused": ("read-write strict", "1 a ok 0 1 r; 1 a held 2 3; 2 a ok 4 5 r"),
    "anybody releases": ("ownerless", "1 a ok 0 1; 2 r ok 2 3; 3 a ok 4 5"),
}  # fmt: skip

IMPOSSIBLE = {
    "two at once": ("mutex", "1 a ok 0 1; 2 a ok 2 3; 1 r ok 4 5"),
    "never released": ("mutex", "1 a ok 0 1; 2 a ok 4 5"),
    "released too late": ("mutex", "1 a ok 0 1; 2 a ok 2 3; 1 r info 4 -"),
    "an unknown acquire that was released holds until then": (
        "mutex", "1 a info 0 -; 1 e ok 1 2; 2 a ok 3 4; 1 r ok 5 6",
    ),
    "released twice": ("mutex", "1 a ok 0 1; 1 r ok 2 3; 1 r ok 4 5"),
    "not held while held": ("mutex", "1 a ok 0 1; 1 r not-held 2 3; 1 r ok 4 5"),
    "released without any hold": ("mutex", "1 r ok 0 1"),
    "another hold releases": ("mutex", "1 a ok 0 1 h=a; 1 r ok 2 3 h=b"),
    "refused while free": ("mutex strict", "1 a ok 0 1; 1 r ok 2 3; 2 a held 4 5"),
    "clocks are not off enough": ("mutex eps=1", "1 a ok 0 1; 1 r ok 8 9; 2 a ok 4 5"),
    "granted before the loss": ("mutex", "1 a ok 0 1; 2 a ok 2 3; 1 lost ok 4 4"),
    "granted within the lease": ("lease", "1 a ok 0 1 u=8; 2 a ok 2 3 u=11"),
    "within the lease of an extend": ("lease", "1 a ok 0 1 u=4; 1 e ok 2 3 u=9; 2 a ok 5 6 u=20"),
    "extended though given away": ("lease", "1 a ok 0 1 u=4; 2 a ok 5 6 u=20; 1 e ok 7 8 u=20"),
    "both extends keep it": (
        "lease", "1 a ok 0 1 u=5 h=a; 1 e ok 2 6 u=20 h=a; 1 e ok 3 6 u=30 h=a; 2 a ok 9 10 h=b",
    ),
    "an unknown grant without leases": ("mutex strict", "1 a info 0 -; 2 a held 2 3; 3 a ok 20 21"),
    "an unknown grant runs until it said": (
        "lease strict", "1 a info 0 - u=10; 2 a held 2 3; 3 a ok 5 6 u=30",
    ),
    "the extend renews the hold that is held": (
        "lease", "1 a ok 1 2 u=9; 1 a info 5 -; 2 a ok 10 11 u=30; 1 e ok 11 13 u=19",
    ),
    "a fence repeats": ("fenced", "1 a ok 0 1 f=1; 1 r ok 2 3; 2 a ok 4 5 f=1"),
    "left too seldom": ("reentrant", "1 a ok 0 1; 1 a ok 2 3; 1 r ok 4 5; 2 a ok 6 7"),
    "left too often": ("reentrant", "1 a ok 0 1; 1 a ok 2 3; 1 r ok 4 5; 1 r ok 5 6; 1 r ok 7 8"),
    "its owner is refused": ("reentrant strict", "1 a ok 0 1; 1 a held 2 3; 1 r ok 4 5"),
    "the new hold is taken within its lease": (
        "reentrant", "1 a ok 0 1 u=3; 1 a ok 5 6 u=20; 2 a ok 8 9 u=30",
    ),
    "and after a loss": ("reentrant", "1 a ok 0 1; 1 lost ok 2 2; 1 a ok 3 4; 2 a ok 5 6"),
    "a permit too many": ("semaphore 2", "1 a ok 0 1; 2 a ok 2 3; 3 a ok 4 5"),
    "and of one process": (
        "semaphore 2", "1 a ok 0 1; 1 a ok 2 3; 1 r ok 4 5; 1 r ok 6 7; 1 r ok 8 9",
    ),
    "both permits are still held": (
        "semaphore 2", "1 a ok 0 1; 1 a ok 2 3; 1 r not-held 5 6; 1 r ok 7 8; 1 r ok 9 9",
    ),
    "the only permit is held": ("semaphore 2", "1 a ok 0 1; 1 r not-held 5 6; 1 r ok 7 8"),
    "a permit is left": ("semaphore 2 strict", "1 a ok 0 1; 2 a held 4 5"),
    "a writer beside a reader": ("read-write", "1 a ok 0 1 r; 2 a ok 2 3"),
    "a reader beside a writer": ("read-write", "1 a ok 0 1; 2 a ok 2 3 r"),
    "the downgraded writer still reads": (
        "read-write", "1 a ok 0 1; 1 a ok 2 3 r; 1 r ok 4 5; 2 a ok 6 7",
    ),
    "upgraded beside a reader": ("read-write", "1 a ok 0 1 r; 2 a ok 0 1 r; 1 a ok 2 3"),
    "a reader refused by readers": ("read-write strict", "1 a ok 0 1 r; 2 a held 2 3 r"),
    "taken twice": ("ownerless", "1 a ok 0 1; 2 a ok 2 3"),
    "nobody had it": ("ownerless", "1 a ok 0 1; 2 r ok 2 3; 3 r ok 4 5"),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPLAINED)
def test_explains(name: str) -> None:
    assert explainable(history(*EXPLAINED[name]))


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_refuses(name: str) -> None:
    assert not explainable(history(*IMPOSSIBLE[name]))
