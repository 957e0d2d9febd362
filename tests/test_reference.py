"""Answers and removed fractions on SmolLM2 that were measured before this code was written, and with kvpress 0.5.5.

Three samples, three keys in about 1,018 tokens, one asked. They and the surrogate of 80 documents lie outside the
repository (``KVPRUNE_SHARED``, by default ``../shared``); without them these tests are skipped.
"""

from __future__ import annotations

import json
import os
from decimal import Decimal
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

import benchmarks.registry
from benchmarks.base import Request, Sample, content_hash
from harness.config.grid import plan
from harness.config.run_config import RunConfig
from harness.config.variants import Planned
from harness.evaluation.evaluator import Evaluator, Item
from harness.models import loading
from harness.models.prompts import Prompts, stop_ids
from harness.results.schema import Line

TRIAL = Path(os.environ.get("KVPRUNE_SHARED") or Path(__file__).parents[2] / "shared") / "data" / "trial"
QUARTERS = tuple(map(Decimal, ("0.25", "0.5", "0.75")))
TAUS = (-6.0, -5.0, -4.0)
WEIGHTS = f"kvzap_linear.weights={TRIAL / 'kvzap_linear_80docs.safetensors'}"

pytestmark = pytest.mark.real_model


def trial_samples() -> list[Sample]:
    if not TRIAL.is_dir():
        pytest.skip(f"the trial's samples are not in {TRIAL}")
    rows = [json.loads(line) for line in (TRIAL / "needles.jsonl").read_text(encoding="utf-8").splitlines()]
    return [
        Sample(f"trial/{number}", content_hash(row["context"]), subset="keys_2", references=(row.pop("answer"),), **row)
        for number, row in enumerate(rows)
    ]


@pytest.fixture(scope="module")
def model(stored_model: str) -> loading.Loaded:
    return loading.load(stored_model, device="cpu", dtype="float32")


def answer(model: loading.Loaded, planned: list[Planned], samples: list[Sample]) -> list[Line]:
    prompts = Prompts(model.tokenizer)
    stop = stop_ids(prompts, model.lm.model.generation_config)
    needles = benchmarks.registry.get("needles")
    evaluator = Evaluator(model.lm, prompts, stop, planned)
    return list(evaluator.run([Item(needles, sample) for sample in samples]))


def table(lines: list[Line]) -> dict[str, tuple[int, float]]:
    """Right answers and mean removed fraction of each variant."""
    by_variant: dict[str, list[Line]] = {}
    for line in lines:
        by_variant.setdefault(line.variant.split(" weights=")[0], []).append(line)
    return {
        name: (sum(line.score == 100 for line in own), round(fmean(line.removed_context or 0 for line in own), 2))
        for name, own in by_variant.items()
    }


def test_the_reference_methods_give_the_reference_answers(model: loading.Loaded) -> None:
    samples = trial_samples()
    methods = ("knorm", "streaming_llm", "kvzip", "kvzip_plus")
    planned = plan(RunConfig(method=methods, removed=QUARTERS), model.lm.info).planned
    right = {"knorm head": (2, 1, 1), "streaming_llm head": (3, 3, 0)}
    right |= {"kvzip global": (3, 3, 3), "kvzip_plus global": (3, 3, 3)}
    expected = {
        f"{name} {removed}": (count, float(removed))
        for name, counts in right.items()
        for removed, count in zip(QUARTERS, counts, strict=True)
    }
    assert table(answer(model, planned, samples)) == {"full": (3, 0.0), **expected}


def test_the_trial_surrogate_gives_the_reference_answers_and_removed_fractions(model: loading.Loaded) -> None:
    samples = trial_samples()
    grid: dict[str, Any] = {"method": ("kvzap_linear",), "option": (WEIGHTS,)}
    threshold = plan(RunConfig(threshold=TAUS, **grid), model.lm.info).planned
    head = plan(RunConfig(budget=("head",), removed=QUARTERS, **grid), model.lm.info).planned
    assert table(answer(model, [*threshold, *head[1:]], samples)) == {
        "full": (3, 0.0),
        "kvzap_linear threshold tau=-6": (3, 0.24),
        "kvzap_linear threshold tau=-5": (3, 0.46),
        "kvzap_linear threshold tau=-4": (3, 0.64),
        "kvzap_linear head 0.25": (2, 0.25),
        "kvzap_linear head 0.5": (0, 0.5),
        "kvzap_linear head 0.75": (0, 0.75),
    }


def test_the_committed_surrogate_removes_what_the_trial_surrogate_removes(model: loading.Loaded) -> None:
    samples = trial_samples()
    planned = plan(RunConfig(method=("kvzap_linear",), threshold=TAUS), model.lm.info).planned
    removed = {name: share for name, (_, share) in table(answer(model, planned, samples)).items()}
    for tau, reference in zip(TAUS, (0.24, 0.46, 0.64), strict=True):
        assert removed[f"kvzap_linear threshold tau={tau:g}"] == pytest.approx(reference, abs=0.05)


def test_kvzip_keeps_a_single_ruler_needle_at_75_percent_removed_where_streaming_llm_loses_it(
    model: loading.Loaded,
) -> None:
    ruler = benchmarks.registry.get("ruler")
    text = Prompts(model.tokenizer).text
    samples = ruler.samples(Request((1024,), ("niah_single_1",), 3), text)
    grid = RunConfig(method=("kvzip", "streaming_llm"), removed=QUARTERS[-1:])
    lines = answer(model, plan(grid, model.lm.info).planned, samples)
    scores = {name: [line.score for line in lines if line.method == name] for name in ("full", *grid.method)}
    assert scores == {"full": [100.0] * 3, "kvzip": [100.0] * 3, "streaming_llm": [0.0] * 3}
