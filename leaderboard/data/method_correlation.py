"""Whether methods fail on the same samples: how alike their scores are, sample by sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from harness.analysis.paired_tests import Scored

#: scores (0 to 100) this near are the same
NEAR = 0.5
SAME, CORRELATION = "same score", "correlation"
MEASURES = {
    SAME: "Share of the samples that both answered on which their scores differ by less than half a point. Scores "
    "count, not texts: two wrong answers are alike.",
    CORRELATION: "Pearson's correlation of the two scores over the samples that both answered; – where a method has "
    "the same score on all of them.",
}


class Pair(NamedTuple):
    """Two variants, the value of a measure (None where it is not defined), the samples that both have."""

    a: str
    b: str
    value: float | None
    n: int


def method_correlation(scores: Mapping[str, Mapping[str, Scored]], measure: str) -> list[Pair]:
    """Each pair of variants, the later one as ``a``.

    scores    of each variant by ``sample_id``
    measure   one of :data:`MEASURES`
    """
    table = pd.DataFrame({name: {sample: one.score for sample, one in own.items()} for name, own in scores.items()})
    table = table.reindex(columns=list(scores)).astype(float)
    way: Any = "pearson" if measure == CORRELATION else _same
    values = table.corr(way, min_periods=2 if measure == CORRELATION else 1)
    there = table.notna().to_numpy(dtype=int)
    of, counts, names = values.to_numpy(), there.T @ there, list(scores)
    return [
        Pair(names[a], names[b], None if np.isnan(of[a, b]) else float(of[a, b]), int(counts[a, b]))
        for b in range(len(names))
        for a in range(b + 1, len(names))
    ]


def _same(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.mean(np.abs(a - b) < NEAR))
