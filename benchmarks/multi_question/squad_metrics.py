"""Exact match and F1 of SQuAD (Rajpurkar et al. 2016, section 6.1; evaluation script of version 2.0)."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLE = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(text: str) -> str:
    """Lower case, without ASCII punctuation and articles, single spaces."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, references: Sequence[str]) -> float:
    """1.0 if the normalised prediction equals a normalised reference, else 0.0."""
    return float(any(normalised(prediction) == normalised(reference) for reference in references))


def f1(prediction: str, references: Sequence[str]) -> float:
    """The best F1 over the references of the words that prediction and reference share, words counted as often as they
    occur. If one of the two has no words: 1.0 if the other has none either."""
    return max(_f1(normalised(prediction).split(), normalised(reference).split()) for reference in references)


def _f1(predicted: list[str], right: list[str]) -> float:
    if not predicted or not right:
        return float(predicted == right)
    shared = sum((Counter(predicted) & Counter(right)).values())
    return 2 * shared / (len(predicted) + len(right))
