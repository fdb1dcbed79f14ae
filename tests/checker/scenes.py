"""Small hand-written histories for the checker's tests: one call a line, times in seconds."""

from __future__ import annotations

from typing import Any

from lockbench.history.builder import Builder
from lockbench.history.columns import History
from lockbench.history.op import NULL, F, Fault, Mode, Object, Type

S = 1_000_000_000
TYPES = {"ok": Type.OK, "fail": Type.FAIL, "info": Type.INFO}


def ns(seconds: float) -> int:
    return round(seconds * S)


class Scene:
    """Builds a history. Every method names the client, the window [begin, end] in seconds and what
    was answered; ``hold`` defaults to one name per client."""

    def __init__(self, *, key: str = "k0") -> None:
        self.builder = Builder()
        self.key = key

    def op(
        self,
        f: F,
        client: int | str,
        begin: float,
        end: float | None,
        answer: str = "ok",
        *,
        hold: str | None = None,
        key: str | None = None,
        mode: Mode = Mode.NONE,
        error: str | None = None,
        named: bool = True,
        **numbers: int | None,
    ) -> Scene:
        self.builder.add(
            process=client,
            f=int(f),
            outcome=int(TYPES[answer]),
            key=self.key if key is None else key,
            invoke_ns=ns(begin),
            complete_ns=NULL if answer == "info" or end is None else ns(end),
            mode=int(mode),
            hold=(f"h{client}" if hold is None else hold) if named else None,
            error=error,
            numbers={name: number for name, number in numbers.items() if number is not None},
        )
        return self

    def acquire(
        self,
        client: int | str,
        begin: float,
        end: float | None,
        answer: str = "ok",
        *,
        until: float | None = None,
        fence: int | None = None,
        **more: Any,
    ) -> Scene:
        valid_until = None if until is None else ns(until)
        return self.op(
            F.ACQUIRE, client, begin, end, answer, fence=fence, valid_until_ns=valid_until, **more
        )

    def release(
        self, client: int | str, begin: float, end: float | None, answer: str = "ok", **more: Any
    ) -> Scene:
        return self.op(F.RELEASE, client, begin, end, answer, **more)

    def not_held(self, client: int | str, begin: float, end: float, **more: Any) -> Scene:
        return self.op(F.RELEASE, client, begin, end, "fail", error="not-held", **more)

    def extend(
        self,
        client: int | str,
        begin: float,
        end: float | None,
        answer: str = "ok",
        *,
        until: float | None = None,
        **more: Any,
    ) -> Scene:
        valid_until = None if until is None else ns(until)
        return self.op(F.EXTEND, client, begin, end, answer, valid_until_ns=valid_until, **more)

    def lost(self, client: int | str, at: float, **more: Any) -> Scene:
        return self.op(F.LOST, client, at, at, **more)

    def death(self, client: int | str, at: float) -> Scene:
        return self.op(F.DEATH, client, at, at, named=False)

    def read(
        self, client: int | str, at: float, version: int, *, applied: bool = True, **more: Any
    ) -> Scene:
        return self.op(
            F.READ,
            client,
            at - 0.001,
            at + 0.001,
            value=version,
            applied_ns=ns(at) if applied else None,
            **more,
        )

    def write(
        self,
        client: int | str,
        at: float,
        read: int,
        made: int,
        *,
        applied: bool = True,
        **more: Any,
    ) -> Scene:
        return self.op(
            F.WRITE,
            client,
            at - 0.001,
            at + 0.001,
            version=read,
            value=made,
            applied_ns=ns(at) if applied else None,
            **more,
        )

    def kind(self, name: str, key: str | None = None, **more: Any) -> Scene:
        self.builder.objects[self.key if key is None else key] = Object(kind=name, **more)
        return self

    def fault(
        self,
        name: str,
        begin: float,
        heal: float | None,
        *rules: str,
        targets: tuple[str, ...] = ("redis-1",),
        **facts: Any,
    ) -> Scene:
        self.builder.faults.append(
            Fault(
                name=name,
                targets=targets,
                begin_ns=(ns(begin), ns(begin + 0.01)),
                heal_ns=None if heal is None else (ns(heal), ns(heal + 0.01)),
                rules=rules,
                facts=facts,
            )
        )
        return self

    def epsilon(self, seconds: float) -> Scene:
        self.builder.epsilon_ns = ns(seconds)
        return self

    def history(self) -> History:
        return self.builder.finish()
