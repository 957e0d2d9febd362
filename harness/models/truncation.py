"""Prompts that are too long for a model: the middle of their document is left out, on token ids.

Nothing is decoded and encoded again, so what stays has the tokens that it had. The chat template, the text before the
document, the question and the answer prefix stay whole.

How much is cut depends on the model and the sample alone, not on the methods of a run, so that all variants of all runs
read the same prompt. So the room that is left after the context is that of the longest extra pass of a method, KVzip's,
where it is more than question and answer take.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.base import Sample
from harness.models.prompts import Prompts, Split
from methods.kvzip import KVzip

#: tokens of the context that an extra pass repeats, and of its instruction and the template around it
CHUNK, AROUND = KVzip.chunk, 64
#: a document of fewer tokens says nothing; a prompt that would keep fewer is not cut
LEAST = 64


def room(sample: Sample, whole: Split, most: int) -> int | None:
    """Tokens that a context may have in a model of ``most`` positions; None for a sample that is never cut."""
    if sample.cut_from is None:
        return None
    extra = AROUND + min(CHUNK, (most - AROUND) // 2)  # a context shorter than a chunk is repeated whole
    return most - max(len(whole.question) + sample.max_new_tokens, extra)


def fitted(
    prompts: Prompts, sample: Sample, most: int, query_aware: bool = False, stop_ids: frozenset[int] = frozenset()
) -> Split:
    """A sample's prompt, its document cut if need be; whole where it may not be cut, or where too little would stay.
    ``query_aware`` puts the question into the context."""
    whole = prompts.of(sample, stop_ids, query_aware)
    seen = len(sample.question) if query_aware else 0
    left, ids = room(sample, whole, most), whole.context.ids
    if sample.cut_from is None or left is None or len(ids) <= left:
        return whole
    start = whole.token_at(len(sample.context) - sample.cut_from + seen)
    stop = whole.token_at(seen)
    keep = left - (len(ids) - (stop - start))
    if keep < LEAST:
        return whole
    first, last = start + (keep + 1) // 2, stop - keep // 2
    return whole._replace(context=replace(whole.context, ids=ids[:first] + ids[last:], cut=last - first, cut_at=first))
