from __future__ import annotations

import pytest

from benchmarks.base import Sample
from benchmarks.registry import get


def score(subset: str, references: tuple[str, ...], prediction: str) -> float:
    sample = Sample("id", "ctx", "context", "question", "", 32, references, subset)
    return get("ruler").score(sample, prediction).score


@pytest.mark.parametrize(
    ("subset", "references", "prediction", "expected"),
    [
        ("niah_single_1", ("1234567",), " is 1234567.", 100.0),
        ("niah_single_1", ("1234567",), "1234568", 0.0),
        ("niah_multivalue", ("11", "22", "33", "44"), "11, 33 and 44", 75.0),
        ("vt", ("ABCDE", "FGHIJ", "KLMNO", "PQRST", "UVWXY"), "abcde FGHIJ", 40.0),
        # every reference counts in cwe, and one may be inside another word
        ("cwe", ("art", "bus", "cup", "dog"), "1. Party 2. BUS", 50.0),
        # control characters are line ends, not nothing: no word arises from two halves
        ("fwe", ("abcdef",), "abc\tdef", 0.0),
        ("fwe", ("abc\ndef",), "\x01abc\x0bdef\x1f", 100.0),
        ("fwe", ("abcdef",), "", 0.0),
        # one answer is enough in qa; lm-eval's formula gives 66.7 for the first one
        ("qa_1", ("Palate", "Palate", "corps"), "palate", 100.0),
        ("qa_1", ("Palate", "Palate", "corps"), "the Corps", 100.0),
        ("qa_2", ("yes", "no"), "maybe", 0.0),
    ],
)
def test_hand_cases(subset: str, references: tuple[str, ...], prediction: str, expected: float) -> None:
    assert score(subset, references, prediction) == expected
