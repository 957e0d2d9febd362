"""Timing of a sweep: all variants from one prefill against one variant at a time with a prefill of its own."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import torch

import benchmarks.registry
from benchmarks.base import Request, Sample
from harness.config.grid import Grid, plan
from harness.config.variants import Planned
from harness.engine.adapter import LanguageModel, describe
from harness.engine.context import Context, check_positions
from harness.engine.decode import Question, decode
from harness.engine.prefill import prefill
from harness.errors import HarnessError
from harness.evaluation import provenance
from harness.evaluation.job import check_lengths
from harness.evaluation.keep_masks import masks
from harness.models import loading
from harness.models.prompts import Prompts, stop_ids

REMOVED = tuple(map(Decimal, ("0.25", "0.5", "0.75", "0.875")))


class Prompt(NamedTuple):
    """One context and its question, as the timing runs them."""

    context: Context
    question: Question


class Timing(NamedTuple):
    """Seconds of one way to run a sweep, and the tokens it gave, variant by variant."""

    seconds: float
    tokens: list[tuple[int, ...]]


class Sweep:
    """The grid on one model. No answer stops early, so that both ways do the same work."""

    def __init__(
        self,
        model: str,
        methods: Sequence[str],
        device: str = "auto",
        dtype: str = "auto",
        lengths: Sequence[int] = (1,),
    ) -> None:
        config = loading.config_of(model)
        check_lengths(lengths, int(config.get_text_config().max_position_embeddings), model)
        loading.pick_dtype(dtype, loading.pick_device(device))
        self.plan = plan(Grid(tuple(methods), removed=REMOVED), describe(config, model))
        loaded = loading.load(model, device, dtype)
        self.model = model
        self.lm = loaded.lm
        self.prompts = Prompts(loaded.tokenizer)

    def random_prompt(self, length: int, question_tokens: int, new_tokens: int) -> Prompt:
        """Random tokens in the model's template, ``length`` of them cached."""
        draw = random.Random(length)
        empty = self.prompts.context("")
        known = self.lm.model.get_input_embeddings().weight.shape[0]
        low, high = (1000, 40_000) if known >= 40_000 else (0, known)  # rare and special tokens left out where it can
        ids = [draw.randrange(low, high) for _ in range(length - len(empty.ids) + question_tokens)]
        context = Context((*empty.ids, *ids[question_tokens:]), empty.prefix, empty.suffix, empty.encode)
        return Prompt(context, Question(tuple(ids[:question_tokens]), new_tokens))

    def sample_prompt(self, sample: Sample, stop: frozenset[int]) -> Prompt:
        """A benchmark's sample, which may stop early."""
        question = self.prompts.question(sample.question, sample.answer_prefix, sample.chat_template)
        context = self.prompts.context(sample.context, sample.chat_template, stop)
        return Prompt(context, Question(question, sample.max_new_tokens, stop))

    def shared(self, prompt: Prompt) -> Timing:
        """All variants from one prefill."""
        return self._run(prompt, self.plan.planned)

    def single(self, prompt: Prompt) -> Timing:
        """One variant at a time, each with its own prefill."""
        parts = [self._run(prompt, [planned]) for planned in self.plan.planned]
        return Timing(sum(part.seconds for part in parts), [tokens for part in parts for tokens in part.tokens])

    def _run(self, prompt: Prompt, planned: Sequence[Planned]) -> Timing:
        lm: LanguageModel = self.lm
        _synchronise(lm)
        start = time.perf_counter()
        scored = prefill(lm, prompt.context, [p.method for p in planned])
        shape = (lm.info.layers, lm.info.kv_heads, len(prompt.context.ids))
        made = masks(planned, scored, shape, prompt.context.prefix)
        stand = [p.variant.positions for p in planned]
        answers = decode(lm, scored.prefix, made.keep, prompt.question, positions=stand)
        _synchronise(lm)
        return Timing(time.perf_counter() - start, [answer.ids for answer in answers])


def sweep(
    model: str,
    methods: Sequence[str],
    lengths: Sequence[int],
    question_tokens: int,
    new_tokens: Sequence[int],
    repeat: int,
    device: str,
    dtype: str,
) -> dict[str, Any]:
    """Time the grid at each length and answer length; medians over ``repeat`` runs, the two ways in turn."""
    bench = Sweep(model, methods, device, dtype, lengths)
    least = len(bench.prompts.context("").ids)
    if min(lengths) < least:
        raise HarnessError(f"--length must be at least {least}, the tokens of the chat template, got {min(lengths)}")
    longest = max(lengths)
    check_positions(bench.lm, longest, longest + question_tokens + max(new_tokens), "the longest prompt and answer")
    rows = []
    for length in lengths:
        for count in new_tokens:
            prompt = bench.random_prompt(length, question_tokens, count)
            pairs = [(bench.shared(prompt), bench.single(prompt)) for _ in range(repeat)]
            shared = statistics.median(pair[0].seconds for pair in pairs)
            single = statistics.median(pair[1].seconds for pair in pairs)
            same = sum(a == b for a, b in zip(pairs[0][0].tokens, pairs[0][1].tokens, strict=True))
            rows.append(
                {
                    "length": length,
                    "question_tokens": question_tokens,
                    "new_tokens": count,
                    "variants": len(bench.plan.planned),
                    "shared_seconds": round(shared, 3),
                    "single_seconds": round(single, 3),
                    "ratio": round(single / shared, 2),
                    "same_tokens": same,
                    "repeat": repeat,
                }
            )
    return {"kind": "sweep", **_where(bench), "rows": rows}


def on_samples(
    model: str, methods: Sequence[str], benchmark: str, asked: Request, device: str, dtype: str
) -> dict[str, Any]:
    """Time the shared sweep on real samples and keep their texts, so that another harness can run the same ones."""
    source = benchmarks.registry.get(benchmark)
    source.check(asked)
    bench = Sweep(model, methods, device, dtype, asked.lengths)
    samples = source.samples(asked, bench.prompts.text)
    stop = stop_ids(bench.prompts, bench.lm.model.generation_config)
    timings = [bench.shared(bench.sample_prompt(sample, stop)) for sample in samples]
    texts = [[bench.prompts.decode(ids) for ids in timing.tokens] for timing in timings]
    return {
        "kind": "samples",
        **_where(bench),
        "benchmark": benchmark,
        "length": asked.lengths[0],
        "seconds": [round(timing.seconds, 3) for timing in timings],
        "scores": [
            [source.score(sample, text).score for text in own] for sample, own in zip(samples, texts, strict=True)
        ],
        "predictions": texts,
        "rows": [sample.to_json() for sample in samples],
    }


def _where(bench: Sweep) -> dict[str, Any]:
    return {
        "model": bench.model,
        "labels": [p.variant.label for p in bench.plan.planned],
        "dtype": str(bench.lm.dtype).removeprefix("torch."),
        "hardware": provenance.hardware(str(bench.lm.device)),
        "versions": provenance.versions(),
    }


def _synchronise(lm: LanguageModel) -> None:
    if lm.device.type == "cuda":
        torch.cuda.synchronize(lm.device)
