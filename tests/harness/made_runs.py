"""Run folders made without a model: lines with given scores, written by the harness's own writer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.base import content_hash
from harness.analysis.summary import summarise
from harness.config.variants import Variant
from harness.results.run_folder import RunFolder, append_line
from harness.results.schema import Facts, Item, Line, RunRecord, Summary, VariantFields

FULL = Variant("full")
KNORM = Variant("knorm", "head", "removed", 0.5)
KEYDIFF = Variant("keydiff", "head", "removed", 0.5)
RANDOM = Variant("random", "head", "removed", 0.5)
KVZAP = Variant("kvzap_mlp", "threshold", "threshold", -4.0, window=128)
FACTS = {"toy": Facts(subsets=2, chance=0.0)}

#: all of a run.json but its configuration
RUN = {
    "schema_version": 1,
    "skipped": {},
    "unsupported": [],
    "answers": {"toy": {"max_new_tokens": [8], "benchmark_limit": None, "rollouts": [1], "sampling": [None]}},
    "hardware": "a test",
    "attention_kernel": "test",
    "max_positions": 512,
    "versions": {},
    "commit": "c0ffee" + "0" * 34,
    "dirty": False,
    "method_hashes": {},
    "seeds": {"run": 0},
    "data": None,
    "benchmark_versions": {"toy": "7"},
    "facts": {"toy": FACTS["toy"].to_json()},
}


def changed(variant: Variant, **fields: Any) -> Variant:
    """The same variant with other fields, and the label of those."""
    return Variant(**{**variant.model_dump(exclude={"variant"}), **fields})


#: scores by subset; the place in the list is the sample's number
Scores = Mapping[str, Sequence[float | None]]


def lines_of(variant: Variant, scores: Scores, **more: Any) -> list[Line]:
    """A line a score; None is a sample that ran out of memory. ``removed`` sets the measured fraction, which is the
    level where that is one."""
    given = dict(more)
    removed = given.pop("removed", variant.level if variant.level_kind == "removed" else 0.0)
    asked = {"requested_removed": given.pop("requested")} if "requested" in given else {}
    found = []
    for subset, values in scores.items():
        for index, score in enumerate(values):
            line: dict[str, Any] = {
                **variant.fields(),
                **asked,
                "sample_id": f"toy/{subset}/64/0/{index}",
                "context_id": f"{subset}-{index}",
                "benchmark": "toy",
                "subset": subset,
                "length": 64,
                "prediction": None if score is None else f"answer {score:g}",
                "score": score,
                "status": "oom" if score is None else "ok",
                "finish_reason": None if score is None else "stop",
                "context_tokens": 60,
                "generated_tokens": 3,
                "removed_context": None if score is None else removed,
                "removed_time_mean": removed,
                "removed_total": removed,
            }
            found.append(Line(**{**line, **given}))
    return found


def both(score: float, count: int = 12) -> dict[str, list[float]]:
    """The same score on every sample of both subsets."""
    return {"red": [score] * count, "blue": [score] * count}


def summary_of(*parts: list[Line], facts: dict[str, Facts] = FACTS) -> Summary:
    return summarise([line for part in parts for line in part], facts, complete=True)


def write_run(path: Path, lines: Sequence[Line], finished: bool = True, **changes: Any) -> Path:
    """A run folder with these lines. ``changes`` go into the configuration."""
    variants: dict[str, dict[str, Any]] = {}
    items: dict[str, Item] = {}
    for line in lines:
        variants.setdefault(line.variant, line.model_dump(include=set(VariantFields.model_fields)))
        items.setdefault(
            line.sample_id,
            Item(
                sample_id=line.sample_id,
                context_id=line.context_id,
                benchmark=line.benchmark,
                subset=line.subset,
                length=line.length,
                prompt_hash=content_hash(line.sample_id),
                references=[f"right {line.sample_id}"],
                all_classes=[],
            ),
        )
    configuration = {
        "model": "tiny",
        "model_files": None,
        "dtype": "float32",
        "device": "cpu",
        "seed": 0,
        "variants": list(variants.values()),
        "benchmarks": ["toy"],
        "lengths": [64],
        "subsets": ["red", "blue"],
        "limits": {"toy": None},
        "data_hash": content_hash(sorted(items)),
    }
    folder = RunFolder(path)
    folder.start(RunRecord.model_validate(RUN | {"configuration": {**configuration, **changes}}), list(items.values()))
    with folder.append("samples.jsonl") as file:
        for line in lines:
            append_line(file, line.model_dump())
    if finished:
        folder.finish(summarise(lines, FACTS, complete=True))
    return path


def edit_json(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changes}), encoding="utf-8")
