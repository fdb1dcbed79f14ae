"""Small hand-written loads for the tests of numbers; times in milliseconds."""

from __future__ import annotations

from lockbench.history.builder import Builder
from lockbench.history.columns import History
from lockbench.history.op import NULL, F, Fault, Object, Type

MS = 1_000_000
# No label may decide: objects say the role, whatever the key is called.
ROLES = {"a": "own", "b": "own", "k": "contended", "m": "aimed", "f": "floor", "r": "rate"}


class Load:
    """Builds a history; the first letter of a key gives it its role."""

    def __init__(self) -> None:
        self.builder = Builder()
        self.holds = 0
        self.machine: str | None = None  # whose clock the next operations are on

    def op(
        self,
        f: F,
        key: str,
        invoke: float,
        complete: float | None,
        *,
        type_: Type = Type.OK,
        intended: float | None = None,
        hold: int | None = None,
        error: str | None = None,
    ) -> None:
        self.builder.objects[key] = Object(role=ROLES[key[0]])
        self.builder.add(
            process=0,
            f=int(f),
            outcome=int(Type.INFO if complete is None else type_),
            key=key,
            invoke_ns=round(invoke * MS),
            complete_ns=NULL if complete is None else round(complete * MS),
            mode=0,
            hold=hold,
            error=error,
            machine=self.machine,
            numbers={} if intended is None else {"intended_ns": round(intended * MS)},
        )

    def grant(
        self, key: str, invoke: float, complete: float, *, intended: float | None = None
    ) -> int:
        self.holds += 1
        self.op(F.ACQUIRE, key, invoke, complete, intended=intended, hold=self.holds)
        return self.holds

    def release(self, key: str, hold: int, invoke: float, complete: float) -> None:
        self.op(F.RELEASE, key, invoke, complete, hold=hold)

    def fault(
        self,
        begin: tuple[float, float],
        heal: tuple[float, float] | None,
        *,
        staged: float | None = None,
    ) -> None:
        """``staged``: when the cluster was made ready for it."""

        def ns(interval: tuple[float, float]) -> tuple[int, int]:
            return round(interval[0] * MS), round(interval[1] * MS)

        healed = None if heal is None else ns(heal)
        facts = {} if staged is None else {"staged_ns": round(staged * MS)}
        self.builder.faults.append(
            Fault("partition-drop", ("redis-1",), ns(begin), healed, facts=facts)
        )

    def history(self) -> History:
        return self.builder.finish()
