"""Scores of a context's pairs with a question in view, from one short forward over the cache of its prefill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch

from harness.engine.adapter import LanguageModel
from harness.engine.context import BLOCK_BYTES, Context, Prefix, Scored
from harness.engine.dense_forward import DenseRun
from harness.engine.prefill import ScoreBook, without_writers
from methods.base import Method, Observation


def score_in_view(
    lm: LanguageModel,
    prefix: Prefix,
    question: tuple[int, ...],
    methods: Sequence[Method],
    seed: int = 0,
    block_bytes: int = BLOCK_BYTES,
) -> Scored:
    """Scores ``[L, H, T]`` as a prefill of context and question would give them, its T columns of the context alone.

    Only the question runs, as a dense forward at T, T + 1, ...; each layer then shows the methods the joined sequence:
    hidden states and queries that the prefill kept (its ``later`` named these methods) and the question's behind them.
    Since a dense context does not see what follows it, that is what a prefill of both shows, for any method. The
    question's keys and values are dropped; ``prefix`` stays as it is.
    """
    if not prefix.cached:
        return Scored(prefix, {method: torch.empty(lm.info.layers, lm.info.kv_heads, 0) for method in methods})
    joined = Context((*prefix.context.ids, *question), prefix.context.prefix)

    def scored(book: ScoreBook) -> Scored:
        run = DenseRun(lm, prefix, prefix.cached, joined.seed(seed), block_bytes, partial(observe, book))
        with run.engaged():
            lm.forward(torch.tensor([question], device=lm.device), prefix.cached, run)
        scores = book.stacked(lm.info.kv_heads, len(joined.ids))
        return Scored(prefix, {m: of[:, :, : prefix.cached].contiguous() for m, of in scores.items()}, book.failed)

    def observe(book: ScoreBook, seen: Observation) -> None:
        before = prefix.shown[seen.layer]
        whole = replace(
            seen,
            hidden=torch.cat([before.hidden, seen.hidden]) if len(before.hidden) else before.hidden,
            queries=torch.cat([before.queries, seen.queries], dim=1),
            positions=torch.arange(seen.cached, device=seen.positions.device),
        )
        book.observe(whole)

    return without_writers(methods, scored)
