"""How long messages take and how wrong clocks run: measured here, or with a source.

Round trips: *namespaces* as ``perf.clocks.measure`` found them between two network namespaces of
one machine with two shared cores. Of *zone* and *region* only the mean or the greatest are
published, so they are a least time and a heavy tail (Lomax, exponent 1.5) that fit these:

- zone: two availability zones of one region: 0.82 ms on average in five minutes of pings (Liesis,
  "What is AWS EC2 cross availability zones network lag vs inside same zone?", 2022; between 0.5 and
  1.5 ms, FlashGrid, "Latencies between AWS availability zones", 2023).
- region: 72 ms, the longest between regions of North America (Microsoft, "Azure network round-trip
  latency statistics", October 2019).

Either way of a link has its own share of the time. 11 % of paths have one way that differs from the
half by more than a tenth (Liu et al., "What causes delay asymmetry", GLOBECOM 2022): these have
between 20 and 80 %, the others between 45 and 55 %.

Clocks are off by up to 50 ms. Oscillators of 20,000 hosts were wrong by 78 ppm in the median
(Mills, "Computer Network Time Synchronization", chapter on the clock discipline): a normal
distribution of 116 ppm, here not beyond the 450 ppm which with the wandering are below the 500 that
the checker allows. In a day without cooling they wander by a few ppm (the same): 3 ppm.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from perf.machines import MS, US, Clock

OFF_NS: Final = 50 * MS
DRIFT_PPM, DRIFT_MOST_PPM, WANDER_PPM = 116.0, 450.0, 3.0
TAIL: Final = 1.5
LATEST_NS: Final = 1_000 * MS  # no message is later
LEAST_AND_MEAN_NS: Final = {"zone": (700 * US, 820 * US), "region": (70 * MS, 72 * MS)}
SHARES: Final = (*(n / 100 for n in range(100)), 0.995, 0.999, 0.9995, 0.9999, 1.0)
PLACES: Final = ("namespaces", "zone", "region")  # the nearest first


@cache
def _measured() -> dict[str, list[int]]:
    found: dict[str, list[int]] = json.loads(Path(__file__).with_name("delays.json").read_text())
    return found


def round_trip(place: str, dice: random.Random) -> float:
    """Nanoseconds of one."""
    if place in LEAST_AND_MEAN_NS:
        least, mean = LEAST_AND_MEAN_NS[place]
        tail = (dice.paretovariate(TAIL) - 1) * (TAIL - 1)
        return min(least + tail * (mean - least), LATEST_NS)
    return float(np.interp(dice.random(), SHARES, _measured()[place]))


def round_trip_quantiles(place: str) -> list[float]:
    """In nanoseconds: least, p50, p99, p99.9."""
    dice = random.Random(place)
    times = [round_trip(place, dice) for _ in range(20_000)]
    found: list[float] = np.quantile(times, (0, 0.5, 0.99, 0.999)).tolist()
    return found


@dataclass(frozen=True, slots=True)
class Way:
    """A link to the machine with the lock and the resource. ``share`` of a round trip is the way
    there."""

    place: str
    share: float

    @staticmethod
    def drawn(place: str, dice: random.Random) -> Way:
        odd = dice.random() < 0.11
        return Way(place, dice.uniform(0.2, 0.8) if odd else dice.uniform(0.45, 0.55))

    def there_ns(self, dice: random.Random) -> int:
        return 1 + int(self.share * round_trip(self.place, dice))

    def back_ns(self, dice: random.Random) -> int:
        return 1 + int((1 - self.share) * round_trip(self.place, dice))


def drawn_clock(dice: random.Random, jump_ns: int = 0, jump_s: float = 0.0) -> Clock:
    """One of the fleet's."""
    drift = max(-DRIFT_MOST_PPM, min(DRIFT_MOST_PPM, dice.gauss(0, DRIFT_PPM)))
    return Clock(
        off_ns=dice.randint(-OFF_NS, OFF_NS),
        drift_ppm=drift,
        wobble_ppm=dice.uniform(0, WANDER_PPM),
        period_s=dice.uniform(5, 60),
        jump_s=jump_s,
        jump_ns=jump_ns,
    )
