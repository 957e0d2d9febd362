"""run.json against itself and against the rest of the run: labels, lists, answers and facts."""

from __future__ import annotations

import json
from collections.abc import Iterator

from harness.analysis.summary import facts_of
from harness.results.safe_text import quoted
from harness.results.schema import AVERAGED, Facts, VariantFields
from harness.validation.completeness import ANSWERED, rollouts
from harness.validation.findings import Finding, finding
from harness.validation.submission import Submission


def check_labels(run: Submission) -> Iterator[Finding]:
    """Each variant once, with the label that its fields make, and exactly one control."""
    variants = run.run.configuration.variants if run.run else []
    seen: set[str] = set()
    for variant in variants:
        if variant.variant in seen:
            yield finding("label", "run.json", None, f"has variant {quoted(variant.variant)} twice")
        seen.add(variant.variant)
        if told := _mislabelled(variant):
            yield finding("label", "run.json", None, f"variant {quoted(variant.variant)} {told}")
    controls = sum(variant.level_kind == "none" for variant in variants)
    if variants and controls != 1:
        yield finding("label", "run.json", None, f"has {controls} controls (level_kind none), of exactly 1")


def _mislabelled(variant: VariantFields) -> str:
    """What is wrong with a label, empty where nothing is. Of protection and options it names what differs from the
    method's defaults; those are not known without the method, so each may be there or not."""
    head, options = variant.method, _options(variant)
    if variant.level_kind != "none":
        head += f" {variant.budget} {variant.level_text}"
        options = [f"window={variant.window}", f"sinks={variant.sinks}", *options]
    modes = [variant.query_mode] * (variant.query_mode != "agnostic") + ["thinking"] * variant.thinking
    label = f"{variant.variant} "
    if not label.startswith(f"{head} "):
        return f"has the fields of {quoted(head)}"
    rest = label.removeprefix(f"{head} ")
    for option in options:
        rest = rest.removeprefix(f"{option} ")
    own, wanted = (quoted(" ".join(words)) if words else "nothing" for words in (rest.split(), modes))
    return "" if own == wanted else f"has {own} where its fields have {wanted}"


def _options(variant: VariantFields) -> list[str]:
    try:
        options = json.loads(variant.options)
    except (ValueError, RecursionError):
        return []
    return [f"{name}={value}" for name, value in options.items()] if isinstance(options, dict) else []


def check_contents(run: Submission) -> Iterator[Finding]:
    """``run.json`` names the samples and methods that the other files have, and no others."""
    record = run.run
    if record is None or not run.items or not run.items_whole:
        return
    configuration, items = record.configuration, [item for _, item in run.items]
    names = {item.benchmark for item in items}
    for name, stated, found in (
        ("configuration.benchmarks", configuration.benchmarks, sorted(names)),
        ("configuration.lengths", configuration.lengths, list(dict.fromkeys(item.length for item in items))),
        ("configuration.subsets", configuration.subsets, list(dict.fromkeys(item.subset for item in items))),
        ("configuration.limits", configuration.limits.keys(), names),
        ("configuration.seed", configuration.seed, record.seeds.run),
        ("method_hashes", record.method_hashes.keys(), {variant.method for variant in configuration.variants}),
        ("answers", record.answers.keys(), names),
        ("facts", record.facts.keys(), names),
        ("benchmark_versions", record.benchmark_versions.keys(), names),
    ):
        if stated != found:
            yield finding("record", "run.json", None, f"field {name} does not match the rest of the run")
    if run.value("summary.json").get("complete") is True:  # one that is not may have none of an answer's values yet
        yield from _unused_answers(run)


def _unused_answers(run: Submission) -> Iterator[Finding]:
    """Values of ``answers`` that no line has."""
    counts = rollouts(run)
    for name, stated in run.run.answers.items() if run.run else ():
        lines = [line for _, line in run.lines if line.benchmark == name and line.status in AVERAGED]
        for field in ANSWERED if lines else ():
            used = [counts.get(one.sample_id) if field == "rollouts" else getattr(one, field) for one in lines]
            if any(value not in used for value in getattr(stated, field)):
                told = f"field answers of {quoted(name)} has a {field} that no line has"
                yield finding("record", "run.json", None, told)


def check_facts(run: Submission) -> Iterator[Finding]:
    """Facts about benchmarks of today's version are today's."""
    record = run.run
    for name, stated in record.facts.items() if record and run.items and run.items_whole else ():
        benchmark = run.benchmark(name)
        if record and benchmark is not None and benchmark.version == record.benchmark_versions.get(name):
            today = facts_of(benchmark)
            # a run made before benchmarks declared their metrics does not state them
            fields = set(Facts.model_fields) - ({"metrics"} - stated.model_fields_set)
            wrong = sorted(field for field in fields if getattr(today, field) != getattr(stated, field))
            if wrong:
                told = f"facts of {quoted(name)} differ from the benchmark's in {', '.join(wrong)}"
                yield finding("record", "run.json", None, told)
