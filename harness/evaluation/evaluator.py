"""Samples x variants -> result lines. One prefill a context, one batched decode a question."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from benchmarks.base import Benchmark, Sample
from benchmarks.thinking_tags import after_thought
from harness.config.variants import Planned
from harness.engine.adapter import LanguageModel
from harness.engine.batch import Batch
from harness.engine.context import BLOCK_BYTES, Context, Failure, Scored, unless_out_of_memory
from harness.engine.decode import Answer, Question, decode_all
from harness.engine.oom_batching import AtOnce
from harness.engine.prefill import prefill
from harness.engine.sampling import Sampling
from harness.evaluation import teacher_forced
from harness.evaluation.accounting import accounting, accounting_of_parts, histograms, number_questions
from harness.evaluation.keep_masks import Masks
from harness.evaluation.pruned_context import batch_of
from harness.evaluation.query_aware_masks import QuestionMasks, later_methods, once_methods
from harness.models import truncation
from harness.models.prompts import Prompts, Split, cut
from harness.results.schema import Line
from harness.results.score_histograms import Histogram

#: takes the masks of a sample: its item and context, the variants, their masks in the same order
MaskSink = Callable[["Item", Context, Sequence[Planned], Masks], None]
HistogramSink = Callable[[Histogram], None]
#: fields of a line
Fields = dict[str, Any]


class Item(NamedTuple):
    """A sample and the benchmark that scores it."""

    benchmark: Benchmark
    sample: Sample


class Prompt(NamedTuple):
    """A sample as the model reads it."""

    item: Item
    split: Split


class Ask(NamedTuple):
    """What is still to be made of a sample: its question, and the variants that lack a line of any rollout."""

    item: Item
    question: Question
    missing: frozenset[Planned]


class Prefilled(NamedTuple):
    """A context after its prefill.

    masks        those of the ``planned`` variants for each question
    histograms   those of the scores, under the context's first sample
    """

    context: Context
    planned: list[Planned]
    scored: Scored
    masks: QuestionMasks
    histograms: list[Histogram]


@dataclass
class Evaluator:
    """Everything that stays the same over a run.

    done     keys of lines that are there already and are not made again
    masked   ids of samples whose masks are requested, those of all variants, also where no line is missing
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
        self, items: Sequence[Item], histogram: HistogramSink | None = None, masks: MaskSink | None = None
    ) -> Iterator[Line]:
        """The missing lines, sample by sample, variants in their planned order. Samples on one context must be
        neighbours; they share its prefill. ``masks`` is given the masks right after the prefill of each sample of
        ``masked`` whose prompt fits, before its lines."""
        for _, neighbours in itertools.groupby(map(self._prompt, items), key=self._cache_key):
            group = list(neighbours)
            lines = self._context(group, histogram or (lambda row: None), masks or (lambda *made: None))
            several = bool(group[0].item.benchmark.query_modes)
            yield from number_questions([item.sample for item, _ in group], lines) if several else lines

    def _prompt(self, item: Item) -> Prompt:
        most = self.lm.max_positions
        return Prompt(item, truncation.fitted(self.prompts, item.sample, most, self.query_aware, self.stop_ids))

    def _cache_key(self, prompt: Prompt) -> tuple[str, str, str, Context]:
        """What prompts that share a prefill have in common. A question whose first token takes a character of the
        context has a context of its own."""
        sample = prompt.item.sample
        own = sample.sample_id if self.query_aware else ""  # the question is part of what is pruned
        return prompt.item.benchmark.name, sample.context_id, own, prompt.split.context

    def _context(self, group: list[Prompt], histogram: HistogramSink, masks: MaskSink) -> Iterator[Line]:
        """The missing lines of all samples on one context."""
        missing = [self._missing(item) for item, _ in group]
        if not any(missing) and self.masked.isdisjoint(item.sample.sample_id for item, _ in group):
            return
        asks = [Ask(one.item, self._question(one), own) for one, own in zip(group, missing, strict=True)]
        context = group[0].split.context
        fitting = []
        for ask in asks:
            if failure := self._too_long(ask, context):
                yield from self._failed(ask, context, failure)
            else:
                fitting.append(ask)
        wanted = [ask for ask in fitting if ask.missing or ask.item.sample.sample_id in self.masked]
        if not wanted:
            return
        file_under = group[0].item.sample.sample_id
        prefilled = unless_out_of_memory(self._prefill, context, wanted, fitting[0].question, file_under)
        if isinstance(prefilled, Failure):
            for ask in wanted:
                yield from self._failed(ask, context, prefilled)
            return
        for found in prefilled.histograms:
            histogram(found)
        for ask in wanted:
            lines = unless_out_of_memory(self._answer, ask, prefilled, masks)
            yield from self._failed(ask, context, lines) if isinstance(lines, Failure) else lines

    def _missing(self, item: Item) -> frozenset[Planned]:
        return frozenset(p for p in self.planned if not all(key in self.done for key in self._keys(item, p)))

    def _keys(self, item: Item, planned: Planned) -> list[tuple[str, str, int]]:
        return [(item.sample.sample_id, planned.variant.label, n) for n in range(item.sample.rollouts)]

    def _question(self, prompt: Prompt) -> Question:
        sample = prompt.item.sample
        return Question(
            prompt.split.question,
            sample.max_new_tokens,
            self.stop_ids,
            lambda ids: bool(sample.stop) and any(mark in self.prompts.decode(ids) for mark in sample.stop),
            sampling_of(sample, self.seed),
        )

    def _too_long(self, ask: Ask, context: Context) -> Failure | None:
        kind = ask.item.benchmark.teacher_forced
        more = teacher_forced.longest(kind, ask.item.sample, context, ask.question)
        obstacle = self.lm.obstacle(len(context.ids), len(context.ids) + more)
        return Failure("truncated", f"prompt and answer: {obstacle}") if obstacle else None

    def _prefill(self, context: Context, asks: Sequence[Ask], first: Question, file_under: str) -> Prefilled:
        """``first`` is the context's first question, also where it is answered already; histograms are filed under a
        sample."""
        forced = bool(asks[0].item.benchmark.teacher_forced)  # all rows, since figures depend on them in last digits
        whole = forced or any(ask.item.sample.sample_id in self.masked for ask in asks)
        missing = frozenset().union(*(ask.missing for ask in asks))
        planned = [one for one in self.planned if whole or one in missing]
        in_view = not self.query_aware
        once, later = once_methods(planned, in_view), later_methods(planned) if in_view else []
        scored = prefill(self.lm, context, once, self.seed, self.block_bytes, later)
        masks = QuestionMasks(self.lm, planned, scored, first.ids, self.seed, self.block_bytes, in_view)
        bins = list(histograms(file_under, planned, scored, context.prefix))
        return Prefilled(context, planned, scored, masks, bins)

    def _answer(self, ask: Ask, on: Prefilled, sink: MaskSink) -> list[Line]:
        """The missing lines of one sample."""
        item, masks = ask.item, on.masks.of(ask.question.ids)
        if item.sample.sample_id in self.masked:
            sink(item, on.context, on.planned, masks)
        if not ask.missing:
            return []
        made = self._read(ask, on, masks) if item.benchmark.teacher_forced else self._decode(ask, on, masks)
        if isinstance(made, Failure):
            return list(self._failed(ask, on.context, made))
        lines = []
        for index, planned in enumerate(on.planned):
            for rollout in self._lacking(ask, planned):
                if failure := masks.failed.get(index):
                    fields: Fields = {"status": failure.status, "reason": failure.reason}
                else:
                    bound = "protection" if masks.bound[index] else None
                    status = "too_short" if masks.short[index] else "ok"
                    fields = {"status": status, "bound_by": bound, **made[index][rollout]}
                lines.append(self._line(item, planned, on.context, rollout, fields))
        return lines

    def _decode(self, ask: Ask, on: Prefilled, masks: Masks) -> dict[int, list[Fields]]:
        """By the index of a missing variant that did not fail: what its lines say of each rollout's answer."""
        running = [i for i, one in enumerate(on.planned) if one in ask.missing and i not in masks.failed]
        if not running:
            return {}
        answers = decode_all(self._batch(running, on, masks), ask.question, ask.item.sample.rollouts)
        return {
            index: [self._answered(ask, on.planned[index], masks.keep[index], answer) for answer in own]
            for index, own in zip(running, answers, strict=True)
        }

    def _answered(self, ask: Ask, planned: Planned, keep: Tensor, answer: Answer) -> Fields:
        benchmark, sample = ask.item
        text = cut(self.prompts.decode(answer.ids), sample.stop)
        fields = {
            "prediction": text,
            "finish_reason": None if answer.failure else answer.finish_reason,
            "generated_tokens": len(answer.ids),
            **({"bound_by": "protection"} if answer.bound else {}),
            **accounting(keep, len(ask.question.ids), answer.kept),
        }
        if answer.failure is not None:
            return {**fields, **answer.failure._asdict()}
        if answer.finish_reason == "nan":
            return {**fields, "status": "nan", "reason": teacher_forced.BROKEN}
        score = benchmark.score(sample, after_thought(text, True) if planned.variant.thinking else text)
        return {**fields, "score": score.score, "metrics": score.metrics}

    def _read(self, ask: Ask, on: Prefilled, masks: Masks) -> dict[int, list[Fields]] | Failure:
        """As :meth:`_decode`, where all variants read the same reference."""
        benchmark, sample = ask.item
        kind, scored = benchmark.teacher_forced, on.scored
        read = teacher_forced.reference(kind, sample, ask.question, self.lm, scored.prefix, self.block_bytes)
        running = [i for i in range(len(on.planned)) if i not in masks.failed]
        results = teacher_forced.read(self._batch(running, on, masks), read)
        if isinstance(results, Failure):
            return results
        same = {
            "prediction": None if read.answer is None else cut(self.prompts.decode(read.answer), sample.stop),
            "finish_reason": read.finish_reason,
            "generated_tokens": read.tokens,
            "max_new_tokens": None if kind == "repeat" else sample.max_new_tokens,
        }
        return {
            index: [{**same, **accounting_of_parts(masks.keep[index], result.kept), **result.outcome}]
            for index, result in zip(running, results, strict=True)
        }

    def _batch(self, running: Sequence[int], on: Prefilled, masks: Masks) -> Batch:
        own = [on.planned[i] for i in running]
        return batch_of(self.lm, own, on.scored, masks.keep[running], self.seed, self.block_bytes, self.at_once)

    def _lacking(self, ask: Ask, planned: Planned) -> list[int]:
        """The rollouts of which a variant has no line."""
        if planned not in ask.missing:
            return []
        return [rollout for rollout, key in enumerate(self._keys(ask.item, planned)) if key not in self.done]

    def _failed(self, ask: Ask, context: Context, failure: Failure) -> Iterator[Line]:
        fields = {"status": failure.status, "reason": failure.reason}
        for planned in self.planned:
            for rollout in self._lacking(ask, planned):
                yield self._line(ask.item, planned, context, rollout, fields)

    def _line(self, item: Item, planned: Planned, context: Context, rollout: int, fields: Fields) -> Line:
        """A line, checked: a score outside 0 to 100 is a fault of the benchmark."""
        sample = item.sample
        place: Fields = {
            **planned.variant.fields(),
            "requested_removed": planned.requested_removed,
            "sample_id": sample.sample_id,
            "context_id": sample.context_id,
            "benchmark": item.benchmark.name,
            "subset": sample.subset,
            "length": sample.length,
            "rollout": rollout,
            "prompt_cut": context.cut > 0,
            **({"uncut_tokens": len(context.ids) + context.cut, "cut_at": context.cut_at} if context.cut else {}),
            "context_tokens": len(context.ids),
            "max_new_tokens": sample.max_new_tokens,
            "sampling": sample.sampling,
        }
        return Line(**{**place, **fields})


def sampling_of(sample: Sample, seed: int) -> Sampling | None:
    """How a sample's tokens are sampled. Noise comes from the run's seed and the problem, so it is the same for all
    variants. Settings that mean nothing: :class:`EngineError`."""
    if sample.sampling is None:
        return None
    return Sampling(
        temperature=sample.sampling["temperature"],
        stream=f"{seed}/{sample.sample_id}",
        top_p=sample.sampling.get("top_p", 1.0),
        top_k=int(sample.sampling.get("top_k", 0)),
    )
