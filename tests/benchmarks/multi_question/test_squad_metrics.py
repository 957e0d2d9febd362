"""SQuAD's F1 and exact match; expected values worked out by hand."""

from __future__ import annotations

import pytest

from benchmarks.multi_question.squad_metrics import exact_match, f1, normalised


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Normans!", "normans"),
        ("an apple a day", "apple day"),
        ("10th and 11th centuries", "10th and 11th centuries"),
        ("Kublai Khan's", "kublai khans"),
        ("theatre, a-z", "theatre az"),
        ("The", ""),
    ],
)
def test_normalisation(text: str, expected: str) -> None:
    assert normalised(text) == expected


@pytest.mark.parametrize(
    ("prediction", "references", "exact", "expected"),
    [
        ("France", ("France",), 1, 1.0),
        ("the France.", ("France",), 1, 1.0),
        ("in France", ("France",), 0, 2 / 3),  # precision 1/2, recall 1
        ("France in the north", ("Northern France",), 0, 2 / 5),  # one word of three, one of two
        ("Rollo Rollo", ("Rollo",), 0, 2 / 3),  # a word counts as often as it comes
        ("10th century", ("the first half of the 10th century", "10th century"), 1, 1.0),  # the best reference
        ("first half", ("the first half of the 10th century", "10th century"), 0, 4 / 7),  # 2 of 2, 2 of 5
        ("Spain", ("France",), 0, 0.0),
        ("", ("France",), 0, 0.0),
        ("the", ("a",), 1, 1.0),  # no word on either side
        ("the", ("France",), 0, 0.0),
    ],
)
def test_golden_cases(prediction: str, references: tuple[str, ...], exact: int, expected: float) -> None:
    assert exact_match(prediction, references) == exact
    assert f1(prediction, references) == pytest.approx(expected)
