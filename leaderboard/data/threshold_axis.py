"""The axis of a slider over thresholds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from leaderboard.data import histograms
from leaderboard.data.histograms import Prompt
from leaderboard.data.levels import number

#: of a slider from its one end to the other
MOST_PLACES = 100_000
#: after the point
MOST_DIGITS = 20


class Axis(NamedTuple):
    """The slider's ends, step and first value, the digits that distinguish its steps, the width of the finest bins, the
    measured points that lie on it, and the thresholds of the others."""

    low: float
    high: float
    step: float
    start: float
    digits: int
    width: float
    points: pd.DataFrame
    beyond: str


def axis_of(prompts: Sequence[Prompt], points: pd.DataFrame) -> Axis:
    """All thresholds that make a difference, and those that were run, as far as there are bins: beyond the first and
    the last a threshold removes nothing or all, however far it is."""
    first, last, width = histograms.span(prompts)
    ends = [(prompt.histogram.low, prompt.histogram.high) for prompt in prompts]
    least, most = min(low for low, _ in ends), max(high for _, high in ends)
    here = (points["tau"] >= least) & (points["tau"] <= most)
    inside = points[here]
    first, last = min([first, *inside["tau"]]), max([last, *inside["tau"]])
    # no finer than floats are here, nor than a hundred thousand places
    bin_ = max(width, last / MOST_PLACES - first / MOST_PLACES, 4 * math.ulp(max(abs(first), abs(last))))
    size = math.floor(math.log10(bin_) + 1e-9)
    exactly = max(0, 6 - size)  # -5.300000000000001 is -5.3
    low, high = (round(of(end / bin_) * bin_, exactly) for of, end in ((math.floor, first), (math.ceil, last)))
    if not (low < high and math.isfinite(low) and math.isfinite(high)):
        low, high = (first, last) if first < last else (least, most)
    step = bin_ / 10
    start = float(inside["tau"].iloc[len(inside) // 2]) if len(inside) else low / 2 + high / 2
    start = min(max(round(round(start / step) * step, exactly), low), high)
    beyond = ", ".join(number(tau) for tau in dict.fromkeys(points.loc[~here, "tau"]))
    return Axis(low, high, step, start, min(max(0, 1 - size), MOST_DIGITS), width, inside, beyond)
