"""Plays one script once, with a fault at each of some events, and records it.

Guarantees: what is recorded is a history like any other (``lockbench.history.recording``), with the
strikes as its faults. ``Played`` says whether every strike met its event, as the links themselves
saw it. Nobody waits for ever: a call that outlasts everything that was done to it is told as a
hang, and its process is killed.

Does not guarantee that two plays interleave alike.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic_ns
from typing import Final, Protocol

from lockbench.explore import link
from lockbench.explore.actors import Actor, Gone
from lockbench.explore.faults import BEYOND, ENDS, FAULTS, FORGETS, Fault
from lockbench.explore.link import Link, Traffic, in_turn
from lockbench.explore.orders import (
    Acquire,
    Answer,
    Claim,
    Close,
    Extend,
    Open,
    Order,
    Release,
    Start,
    Touch,
)
from lockbench.explore.scenarios import MOMENT, SCENARIOS, WAIT
from lockbench.explore.servers import JUMPS
from lockbench.explore.trial import Place, Played, Setting, Trial
from lockbench.explore.trials import standing
from lockbench.history import op
from lockbench.history.clocks import wall_minus_monotonic_ns
from lockbench.history.op import F, Object, Type
from lockbench.history.recorder import Recorder
from lockbench.history.recording import records_of, write_faults, write_meta
from lockbench.locks.base import Address, LockUnusableError
from lockbench.locks.shared.library import is_in_container
from lockbench.locks.shared.sidecar import has_ended

SPARE: Final = "spare"
# Worker numbers of the recording. DEATHS + n records the death of n.
VICTIM: Final = 0
HELPER: Final = 1
DEATHS: Final = 100
# What a call may take beside what it was told to wait, its lock's own limit, and what was done.
SPARE_S: Final = 5.0
# A process of a library says hello; on a busy machine many start at once.
START_S: Final = 30.0
# How long a rival keeps what it was granted while something may still come, in leases: not to the
# end of its promise, or its own lateness would be blamed.
KEEPS: Final = 0.8
# How long rivals ask at most, in leases: for what was held or frozen, and for each other.
ASKS: Final = 5.0
# A wait for a free key is too long after so many leases (``lockbench.explore.judge``).
TOO_LONG: Final = 0.25
POLL_S: Final = 0.05


class Server(Protocol):
    """What strikes a server, once for all the plays that have come to their event."""

    def ready(self) -> None:
        """Waits until a play may begin."""

    def struck(self, node: int) -> str:
        """Waits until the server is struck. Why that was none for an event at this node; empty if
        it was."""

    def healed(self) -> None:
        """Waits until it is whole again."""


class _Over(Exception):
    """Nothing more comes from this process: it is gone, or was killed."""


class Player:
    """One actor in its part. Calls return when they are done. Raises _Over."""

    def __init__(self, stage: Stage, actor: Actor, name: str, number: int) -> None:
        self.actor = actor
        self.name = name
        self.number = number
        self.held = 0
        self.grants = 0
        self._stage = stage

    def acquire(self, wait_leases: float = 0.0, *, reads: bool = False) -> bool:
        """Asks for the key; whether it was granted."""
        wait_s = wait_leases * self._stage.setting.lease_s
        self.tell(Acquire(self._stage.key, wait_s, reads))
        granted = self.answered("acquire", wait_s).granted
        self.held += granted
        self.grants += granted
        return granted

    def extend(self) -> None:
        """The newest hold; nothing without one, or where the lock has no extend."""
        self.do(Extend())

    def touch(self) -> None:
        """Writes at the resource under the newest hold; nothing without one."""
        if self.held:
            self.do(Touch())

    def release(self) -> None:
        """The newest hold; nothing without one."""
        if self.held:
            self.held -= 1
            self.do(Release())

    def release_all(self) -> None:
        """Every hold."""
        while self.held:
            self.release()

    def do(self, order: Order, takes_s: float = 0.0) -> None:
        """Gives an order and waits until it is done."""
        self.tell(order)
        self.answered(type(order).__name__.lower(), takes_s)

    def tell(self, order: Order) -> None:
        """Gives an order."""
        try:
            self.actor.tell(order)
        except Gone as error:
            raise self._gone() from error

    def answered(self, call: str, takes_s: float = 0.0) -> Answer:
        """Waits for as long as the call may take."""
        stage = self._stage
        limit_s = takes_s + stage.setting.system.gives_up_s + SPARE_S
        limit_s += 2 * stage.setting.lasts_s(BEYOND)  # what may be done to it
        try:
            answer = self.actor.answer(limit_s)
            if answer is None and not stage.is_over():
                # Servers may need longer to serve again than a fault is meant to last.
                stage.settle()
                answer = self.actor.answer(limit_s)
        except Gone as error:
            raise self._gone() from error
        if answer is None:
            said = f"{call} of the {self.name} had not ended after {limit_s:.0f} s"
            if call in {"start", "connect", "close"} and not stage.struck:
                stage.played.unable = said  # a busy machine starts many clients at once
            else:
                stage.played.hangs.append(said)
            self.actor.kill()
            raise _Over
        if answer.failed:
            # Whose library says that it makes no client under a fault has none.
            if not (call == "connect" and stage.struck and _makes_no_client(answer.failed)):
                stage.played.unable = f"the {self.name} could not {call}: {answer.failed}"
            raise _Over
        return answer

    def _gone(self) -> _Over:
        """Where nobody killed it, nothing is known of this play."""
        if not self.actor.doomed:
            self._stage.played.unable = f"the {self.name} ended by itself"
        return _Over()


class Stage:
    """One play; what scripts know of it is public."""

    def __init__(
        self,
        setting: Setting,
        trial: Trial,
        actors: Sequence[Actor],
        *,
        folder: Path,
        host: str,
        key: str,
        server: Server | None = None,
    ) -> None:
        """``host``: a loopback address of its own, where the victim finds the nodes."""
        self.setting = setting
        in_parts = len(setting.others) > 1 and not setting.of_one_quorum
        self.played = Played(
            trial, folder, key, in_parts=in_parts, ahead_ns=wall_minus_monotonic_ns()
        )
        self.key = key
        self.victim = Player(self, actors[VICTIM], "victim", VICTIM)
        self.helper = Player(self, actors[HELPER], "helper", HELPER)
        self._rivals = [
            Player(self, actor, f"rival {n}", HELPER + n) for n, actor in enumerate(actors[2:], 1)
        ]
        self._host = host
        self._server = server
        self._strikes = {strike.order(setting): strike for strike in trial.strikes}
        self._standing = standing(trial, setting.interchangeable)
        self._scenario = SCENARIOS[trial.scenario]
        self._undisturbed = self._scenario.undisturbed
        self._traffic = Traffic(self._strikes, self._strike, armed=self._scenario.from_the_start)
        self._links: list[Link] = []
        self._began_ns = 0
        self._ask = threading.Event()
        self._scripted_ns = 0  # since then the victim has nothing left to do
        self._starting = threading.RLock()
        self._threads: list[threading.Thread] = []
        self._over = False  # an event that comes now is not struck any more
        self._calm_ns = 0  # from then on nothing is to come any more
        self._seen: list[_Seen] = []

    # --- for scripts ---

    @contextmanager
    def focus(self) -> Iterator[None]:
        """What passes on the victim's links inside is what an exploration strikes, and counts."""
        before = 0
        if not self._scenario.from_the_start:
            before = len(self._traffic.events)
            self._traffic.arm()
        try:
            yield
        finally:
            self._traffic.disarm()
            self.played.places += map(self._place, self._traffic.events[before:])

    def _place(self, event: link.Event) -> Place:
        at_s = (event.time_ns - self._began_ns) / 1e9
        return Place(event.kind, event.number, event.node, at_s, event.size, event.begins)

    def helper_holds(self, leases: float, *, reads: bool = False) -> None:
        """The helper takes the key, of a semaphore every permit, and releases after this time,
        whatever the victim does then."""
        for _ in range(self.setting.permits):
            self.helper.acquire(reads=reads)
        self._start(self._let_go, leases)

    def _let_go(self, leases: float) -> None:
        self.pass_time(leases)
        with suppress(_Over):
            self.helper.release_all()

    def rivals_ask(self) -> None:
        """From now on. Twice is no error."""
        self._ask.set()

    def disturb(self) -> None:
        """From now on rivals ask when a fault strikes."""
        self._undisturbed = False

    @property
    def struck(self) -> bool:
        """Whether a fault has met its event."""
        return bool(self._seen)

    def is_over(self) -> bool:
        """Whether whatever was struck is over."""
        acts = [seen for seen in self._seen if seen.how.act]
        return all(seen.healed_ns for seen in acts) and monotonic_ns() > self._calm_ns

    def settle(self) -> None:
        """Waits until whatever was struck is over."""
        while not self.is_over():
            time.sleep(POLL_S)

    def pass_time(self, leases: float) -> None:
        """Lets others act."""
        time.sleep(leases * self.setting.lease_s)

    def outlast(self, leases: float) -> None:
        """Lets others act for as long as the service keeps a hold that nobody renews, and then."""
        time.sleep(self.setting.lasts_s(1.0 + leases))

    # --- for the explorer ---

    def play(self) -> Played:
        """Plays it to its end."""
        played, setting = self.played, self.setting
        played.folder.mkdir(parents=True)
        aimed = Object(
            kind=setting.system.kind,
            permits=setting.system.permits,
            role="aimed",
            lease_ns=int(1e9 * setting.lease_s),
            slack_ns=int(1e9 * setting.slack_s),
        )
        objects = {self.key: aimed, SPARE: replace(aimed, role="floor")}
        write_meta(played.folder, objects, wall_minus_monotonic_ns=played.ahead_ns)
        try:
            self._connect()
            self._act_out()
        except Exception as error:  # noqa: BLE001 - one play must not take the others with it
            played.unable = f"{type(error).__name__}: {error}"
        finally:
            for one in self._links:
                one.close()
            self._record_deaths()
            played.grants = self.victim.grants
        write_faults(played.folder, [seen.fault() for seen in self._seen])
        return played

    def _connect(self) -> None:
        servers = [Address(*server) for server in self.setting.victim]
        as_met = in_turn(servers) if self.setting.of_one_quorum else None
        for node, (_, port) in enumerate(servers, 1):
            at, server = Address(self._host, port), servers[self._stands(node) - 1]
            self._links.append(Link(server, at, self._traffic, node=node, as_met=as_met))

    def _stands(self, node: int) -> int:
        """The server that stands where the victim sees this node."""
        return self._standing.get(node, node)

    def _act_out(self) -> None:
        with suppress(_Over):
            self._open(self.helper, *self._rivals)
            self.victim.do(Start(self.setting.lock), START_S)
            if not self._scenario.from_the_start:
                self._open(self.victim)
            if self._server is not None:
                self._server.ready()
            self._began_ns = monotonic_ns()
            for rival in self._rivals:
                self._start(self._ask_for_it, rival)
            with suppress(_Over):
                if self._scenario.from_the_start:
                    self._open(self.victim)  # it may connect at once
                self._scenario.script(self)
        self._scripted_ns = monotonic_ns()
        self.rivals_ask()
        self._join_all()
        met = {seen.order: self._place(self._traffic.met(seen.order)) for seen in self._seen}
        self.played.met = {self._strikes[order]: place for order, place in met.items()}
        self.played.missed = [one for order, one in self._strikes.items() if order not in met]
        for one in self._links:
            one.heal()
        for seen in self._seen:
            if seen.order.strike in {"lost", "orphaned"}:  # its connection was deaf until now
                seen.healed_ns = monotonic_ns()
        with suppress(_Over):
            slack_s = self.setting.slack_s
            if any(seen.how.act == "clock-jumped" for seen in self._seen):
                # What was taken while a clock was ahead stays for so much longer.
                slack_s += JUMPS * self.setting.lease_s
            # It asks for as long as what others may have been promised lasts, which it knows.
            limit_s = 4 * slack_s + 4 * ASKS * self.setting.lease_s
            self.helper.do(Claim(self.key, SPARE, slack_s), limit_s)
        self._close()

    def _open(self, *players: Player) -> None:
        setting = self.setting
        seen = tuple((self._host, port) for _, port in setting.victim)
        # In the victim's order: one of them may be special, such as the one that counts fences.
        others = tuple(
            setting.others[self._stands(node) - 1] for node in range(1, len(setting.others) + 1)
        )
        for player in players:
            nodes = seen if player is self.victim else others
            folder = str(self.played.folder)
            seed = setting.seed if player is self.victim else None
            player.tell(Open(setting.lock, nodes, setting.pace, folder, player.number, seed))
        for player in players:
            player.answered("connect")

    def _close(self) -> None:
        players = [self.victim, self.helper, *self._rivals]
        for player in players:
            if player.actor.killed_ns is None and not player.actor.busy:
                with suppress(_Over):
                    # The victim's links end now. A program in a container, which is slow to make,
                    # keeps no connection to them; of other sidecars that is not known.
                    contained = is_in_container(self.setting.system)
                    player.tell(Close(sidecars=contained or player is not self.victim))
        for player in players:
            if player.actor.killed_ns is None:
                with suppress(_Over):
                    player.answered("close")

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        with self._starting:
            thread.start()
            self._threads.append(thread)

    def _join_all(self) -> None:
        """Also those that others start meanwhile."""
        while True:
            with self._starting:
                self._over = not self._threads
                if self._over:
                    return
                thread = self._threads.pop()
            thread.join()

    # --- rivals ---

    def _ask_for_it(self, rival: Player) -> None:
        """Asks until it is granted once, and keeps it while something may still come. When all is
        over, until the key has been free for so long that a wait for it is too long."""
        self._ask.wait()
        lease_s = self.setting.lease_s
        end = time.monotonic() + ASKS * lease_s
        frees_s = (1.0 + TOO_LONG) * lease_s + self.setting.slack_s + lease_s * MOMENT
        with suppress(_Over):
            while not rival.acquire(max(0.0, min(WAIT, (frees_s - self._calm_s()) / lease_s))):
                if time.monotonic() > end or self._calm_s() > frees_s:
                    return
                time.sleep(self.setting.pace.retry_pause_s)
            kept = time.monotonic() + KEEPS * lease_s
            time.sleep(MOMENT * lease_s / 2)
            while not self._calm_s() and time.monotonic() < kept:
                time.sleep(POLL_S)
            rival.release()

    def _calm_s(self) -> float:
        """For how long everything has been over, and the victim has had nothing left to do."""
        if not self._scripted_ns or not self.is_over():
            return 0.0
        return (monotonic_ns() - max(self._scripted_ns, self._calm_ns)) / 1e9

    # --- strikes ---

    def _strike(self, order: link.Order, event: link.Event) -> None:
        """The event is there."""
        fault = FAULTS[self._strikes[order].fault]
        now_ns = monotonic_ns()
        lasts_ns = int(1e9 * (order.seconds + MOMENT * self.setting.lease_s))
        self._calm_ns = max(self._calm_ns, now_ns + lasts_ns)
        seen = _Seen(fault, event, order, now_ns)
        with self._starting:
            if self._over:
                self._traffic.let_go()
                return
            self._seen.append(seen)
            if not self._undisturbed:
                self._ask.set()
            if fault.act:
                self._start(self._act_on, seen)

    def _act_on(self, seen: _Seen) -> None:
        try:
            self._act(seen)
        finally:
            seen.healed_ns = monotonic_ns()
            self._calm_ns = max(self._calm_ns, seen.healed_ns)

    def _act(self, seen: _Seen) -> None:
        """Does what a fault does while its event is held."""
        held, victim = self._traffic.held(seen.order), self.victim.actor
        match seen.how.act:
            case "client-frozen":
                victim.freeze()
                held.let_go.set()
                self._traffic.let_replies_go()
                time.sleep(seen.order.seconds)
                victim.thaw()
            case "client-killed":
                victim.kill()
                held.let_go.set()
                self._traffic.let_replies_go()
            case "client-gone":
                victim.kill()
                held.drop()
                self._traffic.let_replies_go()
            case act:
                assert self._server is not None
                if act in FORGETS:
                    # What the client asks for next comes to servers that have been struck.
                    self._traffic.stop_requests()
                    held.let_go.set()
                server = self._stands(seen.event.node)
                why_not = self._server.struck(server)
                self.played.unable = why_not or self.played.unable
                held.let_go.set()
                self._traffic.let_requests_go()
                if not why_not:
                    self._server.healed()

    def _record_deaths(self) -> None:
        for player in (self.victim, self.helper, *self._rivals):
            died_ns = player.actor.killed_ns
            if died_ns is None:
                continue
            folder = self.played.folder
            segments = folder.glob(f"{player.number}.*.ops")
            clients = {int(p) for segment in segments for p in records_of(segment, 0)["process"]}
            recorder = Recorder(folder, DEATHS + player.number, segment_records=8)
            for client in sorted(clients):
                death = recorder.invoke(client, F.DEATH, self.key, invoke_ns=died_ns)
                recorder.complete(death, Type.OK, complete_ns=died_ns)
            recorder.close()


def _makes_no_client(failed: str) -> bool:
    """Whether a library refused to make one, and did not end, or fail otherwise."""
    kind, _, reason = failed.partition(": ")
    return kind == LockUnusableError.__name__ and not has_ended(reason)


@dataclass
class _Seen:
    """A strike that met its event."""

    how: Fault
    event: link.Event
    order: link.Order
    struck_ns: int
    healed_ns: int = 0

    def fault(self) -> op.Fault:
        """As it stands in the history."""
        end_ns = self.healed_ns or self.struck_ns + int(1e9 * self.order.seconds)
        return op.Fault(
            self.how.name,
            (f"node {self.event.node}",),
            (self.struck_ns, self.struck_ns),
            (end_ns, end_ns),
            facts={
                "event": f"{self.event.kind} {self.event.number}",
                "proven": True,
                "ends_servers": self.how.act in ENDS,
            },
        )
