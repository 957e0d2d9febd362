"""Fields, types and ranges of every file of a run, strictly: nothing unknown, nothing converted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from harness.results import SCHEMA_VERSION, Count, Line, Name, VariantFields
from harness.validation.findings import Finding, finding, shown
from harness.validation.strict import LARGEST, Row

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
    """``run.json`` as :func:`harness.record.run_record` writes it."""

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


class Histogram(Strict):
    """Counts of the scores by bin between ``low`` and ``high``, of ``cached`` pairs."""

    sample_id: Name
    method: Name
    options: Text
    window: Count
    sinks: Count | str
    low: float
    high: float
    counts: Annotated[list[Count], Field(max_length=10_000)]
    cached: Count


RECORD: TypeAdapter[Any] = TypeAdapter(Record)
ITEM: TypeAdapter[Any] = TypeAdapter(Item)
HISTOGRAM: TypeAdapter[Any] = TypeAdapter(Histogram)


def sound_run(value: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(code, what is wrong) of a run's record."""
    version = value.get("schema_version")
    if type(version) is not int or version != SCHEMA_VERSION:
        yield "schema-version", f"has schema_version {shown(version)}, this release reads {SCHEMA_VERSION}"
        return
    yield from _wrong(RECORD, value)


def sound_rows(kind: TypeAdapter[Any], rows: Iterable[Row]) -> Iterator[tuple[Row, list[tuple[str, str]]]]:
    """Each row with what is wrong with it."""
    for row in rows:
        yield row, list(_wrong(kind, row.value))


def lines_of(rows: Iterable[Row]) -> Iterator[tuple[Row, Line | None, list[tuple[str, str]]]]:
    """Each row of ``samples.jsonl`` with its line, or what is wrong with it."""
    for row in rows:
        try:
            yield row, Line.model_validate(row.value, strict=True), []
        except ValidationError as error:
            yield row, None, list(_told(error))


def check_rows(kind: TypeAdapter[Any], name: str, rows: Sequence[Row]) -> Iterator[Finding]:
    for row, wrong in sound_rows(kind, rows):
        for code, what in wrong:
            yield finding(code, name, row.number, what)


def check_lines(name: str, rows: Sequence[Row]) -> Iterator[Finding]:
    for row, _, wrong in lines_of(rows):
        for code, what in wrong:
            yield finding(code, name, row.number, what)


def _wrong(kind: TypeAdapter[Any], value: Any) -> Iterator[tuple[str, str]]:
    try:
        kind.validate_python(value, strict=True)
    except ValidationError as error:
        yield from _told(error)


#: kinds of pydantic's errors that are of a value rather than of its type
_VALUES = ("greater_than", "less_than", "finite_number")
_NAMES = ("string_pattern_mismatch", "string_too_long", "string_too_short")


def _told(error: ValidationError) -> Iterator[tuple[str, str]]:
    first, more = error.errors(include_url=False)[:MOST], error.error_count() - MOST
    for one in first:
        where = ".".join(_plain(part) for part in one["loc"])
        kind = one["type"]
        code = "range" if kind.startswith(_VALUES) else "bad-name" if kind in _NAMES else "schema"
        if kind in ("missing", "extra_forbidden"):
            told = "is missing" if kind == "missing" else "is no field of a run"
        else:
            told = f"is {shown(one['input'])}: {one['msg'][:200]}"
        yield code, f"{where or 'it'} {told}"
    if more > 0:
        yield "schema", f"and {more:,} more of its kind"


def _plain(part: int | str) -> str:
    return str(part) if isinstance(part, int) else ascii(part)[1:-1][:40]
