"""RULER's frequent words: coded words whose numbers follow a zeta law, the question is for the three most frequent."""

from __future__ import annotations

import math
import string

from benchmarks.ruler.tasks.plan import Draft, Plan, Stream, join, lay

ALPHA = 2.0
#: RULER uses only this value of alpha, at which the zeta function is known in closed form
ZETA = math.pi**2 / 6
LETTERS = 6
#: tokens of room for each word of the vocabulary
TOKENS_A_WORD = 50
NOISE = "..."


def plan(stream: Stream, index: int) -> Plan:
    """Sample ``index``; n is the number of words before the ranks' shares are rounded down."""
    words = vocabulary(stream, index)

    def build(n: int) -> Draft:
        listed = [word for word, times in zip(words, repeats(n, len(words)), strict=True) for _ in range(times)]
        stream.rng(index, "order").shuffle(listed)
        context, question = lay(stream.templates.fwe, context=" ".join(listed))
        return join(context, question, stream.templates.fwe_prefix, tuple(words[1:4]))

    # with fewer than 60 words, rank 4 could come up as often as rank 5
    return Plan(build, unit="word", least=60)


def repeats(n: int, ranks: int) -> list[int]:
    """How often each rank's word comes up: ``n * k**-2 / zeta(2)``. Rank 1 is the dots, ranks 2 to 4 are the answer."""
    return [int(n * rank**-ALPHA / ZETA) for rank in range(1, ranks + 1)]


def vocabulary(stream: Stream, index: int) -> list[str]:
    """Distinct coded words by rank, the dots first: one for every 50 tokens of room."""
    rng = stream.rng(index)
    words: dict[str, None] = {}
    while len(words) < stream.room // TOKENS_A_WORD:
        words["".join(rng.choices(string.ascii_lowercase, k=LETTERS))] = None
    return [NOISE, *list(words)[1:]]
