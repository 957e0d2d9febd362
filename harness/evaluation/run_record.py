"""What a run writes down about itself before its first sample."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.base import content_hash
from harness.evaluation import provenance
from harness.evaluation.evaluator import Item
from harness.evaluation.job import Job
from harness.models import loading
from harness.results import schema
from harness.results.schema import SCHEMA_VERSION, Answers, Configuration, RunRecord, Seeds
from methods.base import Method


def method_hashes(job: Job) -> dict[str, str]:
    by_name: dict[str, list[Method]] = {}
    for variant, method, _ in job.plan.planned:
        by_name.setdefault(variant.method, []).append(method)
    return {name: provenance.method_hash(methods) for name, methods in by_name.items()}


def run_record(job: Job) -> RunRecord:
    config = job.config
    return RunRecord(
        schema_version=SCHEMA_VERSION,
        configuration=Configuration.model_validate(job.configuration),
        skipped={name: _without_paths(reason, job) for name, reason in job.plan.skipped.items()},
        unsupported=[one.variant for one in job.plan.unsupported],
        answers=_answers(job.items),
        hardware=provenance.hardware(job.device),
        attention_kernel="kvprune masked (torch)",
        max_positions=job.max_positions,
        versions=provenance.versions(),
        **provenance.commit(),
        method_hashes=method_hashes(job),
        method_costs={method.name: method.cost for _, method, _ in job.plan.planned},
        seeds=Seeds(run=config.seed),
        data=config.data.name if config.data else None,
        benchmark_versions={item.benchmark.name: item.benchmark.version for item in job.items},
        store_masks=config.store_masks,
        facts=job.facts,
    )


def _without_paths(reason: str, job: Job) -> str:
    """A message in which the model, and files that options name, stand without the folders above them."""
    found = reason.replace(job.config.model, loading.short_name(job.config.model))
    for option in job.config.option:
        value = option.partition("=")[2]
        found = found.replace(value, Path(value).name) if "/" in value else found
    return found


def _answers(items: Iterable[Item]) -> dict[str, Answers]:
    """How each benchmark's samples are answered: limits, rollouts and sampling settings that occur."""
    found: dict[str, list[Item]] = {}
    for item in items:
        found.setdefault(item.benchmark.name, []).append(item)

    def occurring(own: list[Item], name: str) -> list[Any]:
        values: list[Any] = []
        for item in own:
            if getattr(item.sample, name) not in values:
                values.append(getattr(item.sample, name))
        return values

    names = ("max_new_tokens", "rollouts", "sampling")
    return {
        benchmark: Answers(
            benchmark_limit=own[0].benchmark.answer_limit, **{name: occurring(own, name) for name in names}
        )
        for benchmark, own in found.items()
    }


def item_rows(job: Job) -> Iterator[schema.Item]:
    """One line a sample: its references where it was not made from data of others, its texts where they may be
    redistributed."""
    for benchmark, sample in job.items:
        row: dict[str, Any] = {
            "sample_id": sample.sample_id,
            "context_id": sample.context_id,
            "benchmark": benchmark.name,
            "subset": sample.subset,
            "length": sample.length,
            "prompt_hash": content_hash(sample.context, sample.question, sample.answer_prefix),
            "rendered_hash": job.prompts.rendered_hash(sample),
        }
        if benchmark.shareable or sample.subset not in benchmark.needs_data:
            row |= {"references": list(sample.references), "all_classes": list(sample.all_classes)}
        if benchmark.shareable:
            row |= {"context": sample.context, "question": sample.question, "answer_prefix": sample.answer_prefix}
        yield schema.Item(**row)
