"""Samples x variants -> result lines. One prefill a context, one batched decode a question."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.base import Benchmark, Sample
from benchmarks.thinking_tags import after_thought
from harness.config.query_modes import numbered
from harness.config.variants import Planned
from harness.engine.adapter import LanguageModel
from harness.engine.batch import Batch
from harness.engine.context import BLOCK_BYTES, Context, Failure, Scored, out_of_memory
from harness.engine.decode import Answer, Question, decode_all
from harness.engine.oom_batching import AtOnce
from harness.engine.prefill import prefill
from harness.engine.sampling import Sampling
from harness.evaluation import teacher_forced
from harness.evaluation.keep_masks import Masks
from harness.evaluation.pruned_context import batch_of
from harness.evaluation.query_aware_masks import QuestionMasks, later_methods, once_methods
from harness.models import truncation
from harness.models.prompts import Prompts, cut
from harness.results.run_folder import Line

#: bins of a stored score histogram; scores outside the method's range fall into the first or the last
BINS = 240
#: takes the masks of a sample: its item and context, the variants, their masks in the same order
MaskSink = Callable[["Item", Context, Sequence[Planned], Masks], None]


class Item(NamedTuple):
    """A sample and the benchmark that scores it."""

    benchmark: Benchmark
    sample: Sample


@dataclass
class Evaluator:
    """Everything that stays the same over a run.

    done     keys of lines that are there already and are not made again
    masked   ids of samples whose masks are asked for, those of all variants, also where no line is missing
    at_once  how many rows run together, less once memory has run out
    """

    lm: LanguageModel
    prompts: Prompts
    stop_ids: frozenset[int]
    planned: Sequence[Planned]
    seed: int = 0
    query_aware: bool = False
    block_bytes: int = BLOCK_BYTES
    done: frozenset[tuple[str, str, int]] = frozenset()
    masked: frozenset[str] = frozenset()
    at_once: AtOnce = field(default_factory=AtOnce)

    def run(
        self,
        items: Sequence[Item],
        histogram: Callable[[dict[str, Any]], None] | None = None,
        masks: MaskSink | None = None,
    ) -> Iterator[Line]:
        """The missing lines, sample by sample, variants in their planned order. Samples on one context must be
        neighbours; they share its prefill. ``masks`` is given the masks right after the prefill of each sample of
        ``masked`` whose prompt fits, before its lines."""
        for _, neighbours in itertools.groupby(items, key=self._cache_key):
            group = list(neighbours)
            lines = self._context(group, histogram or (lambda row: None), masks or (lambda *made: None))
            yield from numbered([i.sample for i in group], lines) if group[0].benchmark.query_modes else lines

    def _cache_key(self, item: Item) -> tuple[str, str, bool, str, int | None]:
        sample = item.sample
        own = sample.sample_id if self.query_aware else ""  # the question is part of what is pruned
        room = truncation.room(self.prompts, sample, self.lm.max_positions)  # and this of how a document is cut
        return item.benchmark.name, sample.context_id, sample.chat_template, own, room

    def _context(
        self, group: list[Item], histogram: Callable[[dict[str, Any]], None], masks: MaskSink
    ) -> Iterator[Line]:
        everything, first = group, group[0].sample.sample_id
        group = [item for item in group if self._missing(item) or item.sample.sample_id in self.masked]
        if not group:
            return
        context, questions = self._tokenise(group)
        asked = []
        for item, question in zip(group, questions, strict=True):
            too_long = self._too_long(item, context, question)
            if too_long:
                yield from self._all_failed(item, context, too_long)
            else:
                asked.append((item, question))
        if not asked:
            return
        forced = bool(group[0].benchmark.teacher_forced)  # always all rows, since figures depend on them in last digits
        whole = forced or any(item.sample.sample_id in self.masked for item, _ in asked)
        planned = [p for p in self.planned if whole or any(p in self._missing(item) for item, _ in asked)]
        make = self._forced if forced else self._question
        in_view = not self.query_aware
        once, later = once_methods(planned, in_view), later_methods(planned) if in_view else []
        earliest = next(q for item in everything if not self._too_long(item, context, q := self._ask(item.sample)))
        try:
            scored = prefill(self.lm, context, once, self.seed, self.block_bytes, later)
            made = QuestionMasks(self.lm, planned, scored, earliest.ids, self.seed, self.block_bytes, in_view)
            for row in histograms(planned, scored, context.prefix):
                histogram({"sample_id": first, **row})
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            for item, _ in asked:
                yield from self._all_failed(item, context, _oom(error))
            return
        for item, question in asked:
            try:
                found = made.of(question.ids)
                if item.sample.sample_id in self.masked:
                    masks(item, context, planned, found)
                missing = self._missing(item)
                lines = list(make(item, question, context, scored, planned, found)) if missing else []
            except (MemoryError, RuntimeError) as error:
                if not out_of_memory(error):
                    raise
                lines = list(self._all_failed(item, context, _oom(error)))
            yield from lines

    def _too_long(self, item: Item, context: Context, question: Question) -> Failure | None:
        kind = item.benchmark.teacher_forced
        more = teacher_forced.longest(kind, item.sample, context, question)
        obstacle = self.lm.obstacle(len(context.ids), len(context.ids) + more)
        return Failure("truncated", f"prompt and answer: {obstacle}") if obstacle else None

    def _tokenise(self, group: list[Item]) -> tuple[Context, list[Question]]:
        most = self.lm.max_positions
        context = truncation.fitted(self.prompts, group[0].sample, most, self.query_aware, self.stop_ids)
        return context, [self._ask(item.sample) for item in group]

    def _ask(self, sample: Sample) -> Question:
        asked = "" if self.query_aware else sample.question
        return Question(
            self.prompts.question(asked, sample.answer_prefix, sample.chat_template),
            sample.max_new_tokens,
            self.stop_ids,
            lambda ids: bool(sample.stop) and any(mark in self.prompts.decode(ids) for mark in sample.stop),
            sampling_of(sample, self.seed),
        )

    def _missing(self, item: Item) -> list[Planned]:
        """Variants that lack a line of any rollout."""
        return [p for p in self.planned if not all(key in self.done for key in self._keys(item, p))]

    def _keys(self, item: Item, planned: Planned) -> list[tuple[str, str, int]]:
        return [(item.sample.sample_id, planned.variant.label, n) for n in range(item.sample.rollouts)]

    def _question(
        self, item: Item, question: Question, context: Context, scored: Scored, planned: list[Planned], made: Masks
    ) -> Iterator[Line]:
        missing = set(self._missing(item))
        wanted = [i for i, p in enumerate(planned) if p in missing]
        running = [i for i in wanted if i not in made.failed]
        answers: list[list[Answer]] = []
        if running:
            answers = decode_all(self._batch(running, scored, planned, made), question, item.sample.rollouts)
        by_index = dict(zip(running, answers, strict=True))
        for i in wanted:
            for rollout, key in enumerate(self._keys(item, planned[i])):
                if key in self.done:
                    continue
                line = self._line(item, planned[i], context, rollout)
                if i in made.failed:
                    yield line.model_copy(update={"status": made.failed[i].status, "reason": made.failed[i].reason})
                else:
                    yield self._answered(line, item, question, by_index[i][rollout], made, i)

    def _forced(
        self, item: Item, question: Question, context: Context, scored: Scored, planned: list[Planned], made: Masks
    ) -> Iterator[Line]:
        """Lines of a sample whose variants all read the same reference."""
        kind = item.benchmark.teacher_forced
        read = teacher_forced.reference(kind, item.sample, question, self.lm, scored.prefix, self.block_bytes)
        running = [i for i in range(len(planned)) if i not in made.failed]
        results = teacher_forced.read(self._batch(running, scored, planned, made), read)
        if isinstance(results, Failure):
            yield from self._all_failed(item, context, results)
            return
        by_index, missing = dict(zip(running, results, strict=True)), self._missing(item)
        for i in (i for i, one in enumerate(planned) if one in missing):
            line = self._line(item, planned[i], context, 0)
            if i in made.failed:
                yield line.model_copy(update={"status": made.failed[i].status, "reason": made.failed[i].reason})
                continue
            found = {
                "status": "too_short" if made.short[i] else "ok",
                "prediction": None if read.answer is None else cut(self.prompts.decode(read.answer), item.sample.stop),
                "finish_reason": read.finish_reason,
                "generated_tokens": read.tokens,
                "max_new_tokens": None if kind == "repeat" else line.max_new_tokens,
                "bound_by": "protection" if made.bound[i] else None,
                **accounting_of_parts(made.keep[i], by_index[i].kept),
                **by_index[i].outcome,
            }
            yield Line(**{**line.model_dump(), **found})

    def _batch(self, running: list[int], scored: Scored, planned: list[Planned], made: Masks) -> Batch:
        own = [planned[i] for i in running]
        return batch_of(self.lm, own, scored, made.keep[running], self.seed, self.block_bytes, self.at_once)

    def _line(self, item: Item, planned: Planned, context: Context, rollout: int) -> Line:
        sample = item.sample
        return Line(
            **planned.variant.fields(),
            requested_removed=planned.requested_removed,
            sample_id=sample.sample_id,
            context_id=sample.context_id,
            benchmark=item.benchmark.name,
            subset=sample.subset,
            length=sample.length,
            rollout=rollout,
            status="ok",
            prompt_cut=context.cut > 0,
            context_tokens=len(context.ids),
            max_new_tokens=sample.max_new_tokens,
            sampling=sample.sampling,
        )

    def _answered(self, line: Line, item: Item, question: Question, answer: Answer, made: Masks, index: int) -> Line:
        text = cut(self.prompts.decode(answer.ids), item.sample.stop)
        if answer.finish_reason == "nan":
            outcome: dict[str, Any] = {"status": "nan", "reason": "the model's logits hold a NaN"}
        else:
            score = item.benchmark.score(item.sample, after_thought(text, True) if line.thinking else text)
            outcome = {"score": score.score, "metrics": score.metrics}
            outcome["status"] = "too_short" if made.short[index] else "ok"
        found = {
            "prediction": text,
            "finish_reason": answer.finish_reason,
            "generated_tokens": len(answer.ids),
            "bound_by": "protection" if made.bound[index] else None,
            **accounting(made.keep[index], len(question.ids), answer.kept),
            **outcome,
        }
        return Line(**{**line.model_dump(), **found})  # checked: a score outside 0-100 is a fault of the benchmark

    def _all_failed(self, item: Item, context: Context, failure: Failure) -> Iterator[Line]:
        for planned in self._missing(item):
            for rollout, key in enumerate(self._keys(item, planned)):
                if key not in self.done:
                    line = self._line(item, planned, context, rollout)
                    yield line.model_copy(update={"status": failure.status, "reason": failure.reason})


def sampling_of(sample: Sample, seed: int) -> Sampling | None:
    """How a sample's tokens are drawn. Noise comes from the run's seed and the problem, so it is the same for all
    variants. Settings that mean nothing: :class:`EngineError`."""
    if sample.sampling is None:
        return None
    return Sampling(
        temperature=sample.sampling["temperature"],
        stream=f"{seed}/{sample.sample_id}",
        top_p=sample.sampling.get("top_p", 1.0),
        top_k=int(sample.sampling.get("top_k", 0)),
    )


def _oom(error: BaseException) -> Failure:
    return Failure("oom", str(error) or "out of memory")


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


def histograms(planned: Sequence[Planned], scored: Scored, prefix: int) -> Iterator[dict[str, Any]]:
    """For each method whose thresholds mean something: counts of the scores of pairs that its protection leaves open.

    What a threshold would remove is the share of ``counts`` below it in ``cached`` pairs.
    """
    seen = set()
    for variant, method, _ in planned:
        if method.score_range is None or method not in scored.scores:
            continue
        protection = variant.protection() | method.mechanism_for(scored.prefix.cached)
        if (method, protection) in seen:
            continue
        seen.add((method, protection))
        scores = scored.scores[method]
        low, high = method.score_range
        open_to = ~protection.mask(scores.shape[-1], prefix)
        counts = torch.histc(scores[:, :, open_to].clamp(low, high), BINS, low, high)
        yield {
            "method": method.name,
            "options": variant.options,
            "window": variant.window,
            "sinks": variant.sinks,
            "low": low,
            "high": high,
            "counts": counts.int().tolist(),
            "cached": scores.numel(),
        }
