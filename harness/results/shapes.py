"""What readers rely on in the JSON of a run folder. Unknown fields are passed over, so that newer runs can be read."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from harness.results.run_folder import Count, Name, VariantFields
from harness.safe_text import printable

#: a list stops at its first fault, or a file of a million of them would be a million messages
FIRST = Field(fail_fast=True)
Number = float | None
Note = str | None


class Shape(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class Labelled(Shape):
    variant: Name


class Configured(Shape):
    model: Name | None = None
    model_files: Note = None
    dtype: Note = None
    device: Note = None
    seed: Count = 0
    variants: Annotated[list[Labelled], FIRST] | None = None


class Answered(Shape):
    rollouts: list[Annotated[int, Field(ge=1, le=2**53)]] = [1]


class Facts(Shape):
    subsets: Count
    chance: float
    answer_limit: Count | None = None
    pass_at: list[Count] = []
    cross_check: Note = None
    groups: dict[Name, list[Name]] = {}


class Cannot(VariantFields):
    """A variant of ``unsupported``."""

    model_config = ConfigDict(extra="ignore")


class Run(Shape):
    """``run.json``."""

    configuration: Configured | None = None
    answers: dict[Name, Answered | None] | None = None
    seeds: dict[str, Count] | None = None
    facts: dict[Name, Facts] | None = None
    unsupported: Annotated[list[Cannot], FIRST] | None = None
    benchmark_versions: dict[Name, str] | None = None
    hardware: Note = None
    attention_kernel: Note = None
    commit: Note = None


class Item(Shape):
    """A row of ``items.jsonl``."""

    sample_id: Name
    benchmark: Name
    length: Count | None
    prompt_hash: str
    references: list[str] | None = None


class Group(Shape):
    score: Number
    n_subsets: Count
    of_subsets: Count


class Cell(VariantFields):
    model_config = ConfigDict(extra="ignore")

    benchmark: Name
    subset: Name | None
    length: Count | None
    score: Number
    low: Number
    high: Number
    n: Count
    n_subsets: Count
    n_failed: Count
    removed_mean: Number
    removed_min: Number
    removed_max: Number
    requested_removed: Number
    floor: bool
    bound_by: Note
    metrics: dict[str, Number]
    groups: dict[Name, Group] | None = None
    of_subsets: Count | None = None
    of_new_tokens: Count | None = None
    max_new_tokens: Count | None = None
    rollouts: Count | None = None
    sampling: dict[str, float] | None = None
    removed_total_mean: Number = None
    generated_mean: Number = None
    limit_share: Number = None
    prefills_paid: Count | None = None
    n_cut: Count = 0
    status: Note = None
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


class Asked(Shape):
    kind: Literal["removed", "keep_tokens", "threshold"]
    value: float | Literal["inf", "-inf"]


class Placed(Shape):
    benchmark: Name
    length: Count | None


class Pair(Placed):
    a: Name
    b: Name
    against: Literal["control", "level"]
    asked: Asked
    query_mode: Name
    n: Count
    n_unpaired: Count
    n_subsets: Count
    difference: Number
    low: Number
    high: Number
    better: Count | None
    worse: Count | None
    test: Note
    exact: bool | None
    p: Number
    p_holm: Number
    tie: bool | None

    @model_validator(mode="after")
    def _whole(self) -> Pair:
        if self.difference is not None and None in (self.better, self.worse, self.test):
            raise ValueError("a difference has its counts and its test")
        return self


class Rank(Placed):
    variant: Name
    query_mode: Name
    asked: Asked
    rank: Count | None
    tie: bool
    unranked: Note


class Curve(Placed):
    curve: Name
    method: Name
    area: Number
    why: Note
    points: list[Annotated[list[Number], Field(min_length=2, max_length=2)]]
    variants: list[Name]


class Alarm(Placed):
    kind: Name
    variant: Name | None
    text: Name


class Summary(Shape):
    """``summary.json``; older ones lack some of the lists."""

    complete: bool = False
    cells: Annotated[list[Cell], FIRST] = []
    pairs: Annotated[list[Pair], FIRST] = []
    ranks: Annotated[list[Rank], FIRST] = []
    curves: Annotated[list[Curve], FIRST] = []
    alarms: Annotated[list[Alarm], FIRST] = []


RUN: TypeAdapter[Any] = TypeAdapter(Run)
ITEM: TypeAdapter[Any] = TypeAdapter(Item)
SUMMARY: TypeAdapter[Any] = TypeAdapter(Summary)


def fault(kind: TypeAdapter[Any], value: Any) -> str:
    """What of a value a reader could not take; empty where nothing is."""
    try:
        kind.validate_python(value, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = printable(".".join(map(str, first["loc"])), 80)
        return f"{where or 'it'}: {first['msg'][:200]}"
    return ""
