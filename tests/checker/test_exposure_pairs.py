"""Pairs of histories for every rule of exposure: in one the fault could have hurt; in the other,
which differs in the one thing that is named, it could not, or nobody knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from lockbench.checker.exposure import exposure
from lockbench.checker.rules import RULES
from lockbench.history.op import F, Mode
from lockbench.history.recorder import PROCESSES_PER_WORKER
from tests.checker.scenes import S, Scene, ns

# Clients of different workers, and another client of the holder's.
HOLDER, OTHER, THIRD, FOURTH, VICTIM = (n * PROCESSES_PER_WORKER for n in range(1, 6))
NEIGHBOUR = HOLDER + 1

Play = Callable[[bool], Scene]


class Pair(NamedTuple):
    """``play`` makes the history that could have hurt of True, the other of False."""

    rule: str
    differs: str
    play: Play


PAIRS: list[Pair] = []


def pair(rule: str, differs: str) -> Callable[[Play], Play]:
    def register(play: Play) -> Play:
        PAIRS.append(Pair(rule, differs, play))
        return play

    return register


def struck(
    scene: Scene, rule: str, begin: float = 3, heal: float | None = 7, **facts: Any
) -> Scene:
    """With the fault that asks for the rule; the key is a shared mutex unless it was said."""
    if scene.key not in scene.builder.objects:
        scene.kind("mutex", role="aimed")
    return scene.fault("some", begin, heal, rule, **facts)


def of_kind(kind: str, **more: Any) -> Scene:
    return Scene().kind(kind, role="aimed", **more)


# grants-around


@pair("grants-around", "a grant after the heal, or none")
def _(could: bool) -> Scene:
    scene = Scene().acquire(HOLDER, 0, 1).release(HOLDER, 2, 2.5)
    return struck(scene.acquire(OTHER, 4, 8 if could else 6), "grants-around")


@pair("grants-around", "a grant before the fault, or none")
def _(could: bool) -> Scene:
    scene = Scene().acquire(HOLDER, 0, 1 if could else 4).release(HOLDER, 5, 5.5)
    return struck(scene.acquire(OTHER, 8, 9), "grants-around")


@pair("grants-around", "healed, or never")
def _(could: bool) -> Scene:
    scene = Scene().acquire(HOLDER, 0, 1).release(HOLDER, 2, 2.5).acquire(OTHER, 8, 9)
    return struck(scene, "grants-around", 3, 7 if could else None)


@pair("grants-around", "a shared key, or one that its client alone asks for")
def _(could: bool) -> Scene:
    scene = of_kind("mutex") if could else Scene().kind("mutex", role="own")
    return struck(
        scene.acquire(HOLDER, 0, 1).release(HOLDER, 2, 3).acquire(OTHER, 8, 9), "grants-around"
    )


@pair("grants-around", "asked of a service that answers that it is held, or that is not there")
def _(could: bool) -> Scene:
    error = "gave-up: held" if could else "gave-up: no-effect: no connection"
    scene = Scene().acquire(HOLDER, 0, 1).release(HOLDER, 4, None, "info")
    return struck(scene.acquire(OTHER, 8, 9, "fail", error=error), "grants-around")


@pair("grants-around", "a hold that nothing ends, or one with a lease")
def _(could: bool) -> Scene:
    scene = Scene().acquire(HOLDER, 0, 1, until=None if could else 6)
    scene.release(HOLDER, 4, None, "info").acquire(OTHER, 8, 9, "fail", error="held")
    return struck(scene, "grants-around")


def left_behind(asked_s: float, *, served: bool) -> Scene:
    """A client dies while it asks for the key, which nobody is granted any more."""
    scene = of_kind("mutex", lease_ns=S, slack_ns=S)
    scene.kind("mutex", "spare", role="aimed", lease_ns=S, slack_ns=S)
    scene.acquire(HOLDER, 0, 0.2, until=2, hold="a").release(HOLDER, 1.5, 2, hold="a")
    scene.acquire(HOLDER, asked_s, asked_s + 0.4, "info", error="TimeoutError", hold="b")
    scene.op(F.QUIET, OTHER, 10, 10, named=False)
    scene.acquire(OTHER, 13.1, 14, "fail", error="gave-up: held", hold="c")
    if served:
        scene.acquire(OTHER, 14, 15, until=16, key="spare", hold="d")
    return struck(scene, "grants-around")


@pair("grants-around", "a key left behind by a service that serves others, or by one that is gone")
def _(could: bool) -> Scene:
    return left_behind(4, served=could)


@pair("grants-around", "a key left behind since the fault, or before it")
def _(could: bool) -> Scene:
    return left_behind(4 if could else 2.5, served=True)


# attempts-during


@pair("attempts-during", "asked while another held it, or while nobody did")
def _(could: bool) -> Scene:
    scene = Scene().acquire(HOLDER, 0, 1, until=9).release(HOLDER, 5, 5.1)
    asked = 4.5 if could else 5.2
    return struck(scene.acquire(OTHER, asked, 6, until=12), "attempts-during")


@pair("attempts-during", "asked during the fault, or after it")
def _(could: bool) -> Scene:
    scene = Scene().acquire(HOLDER, 0, 1)
    return struck(
        scene.acquire(OTHER, 5 if could else 8, 9, "fail", error="held"), "attempts-during"
    )


@pair("attempts-during", "asked by another, or by a client that may be the holder")
def _(could: bool) -> Scene:
    scene = Scene().acquire(HOLDER, 0, 1)
    client = OTHER if could else NEIGHBOUR
    return struck(scene.acquire(client, 5, 6, "fail", error="held"), "attempts-during")


@pair("attempts-during", "a hold of the fault's time, or one that was over before it")
def _(could: bool) -> Scene:
    scene = Scene().acquire(HOLDER, 0, 1, until=4 if could else 2)
    return struck(scene.acquire(OTHER, 3.5, 8, "fail", error="held"), "attempts-during")


@pair("attempts-during", "a writer kept out by a reader, or another reader")
def _(could: bool) -> Scene:
    scene = of_kind("read-write").acquire(HOLDER, 0, 1, mode=Mode.READ)
    return struck(
        scene.acquire(OTHER, 5, 6, "fail", mode=Mode.WRITE if could else Mode.READ),
        "attempts-during",
    )


@pair("attempts-during", "all permits of a semaphore taken, or one left")
def _(could: bool) -> Scene:
    scene = of_kind("semaphore", permits=2).acquire(HOLDER, 0, 1)
    if could:
        scene.acquire(THIRD, 0, 1)
    return struck(scene.acquire(OTHER, 5, 6, "fail" if could else "ok"), "attempts-during")


@pair("attempts-during", "all permits taken during the fault, or only before it")
def _(could: bool) -> Scene:
    scene = of_kind("semaphore", permits=2).acquire(HOLDER, 0, 0.1)
    scene.acquire(THIRD, 0.2, 0.3).acquire(FOURTH, 0.4, 0.5, "fail", error="held")
    scene.release(THIRD, 6 if could else 2, 6.1)
    return struck(scene.acquire(OTHER, 5, 6.5, hold="late"), "attempts-during")


@pair("attempts-during", "all permits taken while one waits, or one free again before it asked")
def _(could: bool) -> Scene:
    scene = of_kind("semaphore", permits=2).acquire(HOLDER, 0, 1)
    scene.acquire(THIRD, 4, 4.1).release(THIRD, 5, 5.1)
    return struck(scene.acquire(OTHER, 3.5 if could else 5.5, 6), "attempts-during")


@pair("attempts-during", "a struck client holds or asks, or others alone")
def _(could: bool) -> Scene:
    scene = Scene().acquire(HOLDER, 0, 1)
    scene.acquire(VICTIM if could else OTHER, 5, 6, "fail", error="held")
    return struck(scene, "attempts-during", worker=5)


@pair("attempts-during", "one of the frozen workers holds, or none of them has a part")
def _(could: bool) -> Scene:
    scene = Scene().acquire(HOLDER, 0, 1).acquire(OTHER, 5, 6, "fail", error="held")
    return struck(scene, "attempts-during", worker=5, workers=[5, 1 if could else 4])


@pair("attempts-during", "a hold, or what is left of an inner one")
def _(could: bool) -> Scene:
    scene = of_kind("reentrant").acquire(HOLDER, 0, 1, until=9)
    scene.acquire(HOLDER, 1.1, 1.2, until=9, hold="inner").release(HOLDER, 2, 2.1, hold="inner")
    scene.release(HOLDER, 5 if could else 2.5, 5.1)
    return struck(scene.acquire(OTHER, 4, 6), "attempts-during")


# holder-frozen


def frozen(scene: Scene, rule: str = "holder-frozen") -> Scene:
    return struck(scene, rule, 2, 10, worker=5)


@pair("holder-frozen", "granted to another before it woke, or only afterwards")
def _(could: bool) -> Scene:
    scene = Scene().acquire(VICTIM, 0, 1, until=4)
    scene.acquire(OTHER, 3, 5 if could else 10.5, until=15)
    return frozen(scene.write(VICTIM, 11, 0, 1))


@pair("holder-frozen", "it acted afterwards, or never")
def _(could: bool) -> Scene:
    scene = Scene().acquire(VICTIM, 0, 1, until=4).acquire(OTHER, 3, 5, until=15)
    return frozen(scene.write(VICTIM, 11, 0, 1) if could else scene.op(F.LOST, VICTIM, 11, 11))


@pair("holder-frozen", "a write, or a release of which nobody is left to be hurt")
def _(could: bool) -> Scene:
    scene = Scene().acquire(VICTIM, 0, 1, until=4).acquire(OTHER, 3, 5, until=9)
    if could:
        scene.write(VICTIM, 11, 0, 1)
    return frozen(scene.not_held(VICTIM, 11.5, 12))


@pair("holder-frozen", "a release while another has the lock, or after that one's release")
def _(could: bool) -> Scene:
    scene = Scene().acquire(VICTIM, 0, 1, until=4).acquire(OTHER, 3, 5, until=30)
    return frozen(scene.release(OTHER, 20 if could else 9, 21).not_held(VICTIM, 11, 12))


@pair("holder-frozen", "still promised as it froze, or over before")
def _(could: bool) -> Scene:
    scene = Scene().acquire(VICTIM, 0, 1, until=4 if could else 1.5)
    return frozen(scene.acquire(OTHER, 3, 5, until=15).write(VICTIM, 11, 0, 1))


@pair("holder-frozen", "thawed, or never")
def _(could: bool) -> Scene:
    scene = Scene().acquire(VICTIM, 0, 1, until=4).acquire(OTHER, 3, 5, until=15)
    scene.write(VICTIM, 11, 0, 1)
    return struck(scene, "holder-frozen", 2, 10 if could else None, worker=5)


@pair("holder-frozen", "a lock without a limit that others asked for, or nobody")
def _(could: bool) -> Scene:
    scene = Scene().acquire(VICTIM, 0, 1).acquire(OTHER, 3 if could else 10.5, 12, "fail")
    return frozen(scene.write(VICTIM, 11, 0, 1))


@pair("holder-frozen", "a lock without a limit that was only asked for, or one with a lease")
def _(could: bool) -> Scene:
    scene = Scene().acquire(VICTIM, 0, 1, until=None if could else 4)
    return frozen(scene.acquire(OTHER, 3, 5, "fail").write(VICTIM, 11, 0, 1))


@pair("holder-frozen", "all permits taken by others, or one always free")
def _(could: bool) -> Scene:
    scene = of_kind("semaphore", permits=2).acquire(VICTIM, 0, 1, until=4)
    scene.acquire(OTHER, 5, 5.5, until=15)
    if could:
        scene.acquire(THIRD, 6, 6.5, until=15)
    return frozen(scene.write(VICTIM, 11, 0, 1))


@pair("holder-frozen", "the other permit held by one of before, or by nobody")
def _(could: bool) -> Scene:
    scene = of_kind("semaphore", permits=2).acquire(VICTIM, 0, 1, until=4)
    scene.acquire(THIRD, 1, 1.5, until=20 if could else 1.8)
    return frozen(scene.acquire(OTHER, 5, 5.5, until=15).write(VICTIM, 11, 0, 1))


@pair("holder-frozen", "a released permit that others need, or that is free anyway")
def _(could: bool) -> Scene:
    scene = of_kind("semaphore", permits=2).acquire(VICTIM, 0, 1, until=4)
    for client in (OTHER, THIRD):
        scene.acquire(client, 5, 5.5, until=15 if could else 9)
    return frozen(scene.release(VICTIM, 11, 12))


@pair("holder-frozen", "a reader passed by a writer, or by another reader")
def _(could: bool) -> Scene:
    scene = of_kind("read-write").acquire(VICTIM, 0, 1, until=4, mode=Mode.READ)
    scene.acquire(OTHER, 3, 5, until=15, mode=Mode.WRITE if could else Mode.READ)
    return frozen(scene.read(VICTIM, 11, 1))


# hold-across


@pair("hold-across", "asked while the hold lasted, or after it was over")
def _(could: bool) -> Scene:
    scene = Scene().acquire(HOLDER, 0, 1, until=5)
    return struck(scene.acquire(OTHER, 4 if could else 5.5, 6.5, "fail"), "hold-across")


@pair("hold-across", "asked before its release, or after it")
def _(could: bool) -> Scene:
    scene = Scene().acquire(HOLDER, 0, 1, until=20).release(HOLDER, 5, 5.1)
    return struck(scene.acquire(OTHER, 4 if could else 5.5, 6.5, "fail"), "hold-across")


@pair("hold-across", "a hold that lasts into the fault, or one that ends before it")
def _(could: bool) -> Scene:
    scene = Scene().acquire(HOLDER, 0, 1, until=9 if could else 2.5)
    return struck(scene.acquire(OTHER, 2, 6, "fail"), "hold-across")


@pair("hold-across", "asked in it, or after its heal")
def _(could: bool) -> Scene:
    scene = Scene().acquire(HOLDER, 0, 1, until=9)
    return struck(scene.acquire(OTHER, 5 if could else 8, None, "info"), "hold-across")


@pair("hold-across", "a waiter of before the fault, or one whose end nobody knows")
def _(could: bool) -> Scene:
    scene = Scene().acquire(HOLDER, 0, 1, until=9)
    scene.acquire(OTHER, 1.2, 8 if could else None, "fail" if could else "info")
    return struck(scene, "hold-across")


@pair("hold-across", "unanswered for less than others waited, or for longer")
def _(could: bool) -> Scene:
    scene = Scene().acquire(THIRD, 0, 0.5, "fail").acquire(HOLDER, 1, 1.1, until=9)
    return struck(scene.acquire(OTHER, 2.6 if could else 1.5, None, "info"), "hold-across")


@pair("hold-across", "how long others wait without a fault, or in the one before")
def _(could: bool) -> Scene:
    scene = Scene().kind("mutex", role="aimed").acquire(THIRD, 0, 2.5, "fail")
    scene.fault("some", *((2.6, 2.7) if could else (1, 2)), "proven", proven=True)
    since = 3 if could else 1
    scene.acquire(HOLDER, 3, 3.1, until=15).acquire(THIRD, since, since + 2.5, "fail", hold="y")
    return struck(scene.acquire(OTHER, 5, None, "info"), "hold-across", 7 if could else 9, 12)


@pair("hold-across", "asked by another, or by the holder itself after an unknown outcome")
def _(could: bool) -> Scene:
    scene = Scene().acquire(HOLDER, 0, 1, until=9)
    return struck(scene.acquire(OTHER if could else NEIGHBOUR, 5, 6, "fail"), "hold-across")


@pair("hold-across", "no permit left by the hold, or one")
def _(could: bool) -> Scene:
    scene = of_kind("semaphore", permits=2).acquire(HOLDER, 0, 1, until=9)
    scene.acquire(THIRD, 1, 1.1, until=9 if could else 2)
    return struck(scene.acquire(OTHER, 5, 6, "fail"), "hold-across")


@pair("hold-across", "a reader that a writer waits for, or another reader")
def _(could: bool) -> Scene:
    scene = of_kind("read-write").acquire(HOLDER, 0, 1, until=9, mode=Mode.READ)
    mode = Mode.WRITE if could else Mode.READ
    return struck(scene.acquire(OTHER, 5, 6, "fail", mode=mode), "hold-across")


@pair("hold-across", "a session that was renewed, or one that was not")
def _(could: bool) -> Scene:
    scene = Scene().acquire(HOLDER, 0, 1, until=4)
    if could:
        scene.extend(HOLDER, 3.5, 3.6, until=9)
    return struck(scene.acquire(OTHER, 5, 6, "fail"), "hold-across")


@pair("hold-across", "a client that was cut off has a part, or none")
def _(could: bool) -> Scene:
    scene = Scene().acquire(VICTIM if could else HOLDER, 0, 1, until=9)
    return struck(scene.acquire(OTHER, 5, 6, "fail"), "hold-across", workers=[5])


# leader-changed, promoted


@pair("leader-changed", "another leader, or the same")
def _(could: bool) -> Scene:
    facts = {"leader_before": 1, "leader_during": 2 if could else 1}
    return struck(Scene().acquire(HOLDER, 0, 1), "leader-changed", **facts)


@pair("leader-changed", "another leader, or none as far as anybody knows")
def _(could: bool) -> Scene:
    facts: dict[str, Any] = {"leader_before": 1, "leader_during": 2 if could else None}
    return struck(Scene().acquire(HOLDER, 0, 1), "leader-changed", **facts)


@pair("leader-changed", "seen to change, or said to be none of its business")
def _(could: bool) -> Scene:
    facts = {"leader_before": 1, "leader_during": 2} if could else {"leader_due": False}
    return struck(Scene().acquire(HOLDER, 0, 1), "leader-changed", **facts)


@pair("promoted", "another primary, or the same")
def _(could: bool) -> Scene:
    facts: dict[str, Any] = {"primary_before": "a", "primary_during": "b" if could else "a"}
    return struck(Scene().acquire(HOLDER, 0, 1), "promoted", **facts)


@pair("promoted", "another primary, or nobody knows")
def _(could: bool) -> Scene:
    facts: dict[str, Any] = {"primary_before": "a"} | ({"primary_during": "b"} if could else {})
    return struck(Scene().acquire(HOLDER, 0, 1), "promoted", **facts)


# promise-outlives-restart


def restarted(scene: Scene, at: float | None = 5, **facts: Any) -> Scene:
    known = {} if at is None else {"restarted_ns": ns(at)}
    return struck(scene, "promise-outlives-restart", 3, 5, **known, **facts)


@pair("promise-outlives-restart", "a promise beyond the restart, or one that ended before it")
def _(could: bool) -> Scene:
    scene = Scene().acquire(HOLDER, 0, 1, until=9 if could else 4.5)
    return restarted(scene.acquire(OTHER, 4, 7))


@pair("promise-outlives-restart", "held beyond the restart, or released while it was down")
def _(could: bool) -> Scene:
    scene = Scene().acquire(HOLDER, 0, 1, until=9)
    return restarted(scene.release(HOLDER, 8 if could else 4, None, "info").acquire(OTHER, 4, 7))


@pair("promise-outlives-restart", "asked before the promise ended, or after it")
def _(could: bool) -> Scene:
    scene = Scene().acquire(HOLDER, 0, 1, until=9)
    return restarted(scene.acquire(OTHER, 8 if could else 9.5, 10))


@pair("promise-outlives-restart", "asked after the restart, or only before it")
def _(could: bool) -> Scene:
    scene = Scene().acquire(HOLDER, 0, 1, until=9)
    return restarted(scene.acquire(OTHER, 3.5, 6 if could else 4.5, "fail"))


@pair("promise-outlives-restart", "restarted at a known time, or not")
def _(could: bool) -> Scene:
    scene = Scene().acquire(HOLDER, 0, 1, until=9).acquire(OTHER, 6, 7)
    return restarted(scene, 5 if could else None)


@pair("promise-outlives-restart", "no permit left after the restart, or one")
def _(could: bool) -> Scene:
    scene = of_kind("semaphore", permits=2).acquire(HOLDER, 0, 1, until=9)
    scene.acquire(THIRD, 1, 1.1, until=9 if could else 5.5)
    return restarted(scene.acquire(OTHER, 6, 7))


@pair("promise-outlives-restart", "kept away as long as was said, or back sooner")
def _(could: bool) -> Scene:
    scene = Scene().acquire(HOLDER, 0, 1, until=4).acquire(OTHER, 3.5, 3.9, "fail")
    return restarted(scene, 7 if could else 5, restart_delay_s=3.5)


@pair("promise-outlives-restart", "kept away on purpose, or for no reason")
def _(could: bool) -> Scene:
    scene = Scene().acquire(HOLDER, 0, 1, until=4).acquire(OTHER, 3.5, 3.9, "fail")
    return restarted(scene, 7, **({"restart_delay_s": 3.5} if could else {}))


@pair("promise-outlives-restart", "others asked until a holder knew of its loss, or nobody did")
def _(could: bool) -> Scene:
    scene = Scene().acquire(HOLDER, 0, 1).lost(HOLDER, 4)
    return restarted(scene.acquire(OTHER, 3.5 if could else 4.5, 6))


@pair("promise-outlives-restart", "told of the loss by this fault, or before it")
def _(could: bool) -> Scene:
    scene = Scene().acquire(HOLDER, 0, 1).lost(HOLDER, 4 if could else 2)
    return restarted(scene.acquire(OTHER, 3.1, 6))


# proven


@pair("proven", "proven, or said to be so in other words")
def _(could: bool) -> Scene:
    return struck(Scene().acquire(HOLDER, 0, 1), "proven", proven=True if could else 1)


# waiter-frozen


def asleep(scene: Scene, thaw: float = 10) -> Scene:
    return struck(scene, "waiter-frozen", 2, thaw, worker=5)


@pair("waiter-frozen", "its acquire was under way as it froze, or answered before")
def _(could: bool) -> Scene:
    scene = Scene().acquire(VICTIM, 1, 12 if could else 1.5, until=5)
    return asleep(scene.acquire(OTHER, 1, 6, until=9))


@pair("waiter-frozen", "asked before it froze, or after it woke")
def _(could: bool) -> Scene:
    scene = Scene().acquire(VICTIM, 1 if could else 11, None, "info")
    return asleep(scene.acquire(OTHER, 1, 6, until=9))


@pair("waiter-frozen", "the key went to another meanwhile, or to nobody")
def _(could: bool) -> Scene:
    scene = Scene().acquire(THIRD, 0, 0.5, until=3).acquire(VICTIM, 1, 12, until=5)
    return asleep(scene.acquire(OTHER, 1, 6 if could else 11, until=9 if could else 14))


@pair("waiter-frozen", "slept for longer than grants are promised, or for less")
def _(could: bool) -> Scene:
    scene = Scene().acquire(VICTIM, 1, 12, "fail").acquire(OTHER, 1, 4, until=7)
    return asleep(scene, 10 if could else 4.5)


@pair("waiter-frozen", "grants with an end to sleep through, or without one")
def _(could: bool) -> Scene:
    scene = Scene().acquire(VICTIM, 1, 12, "fail")
    return asleep(scene.acquire(OTHER, 1, 4, until=7 if could else None))


@pair("waiter-frozen", "all permits went to others, or one was left")
def _(could: bool) -> Scene:
    scene = of_kind("semaphore", permits=2).acquire(VICTIM, 1, 12, "fail")
    scene.acquire(OTHER, 1, 4, until=7)
    if could:
        scene.acquire(THIRD, 1, 5, until=8)
    return asleep(scene)


# holder-killed


def killed(scene: Scene) -> Scene:
    return struck(scene.op(F.DEATH, VICTIM, 3, 3), "holder-killed", worker=5)


@pair("holder-killed", "asked before the lease was over, or after it")
def _(could: bool) -> Scene:
    scene = Scene().acquire(VICTIM, 0, 1, until=6)
    return killed(scene.acquire(OTHER, 4 if could else 6.5, 7))


@pair("holder-killed", "it held as it died, or another did")
def _(could: bool) -> Scene:
    scene = Scene().acquire(VICTIM if could else HOLDER, 0, 1, until=6)
    return killed(scene.acquire(OTHER, 4, 7))


@pair("holder-killed", "it held as it died, or had released")
def _(could: bool) -> Scene:
    scene = Scene().acquire(VICTIM, 0, 1, until=6)
    if not could:
        scene.release(VICTIM, 2, 2.1)
    return killed(scene.acquire(OTHER, 4, 7))


@pair("holder-killed", "it held as it died, or had the answer to its release as it was struck")
def _(could: bool) -> Scene:
    scene = Scene().acquire(VICTIM, 0, 1, until=6)
    if not could:
        scene.release(VICTIM, 3.0001, 3.0004)
    return killed(scene.acquire(OTHER, 4, 7))


@pair("holder-killed", "a key that others want, or one of its own")
def _(could: bool) -> Scene:
    scene = Scene().kind("mutex", role="aimed" if could else "own").acquire(VICTIM, 0, 1, until=6)
    return killed(scene.acquire(OTHER, 4, 7))


@pair("holder-killed", "the last permit, or one of two")
def _(could: bool) -> Scene:
    scene = of_kind("semaphore", permits=2).acquire(VICTIM, 0, 1, until=6)
    scene.acquire(THIRD, 1, 1.1, until=9 if could else 2)
    return killed(scene.acquire(OTHER, 4, 7))


# reply-lost


def unanswered(scene: Scene, of: str | None) -> Scene:
    return struck(scene, "reply-lost", 3, 5, worker=5, of=of)


def refused(scene: Scene) -> Scene:
    """Others find the key taken for a while, and are granted it when a lease would be over."""
    scene.acquire(OTHER, 3.2, 4.2, "fail", error="held", hold="x")
    return scene.acquire(OTHER, 4.3, 6.3, until=9.3)


@pair("reply-lost", "others found the key taken by nobody, or by a rival")
def _(could: bool) -> Scene:
    scene = Scene().acquire(THIRD, 2, 2.1, until=5.1)
    scene.release(THIRD, 2.8 if could else 6.1, 2.9 if could else 6.2)
    return unanswered(refused(scene.acquire(VICTIM, 3.1, None, "info")), "acquire")


@pair("reply-lost", "whose reply was to be lost is known, or not")
def _(could: bool) -> Scene:
    scene = Scene().acquire(THIRD, 2, 2.1, until=5.1).release(THIRD, 2.8, 2.9)
    refused(scene.acquire(VICTIM, 3.1, None, "info"))
    return unanswered(scene, "acquire" if could else None)


@pair("reply-lost", "a rival's release was confirmed, or unknown while its lease lasts")
def _(could: bool) -> Scene:
    scene = Scene().acquire(THIRD, 2, 2.1, until=6.2).acquire(VICTIM, 3.1, None, "info")
    scene.release(THIRD, 2.8, 2.9 if could else None, "ok" if could else "info")
    return unanswered(refused(scene), "acquire")


@pair("reply-lost", "nobody else's acquire is unknown, or a rival's, which may hold it")
def _(could: bool) -> Scene:
    scene = Scene()
    if not could:
        scene.acquire(THIRD, 3.0, None, "info")
    return unanswered(refused(scene.acquire(VICTIM, 3.1, None, "info")), "acquire")


@pair("reply-lost", "left unanswered, or answered at once")
def _(could: bool) -> Scene:
    scene = Scene().acquire(
        VICTIM, 3.1, None if could else 3.15, "info" if could else "ok", until=6
    )
    return unanswered(refused(scene), "acquire")


@pair("reply-lost", "told that it certainly failed, though others found it taken, or free")
def _(could: bool) -> Scene:
    scene = Scene().acquire(VICTIM, 3.1, 4.1, "fail", error="no-effect: refused")
    return unanswered(
        refused(scene) if could else scene.acquire(OTHER, 3.2, 3.3, until=6.3), "acquire"
    )


@pair("reply-lost", "answered when it asked again, the key kept all along, or free until then")
def _(could: bool) -> Scene:
    scene = Scene().acquire(VICTIM, 3.1, 5.5, until=6.1)
    scene.acquire(OTHER, 3.2, 4.2, "fail", error="held" if could else "no connection", hold="x")
    return unanswered(scene.acquire(OTHER, 4.3, 6.3, until=9.3), "acquire")


@pair("reply-lost", "others asked, or nobody")
def _(could: bool) -> Scene:
    scene = Scene().acquire(VICTIM, 3.1, None, "info")
    return unanswered(refused(scene) if could else scene.acquire(OTHER, 6, 6.3), "acquire")


@pair("reply-lost", "asked in the fault, or before it")
def _(could: bool) -> Scene:
    scene = Scene().acquire(VICTIM, 3.1 if could else 2, None, "info")
    return unanswered(refused(scene), "acquire")


@pair("reply-lost", "the servers answered others meanwhile, or stalled")
def _(could: bool) -> Scene:
    scene = Scene().acquire(VICTIM, 3.1, None, "info").acquire(OTHER, 3.2, 3.95)
    scene.acquire(THIRD, 3.15, 3.5 if could else 3.94, key="b", hold="b")
    return unanswered(scene, "acquire")


@pair("reply-lost", "a shared key, or one of its own")
def _(could: bool) -> Scene:
    scene = Scene().kind("mutex", role="aimed" if could else "own")
    return unanswered(refused(scene.acquire(VICTIM, 3.1, None, "info")), "acquire")


@pair("reply-lost", "of two permits one known to be taken, or both")
def _(could: bool) -> Scene:
    scene = of_kind("semaphore", permits=2)
    for rival in (THIRD,) if could else (THIRD, FOURTH):
        scene.acquire(rival, 2, 2.1, until=9)
    return unanswered(refused(scene.acquire(VICTIM, 3.1, None, "info")), "acquire")


@pair("reply-lost", "writers kept out by a reader whose answer was lost, or readers asked")
def _(could: bool) -> Scene:
    scene = of_kind("read-write").acquire(VICTIM, 3.1, None, "info", mode=Mode.READ)
    mode = Mode.WRITE if could else Mode.READ
    scene.acquire(OTHER, 3.2, 4.2, "fail", hold="x", mode=mode)
    scene.acquire(THIRD, 3.8, 3.9, key="b", hold="b")
    scene.acquire(FOURTH, 3.05, 3.15, "fail", hold="y", mode=Mode.WRITE)
    return unanswered(scene.acquire(OTHER, 4.3, 6.3, mode=mode), "acquire")


@pair("reply-lost", "granted to another before the lease was over, or after it")
def _(could: bool) -> Scene:
    scene = Scene().acquire(VICTIM, 0, 1, until=9).release(VICTIM, 3.1, None, "info")
    return unanswered(scene.acquire(OTHER, 3.2, 4 if could else 9.5), "release")


@pair("reply-lost", "a release without its answer, or with it")
def _(could: bool) -> Scene:
    scene = Scene().acquire(VICTIM, 0, 1, until=9)
    scene.release(VICTIM, 3.1, None if could else 3.2, "info" if could else "ok")
    return unanswered(scene.acquire(OTHER, 3.3, 4), "release")


@pair("reply-lost", "the freed permit was needed for the next grant, or another was free")
def _(could: bool) -> Scene:
    scene = of_kind("semaphore", permits=2).acquire(VICTIM, 0, 1, until=9)
    scene.release(VICTIM, 3.1, None, "info")
    if could:
        scene.acquire(THIRD, 1, 1.1, until=9)
    return unanswered(scene.acquire(OTHER, 3.2, 4, until=7), "release")


@pair("reply-lost", "a writer was let in after the release, or a reader beside it")
def _(could: bool) -> Scene:
    scene = of_kind("read-write").acquire(VICTIM, 0, 1, until=9, mode=Mode.READ)
    scene.release(VICTIM, 3.1, None, "info", mode=Mode.READ)
    mode = Mode.WRITE if could else Mode.READ
    return unanswered(scene.acquire(OTHER, 3.2, 4, mode=mode), "release")


@pair("reply-lost", "kept beyond the lease of before the extend, or just until its end")
def _(could: bool) -> Scene:
    scene = Scene().acquire(VICTIM, 0, 2, until=4).extend(VICTIM, 3.1, None, "info")
    scene.acquire(OTHER, 3.2, 4.8 if could else 4.1, "fail" if could else "ok", error="held")
    return unanswered(scene.acquire(OTHER, 4.9, 6, hold="y"), "extend")


@pair("reply-lost", "an extend answered when it asked again, or never")
def _(could: bool) -> Scene:
    scene = Scene().acquire(VICTIM, 0, 2, until=9)
    scene.extend(VICTIM, 3.1, 5.5 if could else None, "ok" if could else "info", until=8)
    return unanswered(scene, "extend")


# held-back


def usual() -> Scene:
    """Before the fault a request takes 10 ms."""
    return (
        Scene()
        .kind("mutex", role="aimed")
        .kind("mutex", "b", role="contended")
        .acquire(OTHER, 0, 0.01, until=2)
        .release(OTHER, 1, 1.01)
    )


def asked_in_cut(begin: float, end: float | None, key: str = "b") -> Scene:
    scene = usual().kind("mutex", "own", role="own")
    answer = "info" if end is None else "ok"
    return struck(scene.acquire(VICTIM, begin, end, answer, key=key), "held-back", 3, 5)


@pair("held-back", "answered after the heal, or at once")
def _(could: bool) -> Scene:
    return asked_in_cut(3.5, 6.0 if could else 3.55)


@pair("held-back", "under way as the cut began, or answered before")
def _(could: bool) -> Scene:
    return asked_in_cut(2.99, 6.0) if could else asked_in_cut(1.5, 1.51)


@pair("held-back", "far later than usual, or somewhat")
def _(could: bool) -> Scene:
    return asked_in_cut(3.5, 4.0 if could else 3.58)


@pair("held-back", "early enough to be answered in the cut, or just before its end")
def _(could: bool) -> Scene:
    return asked_in_cut(3.5, 5.005) if could else asked_in_cut(4.995, 5.005)


@pair("held-back", "never answered though asked early, or just before its end")
def _(could: bool) -> Scene:
    return asked_in_cut(3.5 if could else 4.995, None)


@pair("held-back", "never answered though asked in the cut, or before it")
def _(could: bool) -> Scene:
    return asked_in_cut(3.5 if could else 2.5, None)


@pair("held-back", "a key that others want, or one of its own")
def _(could: bool) -> Scene:
    return asked_in_cut(3.5, 6.0, "b" if could else "own")


@pair("held-back", "kept by the cut, or by a holder")
def _(could: bool) -> Scene:
    scene = usual().acquire(HOLDER, 2, 2.01, until=2.9 if could else 9, hold="b")
    scene.acquire(OTHER, 3.01, 6.02, hold="c")
    if not could:
        scene.release(HOLDER, 6, 6.01, hold="b")
    return struck(scene, "held-back", 3, 3.047)


@pair("held-back", "a request of a lock, or a write at the resource")
def _(could: bool) -> Scene:
    scene = usual().acquire(VICTIM, 2, 2.01, until=9, key="b").write(VICTIM, 3.047, 0, 1, key="b")
    if could:
        scene.release(VICTIM, 3.02, 3.3, key="b")
    return struck(scene, "held-back", 3, 3.047)


@pair("held-back", "something was held back, or it is said that nothing has to be")
def _(could: bool) -> Scene:
    if could:
        return asked_in_cut(3.5, 6.0)
    return struck(usual(), "held-back", 3, 5, held_back_due=False)


# clock-beyond-lease


FIVE = [f"redis-{n}" for n in range(1, 6)]


def clocks(
    scene: Scene,
    *moves: tuple[float, float],
    deciding: Any = ("redis-1",),
    targets: tuple[str, ...] = ("redis-1",),
) -> Scene:
    """``moves``: when, and to how many seconds ahead."""
    said = [[ns(at), ns(at + 0.01), offset_s] for at, offset_s in moves]
    facts = {"moves": said, "deciding": list(deciding)}
    return struck(scene, "clock-beyond-lease", 3, 5, targets=targets, **facts)


def leased(until: float | None = 6) -> Scene:
    return Scene().acquire(HOLDER, 0, 1, until=until)


@pair("clock-beyond-lease", "further than the promise had left, or less")
def _(could: bool) -> Scene:
    return clocks(leased().acquire(OTHER, 4, 7), (3, 10.0 if could else 1.0))


@pair("clock-beyond-lease", "ahead, or back")
def _(could: bool) -> Scene:
    offset_s = 10.0 if could else -10.0
    return clocks(leased().acquire(OTHER, 4, 7), (3, offset_s), (5, 0.0))


@pair("clock-beyond-lease", "granted while it was behind, or before it went back")
def _(could: bool) -> Scene:
    """The way back to the truth is a jump ahead."""
    scene = Scene().acquire(HOLDER, 3.5 if could else 2.5, 3.6 if could else 2.9, until=6.5)
    return clocks(scene.acquire(OTHER, 5.5, 7), (3, -10.0), (5, 0.0))


@pair("clock-beyond-lease", "granted before it went ahead, or while it was")
def _(could: bool) -> Scene:
    scene = Scene().acquire(HOLDER, 2.5 if could else 3.5, 2.9 if could else 3.6, until=6.5)
    return clocks(scene.acquire(OTHER, 5.5, 7), (3, 10.0), (5, 0.0))


@pair("clock-beyond-lease", "asked for before it certainly moved, or perhaps after")
def _(could: bool) -> Scene:
    done = 3.1
    scene = Scene().acquire(HOLDER, 2.9, done, until=6, sent_ns=ns(2.95 if could else 3.005))
    moved = [[ns(3), ns(3.01), 2.0], [ns(3.2), ns(3.21), 4.0]]
    if could:
        moved[0] = [ns(3.12), ns(3.13), 2.0]
    scene.acquire(OTHER, 4, 7)
    facts = {"moves": moved, "deciding": ["redis-1"]}
    return struck(scene, "clock-beyond-lease", 3, 5, **facts)


@pair("clock-beyond-lease", "asked before the promise ended, or after it")
def _(could: bool) -> Scene:
    return clocks(leased().acquire(OTHER, 4 if could else 7, 8), (3, 10.0))


@pair("clock-beyond-lease", "asked before its release, or after it")
def _(could: bool) -> Scene:
    scene = leased().release(HOLDER, 4, 4.1)
    return clocks(scene.acquire(OTHER, 3.5 if could else 4.5, 5), (3, 10.0))


@pair("clock-beyond-lease", "a lease, or a hold without a limit")
def _(could: bool) -> Scene:
    return clocks(leased(6 if could else None).acquire(OTHER, 4, 7), (3, 10.0))


@pair("clock-beyond-lease", "a majority of independent nodes, or fewer")
def _(could: bool) -> Scene:
    targets = tuple(FIVE[: 3 if could else 2])
    return clocks(leased().acquire(OTHER, 4, 7), (3, 10.0), deciding=FIVE, targets=targets)


@pair("clock-beyond-lease", "the primary, or a replica")
def _(could: bool) -> Scene:
    targets = ("redis-1" if could else "redis-2",)
    return clocks(leased().acquire(OTHER, 4, 7), (3, 10.0), targets=targets)


@pair("clock-beyond-lease", "known servers decide, or unknown ones")
def _(could: bool) -> Scene:
    return clocks(leased().acquire(OTHER, 4, 7), (3, 10.0), deciding=["redis-1"] if could else ())


@pair("clock-beyond-lease", "moved at known times, or somehow")
def _(could: bool) -> Scene:
    if could:
        return clocks(leased().acquire(OTHER, 4, 7), (3, 10.0))
    scene = leased().acquire(OTHER, 4, 7)
    return struck(scene, "clock-beyond-lease", offset_s=10.0, deciding=["redis-1"])


@pair("clock-beyond-lease", "a lease renewed after the clock had moved, or just before")
def _(could: bool) -> Scene:
    """As the holder knew it when the clock moved."""
    scene = leased().extend(HOLDER, 4 if could else 2, 4.5 if could else 2.5, until=20)
    return clocks(scene.acquire(OTHER, 4, 7), (3, 10.0))


@pair("clock-beyond-lease", "gained more than a lease since a session was last renewed, or less")
def _(could: bool) -> Scene:
    """Drift: what had been gained before the last renewal does no harm."""
    scene = leased(4)
    for beat in (2, 3, 4):
        scene.extend(HOLDER, beat + 0.1, beat + 0.15, until=beat + 3.1)
    scene.acquire(OTHER, 4, 7)
    gain_s = 3.0 if could else 1.0
    return clocks(scene, *((3.2 + n / 2, gain_s * n) for n in range(4)))


@pair("clock-beyond-lease", "further than an inner grant renewed it, or less")
def _(could: bool) -> Scene:
    scene = of_kind("reentrant").acquire(HOLDER, 0, 1, until=6)
    scene.acquire(HOLDER, 2, 2.5, until=20, hold="inner")
    return clocks(scene.acquire(OTHER, 4, 7), (3, 30.0 if could else 10.0))


@pair("clock-beyond-lease", "no permit left, or one")
def _(could: bool) -> Scene:
    scene = of_kind("semaphore", permits=2).acquire(HOLDER, 0, 1, until=6)
    scene.acquire(THIRD, 1, 1.1, until=6 if could else 2)
    return clocks(scene.acquire(OTHER, 4, 7), (3, 10.0))


# data-lost, unsynced-lost


@pair("data-lost", "a majority of independent nodes, or fewer")
def _(could: bool) -> Scene:
    scene, targets = Scene().acquire(HOLDER, 0, 1), tuple(FIVE[: 3 if could else 2])
    return struck(scene, "data-lost", targets=targets, deciding=FIVE)


@pair("data-lost", "half of the nodes and one, or half")
def _(could: bool) -> Scene:
    scene, targets = Scene().acquire(HOLDER, 0, 1), tuple(FIVE[: 3 if could else 2])
    return struck(scene, "data-lost", targets=targets, deciding=FIVE[:4])


@pair("unsynced-lost", "bytes were lost, or none")
def _(could: bool) -> Scene:
    lost = {"redis-1": 12 if could else 0}
    return struck(Scene().acquire(1, 0, 1), "unsynced-lost", bytes_lost=lost, deciding=["redis-1"])


@pair("unsynced-lost", "by a majority of the nodes, or by fewer, though more were struck")
def _(could: bool) -> Scene:
    lost = {"redis-1": 12, "redis-2": 5, "redis-3": 7 if could else 0}
    scene, targets = Scene().acquire(1, 0, 1), tuple(FIVE[:3])
    return struck(scene, "unsynced-lost", targets=targets, bytes_lost=lost, deciding=FIVE)


@pair("unsynced-lost", "it is known what was lost, or not")
def _(could: bool) -> Scene:
    facts: dict[str, Any] = {"bytes_lost": {"redis-1": 12}} if could else {}
    return struck(Scene().acquire(1, 0, 1), "unsynced-lost", deciding=["redis-1"], **facts)


# all-restarted


def rolled(scene: Scene, *away: tuple[float, float]) -> Scene:
    names = tuple(FIVE[:3])
    times = {name: [ns(a), ns(b)] for name, (a, b) in zip(names, away, strict=False)}
    return struck(scene, "all-restarted", targets=names, away_ns=times)


@pair("all-restarted", "every server, or all but one")
def _(could: bool) -> Scene:
    scene = Scene().acquire(HOLDER, 0, 1, until=6).acquire(OTHER, 3, 7)
    return rolled(scene, (3, 4), (4, 5), *([(5, 6)] if could else []))


@pair("all-restarted", "a promise kept others out as one went away, or none did")
def _(could: bool) -> Scene:
    scene = Scene().acquire(HOLDER, 0, 1, until=3.5 if could else 2.5).acquire(OTHER, 3, 7)
    return rolled(scene, (3, 4), (4, 5), (5, 6))


@pair("all-restarted", "seen to be away and back, or said to be")
def _(could: bool) -> Scene:
    scene = Scene().acquire(HOLDER, 0, 1, until=6).acquire(OTHER, 3, 7)
    if could:
        return rolled(scene, (3, 4), (4, 5), (5, 6))
    return struck(scene, "all-restarted", all_restarted=True)


@pair("reply-lost", "kept for far longer than a grant takes, or for somewhat")
def _(could: bool) -> Scene:
    """A client that cleans up frees the key soon."""
    scene = Scene().kind("mutex", "b", role="contended").kind("mutex", role="aimed")
    for n in range(25):
        scene.acquire(THIRD, n / 10, n / 10 + 0.01, until=n / 10 + 3, key="b", hold=f"b{n}")
        scene.release(THIRD, n / 10 + 0.02, n / 10 + 0.03, key="b", hold=f"b{n}")
    scene.acquire(VICTIM, 3.1, None, "info").acquire(THIRD, 3.3, 3.31, key="b", hold="z")
    return unanswered(scene.acquire(OTHER, 3.11, 3.4 if could else 3.19), "acquire")


@pair("reply-lost", "asked alone for a free key of servers at work, or beside a rival")
def _(could: bool) -> Scene:
    """Of a client that cleans up at once nothing else is seen."""
    scene = Scene().kind("mutex", "b", role="contended").kind("mutex", role="aimed")
    for n in range(25):
        scene.acquire(THIRD, n / 10, n / 10 + 0.01, until=n / 10 + 3, key="b", hold=f"b{n}")
        scene.release(THIRD, n / 10 + 0.02, n / 10 + 0.03, key="b", hold=f"b{n}")
    scene.acquire(VICTIM, 3.1, 5.5, until=8.5).acquire(THIRD, 4, 4.01, key="b", hold="z")
    asked = 3.3 if could else 3.105
    scene.acquire(OTHER, asked, asked + 0.01, until=6.4).release(OTHER, 3.6, 3.61)
    return unanswered(scene, "acquire")


@pytest.mark.parametrize("exposed", [True, False])
@pytest.mark.parametrize("one", PAIRS, ids=lambda one: f"{one.rule}: {one.differs}")
def test_a_fault_that_could_have_hurt_and_one_that_could_not(one: Pair, exposed: bool) -> None:
    found = exposure(one.play(exposed).history())
    assert found.exposed is exposed, found.reasons
    assert all(reason.strip() for reason in found.reasons)


@pytest.mark.parametrize("one", PAIRS, ids=lambda one: f"{one.rule}: {one.differs}")
def test_clocks_of_several_machines_change_little(one: Pair) -> None:
    """Where clocks agree to far less than what happens there takes: what could hurt could, and what
    could not cannot."""
    for exposed in (True, False):
        history = replace(one.play(exposed).history(), epsilon_ns=ns(0.001))
        assert exposure(history).exposed is exposed, exposure(history).reasons


def test_every_rule_has_a_pair() -> None:
    assert {one.rule for one in PAIRS} == set(RULES)
