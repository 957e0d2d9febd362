"""RULER's common words: a numbered list in which ten words are more frequent than the others."""

from __future__ import annotations

import random

from benchmarks.ruler.tasks.plan import Draft, Plan, Stream, join, lay
from benchmarks.ruler.tasks.words import Distinct, lists

COMMON = 10
#: below this length words are repeated less often
LONG = 4096


def plan(stream: Stream, index: int) -> Plan:
    """Sample ``index``: a worked example, then the list; n counts the list's distinct words, the ten included.

    If all words together do not fill the list, pairs of words as in RULER's keys follow. (NVIDIA's scripts take
    another word list then, which is not part of any package.)
    """
    is_long = stream.length >= LONG
    words = lists().all
    shown, common, uncommon = (40, 10, 3) if is_long else (20, 3, 1)
    example_words = stream.rng(index, "example").sample(words, shown)
    example_list = numbered(example_words, common, uncommon, stream.rng(index, "example order"))
    example = worked_example(stream, example_list, example_words)
    drawn = stream.rng(index).sample(words, len(words))
    pairs = Distinct("words", stream.rng(index, "pairs"), drawn)
    common, uncommon = (30, 3) if is_long else (6, 1)

    def build(n: int) -> Draft:
        listed = numbered(drawn[:n] + pairs.first(max(0, n - len(drawn))), common, uncommon, stream.rng(index, "order"))
        context, question = lay(stream.templates.cwe, context=listed)
        return join(example + context, question, stream.templates.cwe_prefix, tuple(drawn[:COMMON]))

    return Plan(build, unit="word", least=COMMON + 1)


def numbered(words: list[str], common: int, uncommon: int, order: random.Random) -> str:
    """The first ten words ``common`` times and the others ``uncommon`` times, shuffled and numbered from 1."""
    listed = words[:COMMON] * common + words[COMMON:] * uncommon
    order.shuffle(listed)
    return _count(listed)


def worked_example(stream: Stream, listed: str, words: list[str]) -> str:
    """A list with its answer."""
    context, question = lay(stream.templates.cwe, context=listed)
    return f"{context}{question}{stream.templates.cwe_prefix} {_count(words[:COMMON])}\n"


def _count(words: list[str]) -> str:
    return " ".join(f"{number}. {word}" for number, word in enumerate(words, 1))
