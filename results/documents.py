"""The JSON documents of a run folder as types: what each holds, in which unit, within which bounds.

    plan.json      Plan        machine.json   Machine       versions.json  Versions
    results.json   Results     case.json      Case

There is one reader (``read``) and one writer (``text_of``). A document is validated whole when it
is read: what does not fit, and a field that is not declared here, is refused with one sentence that
names the file and the field. Numbers are finite and bounded, so that arithmetic on them neither
overflows nor asks for memory without end; text is Unicode without halves of surrogate pairs.

A field that was not known or does not apply is None, and is not written. ``format`` says which
declaration a document was written for; 0, or missing, is what was written before there was a
number. Until format 1 a document could hold fields that nobody read: they are dropped.

Does not guarantee that what is said is true: ``results.stored`` holds it against the history.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct, inspect
from msgspec.structs import asdict

from history.files import BadFile, json_error, read_bytes
from history.text import json_text

FORMAT: Final = 2
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
DECLARED_FROM: Final = 2  # the first format that holds nothing but what is declared

Count = Annotated[int, Meta(ge=0, le=2**53)]
Small = Annotated[int, Meta(ge=0, le=100_000)]
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Ns = Annotated[int, Meta(ge=-(2**62), le=2**62)]  # of the monotonic clock
Whole = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Real = Annotated[float, Meta(ge=-1e18, le=1e18)]
Share = Annotated[float, Meta(ge=0, le=1)]
Seconds = Annotated[float, Meta(ge=0, le=1e6)]
Name = Annotated[str, Meta(min_length=1, max_length=10_000)]
# The name of a folder beside others: no path.
FolderName = Annotated[str, Meta(pattern="^[^/]{1,255}$")]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Word = str | Whole | Real
Versioned = dict[str, str | None]


class Part(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A part of a document."""


class Document(Part, frozen=True, kw_only=True):
    """What a file of a run folder holds."""


D = TypeVar("D", bound=Document)
S = TypeVar("S", bound=Part)


# --- plan.json ---


class Injection(Part, frozen=True):
    """A fault of a schedule, resolved. Seconds after the start of the contended phase."""

    fault: Name
    begin_s: Seconds
    duration_s: Seconds
    seed: Seed = 0
    parameters: tuple[tuple[str, Word], ...] = ()


class Pace(Part, frozen=True):
    """``workloads.load.Pace``."""

    lease_ttl_s: Seconds | None = None
    wait_s: Seconds | None = None
    hold_s: Seconds | None = None
    aimed_hold_s: Seconds | None = None
    aimed_wait_s: Seconds | None = None
    think_s: Seconds | None = None
    own_period_s: Seconds | None = None
    client_timeout_s: Seconds | None = None
    retry_pause_s: Seconds | None = None
    touch_resource: bool | None = None


class Planned(Part, frozen=True):
    """``bench.plan.Case``: one lock under one fault, every draw made."""

    side: str | None = None
    lock: Name | None = None
    topology: Name | None = None
    size: Small | None = None
    fault: Name | None = None
    workload: Name | None = None
    network: Name | None = None
    clients: Small | None = None
    keys: Small | None = None
    time_limit_s: Seconds | None = None
    seed: Seed | None = None
    pace: Pace | None = None
    images: tuple[tuple[Name, Name], ...] = ()
    injections: Annotated[tuple[Injection, ...], Meta(max_length=1000)] = ()


class Refused(Part, frozen=True):
    """A case that was asked for beside others and could not be made."""

    lock: Name
    fault: Name
    why: str
    topology: Name | None = None


class Plan(Document, frozen=True, kw_only=True):
    """``command`` is how a suite was asked for; a try names the run that is shrunk. The second half
    is of a change (``evidence.regress``)."""

    name: str | None = None
    command: str | None = None
    cases: tuple[Planned, ...] = ()
    refused: tuple[Refused, ...] = ()
    try_of: str | None = None
    shrunk_from: str | None = None
    base: str | None = None
    new: str | None = None
    pairs: Count | None = None
    seed: Seed | None = None
    repeat: str | None = None


# --- machine.json and versions.json ---


class Quantiles(Part, frozen=True):
    """A sample in the unit of its values. None: so few values do not carry this quantile
    (``results.quantiles``). ``iqr`` is the distance from the first to the third quartile."""

    count: Count = 0
    p50: Real | None = None
    p99: Real | None = None
    p999: Real | None = None
    max: Real | None = None
    iqr: Real | None = None


class Machine(Document, frozen=True, kw_only=True):
    """``results.machine.facts``."""

    cpu: str | None = None
    cores: Count | None = None
    cores_usable: Count | None = None
    cores_limit: Real | None = None
    memory_bytes: Count | None = None
    memory_available_bytes: Count | None = None
    kernel: str | None = None
    architecture: str | None = None
    os: str | None = None
    python: str | None = None
    engine: str | None = None
    load_average: tuple[Real, ...] = ()
    virtual: tuple[str, ...] | None = ()
    fsync_ms: Quantiles | None = None


class Image(Part, frozen=True):
    """An image that took part; ``versions`` of the packages in it, and what ``differs`` from those
    that are locked: package → "locked → built with"."""

    ref: str | None = None
    id: str | None = None
    digest: str | None = None
    versions: Versioned | None = None
    differs: Versioned | None = None


class Client(Image, frozen=True):
    """What locks that live beside their workers are made of (``bench.clients``)."""

    locks: tuple[Name, ...] = ()
    fingerprint: str | None = None
    pins: Versioned | None = None


class Own(Part, frozen=True):
    """A lock of one's own, as ``--lock`` takes it, and the libraries that its file imports."""

    spec: Name | None = None
    file: Name | None = None
    sha256: Sha256 | None = None
    libraries: Versioned | None = None


class VersionsSide(Part, frozen=True):
    """A side of a change; ``library`` is the one of another version, as ``name==version``."""

    ref: str
    library: str | None = None


class Versions(Document, frozen=True, kw_only=True):
    """Versions of all that took part."""

    libraries: Versioned | None = None
    images: dict[str, Image] | None = None
    engine: str | None = None
    clients: dict[str, Client] | None = None
    own: dict[str, Own] | None = None
    sides: dict[str, VersionsSide] | None = None


# --- case.json and results.json ---


class Entry(Part, frozen=True):
    """An operation, a grant, a fault or the service's word: what shows a verdict
    (``checker.words``). A fault's ``begin_ns`` and ``heal_ns`` are intervals."""

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
    """``checker.verdict.Verdict``."""

    result: Result
    reason: str = ""
    evidence: tuple[Entry, ...] = ()


class Availability(Part, frozen=True):
    """Of one-second windows, those with a grant on a contended key."""

    fraction: Share | None = None
    windows: Count | None = None
    windows_with_a_grant: Count | None = None
    longest_gap_s: Real | None = None


class Recovery(Part, frozen=True):
    """Of one fault, in seconds after it began or was healed (``checker.measure``)."""

    fault: str | None = None
    failover_s: Real | None = None
    servers_s: Real | None = None
    dead_holder_s: Real | None = None


class Fairness(Part, frozen=True):
    """How even contended grants were."""

    clients: Count
    wait_s: Quantiles | None = None
    overtaken: Real | None = None
    jain: Real | None = None
    unserved: Count | None = None
    starved: Count | None = None


class Leaked(Part, frozen=True):
    """A hold whose holder died while others waited."""

    key: str
    process: str
    waiters: Count
    released_s: Seconds | None
    lease_left_s: Annotated[float, Meta(ge=-1e6, le=1e6)] | None


class Scoring(Part, frozen=True):
    """What one policy of the resource would have let through."""

    stale_attempted: Count | None = None
    stale_refused: Count | None = None
    stale_applied: Count | None = None
    valid_refused: Count | None = None
    lost_updates: Count | None = None
    repeated_effects: Count | None = None


class UnknownAcquires(Part, frozen=True):
    """Acquires without an answer, by what the service's record says."""

    took_effect: Count
    left_no_trace: Count


class UnknownReleases(Part, frozen=True):
    """Releases without an answer, by what the service's record says."""

    gone: Count
    still_there: Count


class ServiceRecord(Part, frozen=True):
    """``checker.service``: what the service's own record says."""

    record: str | None = None
    tenures: Count | None = None
    missing: str | None = None
    unknown_acquires: UnknownAcquires | None = None
    unknown_releases: UnknownReleases | None = None
    contradictions: tuple[str, ...] = ()
    contradicted: Count | None = None


class JobClients(Part, frozen=True):
    """The jobs of one kind of client."""

    jobs: Count
    clients: Count
    p50_ms: Real | None = None
    max_ms: Real | None = None


class JobNumbers(Part, frozen=True):
    """``checker.job_measures``: what every job has, and what single ones have."""

    done: Count | None = None
    not_done: Count | None = None
    unknown: Count | None = None
    tries: Count | None = None
    conflicts: Count | None = None
    refused_as_done: Count | None = None
    sales: Count | None = None
    units: Count | None = None
    oversold: Count | None = None
    effects: Count | None = None
    things: Count | None = None
    repeated: Count | None = None
    lost: Count | None = None
    calls: Count | None = None
    most_in_a_window: Count | None = None
    visits: Count | None = None
    most_inside: Count | None = None
    terms: Count | None = None
    led_fraction: Real | None = None
    longest_without_s: Real | None = None
    deadlocks: Count | None = None
    longest_s: Real | None = None
    broken_by_expiry: Count | None = None
    broken_by_giving_up: Count | None = None
    fast: JobClients | None = None
    slow: JobClients | None = None


class Measurements(Part, frozen=True):
    """Numbers beside the verdicts; what does not apply is missing."""

    availability: Availability | None = None
    recovery: tuple[Recovery, ...] | None = None
    leaked_lock: tuple[Leaked, ...] | None = msgspec.field(name="leaked-lock", default=None)
    fairness: Fairness | None = None
    fencing: dict[str, Scoring] | None = None
    jobs: dict[str, JobNumbers] | None = None
    service: ServiceRecord | None = None


class Link(Part, frozen=True):
    """Median round trip to a server in microseconds, through its link and beside it."""

    linked: Real | None = None
    direct: Real | None = None


class Floor(Part, frozen=True):
    """What one client costs by itself."""

    cycles: Count | None = None
    cpu_us_per_cycle: Real | None = None
    acquire_ms_p50: Real | None = None


class Worker(Part, frozen=True):
    """One worker process of the load."""

    name: str | None = None
    cpu_percent_mean: Real | None = None
    cpu_percent_max: Real | None = None
    sidecar_percent_mean: Real | None = None
    lag_ms_p99: Real | None = None
    lag_ms_max: Real | None = None
    idle_users: tuple[str, ...] = ()


class Due(Part, frozen=True):
    """Jobs of an open load."""

    due: Count
    begun: Count


class Processors(Part, frozen=True):
    """``bench.pressure``: who used the processors, outside of faults."""

    others_percent: Real
    ours_percent: Real
    steal_percent: Real
    waiting_percent: Real
    pressure_percent: Real | None = None


class Generator(Part, frozen=True):
    """``bench.generator``: whether the load generator measured itself."""

    ok: bool | None = None
    why: tuple[str, ...] = ()
    short: tuple[str, ...] = ()
    workers: tuple[Worker, ...] = ()
    missing: int | None = None
    load: Due | None = None
    machine_percent: Real | None = None
    processors: Processors | None = None


class Outside(Part, frozen=True):
    """``bench.outside``: something that neither the load nor the nemesis did. ``at_s`` counts from
    the start of the load; ``for_s`` is null where its effects last; ``log`` ends the log of
    ``who``."""

    who: str
    what: str
    at_s: Real
    for_s: Seconds | None
    log: tuple[str, ...]


class PerGrant(Part, frozen=True):
    """Everything that servers did in a time, divided by its grants."""

    grants: Count | None = None
    grants_per_second: Real | None = None
    commands_per_grant: Real | None = None
    cpu_us_per_grant: Real | None = None


class Footprint(Part, frozen=True):
    """``bench.footprint``: what the servers cost."""

    servers: Count | None = None
    memory_bytes: Count | None = None
    own: PerGrant | None = None
    contended: PerGrant | None = None


class Series(Part, frozen=True):
    """What happened in each second from ``start_ns`` on.

    ``grants`` and ``wait_ms_p50`` are of contended keys (None: too few grants in that second);
    ``errors`` counts unknown outcomes and refusals other than ``held`` and ``gave-up``, by the
    second in which they were asked, since an unknown has no end.
    """

    start_ns: Ns
    grants: tuple[Count, ...] = ()
    errors: tuple[Count, ...] = ()
    wait_ms_p50: tuple[Real | None, ...] = ()


class PhasesS(Part, frozen=True):
    """Lengths of the phases, one after the other."""

    floor_s: Seconds
    own_s: Seconds
    contended_s: Seconds


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

    observed: dict[VerdictName, Result] = {}
    exposed: bool | None = None
    folder: FolderName | None = None


class Expectation(Part, frozen=True):
    """The long form of what is expected."""

    expected: str
    kind: str | None = None
    source: str | None = None


ByPhase = dict[str, Quantiles]


class Case(Document, frozen=True, kw_only=True):
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
    network: str | None = None
    seed: Seed | None = None
    clients: Small | None = None
    keys: Small | None = None
    expected: dict[str, str | Expectation] = {}
    injections: tuple[Injection, ...] = ()
    # The pace of the load, and what is set on the servers, by names of theirs.
    settings: dict[Name, bool | Word] = {}
    phases_s: PhasesS | None = None
    own: Own | None = None
    # One side of a change.
    side: str | None = None
    ref: str | None = None
    pair: Count | None = None
    # How it ended.
    numbers: str | None = None
    verdicts: dict[VerdictName, Verdict] = {}
    observed: dict[VerdictName, Result] = {}
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
    error_texts: dict[str, str] = {}
    # Its numbers.
    operations: Count | None = None
    grants: Count | None = None
    measurements: Measurements = Measurements()
    latency_ms: dict[str, ByPhase] | None = None
    response_ms: dict[str, ByPhase] | None = None
    counts: dict[str, dict[str, dict[str, Count]]] | None = None
    # For a while there were only the first texts.
    errors: dict[str, dict[str, Count] | str] | None = None
    cycles_per_second: Real | None = None
    cycles_per_second_by_phase: dict[str, Real | None] | None = None
    own_cycles_per_second: Real | None = None
    availability: Share | None = None
    recovery_seconds: Real | None = None
    floor_acquire_ms: Quantiles | None = None
    floor: Floor | None = None
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
    """``checker.verdict.Report``; fields are those of a case."""

    result: Result
    operations: Count
    grants: Count
    verdicts: dict[VerdictName, Verdict]
    measurements: Measurements
    seconds: dict[str, Real | None]
    cut: bool | None = None


class Spread(Part, frozen=True):
    """Over cases; no numbers where there was none."""

    count: Count
    median: Real | None = None
    min: Real | None = None
    max: Real | None = None


class PooledKinds(Part, frozen=True):
    """By kind of latency, in milliseconds."""

    acquire: Quantiles
    handover: Quantiles
    wait: Quantiles


class UndisturbedLock(Part, frozen=True):
    """``results.baseline``: a lock before any fault, over all cases."""

    lock: Name
    cases: Count
    latency_ms: PooledKinds
    cycles_per_second: Spread
    floor_acquire_ms_p50: Spread
    floor_cpu_us_per_cycle: Spread


class Replayed(Part, frozen=True):
    """A case that was played again. ``shown``: verdict → how many times it was invalid."""

    case: str
    shown: dict[VerdictName, Count]


class Replay(Part, frozen=True):
    """What ``--replay`` says beside the cases (``bench.replay``). ``of`` is the run."""

    of: str
    times: Count
    honest: str
    cases: tuple[Replayed, ...]


class VerdictChange(Part, frozen=True):
    """A verdict that is not what it was. ``base`` and ``new`` say k of n; ``direction`` is worse,
    open, as may happen or better."""

    lock: str
    fault: str
    verdict: str
    base: str
    new: str
    direction: str
    words: str


class ComparedNumber(Part, frozen=True):
    """``results.gate.Cell``: changes in percent, values in ``unit``."""

    lock: str
    fault: str
    metric: str
    unit: str
    verdict: str
    pairs: Count
    base: Real | None
    new: Real | None
    change_percent: Real | None
    interval_percent: tuple[Real | None, Real | None]
    p_worse: Share | None
    p_worse_corrected: Share | None
    p_better_corrected: Share | None
    needed_pairs: Count | None
    suspected: bool


class Compared(Part, frozen=True):
    """``results.comparison.Comparison``: two sides of the same cases."""

    kind: Literal["regress", "compare"]
    base: str
    new: str
    ending: str
    headline: str
    verdict_changes: tuple[VerdictChange, ...]
    cells: tuple[ComparedNumber, ...]
    notes: tuple[str, ...]
    repeat: str


class Results(Document, frozen=True, kw_only=True):
    """``parts`` are the runs of a night, ``comparisons`` and ``headline`` what it came to;
    ``comparison`` is that of ``regress``."""

    cases: tuple[Case, ...]
    name: str | None = None
    undisturbed: tuple[UndisturbedLock, ...] = ()
    ending: str | None = None
    try_of: str | None = None
    shrunk_from: str | None = None
    parts: tuple[str, ...] = ()
    headline: str | None = None
    replay: Replay | None = None
    comparison: Compared | None = None
    comparisons: tuple[Compared, ...] = ()


class _Numbered(Struct):
    """Of any document, the number of its declaration."""

    format: Annotated[int, Meta(ge=0, le=FORMAT)] = 0


def read(path: Path, kind: type[D], *, inside: Path) -> D:
    """A document of today's declaration, from whichever format. Raises BadFile, MissingFile."""
    data = read_bytes(path, inside=inside)
    try:
        number = msgspec.json.decode(data, type=_Numbered).format
        plain = msgspec.json.decode(data, type=dict[str, Any])
        plain.pop("format", None)
        if number < DECLARED_FROM:
            plain = _upgraded(plain, inspect.type_info(kind))
        return msgspec.convert(plain, kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadFile(path, json_error(error, data)) from None


def text_of(document: Document) -> str:
    """A document as it is written: JSON, with the number of today's declaration first."""
    plain = {"format": FORMAT, **_plain(document)}
    return json_text(plain, indent=1) + "\n"


def known(part: Part) -> dict[str, Any]:
    """Field → value, of those that are not None."""
    return {name: value for name, value in asdict(part).items() if value is not None}


def made(kind: type[S], value: object) -> S:
    """A part from plain values or from objects with such attributes: what a reader would get if it
    was written. Raises msgspec.ValidationError, ValueError (no JSON)."""
    return msgspec.json.decode(json_text(_plain(value)), type=kind)


def _plain(value: object) -> Any:
    return msgspec.to_builtins(value, enc_hook=_number)


def _number(value: object) -> float:
    """NumPy's numbers are floats to ``json`` and unknown to ``msgspec``."""
    if not isinstance(value, float):
        raise TypeError(f"{type(value).__name__} is no JSON")
    return float(value)


def _upgraded(value: Any, declared: inspect.Type) -> Any:
    """The value without the fields that are not declared, anywhere in it."""
    if isinstance(declared, inspect.UnionType):
        for one in declared.types:
            value = _upgraded(value, one)
    elif isinstance(declared, inspect.StructType) and isinstance(value, dict):
        fields = _fields(declared.cls)
        return {name: _upgraded(value[name], fields[name]) for name in value if name in fields}
    elif isinstance(declared, inspect.DictType) and isinstance(value, dict):
        return {name: _upgraded(one, declared.value_type) for name, one in value.items()}
    elif isinstance(declared, inspect.VarTupleType) and isinstance(value, list):
        return [_upgraded(one, declared.item_type) for one in value]
    return value


@functools.cache
def _fields(kind: type[Struct]) -> Mapping[str, inspect.Type]:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return {field.encode_name: field.type for field in info.fields}


def schema() -> str:
    """JSON Schema of ``results.json``, as ``docs/results.schema.json`` has it."""
    found = msgspec.json.schema(Results)
    found["$defs"]["Results"]["properties"]["format"] = {"type": "integer", "const": FORMAT}
    return json_text({"$schema": DIALECT, **found}, indent=1) + "\n"
