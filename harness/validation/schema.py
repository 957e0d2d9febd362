"""Fields, types and ranges of every file of a run, strictly: nothing unknown, nothing converted."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.results import score_histograms
from harness.results.run_folder import Count, Name, VariantFields
from harness.validation.json_reader import LARGEST

#: most findings of one row or file
MOST = 3
Whole = Annotated[int, Field(ge=-LARGEST, le=LARGEST)]
Text = Annotated[str, Field(max_length=4_000)]
Percent = Annotated[float, Field(ge=0, le=100)]
Hash = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Configuration(Strict):
    model: Name
    model_files: Hash | None
    variants: Annotated[list[VariantFields], Field(min_length=1, max_length=100_000)]
    benchmarks: list[Name]
    lengths: list[Count | None]
    subsets: list[Name]
    limits: dict[Name, Count | None]
    data_hash: Hash
    seed: Count
    device: Name
    dtype: Name
    rollouts: Count | None = None
    max_new_tokens: Count | None = None


class Answers(Strict):
    max_new_tokens: list[Count]
    benchmark_limit: Count | None
    rollouts: Annotated[list[Annotated[int, Field(ge=1, le=LARGEST)]], Field(min_length=1)]
    sampling: list[dict[str, float] | None]


class Facts(Strict):
    subsets: Count
    chance: Percent
    answer_limit: Count | None = None
    pass_at: list[Count] = []
    cross_check: Name | None = None
    groups: dict[Name, list[Name]] = {}


class Seeds(Strict):
    run: Count


class Record(Strict):
    """``run.json`` as :func:`harness.evaluation.run_record.run_record` writes it."""

    schema_version: Count
    configuration: Configuration
    skipped: dict[Text, Text]
    unsupported: list[VariantFields]
    answers: dict[Name, Answers]
    hardware: Text
    attention_kernel: Text
    max_positions: Count
    versions: dict[Name, Text]
    commit: Annotated[str, Field(pattern="^[0-9a-f]{40}$")] | None
    dirty: bool | None
    method_hashes: dict[Name, Hash]
    method_costs: dict[Name, Name] = {}
    seeds: Seeds
    data: Name | None
    benchmark_versions: dict[Name, Text]
    facts: dict[Name, Facts]
    store_masks: Count = 0


class Item(Strict):
    sample_id: Name
    context_id: Name
    benchmark: Name
    subset: Name
    length: Count | None
    prompt_hash: Hash
    references: list[str] = []
    all_classes: list[str] = []
    context: str = ""
    question: str = ""
    answer_prefix: str = ""


class Histogram(score_histograms.Histogram):
    """A row of ``histograms.jsonl`` with nothing unknown in it."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    sample_id: Name
    method: Name
    options: Text
    window: Count
    sinks: Count | Literal["prefix"]
    counts: Annotated[list[Count], Field(min_length=1, max_length=score_histograms.MOST_BINS)]
