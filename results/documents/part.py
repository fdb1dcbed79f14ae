"""What documents are made of: bounded values, parts, and a sample's quantiles.

Numbers are finite and bounded, so that arithmetic on them neither overflows nor asks for memory
without end.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

Count = Annotated[int, Meta(ge=0, le=2**53)]
Small = Annotated[int, Meta(ge=0, le=100_000)]
SEED_MAX: Final = 2**63 - 1
SECONDS_MAX: Final = 1e6
Seed = Annotated[int, Meta(ge=0, le=SEED_MAX)]
Ns = Annotated[int, Meta(ge=-(2**62), le=2**62)]  # of the monotonic clock
Whole = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Real = Annotated[float, Meta(ge=-1e18, le=1e18)]
Share = Annotated[float, Meta(ge=0, le=1)]
Seconds = Annotated[float, Meta(ge=0, le=SECONDS_MAX)]
Name = Annotated[str, Meta(min_length=1, max_length=10_000)]
# The name of a folder beside others: no path.
FolderName = Annotated[str, Meta(pattern="^[^/]{1,255}$")]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Word = str | Whole | Real
Statistic = Literal["p50", "p99", "p999", "max"]
Versioned = dict[str, str | None]


class Part(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A part of a document."""


class Document(Part, frozen=True, kw_only=True):
    """What a file of a run folder holds."""


class Quantiles(Part, frozen=True):
    """A sample in the unit of its values. None: so few values do not carry this quantile
    (``lockbench.results.quantiles``). ``iqr`` is the distance from the first to the third quartile.
    ``above`` names those that are lower bounds, because what was given up counts among them."""

    count: Count = 0
    p50: Real | None = None
    p99: Real | None = None
    p999: Real | None = None
    max: Real | None = None
    iqr: Real | None = None
    above: tuple[Statistic, ...] = ()
