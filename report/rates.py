"""Locks at stated rates: what each carries, and how long it takes at shares of that.

A row is a lock at one rate. Figures are of all acquires of at least three rounds together; in
square brackets stands where that of a repeated run is expected. A void figure is in round brackets,
and a footnote says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, Literal

from lockbench.report.columns import MORE, Column, Context, Table
from lockbench.report.facts import (
    ABOVE,
    CLIENTS,
    LABELLED,
    LOCK,
    NETWORK,
    NUMBERS_VALID,
    SIZE,
    TOPOLOGY,
    WHY,
)
from lockbench.report.grid import Grid, texts
from lockbench.results import wording
from lockbench.results.cases import in_order
from lockbench.results.documents import LockRates, PooledRate, RatesOf

Quantile = Literal["p50", "p99"]
TITLE: Final = "At stated rates"
LEAST: Final = "≥ "  # before what the machine or the load generator limited
USUAL: Final = ("10 %", "50 %", "75 %")
OF: Final = ("topology", "size", "network", "clients", "keys", "hold_s")
# Of locks, which differ in these anyway.
ITS_OWN: Final = frozenset({"topology", "size"})


def labels(found: Sequence[LockRates]) -> list[str]:
    """The lock's name, with what else tells its rows from others."""
    return [", ".join(filter(None, pair)) for pair in locks_and_settings(found)]


def locks_and_settings(found: Sequence[LockRates]) -> list[tuple[str, str]]:
    """The same in two parts: the lock with its cluster, and under what it was measured."""
    named = _differing(found)

    def said(one: LockRates, *, own: bool) -> list[str]:
        return [_said(one.of, field) for field in named if (field in ITS_OWN) == own]

    return [
        (", ".join([one.of.lock, *said(one, own=True)]), ", ".join(said(one, own=False)))
        for one in found
    ]


def grid(found: Sequence[LockRates]) -> Grid | None:
    """For the report: what all rows have in common stands in the caption and in no column."""
    same = [field for field in OF if field not in _differing(found)]
    rows = RATES.rows(found, [{"label": label} for label in labels(found)])
    made = RATES.grid(rows, leave_out=same)
    return None if made is None else replace(made, caption=caption(found))


def narrow(found: Sequence[LockRates]) -> Grid | None:
    """For a terminal: a line a lock, a column for each of three rates."""
    if not found:
        return None
    every = _rates_of(found)
    rates = _three(every)
    more = f" The report has {len(every)} rates." if len(every) > len(rates) else ""
    lines = [
        [label, carried(one), *(by_rate.get(rate, wording.NONE) for rate in rates)]
        for label, one in zip(labels(found), found, strict=True)
        for by_rate in [{at(rate): _short(rate) for rate in one.rates}]
    ]
    headings = ("lock", "carried/s", *(f"at {rate}, ms" for rate in rates))
    return texts(RATES.name, TITLE, headings, lines, NARROW + more)


def compared(found: Sequence[LockRates]) -> Grid | None:
    """For a terminal, where several locks were measured under several settings: a line a lock, a
    column a setting, at the lowest of the rates that ``narrow`` shows."""
    told = locks_and_settings(found)
    locks, settings = (in_order(pair[n] for pair in told) for n in (0, 1))
    if min(len(locks), len(settings)) < 2:
        return None
    rate = _three(_rates_of(found))[0]
    cells = {
        pair: _bracketed(_with_range(each, "p50"), each)
        for pair, one in zip(told, found, strict=True)
        for each in one.rates
        if at(each) == rate
    }
    lines = [
        [lock, *(cells.get((lock, setting), wording.NONE) for setting in settings)]
        for lock in locks
    ]
    share = " of what each carries" if rate.endswith("%") else ""
    title = f"Response time at {rate}{share}, p50, ms"
    return texts(f"{RATES.name}-compared", title, ("lock", *settings), lines, COMPARED)


def _rates_of(found: Sequence[LockRates]) -> list[str]:
    return in_order(at(rate) for one in found for rate in one.rates)


def _three(rates: Sequence[str]) -> Sequence[str]:
    """The usual ones; where they were not asked for, the first, the middle and the last."""
    if len(rates) <= len(USUAL):
        return rates
    if set(USUAL) <= set(rates):
        return USUAL
    return [rates[0], rates[len(rates) // 2], rates[-1]]


def carried(one: LockRates) -> str:
    """Per second, with where that of a repeated run is expected."""
    bounds = one.carried_range_per_s
    text = f"{LEAST if one.why else ''}{wording.rate(one.carried_per_s.median)}"
    return f"{text} [{wording.rate(bounds.min)}–{wording.rate(bounds.max)}]" if bounds else text


def _short(rate: PooledRate) -> str:
    """``1.20 [1.10–1.31]/5.02``; in round brackets where it is void."""
    return _bracketed(f"{_with_range(rate, 'p50')}/{_told(rate, 'p99')}", rate)


def response(rate: PooledRate, name: Quantile) -> str:
    """Milliseconds, with where that of a repeated run is expected; in round brackets where it is
    void."""
    return _bracketed(_with_range(rate, name), rate)


def _bracketed(text: str, rate: PooledRate) -> str:
    return f"({text})" if rate.why else text


def _with_range(rate: PooledRate, name: Quantile) -> str:
    bounds = rate.p50_ms_range if name == "p50" else rate.p99_ms_range
    span = f" [{wording.ms(bounds.min)}–{wording.ms(bounds.max)}]" if bounds else ""
    return _told(rate, name) + span


def _told(rate: PooledRate, name: Quantile) -> str:
    found = rate.response_ms
    return (MORE if name in found.above else "") + wording.ms(getattr(found, name))


def caption(found: Sequence[LockRates]) -> str:
    """What the figures are of, and what all rows have in common."""
    same = [f for f in OF if f not in _differing(found) and f not in ITS_OWN]
    words = [_said(found[0].of, field) for field in same] if found else []
    return f"{CAPTION} For all: {', '.join(words)}." if words else CAPTION


def notes(found: Sequence[LockRates]) -> list[str]:
    """Why figures are void, and what limited the clients where the lock carries more."""
    void: list[str] = []
    least: dict[str, list[str]] = {}
    for label, one in zip(labels(found), found, strict=True):
        reasons = [f"{at(rate)}: {_first(rate.why)}" for rate in one.rates if rate.why]
        if reasons:
            void.append(f"Void at stated rates: {label} at {'; at '.join(reasons)}.")
        if one.why:
            least.setdefault(_first(one.why), []).append(label)
    may = (
        f"{LEAST.strip()}: {wording.words(of)} may carry more: {why}" for why, of in least.items()
    )
    return [*void, *(f"{one}." for one in may)]


def _first(why: Sequence[str]) -> str:
    """One reason of several; the column ``why`` has all."""
    more = len(why) - 1
    return f"{why[0]} (and {wording.times(more, 'reason')} more)" if more else why[0]


def at(rate: PooledRate) -> str:
    """The rate as it was stated: ``50 %`` of what was carried, or ``200/s``."""
    if rate.share:
        return f"{100 * rate.share:g} %"
    return f"{wording.rate(rate.offered_per_s.median)}/s"


def _differing(found: Sequence[LockRates]) -> list[str]:
    """In what the rows differ; in what locks differ anyway, only where those of one lock do."""

    def differs(field: str, of: Sequence[LockRates]) -> bool:
        return len({getattr(one.of, field) for one in of}) > 1

    return [
        field
        for field in OF
        if any(
            differs(field, [one for one in found if one.of.lock == lock])
            for lock in {one.of.lock for one in found}
        )
        or (field not in ITS_OWN and differs(field, found))
    ]


def _said(of: RatesOf, field: str) -> str:
    value = getattr(of, field)
    match field:
        case "size":
            return wording.times(value, "node")
        case "clients":
            return wording.times(value, "client")
        case "keys":
            return wording.times(value, "shared key") if value else "a key for each client"
        case "hold_s":
            return f"holds of {1000 * value:g} ms" if value else "released at once"
    return str(value)


def _rates(found: LockRates) -> Iterator[Context]:
    for rate in found.rates or (None,):
        yield {
            "found": found,
            "rate": rate,
            "void": rate is not None and bool(rate.why),
            "at": None if rate is None else at(rate),
        }


def _why(r: Context) -> str | None:
    return None if r["rate"] is None else "; ".join(r["rate"].why) or None


def _processors(r: Context) -> str | None:
    used = r["found"].carried_processors
    if used is None:
        return None
    ordered = sorted(used.items(), key=lambda one: -one[1])
    return ", ".join(f"{part} {percent:.0f}" for part, percent in ordered if percent >= 1)


def _least(r: Context) -> str:
    return LEAST if r["found"].why else ""


def _carried(quantity: str, meaning: str) -> Column:
    what = f"granted per second in saturated rounds, {meaning}"
    if quantity == "median":
        return Column("carried_per_s", what, "found.carried_per_s.median", signed=_least)
    return Column(f"carried_{quantity}_per_s", what, f"found.carried_range_per_s.{quantity}")


def _response(name: str, words: str) -> Iterator[Column]:
    """A quantile with its range, which is shown where the quantile is."""

    def bound(end: str) -> Column:
        def of(r: Context) -> float | None:
            if r["rate"] is None or getattr(r["rate"].response_ms, name) is None:
                return None
            found = getattr(r["rate"], f"{name}_ms_range")
            return None if found is None else getattr(found, end)

        meaning = (
            f"{words}, the {'least' if end == 'min' else 'most'} of a repeated run, milliseconds"
        )
        return Column(f"response_{name}_{end}_ms", meaning, of, load=True)

    yield Column(
        f"response_{name}_ms",
        f"from the intended start to the grant, {words}, milliseconds",
        f"rate.response_ms.{name}",
        load=True,
    )
    yield from (bound("min"), bound("max"))


CAPTION: Final = (
    "Carried: granted per second while every client asked again as soon as it had released, median "
    "of the rounds. ≥: the machine, the load generator or the clients were the limit, and the lock "
    "may carry more. Knee: between which rates latency leaves the flat part. "
    "Then acquires arrived by chance (Poisson) at shares of what was carried. p50 and p99: "
    "response time, from the intended start to the grant, of all rounds together. In square "
    "brackets: where the figure of a repeated run is expected. What was refused, timed out or was "
    "never begun counts as longer than until it was given up. In round brackets: void."
)
COMPARED: Final = (
    "From the intended start to the grant. In square brackets: where that of a repeated run is "
    "expected. In round brackets: void."
)
NARROW: Final = (
    "Response time, p50 / p99. [ ]: expected of a repeated run. ( ): void. ≥: the lock was not the "
    "limit."
)
RATES: Final = Table("rates", "a lock at a stated rate", (
    LOCK.at("found.of.lock"),
    LABELLED,
    TOPOLOGY.at("found.of.topology"),
    SIZE.at("found.of.size"),
    NETWORK.at("found.of.network"),
    CLIENTS.at("found.of.clients"),
    Column("keys", "keys that all clients share; 0: each has its own", "found.of.keys"),
    Column("hold_s", "how long each hold lasts, seconds", "found.of.hold_s"),
    _carried("median", "median of the rounds"),
    _carried("min", "the least of a repeated run"),
    _carried("max", "the most of a repeated run"),
    Column("carried_at_least", "whether the machine or the load generator was the limit of these",
           lambda r: bool(r["found"].why), report=False),
    Column("carried_processors",
           "percent of all processors that each part used in these rounds", _processors),
    Column("knee_low_per_s",
           "arrivals per second from which latency is no longer flat, lowest of the rounds",
           "found.knee.low_per_s",
           signed=lambda r: MORE if r["found"].knee and r["found"].knee.high_per_s is None else ""),
    Column("knee_high_per_s", "the same, highest of the rounds; missing: above every rate",
           "found.knee.high_per_s"),
    Column("at", "the rate as it was stated: a share of what was carried, or per second"),
    Column("offered_per_s", "arrivals per second, median of the rounds",
           "rate.offered_per_s.median"),
    Column("granted_per_s", "granted per second, median of the rounds",
           "rate.granted_per_s.median", load=True),
    *_response("p50", "median"),
    *_response("p99", "99th percentile"),
    Column("service_p50_ms", "from when an acquire was sent to its grant, median, milliseconds",
           "rate.service_p50_ms.median", load=True),
    Column("granted", "acquires that were granted", "rate.granted"),
    Column("due", "acquires that were due", "rate.due"),
    Column("rounds", "rounds that the figures are of", "rate.blocks"),
    Column("void_rounds", "rounds that were void", "rate.void_blocks", usual=0),
    NUMBERS_VALID.at(lambda r: None if r["rate"] is None else not r["rate"].why),
    ABOVE.at(lambda r: r["rate"] and ", ".join(r["rate"].response_ms.above)),
    WHY.at(_why),
), _rates, TITLE, CAPTION)  # fmt: skip
