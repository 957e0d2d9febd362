"""The files of a run folder, field by field: one model for each, which the writer fills, the readers read and
``validate`` checks strictly.

Readers pass over fields that they do not know, so that runs of later releases can be read; ``validate`` refuses them.
What an earlier release did not write has a default.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

from harness.results.safe_text import printable

SCHEMA_VERSION = 1
#: a line with one of these is scored and averaged
AVERAGED = ("ok", "too_short")
#: largest metric: sums and squares of it are doubles
MOST_FIGURE = 1e100

Status = Literal["ok", "too_short", "truncated", "oom", "nan", "timeout", "error"]
#: what tables show as it is: short, on one line, no control characters
Name = Annotated[str, Field(max_length=1_000, pattern=r"^[^\x00-\x1f\x7f]*$")]
Text = Annotated[str, Field(max_length=4_000)]
Hash = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
#: whole numbers that every reader of JSON takes exactly
Count = Annotated[int, Field(ge=0, le=2**53)]
Positive = Annotated[int, Field(ge=1, le=2**53)]
Share = Annotated[float, Field(ge=0, le=1)]
Percent = Annotated[float, Field(ge=0, le=100)]
Figure = Annotated[float, Field(ge=-MOST_FIGURE, le=MOST_FIGURE)]
#: low and high
Bounds = Annotated[list[float], Field(min_length=2, max_length=2)]
Sinks = Count | Literal["prefix"]
LevelKind = Literal["removed", "keep_tokens", "threshold", "none"]
#: a list stops at its first fault, or a file of a million of them would be a million messages
FIRST = Field(fail_fast=True)
#: the figures a benchmark draws its answers with, such as ``temperature``; None: greedy
Sampling = dict[str, float] | None


def _infinite(level: Any) -> Any:
    return float(level) if level in ("inf", "-inf") else level


def _no_nan(level: float | None) -> float | None:
    if level is not None and math.isnan(level):
        raise ValueError("a level must be a number")
    return level


def _written(level: float | None) -> float | str | None:
    return str(level) if level is not None and math.isinf(level) else level


#: a threshold may be infinite, which JSON has no number for: it is written as a text
AnyNumber = Annotated[
    float, Field(allow_inf_nan=True), BeforeValidator(_infinite), PlainSerializer(_written, return_type=float | str)
]


class Record(BaseModel):
    """A JSON object. Written are the fields that were given, also where they are null."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    def to_json(self) -> dict[str, Any]:
        """As it is written: without fields that were not given."""
        return self.model_dump(exclude_unset=True)


#: what stands before a level of each kind in a label
LEVEL_MARKS = {"removed": "", "keep_tokens": "keep=", "threshold": "tau="}


def level_text(kind: str, level: float | None) -> str:
    """A level with all its digits, so that no two share a text: ``0.5``, ``keep=64``, ``tau=-4``; empty for None."""
    return "" if level is None else LEVEL_MARKS[kind] + repr(level).removesuffix(".0")


class VariantFields(Record):
    """The columns of a variant, in lines and in cells alike.

    variant      its label: a short readable name, unique within a run. It is made where a run is planned
                 (:class:`harness.config.variants.Variant`) and never parsed: what it says is in the other fields
    level_kind   ``removed`` (fraction), ``keep_tokens`` (pairs per head), ``threshold`` (tau) or ``none`` (the control)
    sinks        protected first pairs, or ``prefix``: the whole template prefix
    options      the method's options as canonical JSON
    """

    variant: Name
    method: Name
    budget: Name
    level_kind: LevelKind
    level: AnyNumber | None
    phase: Literal["prefill", "decode", "both"]
    window: Count
    sinks: Sinks
    positions: Literal["original", "cache"]
    engine: Literal["masked", "compact"]
    attention_during_prefill: Literal["full", "pruned"]
    kv_bits: Count | None
    query_mode: Literal["agnostic", "aware", "aware-reused"]
    thinking: bool
    options: str

    _known = field_validator("level")(_no_nan)

    @property
    def level_text(self) -> str:
        """The level as the label has it."""
        return level_text(self.level_kind, self.level)

    @property
    def extras(self) -> str:
        """What the label says after method, budget and level, led by a blank: options, protection and modes other than
        the method's own."""
        return self.variant.removeprefix(" ".join([*self._stem, self.level_text]).rstrip())

    @property
    def curve(self) -> str:
        """The label without the level: variants that only differ in that are points of one curve."""
        kind = ["keep"] if self.level_kind == "keep_tokens" else []
        return " ".join([*self._stem, *kind]) + self.extras

    @property
    def _stem(self) -> list[str]:
        return [self.method] if self.level_kind == "none" else [self.method, self.budget]


#: fields of a line that are left out where they are null
RARE = ("uncut_tokens", "cut_at")


class Line(VariantFields):
    """One sample x variant (x rollout) of ``samples.jsonl``.

    Pairs are KV pairs over prunable layers and KV heads. ``cached_pairs`` and ``kept_pairs`` are those of the context
    (template prefix included) just before the first question token; ``removed_context`` is made of them.
    ``cached_pairs_total`` and ``kept_pairs_total`` are those of everything cached after the last step, and
    ``removed_total`` is made of them; ``removed_time_mean`` is the mean over steps. ``max_new_tokens`` is the answer
    limit, ``sampling`` how tokens were sampled (None: greedy). A context whose middle was left out (``prompt_cut``) had
    ``uncut_tokens``, and lost them at the place ``cut_at``. Where benchmarks ask several questions of a context,
    ``question_index`` is the question's place among them, from 0, and ``prefills_paid`` the prefills of the context
    that a deployment would pay for this answer (:func:`harness.config.query_modes.numbered`).
    """

    requested_removed: Share | None = None
    sample_id: Name
    context_id: Name
    question_index: Count | None = None
    prefills_paid: Count | None = None
    benchmark: Name
    subset: Name
    length: Count | None
    rollout: Count = 0
    prediction: str | None = None
    score: float | None = Field(default=None, ge=0, le=100)
    metrics: dict[Name, Figure] = {}
    status: Status
    reason: str | None = None
    finish_reason: Literal["stop", "length", "nan"] | None = None
    prompt_cut: bool = False
    uncut_tokens: Count | None = None
    cut_at: Count | None = None
    bound_by: Literal["protection"] | None = None
    context_tokens: Count
    generated_tokens: Count = 0
    max_new_tokens: Count | None = None
    sampling: Sampling = None
    cached_pairs: Count | None = None
    kept_pairs: Count | None = None
    cached_pairs_total: Count | None = None
    kept_pairs_total: Count | None = None
    removed_context: Share | None = None
    removed_total: Share | None = None
    removed_time_mean: Share | None = None
    physical_bytes: Count | None = None

    @model_serializer(mode="wrap")
    def _without_absent(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Fields that most lines lack are not written as nulls, so that a line of an earlier release stays as it is."""
        return {name: value for name, value in dump(self).items() if value is not None or name not in RARE}

    @model_validator(mode="after")
    def _levelled(self) -> Line:
        if (self.level_kind == "none") != (self.level is None):
            raise ValueError("only a control has no level")
        return self

    @property
    def key(self) -> tuple[str, str, int]:
        """What makes a line unique within a run."""
        return self.sample_id, self.variant, self.rollout


class Item(Record):
    """A row of ``items.jsonl``: a sample. Texts and references are there where they may be redistributed.

    ``prompt_hash`` is of its texts, ``rendered_hash`` of what the chat template made of them.
    """

    sample_id: Name
    context_id: Name
    benchmark: Name
    subset: Name
    length: Count | None
    prompt_hash: Hash
    rendered_hash: Hash | None = None
    references: list[str] = []
    all_classes: list[str] = []
    context: str = ""
    question: str = ""
    answer_prefix: str = ""

    def holds(self, *names: str) -> bool:
        """Whether the run says what these fields are."""
        return self.model_fields_set.issuperset(names)


class Configuration(Record):
    """What decides a run's lines: its hash is in the folder's name.

    ``model_files`` is the hash of a local model's content, ``model_commit`` that of a hub model; ``template_date`` is
    the date that a chat template which prints one was told.
    """

    model: Name
    model_files: Hash | None = None
    model_commit: Name | None = None
    template_date: Name | None = None
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


class Answers(Record):
    """How the samples of a benchmark are answered: the limits, rollouts and sampling settings that occur."""

    max_new_tokens: list[Count]
    benchmark_limit: Count | None
    rollouts: Annotated[list[Positive], Field(min_length=1)] = [1]
    sampling: list[Sampling]


class Metric(Record):
    """A metric of a benchmark as tables and charts show it; the fields are those of
    :class:`benchmarks.base.Metric`."""

    name: Name
    title: Name
    format: Annotated[str, Field(pattern=r"^\.[0-9][f%e]$")] = ".1f"
    description: Name = ""
    higher_is_better: bool = True
    log_scale: bool = False

    def text(self, value: float) -> str:
        """A value in the metric's format."""
        return format(value, self.format)


#: the metrics of runs that were recorded before benchmarks declared theirs
UNDECLARED = [
    Metric(name="exact_match", title="exact", description="exact match"),
    Metric(name="answered", title="answered", format=".0%", description="share of answers that state a number"),
    Metric(
        name="kl_mean",
        title="KL",
        format=".4f",
        description="KL(full ‖ pruned) per token, mean, nats",
        higher_is_better=False,
        log_scale=True,
    ),
    Metric(
        name="kl_p95",
        title="KL 95th",
        format=".4f",
        description="KL per token, 95th percentile, nats",
        higher_is_better=False,
        log_scale=True,
    ),
    Metric(
        name="ppl_ratio",
        title="perplexity x",
        format=".3f",
        description="perplexity, relative to the full cache's",
        higher_is_better=False,
        log_scale=True,
    ),
]


class Facts(Record):
    """What tables, summaries and the leaderboard need to know of a benchmark; the fields are those of
    :class:`benchmarks.base.Benchmark`."""

    subsets: Count
    chance: Percent
    answer_limit: Count | None = None
    pass_at: list[Count] = []
    cross_check: Name | None = None
    groups: dict[Name, list[Name]] = {}
    metrics: Annotated[list[Metric], FIRST] = UNDECLARED


class Seeds(Record):
    run: Count


class RunRecord(Record):
    """``run.json``."""

    schema_version: Count
    configuration: Configuration
    skipped: dict[Text, Text]
    unsupported: Annotated[list[VariantFields], FIRST]
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
    store_masks: Count = 0
    facts: dict[Name, Facts]


class Group(Record):
    """The mean of a named group of subsets."""

    score: float | None
    n: Count
    n_subsets: Count
    of_subsets: Count


class Cell(VariantFields):
    """A variant on a subset, or over all of them (``subset`` None), of a benchmark at a length."""

    benchmark: Name
    subset: Name | None
    length: Count | None
    score: float | None = None
    low: float | None = None
    high: float | None = None
    n: Count = 0
    n_contexts: Count | None = None
    n_subsets: Count = 0
    n_failed: Count = 0
    rollouts: Count | None = None
    sampling: Sampling = None
    max_new_tokens: Count | None = None
    of_new_tokens: Count | None = None
    removed_mean: float | None = None
    removed_min: float | None = None
    removed_max: float | None = None
    removed_total_mean: float | None = None
    generated_mean: float | None = None
    limit_share: float | None = None
    requested_removed: float | None = None
    n_cut: Count = 0
    floor: bool = False
    bound_by: str | None = None
    prefills_paid: Count | None = None
    metrics: dict[str, float | None] = {}
    metric_intervals: dict[str, Bounds] = {}
    of_subsets: Count | None = None
    groups: dict[Name, Group] = {}
    status: Literal["unsupported"] | None = None
    note: str = ""

    @model_validator(mode="after")
    def _whole(self) -> Cell:
        figures = (self.removed_mean, self.removed_min, self.removed_max)
        if None in figures and any(figure is not None for figure in figures):
            raise ValueError("removed_mean, removed_min and removed_max go together")
        if (self.low is None) != (self.high is None):
            raise ValueError("low and high go together")
        if self.status == "unsupported" and "note" not in self.model_fields_set:
            raise ValueError("an unsupported method has a note")
        if (self.level_kind == "none") != (self.level is None) and self.status != "unsupported":
            raise ValueError("only a control has no level")
        return self


class Asked(Record):
    """The level at which variants are put beside each other."""

    kind: LevelKind
    value: AnyNumber


class Placed(Record):
    benchmark: Name
    length: Count | None


class Between(Placed):
    """Which two variants are compared, and why these two."""

    a: Name
    b: Name
    against: Literal["control", "level"]
    asked: Asked
    query_mode: Name


class MetricDifference(Record):
    difference: float | None
    low: float | None
    high: float | None


class Difference(Record):
    """Scores of a less those of b on the samples that both have, see :func:`harness.analysis.paired_tests.compare`."""

    n: Count
    n_contexts: Count | None = None
    n_unpaired: Count
    n_subsets: Count
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    better: Count | None = None
    worse: Count | None = None
    test: Literal["mcnemar", "sign_flip"] | None = None
    p: float | None = None
    p_sign_flip: float | None = None
    exact: bool | None = None
    p_mcnemar: float | None = None
    p_holm: float | None = None
    tie: bool | None = None

    @model_validator(mode="after")
    def _counted(self) -> Difference:
        if self.difference is not None and None in (self.better, self.worse, self.test):
            raise ValueError("a difference has its counts and its test")
        return self


class Pair(Difference, Between):
    """Two variants on a benchmark at a length; ``metrics`` of pairs with the control."""

    metrics: dict[str, MetricDifference] = {}


class Rank(Placed):
    asked: Asked
    variant: Name
    query_mode: Name
    rank: Count | None
    tie: bool
    unranked: str | None


class Curve(Placed):
    curve: Name
    method: Name
    until: float = 0.875
    area: float | None
    why: str | None
    points: list[Annotated[list[float | None], Field(min_length=2, max_length=2)]]
    variants: list[Name]


class Alarm(Record):
    kind: Name
    benchmark: Name
    length: Count | None
    variant: Name | None
    text: Name


class Disagreement(Record):
    """A line whose second scorer does not agree."""

    benchmark: Name
    sample_id: Name
    variant: Name
    rollout: Count
    score: float | None
    scorer: Name


class Summary(Record):
    """``summary.json``: all of it follows from the lines. Older ones lack some of the lists."""

    schema_version: Count = SCHEMA_VERSION
    complete: bool = False
    lines: Count | None = None
    alarms: Annotated[list[Alarm], FIRST] = []
    cells: Annotated[list[Cell], FIRST] = []
    ranks: Annotated[list[Rank], FIRST] = []
    curves: Annotated[list[Curve], FIRST] = []
    pairs: Annotated[list[Pair], FIRST] = []
    disagreements: Annotated[list[Disagreement], FIRST] = []


T = TypeVar("T", bound=Record)


def parsed(kind: type[T], value: Any) -> T:
    """A value as a reader takes it: fields that are not known are passed over, at any depth. ``ValueError`` with the
    first fault in words."""
    try:
        return kind.model_validate(value, strict=True, extra="ignore")
    except ValidationError as error:
        raise ValueError(fault(error)) from None


def fault(error: ValidationError) -> str:
    """The first thing that is wrong, in words: the field and why."""
    first = error.errors(include_url=False)[0]
    where = printable(".".join(map(str, first["loc"])), 80)
    return f"{where or 'it'}: {first['msg'][:200]}"
