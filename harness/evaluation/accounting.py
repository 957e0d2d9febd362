"""The accounts of an answer: pairs kept, fractions removed, prefills paid; and the histograms of a context's scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from benchmarks.base import Sample
from harness.config.run_config import AWARE
from harness.config.variants import Planned
from harness.engine.context import Scored
from harness.results.schema import Line
from harness.results.score_histograms import Histogram

#: bins of a stored score histogram; scores outside the method's range fall into the first or the last
BINS = 240


def accounting(keep: Tensor, question_tokens: int, kept_after: Sequence[int]) -> dict[str, int | float]:
    """Pairs kept and removed fractions of one answer.

    keep         ``[L, H, T]`` right after the prefill
    kept_after   pairs still seen after each forward that followed, the first with the question, each other with a token

    What ends with ``_total`` is over everything cached after the last of them.
    """
    heads, cached = keep.shape[0] * keep.shape[1], keep.shape[2]
    pairs, kept = heads * cached, int(keep.sum())
    seen = [heads * (cached + question_tokens + step) for step in range(len(kept_after))]
    removed = [(all_ - left) / all_ if all_ else 0.0 for all_, left in zip(seen, kept_after, strict=True)]
    return {
        "cached_pairs": pairs,
        "kept_pairs": kept,
        "cached_pairs_total": seen[-1],
        "kept_pairs_total": kept_after[-1],
        "removed_context": (pairs - kept) / pairs if pairs else 0.0,
        "removed_total": removed[-1],
        "removed_time_mean": sum(removed) / len(removed),
    }


def accounting_of_parts(keep: Tensor, parts: Sequence[tuple[int, Sequence[int]]]) -> dict[str, int | float]:
    """:func:`accounting` where each part, its question's tokens and the pairs kept after each step, started from the
    pruned context: the mean over time is over all steps, the totals are those after the last part."""
    each = [accounting(keep, *part) for part in parts]
    steps = [len(kept) for _, kept in parts]
    mean = sum(one["removed_time_mean"] * count for one, count in zip(each, steps, strict=True)) / sum(steps)
    return {**each[-1], "removed_time_mean": mean}


def number_questions(samples: Sequence[Sample], lines: Iterable[Line]) -> Iterator[Line]:
    """Lines of one context with the place of their question among its ``samples``, and the prefills of the context that
    a deployment pays for the answer.

    A pruned cache answers every question that it was pruned for, so the first question pays for it; in mode ``aware``
    each question needs the full cache again, which is gone once the context is pruned. Extra passes are not prefills.
    """
    places = {sample.sample_id: place for place, sample in enumerate(samples)}
    for line in lines:
        place = places[line.sample_id]
        pays = line.rollout == 0 and (place == 0 or line.query_mode == AWARE)
        yield line.model_copy(update={"question_index": place, "prefills_paid": int(pays)})


def histograms(sample_id: str, planned: Sequence[Planned], scored: Scored, prefix: int) -> Iterator[Histogram]:
    """For each method whose thresholds mean something: counts of the scores of pairs that its protection leaves open.

    What a threshold would remove is the share of ``counts`` below it in ``cached`` pairs.
    """
    seen = set()
    for variant, method, _ in planned:
        if method.score_range is None or method not in scored.scores or not scored.prefix.cached:
            continue
        protection = variant.protection() | method.mechanism_for(scored.prefix.cached)
        if (method, protection) in seen:
            continue
        seen.add((method, protection))
        scores = scored.scores[method]
        low, high = method.score_range
        open_to = ~protection.mask(scores.shape[-1], prefix)
        counts = torch.histc(scores[:, :, open_to].clamp(low, high), BINS, low, high)
        yield Histogram(
            sample_id=sample_id,
            method=method.name,
            options=variant.options,
            window=variant.window,
            sinks=variant.sinks,
            low=low,
            high=high,
            counts=counts.int().tolist(),
            cached=scores.numel(),
        )
