"""Fields, types and ranges of every file of a run, strictly: nothing unknown, nothing converted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from harness.results import score_histograms
from harness.results.run_folder import SCHEMA_VERSION, Count, Line, Name, VariantFields
from harness.safe_text import printable, quoted
from harness.validation.findings import Finding, finding
from harness.validation.json_reader import LARGEST, MOST_WRONG, Row

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


RECORD: TypeAdapter[Any] = TypeAdapter(Record)
ITEM: TypeAdapter[Item] = TypeAdapter(Item)
HISTOGRAM: TypeAdapter[Histogram] = TypeAdapter(Histogram)
LINE: TypeAdapter[Line] = TypeAdapter(Line)
T = TypeVar("T")


def sound_run(value: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(code, what is wrong) of a run's record."""
    version = value.get("schema_version")
    if type(version) is not int or version != SCHEMA_VERSION:
        yield "schema-version", f"has schema_version {quoted(version)}, this release reads {SCHEMA_VERSION}"
        return
    yield from _wrong(RECORD, value)


class Sound(NamedTuple, Generic[T]):
    """The rows of a file that are well formed, each with its number, and what is wrong with the others."""

    rows: list[tuple[int, T]]
    findings: list[Finding]


def sound(kind: TypeAdapter[T], name: str, rows: Sequence[Row]) -> Sound[T]:
    """A file's rows as ``kind`` has them; of a file with very many wrong ones the rest is not looked at."""
    good: list[tuple[int, T]] = []
    found: list[Finding] = []
    wrong = 0
    for row in rows:
        if wrong > MOST_WRONG:
            found.append(finding("too-large", name, row.number, f"has more than {MOST_WRONG} such rows before"))
            break
        try:
            good.append((row.number, kind.validate_python(row.value, strict=True)))
        except ValidationError as error:
            wrong += 1
            found += [finding(code, name, row.number, what) for code, what in _told(error)]
    return Sound(good, found)


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
            told = f"is {quoted(one['input'])}: {one['msg'][:200]}"
        yield code, f"{where or 'it'} {told}"
    if more > 0:
        yield "schema", f"and {more:,} more of its kind"


def _plain(part: int | str) -> str:
    return str(part) if isinstance(part, int) else printable(part, 40)
