"""case.json: what became of one case."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from lockbench.results.documents.environment import Own
from lockbench.results.documents.measured import (
    ByPhase,
    Floor,
    Footprint,
    Generator,
    Link,
    Measurements,
    OnMachine,
    PhasesS,
    RateStep,
    Series,
)
from lockbench.results.documents.part import (
    Count,
    Document,
    FolderName,
    Name,
    Ns,
    Part,
    Quantiles,
    Real,
    Seconds,
    Seed,
    Sha256,
    Share,
    Small,
    Whole,
    Word,
)
from lockbench.results.documents.plan import Injection, Pace


class Entry(Part, frozen=True):
    """An operation, a grant, a fault or the service's word: what shows a verdict
    (``lockbench.checker.words``). A fault's ``begin_ns`` and ``heal_ns`` are intervals."""

    what: str
    text: str
    row: Count | None = None
    process: str | None = None
    key: str | None = None
    hold: str | None = None
    f: str | None = None
    type: str | None = None
    fence: Whole | None = None
    value: Whole | None = None
    version: Whole | None = None
    error: str | None = None
    invoke_ns: Ns | None = None
    complete_ns: Ns | None = None
    applied_ns: Ns | None = None
    granted_ns: Ns | None = None
    promised_until_ns: Ns | None = None
    valid_until_ns: Ns | None = None
    released_ns: Ns | None = None
    name: str | None = None
    targets: tuple[str, ...] | None = None
    begin_ns: tuple[Ns, Ns] | None = None
    heal_ns: tuple[Ns, Ns] | None = None
    says: str | None = None


Result = Literal["valid", "invalid", "unknown"]
VerdictName = Annotated[str, Meta(pattern="^[a-z-]{1,60}$")]


class Verdict(Part, frozen=True):
    """``lockbench.checker.verdict.Verdict``."""

    result: Result
    reason: str = ""
    evidence: tuple[Entry, ...] = ()


class Outside(Part, frozen=True):
    """``lockbench.bench.outside``: something that neither the load nor the nemesis did. ``at_s``
    counts from the start of the load; ``for_s`` is null where its effects last; ``log`` ends the
    log of ``who``."""

    who: str
    what: str
    at_s: Real
    for_s: Seconds | None
    log: tuple[str, ...]


class Exposure(Part, frozen=True):
    """Whether the fault could have hurt, and why."""

    exposed: bool | None = None
    reasons: tuple[str, ...] = ()


class Crash(Part, frozen=True):
    """A line of a server's log. ``server`` is the log's name; ``line`` counts from 1."""

    server: str
    line: Count
    text: str


class Crashes(Part, frozen=True):
    """What servers said of crashes of their own."""

    count: Count
    first: tuple[Crash, ...]


class Try(Part, frozen=True):
    """An earlier try of the same case."""

    observed: dict[VerdictName, Result] = msgspec.field(default_factory=dict)
    exposed: bool | None = None
    folder: FolderName | None = None


class Expectation(Part, frozen=True):
    """The long form of what is expected."""

    expected: str
    kind: str | None = None
    source: str | None = None


class CaseResult(Document, frozen=True, kw_only=True):
    """What became of one case. A case whose load never ran has no numbers and no verdicts."""

    lock: Name
    fault: Name
    folder: FolderName | None = None
    run: str | None = None
    tries: Count | None = None
    earlier_tries: tuple[Try, ...] = ()
    history_sha256: dict[str, Sha256] | None = None
    # What was asked for.
    family: str | None = None
    fence: str | None = None
    topology: str | None = None
    size: Small | None = None
    workload: str | None = None
    resource: str | None = None
    network: str | None = None
    seed: Seed | None = None
    clients: Small | None = None
    keys: Small | None = None
    expected: dict[str, str | Expectation] = msgspec.field(default_factory=dict)
    injections: tuple[Injection, ...] = ()
    # The pace of the load, and what is set on the servers, by names of theirs.
    settings: dict[Name, bool | Word] = msgspec.field(default_factory=dict)
    phases_s: PhasesS | None = None
    own: Own | None = None
    # One side of a change.
    side: str | None = None
    ref: str | None = None
    pair: Count | None = None
    # How it ended.
    numbers: str | None = None
    verdicts: dict[VerdictName, Verdict] = msgspec.field(default_factory=dict)
    observed: dict[VerdictName, Result] = msgspec.field(default_factory=dict)
    exposed: bool | None = None
    exposure: Exposure | None = None
    judgement: str | None = None
    why: str | None = None
    ending: str | None = None
    result: Result | None = None
    cut: bool | None = None
    consensus: bool | None = None
    control: bool | None = None
    crashes: Crashes | None = None
    outside: tuple[Outside, ...] = ()
    declare: tuple[str, ...] = ()
    no_record: str | None = None
    error_texts: dict[str, str] = msgspec.field(default_factory=dict)
    # Its numbers.
    operations: Count | None = None
    grants: Count | None = None
    measurements: Measurements = Measurements()
    machines: tuple[OnMachine, ...] = ()
    latency_ms: dict[str, ByPhase] | None = None
    response_ms: dict[str, ByPhase] | None = None
    counts: dict[str, dict[str, dict[str, Count]]] | None = None
    # For a while there were only the first texts.
    errors: dict[str, dict[str, Count] | str] | None = None
    cycles_per_second: Real | None = None
    cycles_per_second_by_phase: dict[str, Real | None] | None = None
    own_cycles_per_second: Real | None = None
    # Of contended keys, at a time; None: any number, or an older version wrote it.
    holders_per_key: Count | None = None
    availability: Share | None = None
    recovery_seconds: Real | None = None
    # Heal to the end of the load, of a fault after which nobody was granted; right-censored.
    unrecovered_seconds: Real | None = None
    floor_acquire_ms: Quantiles | None = None
    floor: Floor | None = None
    rates: tuple[RateStep, ...] = ()
    link_us: Link | None = None
    series: Series | None = None
    generator: Generator | None = None
    footprint: Footprint | None = None
    seconds: dict[str, Real | None] | None = None

    def __post_init__(self) -> None:
        try:
            _ = self.pace
        except msgspec.ValidationError as error:
            raise ValueError(f"settings: {error}") from None

    @property
    def pace(self) -> Pace:
        """What ``settings`` says of the load."""
        said = {n: self.settings[n] for n in Pace.__struct_fields__ if n in self.settings}
        return msgspec.convert(said, Pace)


class Judged(Part, frozen=True):
    """``lockbench.checker.verdict.Report``; fields are those of a case."""

    result: Result
    operations: Count
    grants: Count
    verdicts: dict[VerdictName, Verdict]
    measurements: Measurements
    seconds: dict[str, Real | None]
    cut: bool | None = None
