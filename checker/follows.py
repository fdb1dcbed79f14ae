"""What follows from what: why ``lockbench.checker.catalogue`` has it as it does, and the closure of
it.

``verdict → (causes)`` means: what broke a cause may break the verdict too, without anything else
being wrong. So its break is expected where the cause's break is, and is not told again beside it.
Derived from the definitions of the verdicts (``docs/checker.md``), not from what was observed:

``linearizable``   looks at the answers of the lock alone, never at the resource. A promise lies
    inside the smallest hold (``lockbench.checker.exact``), and a release or extend that was
    answered ok stretches that hold to its own invocation. So two promises that overlap, and an ok
    for a hold that was over while somebody else had the key, are smallest holds that overlap. What
    a holder does too late (``stale-holder``, ``lost-update``) is no answer of the lock. Nor does a
    late grant break it: as long as the service keeps others out up to ``valid_until``, the grant
    has that instant to itself.
``false-release``  is the same act as a ``wrong-release``, of which nobody happened to show the
    effect. And of a key that was given away twice, the first holder may be released truly, by the
    service that still knew it, after the second had been granted.
``stale-holder``   is what a late grant leads to: its promise is over when it begins, so whatever
    is done under it is done after it.
``lost-update``    is impossible where what is done under each hold lies inside its promise and
    promises exclude each other: then each holder reads what the one before wrote. So it needs two
    promises at once, a grant without a promise, or an act after the promise.
The jobs (``lockbench.checker.jobs``)  act under a hold too, and need the same. A sale is a write,
and a unit
    sold twice is a state that two writes were made from. A charge is also done again by who does
    not find the mark of the first one.

Everything else follows from nothing: the service could have answered otherwise, whatever broke
before. So ``double-grant`` does not follow from a ``wrong-release``, though it often comes with it.
A confirmed payment without a charge (``lost-charge``) is no matter of exclusion.

It is decided by the name, for all of a case. By key would accuse the innocent: a server that
forgot everything gives a key twice that others ask for, and tells the holder of a key that nobody
asks for that it does not hold it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from lockbench.checker.catalogue import CATALOGUE, OF_JOBS

FOLLOWS: Final[Mapping[str, tuple[str, ...]]] = {
    name: entry.follows_from for name, entry in CATALOGUE.items()
}


def causes_of(verdict: str) -> frozenset[str]:
    """Everything that a verdict follows from, directly or not."""
    direct = FOLLOWS.get(verdict, ())
    return frozenset(direct).union(*map(causes_of, direct))


def following(found: Collection[str], broken: Collection[str]) -> frozenset[str]:
    """Of the ``broken`` verdicts, those in ``found`` and those that follow from them, step by step
    through verdicts that broke as well."""
    explained = frozenset(found).intersection(broken)
    while True:
        more = {v for v in broken if not explained.isdisjoint(FOLLOWS.get(v, ()))} - explained
        if not more:
            return explained
        explained |= more


def told(broken: Collection[str]) -> list[str]:
    """The ``broken`` verdicts without those that follow from another one of them. What it cost is
    told in any case."""
    return [v for v in broken if v in OF_JOBS or causes_of(v).isdisjoint(broken)]
