"""The fixed RULER sets behind the published numbers of KV-cache pruning: ``simonjegou/ruler`` on the hub."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from benchmarks import hub
from benchmarks.base import Benchmark, BenchmarkError, Request, Sample, Score, Text
from benchmarks.data_files import DataPath
from benchmarks.prompt_lengths import check_prompt_lengths
from benchmarks.registry import register
from benchmarks.ruler.benchmark import Ruler
from benchmarks.ruler.rows import COLUMNS, EXPECTED, as_samples, checked, choose, read_rows, score, slack, without_rows

DATA_SET = "simonjegou/ruler"


class PublishedRuler(Benchmark):
    """All 13 subsets at one length, 500 rows each, made once with Llama 3.1's tokenizer and an older RULER; other
    models see somewhat more or fewer tokens. NVIDIA/kvpress reports its figures on these rows.

    They come from the hub, or with ``--data`` from a .jsonl or .parquet file of the same columns or a folder of such
    files (those in its subfolder named after the length, if there is one, as in a copy of the data set). All are
    used, or the first ``limit`` of each subset; rows of another length are rejected. Rows with equal contexts share a
    prefill.

    Score: RULER's. (kvpress deletes control characters where RULER makes line ends of them.)
    """

    paper = Ruler.paper
    licence = Ruler.licence
    subsets = Ruler.subsets
    needs_data = Ruler.subsets
    groups = Ruler.groups
    length: ClassVar[int]

    def check(self, request: Request) -> None:
        super().check(request)
        choose(self._rows(request), self.subsets, request, self._place(request))

    def check_lengths(self, request: Request) -> None:
        for length in request.lengths:
            if length != self.length:
                raise BenchmarkError(f"{self.name} has the length {self.length}, got --length {length}; leave it out")

    def notes(self, request: Request) -> tuple[str, ...]:
        return without_rows(self._rows(request) if request.optional else [], request, self._place(request))

    def samples(self, request: Request, text: Text) -> list[Sample]:
        rows = choose(self._rows(request), self.subsets, request, self._place(request))
        return as_samples(rows, self.length, self.name)

    def check_samples(self, request: Request, samples: Sequence[Sample], text: Text) -> None:
        if request.data is not None:
            remedy = f"give rows of {self.length:,} tokens, or use --benchmark ruler, which takes rows of any length"
            check_prompt_lengths(samples, slack, text, self._place(request), f"{self.name} has", remedy)

    def score(self, sample: Sample, prediction: str) -> Score:
        return score(sample, prediction)

    def _place(self, request: Request) -> str:
        return f"{DATA_SET} ({self.length})" if request.data is None else f"--data {request.data}"

    def _rows(self, request: Request) -> list[dict[str, Any]]:
        if request.data is not None:
            return [row for file in self._files(request.data) for row in read_rows(file, self.subsets)]
        hint = f"give a .jsonl or .parquet file or a folder with the columns {', '.join(COLUMNS)} as --data"
        rows = hub.rows(DATA_SET, str(self.length), "test", hint)
        return [checked(row, f"{DATA_SET}, row {number}", self.subsets) for number, row in enumerate(rows, 1)]

    def _files(self, data: Path) -> list[Path]:
        if not data.is_dir():
            return [data]
        DataPath(data, EXPECTED).files()  # fails on a folder that cannot be listed
        folder = data / str(self.length) if (data / str(self.length)).is_dir() else data
        files = DataPath(folder, EXPECTED).files(".jsonl", ".parquet")
        if not files:
            columns = ", ".join(COLUMNS)
            raise BenchmarkError(f"--data {folder} has no .jsonl or .parquet file; its rows need the columns {columns}")
        return files


def _summary(length: int) -> str:
    return (
        f"the public RULER rows at {length:,} tokens that kvpress reports on (hub data set {DATA_SET}, 500 per subset)"
    )


@register
class Ruler4k(PublishedRuler):
    name = "ruler-4k"
    summary = _summary(4096)
    length = 4096
    default_lengths = (4096,)


@register
class Ruler8k(PublishedRuler):
    name = "ruler-8k"
    summary = _summary(8192)
    length = 8192
    default_lengths = (8192,)


@register
class Ruler16k(PublishedRuler):
    name = "ruler-16k"
    summary = _summary(16384)
    length = 16384
    default_lengths = (16384,)
