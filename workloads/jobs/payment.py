"""``payment``: orders of an account are charged, each exactly once, though messages arrive twice.

A consumer takes a message, locks the account, looks whether the order is paid, takes its time,
charges it (an effect that cannot be taken back), marks it as paid and releases. Every message is
delivered ``copies`` times, and again when its consumer did not get the lock. A consumer that goes
on after its hold charges what another has charged meanwhile (``charged-twice``), unless the
processor is given an idempotency key (``idempotency=yes``) and refuses the second. On a store with
the guard ``idempotency-key`` charge and mark are one row, under that key.

The named scenario of the 47 ms: ``--workload payment --fault partition-47ms`` strikes the victim's
hold between the look and the charge.
"""

from __future__ import annotations

from typing import Final

from lockbench.declarations.parameters import Parameter, Value
from lockbench.workloads.base import LEDGER, LOAD, Job, Workload
from lockbench.workloads.resource import Resource
from lockbench.workloads.use import Use

YES: Final = "yes"


class Delivered(Job):
    """Something that is delivered ``copies`` times and has to be done once. ``once``: the resource
    refuses to do it again."""

    def __init__(self, copies: Value, *, once: bool = False) -> None:
        self._copies = int(copies)
        self._once = once

    def begin(self, resource: Resource, key: str) -> int:
        """The next one of the key."""
        return resource.deliver(key, self._copies)

    def work(self, use: Use) -> bool:
        version, done = use.read(use.thing)
        if done:
            return True
        use.keep()
        if use.stored:
            return use.do(use.thing)
        use.effect(use.thing, once=self._once)
        use.write(version, use.thing)
        return True

    def end(self, resource: Resource, key: str, thing: int, *, done: bool) -> None:
        """What was not worked on is delivered again."""
        if not done:
            resource.hand_back(key, thing)


WORKLOAD = Workload(
    name="payment",
    summary="orders are charged exactly once, though messages are delivered twice",
    job=lambda said: Delivered(said["copies"], once=said["idempotency"] == YES),
    verdicts=("stale-holder", "lost-update", "charged-twice", "lost-charge"),
    parameters={
        **LOAD,
        "copies": Parameter("how often every message is delivered", 2, least=1),
        "idempotency": Parameter("whether charges carry a key", "no", ("no", YES)),
        "takes": Parameter("seconds from a look at an order to its charge", 0.005, least=0, most=1),
    },
    pace=lambda said: {"hold_s": float(said["takes"])},
    describes=lambda _: {"job": "payment"},
    kinds=("mutex", "reentrant", "read-write", "none"),
    storable=LEDGER,
)
