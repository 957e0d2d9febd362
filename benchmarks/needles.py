"""Needles: our own retrieval test that a small model can do, not part of RULER: one of 1 to 8 codes is asked for."""

from __future__ import annotations

import random

from benchmarks.base import Benchmark, BenchmarkError, Request, Sample, Score, Text, content_hash
from benchmarks.prompt_filling import largest_fit
from benchmarks.registry import register

ANSWER_ROOM = 24
DIGITS = 7

INTRO = (
    "Several access codes are written down somewhere in these notes. "
    "Remember them, because one of them will be asked for at the end.\n"
)
LINE = "The rain has stopped. A dog barks in the yard. The bread is still warm. Nobody is in a hurry today.\n"
NEEDLE = "Note: the access code of {key} is: {value}.\n"
QUESTION = "Which access code do the notes give for {key}?"
ANSWER_PREFIX = " The access code of {key} is:"
_WORDS = """
anchor basket bottle bridge button candle carpet castle copper dragon engine feather forest garden hammer island ladder
lemon market mirror orange pencil pepper planet pocket rabbit river saddle silver summer ticket tiger valley violin
window winter
"""
#: common words: a small model mixes up rare or joined ones
KEYS = tuple(_WORDS.split())


@register
class Needles(Benchmark):
    """``keys_n``: n keys with a 7-digit value each, at random depths in repeated lines; the question is for one.

    Lengths are in tokens of the model's tokenizer, from 256. A sample is filled by the rule of RULER: context, question
    and answer prefix, encoded as one text, plus 24 tokens for the answer take at most the length, and one more haystack
    line would exceed it. The tokens of a chat template are not counted and come on top.
    Score: 100 if the value is in the answer, else 0.
    """

    name = "needles"
    summary = (
        "1 to 8 keys with numbers in repeated lines, one is asked for; our own wording, answerable by small models"
    )
    licence = "the project's own"
    version = "1"
    subsets = ("keys_1", "keys_2", "keys_4", "keys_8")
    default_lengths = (1024,)
    shortest = 256
    default_limit = 100
    shareable = True

    def check(self, request: Request) -> None:
        if request.data is not None:
            raise BenchmarkError(f"needles is generated and takes no --data (got {request.data}); leave --data out")
        super().check(request)

    def samples(self, request: Request, text: Text) -> list[Sample]:
        self.check(request)
        count = request.limit or self.default_limit
        wanted = [name for name in self.subsets if name in request.subsets or not request.subsets]
        return [
            _sample(subset, length, request.seed, index, text)
            for length in request.lengths or self.default_lengths
            for subset in wanted
            for index in range(count)
        ]

    def score(self, sample: Sample, prediction: str) -> Score:
        found = all(reference.lower() in prediction.lower() for reference in sample.references)
        return Score(100.0 if found else 0.0)


def _sample(subset: str, length: int, seed: int, index: int, text: Text) -> Sample:
    """Sample ``index``, from its own random stream, so that no other request changes it."""
    rng = random.Random(f"needles/{Needles.version}/{subset}/{length}/{seed}/{index}")
    count = int(subset.removeprefix("keys_"))
    keys = rng.sample(KEYS, count)
    values = [str(value) for value in rng.sample(range(10 ** (DIGITS - 1), 10**DIGITS), count)]
    depths = [rng.random() for _ in keys]
    asked = rng.randrange(count)
    question, prefix = QUESTION.format(key=keys[asked]), ANSWER_PREFIX.format(key=keys[asked])

    def context(lines: int) -> str:
        # a depth is a fraction of the haystack, so that the same needles can be put into any number of lines
        places = sorted((int(depth * (lines + 1)), i) for i, depth in enumerate(depths))
        parts = [LINE] * lines
        for place, i in reversed(places):
            parts.insert(place, NEEDLE.format(key=keys[i], value=values[i]))
        return INTRO + "".join(parts)

    def cost(lines: int) -> int:
        return len(text.encode(context(lines) + question + prefix))

    room = length - ANSWER_ROOM
    guess = (room - cost(0)) // max(1, len(text.encode(LINE)))
    lines = largest_fit(cost, room, guess, least=1, what=f"needles {subset} at {length} tokens")
    return Sample(
        sample_id=f"needles/{subset}/{length}/{seed}/{index}",
        context_id=content_hash(context(lines)),
        context=context(lines),
        question=question,
        answer_prefix=prefix,
        max_new_tokens=ANSWER_ROOM,
        references=(values[asked],),
        subset=subset,
        length=length,
    )
