"""The noise between runs that the gate has to live with, as it was measured.

24 runs, one after the other, of the same thing (``lockbench run --lock redis-token --time-limit
8``, twelve at a time, 2 cores, the machine otherwise 29 to 96 % busy with other work): uncontended
acquire p50 in ms, hand-over p50 in ms, cycles per second. Coefficients of variation 10.3 %, 10.7 %
and 5.3 %; standard deviation of the log ratio of two neighbours 0.133, 0.123 and 0.062.
"""

from __future__ import annotations

import numpy as np

from lockbench.results.documents import CaseResult, Quantiles

RUNS = np.array(
    [
        (0.991, 3.057, 197.0), (0.821, 2.422, 224.3), (0.834, 2.582, 222.6), (0.788, 2.876, 215.2),
        (0.886, 2.657, 224.3), (0.790, 2.709, 220.0), (0.886, 2.503, 222.0), (0.950, 3.068, 210.7),
        (1.003, 3.204, 202.2), (0.954, 3.348, 192.0), (0.908, 2.962, 200.0), (0.990, 3.500, 207.6),
        (0.879, 2.982, 212.6), (0.995, 3.216, 214.4), (0.953, 3.436, 195.7), (1.203, 3.538, 187.6),
        (0.862, 2.760, 216.3), (1.091, 2.976, 205.0), (1.041, 3.399, 208.7), (0.991, 3.146, 198.5),
        (1.054, 3.183, 193.9), (0.910, 2.852, 202.0), (0.949, 2.648, 217.6), (0.926, 3.146, 200.7),
    ]
)  # fmt: skip
BATCH = 12
FIRST = [i for i in range(len(RUNS) - 1) if i % BATCH != BATCH - 1]


def case(acquire_ms: float, handover_ms: float, cycles_per_s: float) -> CaseResult:
    """As much of a case as the gate reads."""
    return CaseResult(
        lock="measured",
        fault="none",
        numbers="valid",
        latency_ms={
            "acquire": {"before": Quantiles(p50=acquire_ms)},
            "handover": {"before": Quantiles(p50=handover_ms)},
        },
        cycles_per_second=cycles_per_s,
    )
