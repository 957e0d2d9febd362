"""Reading of user data: the one place that opens and parses what ``--data`` names, with one wording for each thing that
can be wrong with it. Benchmarks check the columns of their rows themselves."""

from __future__ import annotations

import codecs
import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from benchmarks.base import BenchmarkError

#: most characters of a value that a message shows
SHOWN = 60
#: JSON's names for Python's types
_TYPE_NAMES = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}


#: the suffix of a packed file
PACKED = ".gz"


def kind(path: Path) -> str:
    """A file's suffix; of ``rows.jsonl.gz`` it is ``.jsonl``."""
    return path.with_suffix("").suffix if path.suffix == PACKED else path.suffix


def without_copies(paths: Iterable[Path]) -> list[Path]:
    """Files, sorted, without those that are also there unpacked."""
    found = set(paths)
    return sorted(path for path in found if path.suffix != PACKED or path.with_suffix("") not in found)


class DataPath(NamedTuple):
    """A file or folder that the user gave. Files may be packed with gzip, such as ``rows.jsonl.gz``.

    path       the file or folder
    expected   what to give instead, for messages: "a .jsonl file"
    flag       the option it was given with
    """

    path: Path
    expected: str
    flag: str = "--data"

    def error(self, what: str) -> BenchmarkError:
        """An error about the path, to be raised: "--data PATH what; give what is expected"."""
        return BenchmarkError(f"{self.flag} {self.path} {what}; give {self.expected}")

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Turns the file system's errors, and those of a damaged packed file, into :class:`BenchmarkError`."""
        try:
            yield
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise self.error(f"cannot be unpacked: {error}") from error
        except OSError as error:
            raise self.error(f"cannot be read: {error.strerror or error}") from error

    def files(self, *suffixes: str) -> list[Path]:
        """The folder's files of these kinds (:func:`kind`), sorted; :class:`BenchmarkError` if the folder cannot be
        listed."""
        with self.opening():
            return without_copies(path for path in self.path.iterdir() if kind(path) in suffixes)

    def open(self) -> BufferedIOBase:
        """The file, unpacked, to be read inside of :meth:`opening`."""
        return gzip.open(self.path) if self.path.suffix == PACKED else self.path.open("rb")

    def text(self) -> str:
        """The whole file with line feeds as line ends and without a byte order mark."""
        with self.opening(), self.open() as file:
            data = file.read()
        try:
            return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
        except UnicodeDecodeError as error:
            raise self._not_utf8(data[: error.start].count(b"\n") + 1, error) from None

    def json_lines(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Place (file and line number) and JSON object of each line that is not blank, read lazily."""
        with self.opening(), self.open() as file:
            yield from self.parse_lines(file)

    def parse_lines(self, lines: Iterable[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
        """:meth:`json_lines` of lines that were opened elsewhere."""
        for number, line in enumerate((line for part in lines for line in part.splitlines()), 1):
            if line.removeprefix(codecs.BOM_UTF8).strip():
                yield self.parse_line(line, number)

    def parse_line(self, line: bytes, number: int) -> tuple[str, dict[str, Any]]:
        """One line of :meth:`json_lines`; the first may begin with a byte order mark."""
        place = f"{self.path}, line {number}"
        first = number == 1
        remedy = f"give {self.expected}" if first else "correct or remove the line"  # a file of another format
        try:
            row = parse_json((line.removeprefix(codecs.BOM_UTF8) if first else line).decode(), place, remedy)
        except UnicodeDecodeError as error:
            raise self._not_utf8(number, error) from None
        if not isinstance(row, dict):
            raise BenchmarkError(f"{place}: expected a JSON object, got {json_type(row)}; give {self.expected}")
        return place, row

    def json(self) -> Any:
        """The value of a file that is one JSON document."""
        return parse_json(self.text(), f"{self.flag} {self.path}", f"give {self.expected}")

    def parquet(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """:meth:`json_lines` of a parquet file."""
        from pyarrow import ArrowException, parquet

        try:
            with self.opening(), self.open() as file:
                rows = parquet.read_table(file).to_pylist()
        except (ArrowException, ValueError) as error:
            raise self.error(f"is not a parquet file ({_first_line(error)})") from error
        for number, row in enumerate(rows, 1):
            yield f"{self.path}, row {number}", row

    def _not_utf8(self, line: int, error: UnicodeDecodeError) -> BenchmarkError:
        return self.error(f"is not UTF-8 text (line {line}: {error.reason})")


def parse_json(text: str, place: str, remedy: str) -> Any:
    """The value of a JSON text. :class:`BenchmarkError` if it is not JSON, or holds what cannot be written as UTF-8."""
    try:
        value = json.loads(text)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if "\n" in text.strip() else ""
        reason = f"{error.msg}, {line}column {error.colno}"
    except UnicodeEncodeError:
        reason = "half of a surrogate pair, which is not a character"
    except RecursionError:
        reason = "nested too deeply"
    except ValueError:  # Python reads whole numbers of up to 4,300 digits
        reason = "a number with too many digits"
    else:
        return value
    raise BenchmarkError(f"{place}: not valid JSON ({reason}); {remedy}")


def check_columns(row: dict[str, Any], columns: Sequence[str], place: str, null: bool = True) -> None:
    """:class:`BenchmarkError` if a row lacks columns; with ``null`` false, a null counts as missing."""
    missing = [name for name in columns if name not in row or (row[name] is None and not null)]
    if missing:
        raise BenchmarkError(f"{place}: no column {', '.join(missing)}; required: {', '.join(columns)}")


def text_of(row: dict[str, Any], name: str, place: str, blank: bool = True) -> str:
    """A text column's value; with ``blank`` false, it must not be empty."""
    value = row[name]
    if not isinstance(value, str) or not (blank or value.strip()):
        raise wrong_value(place, name, "a text" if blank else "a text that is not empty", value)
    return value


def count_of(row: dict[str, Any], name: str, place: str, least: int) -> int:
    """The value of a column of whole numbers from ``least`` on."""
    value = row[name]
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise wrong_value(place, name, f"a whole number of {least} or more", value)
    return value


def are_texts(value: Any) -> TypeGuard[list[str]]:
    """Whether a value is a list of strings, possibly empty."""
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def wrong_value(place: str, column: str, expected: str, value: Any) -> BenchmarkError:
    """The error about a value that a column cannot have, to be raised."""
    return BenchmarkError(f"{place}: {column} must be {expected}, got {json.dumps(value, default=str)[:SHOWN]}")


def json_type(value: Any) -> str:
    """The name of a JSON value's type, with its article."""
    return _TYPE_NAMES.get(type(value), "a number")


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
