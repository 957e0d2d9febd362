"""AIME 2025: thirty competition problems whose answers are whole numbers. Answers are long, so caches are pruned while
decoding."""

from __future__ import annotations

from typing import ClassVar

from benchmarks.aime25 import math_verify_check
from benchmarks.aime25.boxed_answer import last_box, whole_number
from benchmarks.aime25.problems import Row, hub_rows, read_rows
from benchmarks.base import Benchmark, BenchmarkError, Metric, Request, Sample, Score, Text, content_hash
from benchmarks.registry import register
from benchmarks.thinking_tags import after_thought

SUBSET = "aime25"
#: every answer of the competition lies in here
ANSWERS = range(1000)
INSTRUCTION = (
    "\n\nWork through the problem step by step. The answer is a whole number from 0 to 999; end with it in \\boxed{}."
)


@register
class Aime25(Benchmark):
    r"""All 30 problems of AIME 2025 I and II.

    The context is the problem and the instruction, the question is empty: all of the prompt but the template's suffix
    is cached and may be pruned. Four answers per problem, of up to 32,000 tokens, are sampled at temperature 0.6, top-p
    0.95 and top-k 20, and new pairs are pruned too unless ``--phase`` says otherwise.

    Score: 100 if the last closed ``\boxed{...}`` after the reasoning states the right number, else 0; no other text is
    read. ``answered``: 1 if it states a whole number from 0 to 999. ``math_verify``: 1 if math-verify agrees on
    the box, 0 if not; absent if there is no box, or one that it is not asked about.
    """

    name = "aime25"
    summary = "30 competition problems with long answers; four sampled answers each, pruned while decoding"
    paper = "https://huggingface.co/datasets/math-ai/aime25"
    licence = "the problems are the MAA's"
    version = "1"
    subsets = (SUBSET,)
    needs_data = (SUBSET,)
    default_limit = 30
    metrics = (Metric("answered", "answered", ".0%", "share of answers that state a number"),)
    default_phase = "both"
    thinks = True
    answer_limit = 32_000
    sampling: ClassVar[dict[str, float]] = {"temperature": 0.6, "top_p": 0.95, "top_k": 20}
    rollouts = 4
    pass_at = (1, 4)
    cross_check = "math_verify"

    def check(self, request: Request) -> None:
        super().check(request)
        self._rows(request)

    def check_lengths(self, request: Request) -> None:
        if request.lengths:
            given = ", ".join(map(str, request.lengths))
            raise BenchmarkError(
                f"aime25 takes no --length (got {given}): its problems have their own; leave --length out"
            )

    def samples(self, request: Request, text: Text) -> list[Sample]:
        self.check(request)
        return [self._sample(row) for row in self._rows(request)[: request.limit]]

    def score(self, sample: Sample, prediction: str) -> Score:
        box = last_box(after_thought(prediction, thinking=False))
        number = None if box is None else whole_number(box)
        gold = int(sample.references[0])
        answered = number in ANSWERS
        right = answered and number == gold
        metrics = {"answered": float(answered)}
        other = None if box is None else math_verify_check.says_equal(box, gold, unread=number is None)
        if other is not None:
            metrics["math_verify"] = float(other == right)
        return Score(100.0 if right else 0.0, metrics)

    def _rows(self, request: Request) -> list[Row]:
        return hub_rows() if request.data is None else read_rows(request.data)

    def _sample(self, row: Row) -> Sample:
        context = row.problem + INSTRUCTION
        return Sample(
            sample_id=f"aime25/{row.id}",
            context_id=content_hash(context),
            context=context,
            question="",
            answer_prefix="",
            max_new_tokens=self.answer_limit,
            references=(str(row.answer),),
            subset=SUBSET,
            sampling=dict(self.sampling),
            rollouts=self.rollouts,
        )
