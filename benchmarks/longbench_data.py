"""Rows of LongBench and model outputs on them: JSON lines, a file a subset, from a folder or THUDM's archive."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import hub
from benchmarks.base import BenchmarkError

DATA_SET, ARCHIVE = "THUDM/LongBench", "data.zip"
HINT = f"download {ARCHIVE} of {DATA_SET} elsewhere, unpack it, and give its SUBSET.jsonl files with --data FOLDER"
COLUMNS = ("input", "context", "answers", "length", "all_classes")
PREDICTION_COLUMNS = ("pred", "answers", "length", "all_classes")
#: subsets whose metric needs the names of all classes, or a number in each answer
CLASSED = ("trec", "lsht")
NUMBERED = ("passage_retrieval_en", "passage_retrieval_zh")


class Row(NamedTuple):
    """One line; ``texts`` are its input and context, or its prediction. ``number`` counts from 0 within its file."""

    subset: str
    number: int
    texts: tuple[str, ...]
    answers: tuple[str, ...]
    all_classes: tuple[str, ...]
    length: int


class Source:
    """A folder of ``SUBSET.jsonl`` files or THUDM's archive; with ``even``, ``SUBSET_e.jsonl`` comes first.

    Raises :class:`BenchmarkError` where it holds none of the subsets.
    """

    def __init__(self, path: Path, subsets: Sequence[str], even: bool, flag: str = "--data") -> None:
        self.what = f"{flag} {path}"
        self._archive = path if path.suffix == ".zip" else None
        if not path.exists():
            raise BenchmarkError(f"{self.what} does not exist; give a folder of SUBSET.jsonl files")
        if self._archive is None and not path.is_dir():
            raise BenchmarkError(
                f"{self.what} is no folder; give a folder of SUBSET.jsonl files, such as hotpotqa.jsonl"
            )
        names = self._names(path)
        self._files: dict[str, str] = {}
        for subset in subsets:
            for stem in (f"{subset}_e", subset) if even else (subset,):
                if f"{stem}.jsonl" in names:
                    self._files.setdefault(subset, names[f"{stem}.jsonl"])
        if not self._files:
            raise BenchmarkError(f"{self.what} has no SUBSET.jsonl of any of: {', '.join(subsets)}")

    def _names(self, path: Path) -> dict[str, str]:
        """Places of the .jsonl files by name."""
        if self._archive is None:
            return {file.name: str(file) for file in path.glob("*.jsonl")}
        try:
            with zipfile.ZipFile(path) as archive:
                return {name.rpartition("/")[2]: name for name in archive.namelist()}
        except (OSError, zipfile.BadZipFile) as error:
            raise BenchmarkError(f"{self.what} cannot be read ({error}); {HINT}") from error

    @property
    def present(self) -> list[str]:
        return list(self._files)

    def rows(self, subset: str, columns: Sequence[str] = COLUMNS, limit: int | None = None) -> list[Row]:
        """The first ``limit`` rows. :class:`BenchmarkError` with file and line number on one that is broken."""
        place = self._files[subset]
        try:
            numbered = ((number, line) for number, line in enumerate(self._lines(place), 1) if line.strip())
            return [
                _row(line, f"{place}, line {number}", subset, index, columns)
                for index, (number, line) in enumerate(islice(numbered, limit))
            ]
        except (OSError, zipfile.BadZipFile) as error:
            raise BenchmarkError(f"{self.what}: {place} cannot be read ({error}); give a readable file") from error

    def _lines(self, place: str) -> Iterator[bytes]:
        if self._archive is None:
            with open(place, "rb") as file:
                yield from file
        else:
            with zipfile.ZipFile(self._archive) as archive, archive.open(place) as member:
                yield from member


def from_hub() -> Path:
    """THUDM's archive. Its data set is a loading script around it, which ``datasets`` 4 and later do not run."""
    return hub.file(DATA_SET, ARCHIVE, HINT)


def _row(line: bytes, place: str, subset: str, number: int, columns: Sequence[str]) -> Row:
    try:
        row = json.loads(line)
    except ValueError as error:  # also bytes that are no UTF-8
        raise BenchmarkError(f"{place}: no JSON ({error}); mend or remove the line") from None
    if not isinstance(row, dict):
        raise BenchmarkError(f"{place}: a JSON object is needed, got {type(row).__name__}")
    missing = [name for name in columns if name not in row]
    if missing:
        raise BenchmarkError(f"{place}: no column {', '.join(missing)}; needed: {', '.join(columns)}")
    texts = tuple(row[name] for name in columns if name not in ("answers", "length", "all_classes"))
    if not all(isinstance(text, str) for text in texts):
        raise BenchmarkError(f"{place}: {' and '.join(columns[: len(texts)])} must be strings")
    answers, classes, length = row["answers"], row["all_classes"] or [], row["length"]
    if not _texts(answers) or not answers:
        raise BenchmarkError(f"{place}: answers must be a list of strings, got {json.dumps(answers)[:60]}")
    if not _texts(classes) or (subset in CLASSED and not classes):
        raise BenchmarkError(f"{place}: all_classes must be a list of strings, got {json.dumps(classes)[:60]}")
    if subset in NUMBERED and not all(re.search(r"\d", answer) for answer in answers):
        raise BenchmarkError(f"{place}: answers of {subset} must name a paragraph, got {json.dumps(answers)[:60]}")
    if not isinstance(length, int) or isinstance(length, bool):
        raise BenchmarkError(f"{place}: length must be a whole number, got {json.dumps(length)[:60]}")
    return Row(subset, number, texts, tuple(answers), tuple(classes), length)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)
