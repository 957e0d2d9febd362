"""The essay haystack: running text with needles between its sentences, repeated if it is too short."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

#: RULER's depths in percent of the sentences: 40 even steps from 0 to 100
DEPTHS = tuple(round(100 * step / 39) for step in range(40))

#: where a sentence ends: marks, with the brackets and quotes that close it, before a blank or another sign
_END = re.compile(r"""[.?!]+(?:["')\]}]+(?=\s))?(?=\s|[)";}\]*:@'({\[])\s*""")
#: the word before a dot that ends no sentence: an initial (not the words A and I), or a title
_ABBREVIATED = re.compile(r"""(?:^|[\s"'(\[_.-])(?:[B-HJ-Z]|Mr|Mrs|Ms|Dr|vs)\.$""")
#: no abbreviation, with the sign before it, is longer
_LONGEST = 6


def sentences(text: str) -> list[str]:
    """The sentences of a text whose blanks are single spaces, without the space between them.

    NVIDIA's scripts use NLTK's Punkt, whose English model is a download. These rules are what Punkt does in a language
    without known abbreviations, with a few added. Of Punkt's 31,323 borders in RULER's essays they find 31,312, and
    they add 51.
    """
    starts = [0]
    for end in _END.finditer(text):
        word = text[max(0, end.start() - _LONGEST) : end.start()] + text[end.start()]
        if end.end() < len(text) and not _ABBREVIATED.search(word):
            starts.append(end.end())
    return [text[start:stop].rstrip() for start, stop in pairwise([*starts, len(text)])]


class Essays:
    """A text in words; ``count`` of them is any number, from the first one on and round again."""

    def __init__(self, text: str) -> None:
        self._words: list[str] = []
        self._starts: list[int] = []
        for sentence in sentences(" ".join(text.split())):
            self._starts.append(len(self._words))
            self._words += sentence.split(" ")

    def hide(self, needles: Sequence[str], depths: Sequence[float], count: int) -> str:
        """``count`` words with the needles in their order at the depths in theirs, each before a sentence.

        depths   percent of the sentences that come before a needle, rounded down
        """
        rounds = -(-count // len(self._words))
        words = (self._words * rounds)[:count] if rounds > 1 else self._words[:count]
        number = self._sentences(count)
        places = [self._start(int(number * (depth / 100)), count) for depth in sorted(depths)]
        parts = []
        for (start, stop), needle in zip(pairwise([0, *places, count]), [*needles, None], strict=True):
            parts.append(" ".join(words[start:stop]))
            if needle is not None:
                parts.append(needle)
        # as in RULER, a needle at either end has a space outside
        return " ".join(parts)

    def _sentences(self, count: int) -> int:
        """How many sentences begin in the first ``count`` words."""
        rounds, rest = divmod(count, len(self._words))
        return rounds * len(self._starts) + bisect_left(self._starts, rest)

    def _start(self, sentence: int, count: int) -> int:
        """The word that a sentence begins with; ``count`` for the one after the last."""
        rounds, place = divmod(sentence, len(self._starts))
        return min(count, rounds * len(self._words) + self._starts[place])


@lru_cache(maxsize=1)
def essays(text: str) -> Essays:
    """The haystack of a text, split only once."""
    return Essays(text)
