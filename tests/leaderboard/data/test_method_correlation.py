"""How alike the scores of methods are, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from harness.analysis.paired_tests import Scored
from leaderboard.charts.method_correlation import correlation_chart
from leaderboard.charts.theme import LIGHT
from leaderboard.data.method_correlation import CORRELATION, SAME, Pair, method_correlation


def scored(*scores: float) -> dict[str, Scored]:
    return {f"s{place}": Scored("red", score) for place, score in enumerate(scores)}


def test_both_measures_are_numpys_over_the_common_samples() -> None:
    a, b = np.random.default_rng(4).choice(np.arange(0, 101, 5.0), (2, 40))
    scores = {"x": scored(*a), "y": scored(*b), "z": scored(*a[:5])}
    same, by_r = (method_correlation(scores, measure) for measure in (SAME, CORRELATION))
    assert [(pair.a, pair.b, pair.n) for pair in same] == [("y", "x", 40), ("z", "x", 5), ("z", "y", 5)]
    assert [pair.value for pair in same] == pytest.approx([np.mean(a == b), 1.0, np.mean(a[:5] == b[:5])])
    expected = [np.corrcoef(a, b)[0, 1], 1.0, np.corrcoef(a[:5], b[:5])[0, 1]]
    assert [pair.value for pair in by_r] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("other", "same", "r"),
    [
        (scored(*[5.0] * 4), 0.25, None),  # the same score on all samples
        (scored(5.0), 1.0, None),
        ({}, None, None),
        (scored(5.4, 10.4, 15.4, 20.6), 0.75, pytest.approx(1.0, abs=1e-3)),
    ],
    ids=["constant", "one sample", "no sample", "half a point"],
)
def test_what_is_not_defined_has_no_value(other: dict[str, Scored], same: float | None, r: float | None) -> None:
    scores = {"x": scored(5.0, 10.0, 15.0, 20.0), "y": other}
    for measure, value in ((SAME, same), (CORRELATION, r)):
        assert method_correlation(scores, measure) == [Pair("y", "x", value, len(other))]
        (data,) = (
            correlation_chart(method_correlation(scores, measure), {"x": "X", "y": "Y"}, measure, LIGHT)
            .to_dict()["datasets"]
            .values()
        )
        (cell,) = data
        assert (cell["row"], cell["column"]) == ("Y", "X")
        assert (cell["fill"], cell["text"] == "–") == (("grey", True) if value is None else ("colour", False))
