"""LongBench's metrics (Bai et al. 2023, arXiv 2308.14508, table 1): one prediction against one reference, 0 to 1.

They give the figures of THUDM's scorer. ROUGE and the segmentation of Chinese are those of the packages that it uses.
"""

from __future__ import annotations

import logging
import re
import string
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import SequenceMatcher
from functools import cache, lru_cache
from typing import Any

ARTICLES = re.compile(r"\b(?:a|an|the)\b")
NUMBER = re.compile(r"\d+")
#: punctuation that THUDM takes out of Chinese answers, beside ASCII's: most of CJK's, of the full-width forms and of
#: the typographic marks
CHINESE_PUNCTUATION = frozenset(
    chr(code)
    for first, last in (
        *((0xFF01, 0xFF0D), (0xFF0F, 0xFF0F), (0xFF1A, 0xFF20), (0xFF3B, 0xFF40), (0xFF5B, 0xFF64)),
        *((0x3001, 0x3003), (0x300B, 0x3011), (0x3014, 0x301F), (0x3030, 0x3030), (0x303E, 0x303F), (0xFE4F, 0xFE4F)),
        *((0x2013, 0x2014), (0x2018, 0x2019), (0x201B, 0x201F), (0x2026, 0x2027)),
    )
    for code in range(first, last + 1)
)
#: a line of code with one of these is a comment or a fence, not the answer
NO_CODE = ("`", "#", "//")


def qa_f1(prediction: str, reference: str) -> float:
    """F1 of the words: lower case, without punctuation and articles."""
    return _f1(_words(prediction), _words(reference))


def qa_f1_zh(prediction: str, reference: str) -> float:
    """F1 of the words that jieba finds: lower case, without punctuation and white space."""
    return _f1(_words_zh(prediction), _words_zh(reference))


def rouge_zh(prediction: str, reference: str) -> float:
    """ROUGE-L of the words that jieba finds."""
    return rouge(" ".join(_segments(prediction)), " ".join(_segments(reference)))


@lru_cache(maxsize=4096)  # several variants often give the same answer, and a summary takes 0.1 s and more
def rouge(prediction: str, reference: str) -> float:
    """F of the package's ROUGE-L (summary level, sentences end at full stops); 0 for an answer without any text.

    The package recurses once per word, over both texts. Python's own limit would end that at about 1,000 words, so it
    is raised to what these texts may need; an error is an error, never a score of 0.
    """
    if not prediction.strip(".") or not reference.strip("."):
        return 0.0
    with _recursion(len(prediction.split()) + len(reference.split())):
        return float(_rouge().get_scores([prediction], [reference], avg=True)["rouge-l"]["f"])


def classification(prediction: str, reference: str, classes: Sequence[str]) -> float:
    """1 / (classes named in the answer), 0 if the right one is not among them.

    A class whose name is part of the right one's is not counted. THUDM's scorer has a bug that its figures depend on,
    so it is kept: the class after one that was dropped stays, whatever its name.
    """
    named = [name for name in classes if name in prediction]
    place = 0
    while place < len(named):
        if named[place] in reference and named[place] != reference:
            del named[place]  # and `place` moves on all the same
        place += 1
    return 1 / len(named) if reference in named else 0.0


def right_numbers(prediction: str, reference: str) -> float:
    """Share of the answer's numbers that are the reference's first one (a count, or the number of a paragraph)."""
    numbers = NUMBER.findall(prediction)
    wanted = NUMBER.findall(reference)[:1]
    return sum([number] == wanted for number in numbers) / len(numbers) if numbers else 0.0


def code_similarity(prediction: str, reference: str) -> float:
    """Similarity of the answer's first line of code, in whole hundredths.

    It is ``fuzz.ratio`` of fuzzywuzzy as THUDM has it, on Python's difflib. That package silently uses another
    algorithm if python-Levenshtein is installed, with other scores; so it is not used here.
    """
    lines = prediction.lstrip("\n").split("\n")
    line = next((line for line in lines if not any(mark in line for mark in NO_CODE)), "")
    return round(100 * SequenceMatcher(None, line, reference).ratio()) / 100


def first_line(prediction: str) -> str:
    """What few-shot answers are cut to: their first line that is not empty."""
    return prediction.lstrip("\n").split("\n")[0]


def _f1(prediction: Sequence[str], reference: Sequence[str]) -> float:
    same = (Counter(prediction) & Counter(reference)).total()
    return 2 * same / (len(prediction) + len(reference)) if same else 0.0


def _words(text: str) -> list[str]:
    plain = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return ARTICLES.sub(" ", plain).split()


def _words_zh(text: str) -> list[str]:
    plain = (
        "".join(c for c in word.lower() if c not in string.punctuation and c not in CHINESE_PUNCTUATION)
        for word in _segments(text)
    )
    return [word for part in plain if (word := "".join(part.split()))]


def _segments(text: str) -> list[str]:
    return list(_jieba()(text))


@cache
def _jieba() -> Callable[[str], Iterator[str]]:
    import jieba  # late: reading its dictionary takes a second

    jieba.setLogLevel(logging.WARNING)  # it reports that on standard error
    cut: Callable[[str], Iterator[str]] = jieba.cut
    return cut


@cache
def _rouge() -> Any:
    from rouge import Rouge

    return Rouge(metrics=["rouge-l"])


@contextmanager
def _recursion(words: int) -> Iterator[None]:
    """Room for a recursion of ``words`` calls from here on."""
    before = sys.getrecursionlimit()
    depth = sum(1 for _ in traceback.walk_stack(None))
    sys.setrecursionlimit(max(before, depth + words + 200))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
