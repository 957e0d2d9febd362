"""Files of rows: the one place that opens and parses what ``--data`` names, with one wording for each thing that can be
wrong with it. The columns of a row are its benchmark's business."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from benchmarks.base import BenchmarkError

#: most characters of a value that a message shows
SHOWN = 60
#: what JSON calls the types of Python
_NAMES = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}


class DataPath(NamedTuple):
    """What a user gave, for messages.

    path    the file or folder
    takes   what will do in its place, as in "give a .jsonl file"
    flag    where it was given
    """

    path: Path
    takes: str
    flag: str = "--data"

    def wrong(self, what: str) -> BenchmarkError:
        return BenchmarkError(f"{self.flag} {self.path} {what}; give {self.takes}")

    @contextmanager
    def opening(self) -> Iterator[None]:
        """What the file system refuses is a user's mistake."""
        try:
            yield
        except OSError as error:
            raise self.wrong(f"cannot be read: {error.strerror or error}") from error

    def files(self, *endings: str) -> list[Path]:
        """The files of the folder whose names end so, sorted; a folder that cannot be listed is an error."""
        with self.opening():
            return sorted(path for path in self.path.iterdir() if path.suffix in endings)

    def text(self) -> str:
        """The whole file, each line's end a line feed; a byte order mark is left out."""
        with self.opening():
            data = self.path.read_bytes()
        try:
            return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
        except UnicodeDecodeError as error:
            raise self._no_text(data[: error.start].count(b"\n") + 1, error) from None

    def objects(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Place (file and line number) and JSON object of each line that is not blank, read as they are asked for."""
        with self.opening(), self.path.open("rb") as file:
            yield from self.parsed(file)

    def parsed(self, lines: Iterable[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
        """:meth:`objects` of lines that were opened elsewhere."""
        for number, line in enumerate((line for part in lines for line in part.splitlines()), 1):
            if line.removeprefix(codecs.BOM_UTF8).strip():
                yield self.object_of(line, number)

    def object_of(self, line: bytes, number: int) -> tuple[str, dict[str, Any]]:
        """One line of :meth:`objects`; the first may begin with a byte order mark."""
        place = f"{self.path}, line {number}"
        try:
            row = decoded((line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).decode(), place)
        except UnicodeDecodeError as error:
            raise self._no_text(number, error) from None
        if not isinstance(row, dict):
            raise BenchmarkError(f"{place}: a JSON object is needed, got {kind(row)}; give {self.takes}")
        return place, row

    def document(self) -> Any:
        """The content of a file that is one JSON document."""
        return decoded(self.text(), f"{self.flag} {self.path}", f"give {self.takes}")

    def table(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """:meth:`objects` of a parquet file."""
        from pyarrow import ArrowException, parquet

        try:
            with self.opening():
                rows = parquet.read_table(self.path).to_pylist()
        except (ArrowException, ValueError) as error:
            raise self.wrong(f"is no parquet file ({_first_line(error)})") from error
        for number, row in enumerate(rows, 1):
            yield f"{self.path}, row {number}", row

    def _no_text(self, line: int, error: UnicodeDecodeError) -> BenchmarkError:
        return self.wrong(f"is no UTF-8 text (line {line}: {error.reason})")


def decoded(text: str, place: str, way_out: str = "mend or remove the line") -> Any:
    """A JSON text's value. Text that is none, or that no file could hold again: :class:`BenchmarkError`."""
    try:
        value = json.loads(text)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if "\n" in text.strip() else ""
        reason = f"{error.msg}, {line}column {error.colno}"
    except UnicodeEncodeError:
        reason = "half of a surrogate pair, which is no character"
    except RecursionError:
        reason = "nested too deeply"
    except ValueError:  # Python reads whole numbers of up to 4,300 digits
        reason = "a number with too many digits"
    else:
        return value
    raise BenchmarkError(f"{place}: no JSON ({reason}); {way_out}")


def check_columns(row: dict[str, Any], columns: Sequence[str], place: str, null: bool = True) -> None:
    """:class:`BenchmarkError` where a row lacks columns; with ``null`` false, a null is as good as none."""
    missing = [name for name in columns if name not in row or (row[name] is None and not null)]
    if missing:
        raise BenchmarkError(f"{place}: no column {', '.join(missing)}; needed: {', '.join(columns)}")


def text_of(row: dict[str, Any], name: str, place: str, blank: bool = True) -> str:
    """A column that holds a text; with ``blank`` false, one that is not empty."""
    value = row[name]
    if not isinstance(value, str) or not (blank or value.strip()):
        raise misfit(place, name, "a text" if blank else "a text that is not empty", value)
    return value


def count_of(row: dict[str, Any], name: str, place: str, least: int) -> int:
    """A column that holds a whole number."""
    value = row[name]
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise misfit(place, name, f"a whole number from {least}", value)
    return value


def are_texts(value: Any) -> TypeGuard[list[str]]:
    """Whether a value is a list of texts; it may be empty."""
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def misfit(place: str, name: str, needed: str, value: Any) -> BenchmarkError:
    """The error about a value that a column cannot have."""
    return BenchmarkError(f"{place}: {name} must be {needed}, got {json.dumps(value, default=str)[:SHOWN]}")


def kind(value: Any) -> str:
    """What a JSON value is."""
    return _NAMES.get(type(value), "a number")


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
