"""The files of a run: what they hold, how they are written (each line flushed) and read back (each line checked)."""

from __future__ import annotations

import gzip
import json
import math
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_serializer

from harness.errors import HarnessError

SCHEMA_VERSION = 1
#: a line with one of these is scored and averaged
AVERAGED = ("ok", "too_short")
Status = Literal["ok", "too_short", "truncated", "oom", "nan", "timeout", "error"]


class VariantFields(BaseModel):
    """The columns of a variant, in lines and in cells alike."""

    model_config = ConfigDict(extra="forbid")

    variant: str
    method: str
    budget: str
    level_kind: Literal["removed", "keep_tokens", "threshold", "none"]
    level: float | None
    phase: Literal["prefill", "decode", "both"]
    window: int
    sinks: int | Literal["prefix"]
    positions: Literal["original", "cache"]
    engine: Literal["masked", "compact"]
    attention_during_prefill: Literal["full", "pruned"]
    kv_bits: int | None
    query_mode: Literal["agnostic", "aware", "aware-reused"]
    thinking: bool
    options: str

    @field_serializer("level")
    def _level(self, level: float | None) -> float | str | None:
        return str(level) if level is not None and math.isinf(level) else level  # JSON has no infinity


class Line(VariantFields):
    """One sample x variant (x rollout) of ``samples.jsonl``.

    Pairs are KV pairs over prunable layers and KV heads. ``cached_pairs`` and ``kept_pairs`` are those of the context
    (template prefix included) just before the first question token; ``removed_context`` is made of them.
    ``cached_pairs_total`` and ``kept_pairs_total`` are those of everything cached after the last step, and
    ``removed_total`` is made of them; ``removed_time_mean`` is the mean over steps. ``max_new_tokens`` is the answer
    limit, ``sampling`` how tokens were drawn (None: greedy). Where benchmarks ask several questions of a
    context, ``question_index`` is the question's place among them, from 0, and ``prefills_paid`` the prefills of the
    context that a deployment would pay for this answer (:func:`harness.query_modes.numbered`).
    """

    requested_removed: float | None = None
    sample_id: str
    context_id: str
    question_index: int | None = None
    prefills_paid: int | None = None
    benchmark: str
    subset: str
    length: int | None
    rollout: int = 0
    prediction: str | None = None
    score: float | None = Field(default=None, ge=0, le=100)
    metrics: dict[str, float] = {}
    status: Status
    reason: str | None = None
    finish_reason: Literal["stop", "length", "nan"] | None = None
    prompt_cut: bool = False
    bound_by: Literal["protection"] | None = None
    context_tokens: int
    generated_tokens: int = 0
    max_new_tokens: int | None = None
    sampling: dict[str, float] | None = None
    cached_pairs: int | None = None
    kept_pairs: int | None = None
    cached_pairs_total: int | None = None
    kept_pairs_total: int | None = None
    removed_context: float | None = None
    removed_total: float | None = None
    removed_time_mean: float | None = None
    physical_bytes: int | None = None

    @property
    def key(self) -> tuple[str, str, int]:
        """What makes a line unique within a run."""
        return self.sample_id, self.variant, self.rollout


class RunFolder:
    """A folder with ``run.json``, ``items.jsonl``, ``samples.jsonl``, ``histograms.jsonl`` and ``summary.json``; and
    with ``masks/`` where they were asked for (:mod:`harness.mask_store`)."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def exists(self) -> bool:
        return (self.path / "run.json").is_file()

    def start(self, run: dict[str, Any], items: list[dict[str, Any]]) -> None:
        """Write the resolved configuration and the samples' references, before any sample runs."""
        self.path.mkdir(parents=True, exist_ok=True)
        for name in ("samples.jsonl", "samples.jsonl.gz", "histograms.jsonl", "summary.json"):
            (self.path / name).unlink(missing_ok=True)
        for masks in self.path.glob("masks/*.npz"):
            masks.unlink()
        lines = (json.dumps(item, ensure_ascii=False) + "\n" for item in items)
        write_atomically(self.path / "items.jsonl", "".join(lines))
        write_atomically(self.path / "run.json", json.dumps(run, indent=1, ensure_ascii=False) + "\n")

    def run(self) -> dict[str, Any]:
        """The content of ``run.json``."""
        path = self.path / "run.json"
        try:
            run = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise HarnessError(f"{path} cannot be read ({error}); run with --force to start over") from error
        version = run.get("schema_version") if isinstance(run, dict) else None
        if version != SCHEMA_VERSION:
            raise HarnessError(f"{path} has schema_version {version!r}; this release reads {SCHEMA_VERSION}")
        return dict(run)

    def asked_for_masks(self, count: int) -> None:
        """Write down that masks of ``count`` samples of each subset were asked for, after the run was started."""
        run = self.run()
        if count > run.get("store_masks", 0):
            text = json.dumps({**run, "store_masks": count}, indent=1, ensure_ascii=False) + "\n"
            write_atomically(self.path / "run.json", text)

    def summary(self) -> dict[str, Any] | None:
        """The content of ``summary.json``, None where there is none yet."""
        path = self.path / "summary.json"
        try:
            return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None
        except ValueError as error:
            raise HarnessError(f"{path} is damaged ({error}); delete it and run the same command again") from error

    def lines(self) -> list[Line]:
        """All sample lines, from ``samples.jsonl`` or ``samples.jsonl.gz``. A broken line: file and line number; a last
        one that a kill left unfinished is passed over."""
        packed = self.path / "samples.jsonl.gz"
        path = packed if packed.is_file() else self.path / "samples.jsonl"
        return list(_read(path)) if path.is_file() else []

    def mend(self) -> None:
        """Unpack the samples and cut off what a kill left of unfinished last lines, so that a resumed run appends to
        whole lines."""
        packed = self.path / "samples.jsonl.gz"
        if packed.is_file():
            lines = (json.dumps(line.model_dump(), ensure_ascii=False) + "\n" for line in self.lines())
            write_atomically(self.path / "samples.jsonl", "".join(lines))
            packed.unlink()
        for name in ("samples.jsonl", "histograms.jsonl"):
            path = self.path / name
            if path.is_file():
                data = path.read_bytes()
                whole = data.rfind(b"\n") + 1
                if whole < len(data):
                    os.truncate(path, whole)

    def histogram_keys(self) -> set[tuple[Any, ...]]:
        """:func:`histogram_key` of the histograms that are stored already."""
        path = self.path / "histograms.jsonl"
        rows = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        try:
            return {histogram_key(json.loads(row)) for row in rows}
        except (ValueError, TypeError, KeyError) as error:
            raise HarnessError(f"{path} is damaged ({error}); run with --force to start over") from error

    def append(self, name: str) -> IO[str]:
        """``samples.jsonl`` or ``histograms.jsonl``, open for appending."""
        return (self.path / name).open("a", encoding="utf-8")

    def finish(self, summary: dict[str, Any]) -> None:
        write_atomically(self.path / "summary.json", json.dumps(summary, indent=1, ensure_ascii=False) + "\n")


def histogram_key(row: dict[str, Any]) -> tuple[Any, ...]:
    """What makes a histogram unique within a run."""
    return tuple(row[name] for name in ("sample_id", "method", "options", "window", "sinks"))


def append_line(file: IO[str], row: dict[str, Any]) -> None:
    """Append one JSON line and flush it to the file."""
    file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
    file.flush()


def write_atomically(path: Path, text: str) -> None:
    """Write a whole file or nothing."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def _read(path: Path) -> Iterator[Line]:
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise HarnessError(f"{path} cannot be read: {error}") from error
    for number, text in enumerate(data.splitlines(keepends=True), 1):
        try:
            yield Line.model_validate_json(text)
        except ValidationError as error:
            if not text.endswith(b"\n"):
                return
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "line"
            raise HarnessError(f"{path}, line {number}: {where}: {first['msg']}") from error
