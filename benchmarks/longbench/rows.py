"""Rows of LongBench and model outputs on them: JSON lines, one file per subset, from a folder or THUDM's archive."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import hub
from benchmarks.base import BenchmarkError
from benchmarks.data_files import PACKED, DataPath, are_texts, check_columns, count_of, text_of, wrong_value

DATA_SET, ARCHIVE = "THUDM/LongBench", "data.zip"
HINT = f"download {ARCHIVE} of {DATA_SET} elsewhere, unpack it, and give its SUBSET.jsonl files with --data FOLDER"
FOLDER = "a folder of SUBSET.jsonl files, such as hotpotqa.jsonl"
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

    Raises :class:`BenchmarkError` if it has none of the subsets.
    """

    def __init__(self, path: Path, subsets: Sequence[str], even: bool, flag: str = "--data") -> None:
        self.what = f"{flag} {path}"
        self._flag = flag
        self._archive = path if path.suffix == ".zip" else None
        if not path.exists():
            raise BenchmarkError(f"{self.what} does not exist; give {FOLDER}")
        if self._archive is None and not path.is_dir():
            raise BenchmarkError(f"{self.what} is not a folder; give {FOLDER}")
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
            files = DataPath(path, FOLDER, self._flag).files(".jsonl")
            return {file.name.removesuffix(PACKED): str(file) for file in files}
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
        takes = f"JSON lines with the columns {', '.join(columns)}"
        given = DataPath(Path(place) if self._archive is None else self._archive / place, takes, self._flag)
        try:
            with given.opening():
                found = islice(given.parse_lines(self._lines(place)), limit)
                return [_row(row, where, subset, index, columns) for index, (where, row) in enumerate(found)]
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            RuntimeError,  # encrypted, or compressed by an unknown method
        ) as error:
            raise BenchmarkError(f"{self.what}: {place} cannot be read ({error}); {HINT}") from error

    def _lines(self, place: str) -> Iterator[bytes]:
        if self._archive is None:
            with DataPath(Path(place), FOLDER, self._flag).open() as file:
                yield from file
        else:
            with zipfile.ZipFile(self._archive) as archive, archive.open(place) as member:
                yield from member


def from_hub() -> Path:
    """THUDM's archive. The data set is a loading script around it, which ``datasets`` 4 and later do not run."""
    return hub.file(DATA_SET, ARCHIVE, HINT)


def _row(row: dict[str, Any], place: str, subset: str, number: int, columns: Sequence[str]) -> Row:
    check_columns(row, columns, place)
    texts = tuple(text_of(row, name, place) for name in columns if name not in ("answers", "length", "all_classes"))
    answers, classes = row["answers"], row["all_classes"] or []
    if not are_texts(answers) or not answers:
        raise wrong_value(place, "answers", "a list of texts", answers)
    if not are_texts(classes) or (subset in CLASSED and not (classes and all(name.strip() for name in classes))):
        raise wrong_value(place, "all_classes", "a list of texts", row["all_classes"])
    if subset in NUMBERED and not all(re.search(r"\d", answer) for answer in answers):
        raise wrong_value(place, f"answers of {subset}", "texts that name a paragraph", answers)
    return Row(subset, number, texts, tuple(answers), tuple(classes), count_of(row, "length", place, 0))
