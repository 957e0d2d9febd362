"""Texts to train a surrogate on: a folder of JSONL files, or a data set of the hub. Nothing is held in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from benchmarks.data_files import DataPath, check_columns, text_of
from harness.errors import HarnessError

COLUMN = "text"
TAKES = f"a folder of .jsonl files with the column {COLUMN}"


class Corpus(Protocol):
    """Documents in subsets. ``digest`` changes whenever a text does; ``subsets`` gives the documents of each."""

    digest: str
    subsets: dict[str, int]

    def text(self, subset: str, row: int) -> str: ...


def open_corpus(data: str) -> Corpus:
    """The corpus that ``--data`` names. :class:`HarnessError` where there is none, or a line of it is broken."""
    if not data:
        raise HarnessError("--data is empty; give a folder of .jsonl files, or the name of a data set of the hub")
    folder = Path(data)
    if folder.is_dir():
        return JsonlCorpus(folder)
    if folder.exists() or data.endswith((".jsonl", ".json")):
        raise HarnessError(f"--data {data} is not a folder; give the folder that holds the .jsonl files")
    if data.startswith((".", "/", "~")) or data.count("/") > 1:  # not a name on the hub, so it is not looked up there
        raise HarnessError(
            f"--data {data} does not exist; give a folder of .jsonl files, or OWNER/NAME of a hub data set"
        )
    return HubCorpus(data)


class JsonlCorpus:
    """All ``*.jsonl`` files of a folder; each file is a subset, each line an object with a ``text``.

    Every line is read and checked once; after that only the places of the lines are kept.
    """

    def __init__(self, folder: Path) -> None:
        files = DataPath(folder, TAKES).files(".jsonl")
        if not files:
            raise HarnessError(f"--data {folder} has no .jsonl file; each is a subset, with a {COLUMN!r} on each line")
        self._files = {file.stem: file for file in files}
        self._places: dict[str, list[int]] = {}
        digest = hashlib.sha256()
        for subset, file in self._files.items():
            digest.update(f"\0{subset}\0".encode())
            self._places[subset] = list(self._index(file, digest))
        self.digest = digest.hexdigest()
        self.subsets = {subset: len(places) for subset, places in self._places.items()}

    @staticmethod
    def _index(file: Path, digest: Any) -> Iterator[int]:
        place, given = 0, DataPath(file, TAKES)
        with given.opening(), file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    _text(line, given, number)
                    digest.update(line)
                    yield place
                place += len(line)

    def text(self, subset: str, row: int) -> str:
        file, place = self._files[subset], self._places[subset][row]
        given = DataPath(file, TAKES)
        with given.opening(), file.open("rb") as lines:
            lines.seek(place)
            return _text(lines.readline(), given, 0 if place else 1)


def _text(line: bytes, given: DataPath, number: int) -> str:
    place, row = given.parse_line(line, number)
    check_columns(row, (COLUMN,), place)
    return text_of(row, COLUMN, place)


class HubCorpus:
    """A data set of the hub; each of its configurations is a subset, of which the first split is read."""

    def __init__(self, name: str) -> None:
        import datasets  # takes a second, and only this source needs it

        try:
            configs = datasets.get_dataset_config_names(name)
            loaded = {config: datasets.load_dataset(name, config) for config in configs}
        except Exception as error:  # the library raises dozens of kinds, its own and those of its network layer
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise HarnessError(
                f"--data {name}: not a local folder, and the hub has no data set of that name ({reason}). "
                f"Give a folder of .jsonl files with a {COLUMN!r} on each line, or fetch the data set first"
            ) from error
        self._splits: dict[str, Any] = {config: next(iter(splits.values())) for config, splits in loaded.items()}
        for config, split in self._splits.items():
            if COLUMN not in split.column_names:
                raise HarnessError(
                    f"--data {name}: subset {config!r} has the columns {', '.join(split.column_names)}; "
                    f"it needs {COLUMN!r}"
                )
        self.subsets = {config: len(split) for config, split in self._splits.items()}
        prints = [f"{name}/{config}/{split._fingerprint}" for config, split in self._splits.items()]
        self.digest = hashlib.sha256("\n".join(prints).encode()).hexdigest()

    def text(self, subset: str, row: int) -> str:
        return str(self._splits[subset][row][COLUMN])
