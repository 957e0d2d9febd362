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
from harness.config.grid import plan
from harness.config.run_config import RunConfig
from harness.config.tool_configs import SamplesConfig, SweepConfig
from harness.config.variants import Planned
from harness.engine.adapter import LanguageModel, describe, max_positions
from harness.engine.context import Context, check_positions
from harness.engine.decode import Question, decode
from harness.errors import HarnessError
from harness.evaluation import provenance
from harness.evaluation.job import check_lengths
from harness.evaluation.pruned_context import prune
from harness.measure.figures import SamplesFigures, SweepFigures, SweepRow
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
        check_lengths(lengths, max_positions(config), model)
        loading.pick_dtype(dtype, loading.pick_device(device))
        self.plan = plan(RunConfig(method=tuple(methods), removed=REMOVED), describe(config, model))
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
        context, question, *_ = self.prompts.of(sample, stop)
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
        answers = decode(prune(lm, planned, prompt.context).batch, prompt.question)
        _synchronise(lm)
        return Timing(time.perf_counter() - start, [answer.ids for answer in answers])


def sweep(config: SweepConfig) -> SweepFigures:
    """Time the grid at each length and answer length; medians over ``repeat`` runs, the two ways in turn."""
    bench = Sweep(config.model, config.method, config.device, config.dtype, config.length)
    least = len(bench.prompts.context("").ids)
    longest, shortest = max(config.length), min(config.length)
    if shortest < least:
        raise HarnessError(f"--length must be at least {least}, the tokens of the chat template, got {shortest}")
    needed = longest + config.question_tokens + max(config.new_tokens)
    check_positions(bench.lm, longest, needed, "the longest prompt and answer")
    rows = [_row(bench, config, length, count) for length in config.length for count in config.new_tokens]
    return SweepFigures(kind="sweep", **_where(bench), rows=rows)


def _row(bench: Sweep, config: SweepConfig, length: int, new_tokens: int) -> SweepRow:
    prompt = bench.random_prompt(length, config.question_tokens, new_tokens)
    pairs = [(bench.shared(prompt), bench.single(prompt)) for _ in range(config.repeat)]
    shared, single = (statistics.median(timing.seconds for timing in timings) for timings in zip(*pairs, strict=True))
    same = sum(a == b for a, b in zip(pairs[0][0].tokens, pairs[0][1].tokens, strict=True))
    return SweepRow(
        length=length,
        question_tokens=config.question_tokens,
        new_tokens=new_tokens,
        variants=len(bench.plan.planned),
        shared_seconds=round(shared, 3),
        single_seconds=round(single, 3),
        ratio=round(single / shared, 2),
        same_tokens=same,
        repeat=config.repeat,
    )


def on_samples(config: SamplesConfig) -> SamplesFigures:
    """Time the shared sweep on real samples and keep their texts, so that another harness can run the same ones."""
    source = benchmarks.registry.get(config.benchmark)
    subsets = tuple(subset for name in config.subset for subset in source.subsets_named(name) or (name,))
    request = Request((config.length,), subsets, config.limit)
    source.check(request)
    bench = Sweep(config.model, config.method, config.device, config.dtype, request.lengths)
    samples = source.samples(request, bench.prompts.text)
    stop = stop_ids(bench.prompts, bench.lm.model.generation_config)
    timings = [bench.shared(bench.sample_prompt(sample, stop)) for sample in samples]
    texts = [[bench.prompts.decode(ids) for ids in timing.tokens] for timing in timings]
    scores = [[source.score(sample, text).score for text in own] for sample, own in zip(samples, texts, strict=True)]
    return SamplesFigures(
        kind="samples",
        **_where(bench),
        benchmark=config.benchmark,
        length=config.length,
        seconds=[round(timing.seconds, 3) for timing in timings],
        scores=scores,
        predictions=texts,
        rows=[sample.to_json() for sample in samples],
    )


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
