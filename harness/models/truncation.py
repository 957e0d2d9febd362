"""Prompts that are too long for a model: the middle of their document is left out, on token ids.

Nothing is decoded and encoded again, so what stays has the tokens that it had. The chat template, the text before the
document, the question and the answer prefix stay whole.

How much is cut depends on the model and the sample alone, not on the methods of a run, so that all variants of all runs
read the same prompt. So the room that is left after the context is that of the longest extra pass of a method, KVzip's,
where it is more than question and answer take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.base import Sample
from harness.engine.context import Context
from harness.models.prompts import Prompts
from methods.kvzip import KVzip

#: tokens of the context that an extra pass repeats, and of its instruction and the template around it
CHUNK, AROUND = KVzip.chunk, 64
#: a document of fewer tokens says nothing; a prompt that would keep fewer is not cut
LEAST = 64


def room(prompts: Prompts, sample: Sample, most: int, query_aware: bool = False) -> int | None:
    """Tokens that a context may have in a model of ``most`` positions; None for a sample that is never cut."""
    if sample.cut_from is None:
        return None
    asked = "" if query_aware else sample.question
    question = prompts.question(asked, sample.answer_prefix, sample.chat_template)
    extra = AROUND + min(CHUNK, (most - AROUND) // 2)  # a context shorter than a chunk is repeated whole
    return most - max(len(question) + sample.max_new_tokens, extra)


def fitted(
    prompts: Prompts, sample: Sample, most: int, query_aware: bool = False, stop_ids: frozenset[int] = frozenset()
) -> Context:
    """A sample's context, cut if need be; whole where it may not be cut, or where too little would stay."""
    seen = sample.question if query_aware else ""
    whole = prompts.context(sample.context + seen, sample.chat_template, stop_ids)
    left = room(prompts, sample, most, query_aware)
    if left is None or len(whole.ids) <= left:
        return whole
    head = prompts.context(sample.context[: sample.cut_from], sample.chat_template)
    start = _shared(head.ids, whole.ids)
    stop = len(whole.ids) - _shared(prompts.encode(seen)[::-1], whole.ids[::-1])
    keep = left - (len(whole.ids) - (stop - start))
    if keep < LEAST:
        return whole
    first = start + (keep + 1) // 2
    last = stop - keep // 2
    return replace(whole, ids=whole.ids[:first] + whole.ids[last:], cut=last - first)


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """How many ids two sequences start with alike."""
    pairs = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
