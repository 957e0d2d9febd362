"""What a score histogram says a threshold removes, against the scores themselves; damaged rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import HarnessError
from harness.results.score_histograms import Histogram, Told, read_histograms, told


def histogram(scores: np.ndarray, protected: int = 0) -> Histogram:
    counts, _ = np.histogram(scores.clip(-20, 4), 240, (-20, 4))
    setting = {"sample_id": "s", "method": "kvzap_mlp", "options": "{}", "window": 128, "sinks": 0}
    return Histogram(**setting, low=-20, high=4, counts=counts.tolist(), cached=len(scores) + protected)


@pytest.mark.parametrize("mean", range(-4, 1))
def test_told_holds_the_share_of_scores_under_any_threshold(mean: int) -> None:
    scores = np.random.default_rng(0).normal(mean, 2, 3_000)
    one = histogram(scores, 384)
    for tau in [*np.random.default_rng(1).uniform(-12, 3, 50), -5.0, -4.4, -1.1]:
        exact = (scores < tau).sum() / 3_384
        least, likely, most = told(one, float(tau))
        assert least <= exact <= most and least <= likely <= most
        assert abs(likely - exact) <= max(one.counts) / one.cached
        if tau in (-5.0, -4.4, -1.1):  # on an edge there is no error
            assert least == likely == most == exact


def test_beyond_the_ends_the_end_bins_are_open() -> None:
    one = histogram(np.array([-30.0, -25.0, 0.0, 9.0]), protected=4)
    assert told(one, -40.0) == Told(0.0, 0.0, 0.25)
    assert told(one, 4.0) == Told(0.375, 0.5, 0.5)
    assert told(one, float("inf")).likely == 0.5 and told(one, float("-inf")).likely == 0.0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"counts": []}, "at least 1"),
        ({"counts": [5, -1]}, "greater than or equal to 0"),
        ({"cached": 3}, "no more than cached"),
        ({"low": 4.0}, "low must be less"),
        ({"high": None}, "valid number"),
        ({"counts": [1] * 10_001}, "at most 10000"),
    ],
)
def test_a_damaged_row_is_told_by_its_number(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    good = histogram(np.zeros(10)).model_dump()
    path = tmp_path / "histograms.jsonl"
    path.write_text(json.dumps(good) + "\n" + json.dumps({**good, **change}) + "\n")
    with pytest.raises(HarnessError, match=f"histograms.jsonl, line 2: .*{said}"):
        read_histograms(path)
    path.write_text(json.dumps(good) + "\n" + json.dumps(good)[:50])
    assert len(read_histograms(path)) == 1
    assert read_histograms(tmp_path / "none") == []
