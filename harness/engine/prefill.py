"""One dense prefill of a context, during which every method scores every cached pair; then the extra passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from harness.engine.adapter import LanguageModel
from harness.engine.context import BLOCK_BYTES, Context, Failure, Prefix, Scored, Shown
from harness.engine.dense_forward import DenseRun, Observer
from harness.engine.extra_passes import run_pass
from harness.engine.guard import Overwritten, checked, failure_of, untouched
from methods.base import Method, Observation, Pass

Result = TypeVar("Result")


def prefill(
    lm: LanguageModel,
    context: Context,
    methods: Sequence[Method] = (),
    seed: int = 0,
    block_bytes: int = BLOCK_BYTES,
    later: Sequence[Method] = (),
) -> Scored:
    """Run the context once, dense, and score its pairs with every method; extra passes run once for all who share
    them. The cache is not changed by scoring, nor are the hidden states: where a method writes to them, it fails and
    all of it runs again without that method.

    ``later`` are methods that score with a question in view (:mod:`harness.engine.query_aware`); what that takes is
    kept.
    """
    if not context.ids:
        nothing = torch.empty(lm.info.layers, lm.info.kv_heads, 0)
        return Scored(_empty(lm, context), dict.fromkeys(ScoreBook(methods).methods, nothing))
    return without_writers(methods, lambda book: _prefill(lm, context, book, seed, block_bytes, later))


def _prefill(
    lm: LanguageModel, context: Context, book: ScoreBook, seed: int, block_bytes: int, later: Sequence[Method]
) -> Scored:
    prefix = Prefix(context, [], [], torch.empty(0))
    ids = torch.tensor([context.ids], device=lm.device)
    run_seed = context.seed(seed)
    run = DenseRun(lm, prefix, 0, run_seed, block_bytes, _observer(book, prefix, later))
    with run.engaged():
        prefix.last_hidden = lm.forward(ids, 0, run)[0]
        prefix.keys = [keys for keys, _ in run.grown]
        prefix.values = [values for _, values in run.grown]
    for extra, askers in book.passes(context).items():
        askers = [method for method in askers if method not in book.failed]
        if askers:
            failure = run_pass(lm, prefix, extra, run_seed, block_bytes, book.observer_of(extra, askers))
            if failure is not None:
                book.fail(askers, failure)
    return Scored(prefix, book.stacked(lm.info.kv_heads, len(context.ids)), book.failed)


def _observer(book: ScoreBook, prefix: Prefix, later: Sequence[Method]) -> Observer | None:
    if not later:
        return book.observe if book.methods else None
    hidden = any("hidden" in method.needs for method in later)

    def observe(seen: Observation) -> None:
        prefix.shown.append(Shown(seen.hidden if hidden else seen.hidden[:0], seen.queries))
        book.observe(seen)

    return observe


def _empty(lm: LanguageModel, context: Context) -> Prefix:
    shape = (lm.info.kv_heads, 0, lm.info.head_size)
    tensors = [torch.empty(shape, dtype=lm.dtype, device=lm.device) for _ in lm.attention]
    hidden = torch.empty(0, lm.info.hidden_size, dtype=lm.dtype, device=lm.device)
    return Prefix(context, tensors, list(tensors), hidden)


def without_writers(methods: Sequence[Method], run: Callable[[ScoreBook], Scored]) -> Scored:
    """What ``run`` scores, run again as long as a method wrote to what it was shown, without those that did."""
    writers: dict[Method, Failure] = {}
    while True:
        book = ScoreBook(methods, writers)
        scored = run(book)
        if not book.writers:
            return scored
        writers |= book.writers


class ScoreBook:
    """Collects scores layer by layer; what a layer showed is dropped before the next layer runs."""

    def __init__(self, methods: Sequence[Method], failed: Mapping[Method, Failure] | None = None) -> None:
        """``failed`` are methods that are not asked at all."""
        self.methods = [method for method in dict.fromkeys(methods) if not method.is_control]
        self.layers: dict[Method, list[Tensor]] = {method: [] for method in self.methods}
        self.failed: dict[Method, Failure] = dict(failed or {})
        #: those that wrote to what they were shown, so that the scores of others cannot be trusted
        self.writers: dict[Method, Failure] = {}

    def fail(self, methods: Sequence[Method], failure: Failure) -> None:
        self.failed |= {method: failure for method in methods if method not in self.failed}

    def passes(self, context: Context) -> dict[Pass, list[Method]]:
        """The extra passes on the context, each with the methods that score from it."""
        wanted: dict[Pass, list[Method]] = {}
        for method in self.methods:
            for extra in self._try(method, partial(method.passes, len(context.ids), context.prefix)) or ():
                wanted.setdefault(extra, []).append(method)
        return wanted

    def _try(self, method: Method, call: Callable[[], Result]) -> Result | None:
        """What a method answers, or None once it has failed: foreign code must not end the run of the others."""
        if method in self.failed or self.writers:  # after a write all of it runs again
            return None
        try:
            return call()
        except (Exception, SystemExit) as error:
            self.failed[method] = failure_of(error)
            if isinstance(error, Overwritten):
                self.writers[method] = self.failed[method]
        return None

    def observe(self, seen: Observation) -> None:
        for method in self.methods:
            scores = self._try(method, partial(_scores, method, seen))
            if scores is not None:
                self.layers[method].append(scores)

    def observer_of(self, extra: Pass, askers: list[Method]) -> Observer:
        def observe(seen: Observation) -> None:
            for method in askers:
                scores = self._try(method, partial(_pass_scores, method, seen, extra))
                if scores is not None:
                    self.layers[method][seen.layer][:, slice(*extra.columns)] = scores

        return observe

    def stacked(self, heads: int, cached: int) -> dict[Method, Tensor]:
        """``[L, H, T]`` of every method that did not fail; L is 0 where all layers have a sliding window."""
        done = ((method, self.layers[method]) for method in self.methods if method not in self.failed)
        return {method: torch.stack(layers) if layers else torch.empty(0, heads, cached) for method, layers in done}


def _scores(method: Method, seen: Observation) -> Tensor:
    with untouched(method, seen):
        scores = method.score(seen)
    return checked(method, scores, (seen.keys.shape[0], seen.cached))


def _pass_scores(method: Method, seen: Observation, extra: Pass) -> Tensor:
    start, stop = extra.columns
    with untouched(method, seen):
        scores = method.score_pass(seen, extra)
    return checked(method, scores, (seen.keys.shape[0], stop - start))
