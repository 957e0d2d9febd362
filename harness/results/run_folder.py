"""The files of a run: what they hold, how they are written (each line flushed) and read back (each line checked)."""

from __future__ import annotations

import gzip
import json
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from pydantic import ValidationError

from harness.errors import HarnessError
from harness.files import load, write_atomically
from harness.results import jsonl
from harness.results.schema import SCHEMA_VERSION, Item, Line, Record, RunRecord, Summary, parsed

try:
    import fcntl
except ImportError:  # a system without such locks
    fcntl = None  # type: ignore[assignment]

#: bytes of a file that are looked at at once
_BLOCK = 1 << 20


class RunFolder:
    """A folder with ``run.json``, ``items.jsonl``, ``samples.jsonl``, ``histograms.jsonl`` and ``summary.json``; and
    with ``masks/`` where they were requested (:mod:`harness.results.mask_file`)."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def exists(self) -> bool:
        return (self.path / "run.json").is_file()

    def start(self, run: RunRecord, items: list[Item]) -> None:
        """Write the resolved configuration and the samples' references, before any sample runs."""
        self.path.mkdir(parents=True, exist_ok=True)
        for name in ("samples.jsonl", "samples.jsonl.gz", "histograms.jsonl", "summary.json"):
            (self.path / name).unlink(missing_ok=True)
        for masks in self.path.glob("masks/*.npz"):
            masks.unlink()
        write_atomically(self.path / "items.jsonl", _json_lines(items))
        write_atomically(self.path / "run.json", _json(run))

    def file(self, name: str) -> Path | None:
        """A file of the run, None where it is missing. One that is a link out of the folder: :class:`HarnessError`."""
        path = self.path / name
        if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(self.path)):
            raise HarnessError(f"{path} is a link that leads out of its folder; put the file itself there")
        return path if os.path.isfile(path) else None

    def run(self) -> RunRecord:
        """The content of ``run.json``."""
        path = self.file("run.json") or self.path / "run.json"
        try:
            run = load(path)
        except (OSError, ValueError) as error:
            raise HarnessError(f"{path} cannot be read ({error}); run with --force to start over") from error
        version = run.get("schema_version") if isinstance(run, dict) else None
        if version != SCHEMA_VERSION:
            raise HarnessError(f"{path} has schema_version {version!r}; this release reads {SCHEMA_VERSION}")
        try:
            return parsed(RunRecord, run)
        except ValueError as error:
            raise HarnessError(f"{path} is damaged ({error}); take it from a copy, or run with --force anew") from error

    def asked_for_masks(self, count: int) -> None:
        """Write down that masks of ``count`` samples of each subset were requested after the run was started."""
        run = self.run()
        if count > run.store_masks:
            write_atomically(self.path / "run.json", _json(run.model_copy(update={"store_masks": count})))

    def summary(self) -> Summary | None:
        """The content of ``summary.json``, None where there is none yet."""
        path = self.file("summary.json")
        try:
            return parsed(Summary, load(path)) if path else None
        except (OSError, ValueError) as error:
            raise HarnessError(f"{path} is damaged ({error}); delete it and run the same command again") from error

    def lines(self) -> list[Line]:
        """All sample lines, from ``samples.jsonl`` or ``samples.jsonl.gz``. A broken line: file and line number; a last
        one that a kill left unfinished is skipped."""
        return list(_read(self.samples)) if self.samples else []

    def count(self) -> int:
        """How many lines :meth:`lines` would give were none of them broken inside; 0 without a file. They are counted
        by their ends, a block at a time; only what follows the last end is looked at, as a kill may have left it."""
        return _count(self.samples) if self.samples else 0

    @property
    def samples(self) -> Path | None:
        """The file of the lines: ``samples.jsonl.gz`` where there is one, else ``samples.jsonl``, if that is there."""
        return self.file("samples.jsonl.gz") or self.file("samples.jsonl")

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

    def append(self, name: str) -> IO[str]:
        """``samples.jsonl`` or ``histograms.jsonl``, open for appending."""
        with _writing(self.path / name):
            return (self.path / name).open("a", encoding="utf-8")

    def finish(self, summary: Summary) -> None:
        with _writing(self.path / "summary.json"):
            write_atomically(self.path / "summary.json", _json(summary))

    def restore_items(self, items: list[Item]) -> None:
        """Write ``items.jsonl`` again where it is not what :meth:`start` wrote: it follows from the run's samples."""
        path, text = self.path / "items.jsonl", _json_lines(items)
        with _writing(path):
            if not path.is_file() or path.read_bytes() != text.encode():
                write_atomically(path, text)


def append_line(file: IO[str], row: dict[str, Any]) -> None:
    """Append one JSON line and flush it to the file."""
    text = json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"
    with _writing(Path(file.name)):
        file.write(text)
        file.flush()


def _json(record: Record) -> str:
    return json.dumps(record.to_json(), indent=1, ensure_ascii=False) + "\n"


def _json_lines(rows: Sequence[Record]) -> str:
    return "".join(json.dumps(row.to_json(), ensure_ascii=False) + "\n" for row in rows)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """A full or closed disk is nothing that a traceback helps with."""
    try:
        yield
    except OSError as error:
        raise HarnessError(
            f"{path} cannot be written to: {error.strerror or error}; once it can, continue with --resume"
        ) from error


@contextmanager
def alone(folder: RunFolder) -> Iterator[None]:
    """One process at a time on a run folder, whatever cache folders the processes have: the folder itself is locked.
    The lock goes with the process, however that ends. A folder that was made for it and stays empty is removed."""
    path = folder.path
    if path.exists() and not path.is_dir():  # nothing can be written there, which is found out later
        yield
        return
    made = not path.exists()
    try:
        path.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise HarnessError(f"--out {path.parent} cannot be written to: {error.strerror or error}") from error
    try:
        _lock(handle, path)
        yield
    finally:
        if made:
            with suppress(OSError):  # there are results in it
                path.rmdir()
        os.close(handle)


def _lock(handle: int, path: Path) -> None:
    try:
        if fcntl is None:
            raise OSError("this system has none")
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise HarnessError(f"another process is writing to {path}; wait for it, or stop it first") from None
    except OSError as error:
        print(
            f"{path} lies on a file system without locks ({error.strerror or error}); start no second process on it",
            file=sys.stderr,
        )


def _count(path: Path) -> int:
    ends, tail = 0, b""
    try:
        with opened(path) as file:
            while block := file.read(_BLOCK):
                ends += block.count(b"\n")
                start = block.rfind(b"\n") + 1
                tail = block[start:] if start else tail + block
                if len(tail) > jsonl.MOST_LINE:  # joined block by block, a file without an end would take hours
                    raise HarnessError(f"{path}, line {ends + 1} {jsonl.too_long(len(tail))}")
    except (OSError, EOFError, zlib.error) as error:
        raise HarnessError(f"{path} cannot be read: {error}") from error
    try:
        return ends + bool(tail and Line.model_validate_json(tail, strict=True, extra="ignore"))
    except ValidationError:
        return ends


def most_unpacked(size: int) -> int:
    """Bytes that ``size`` packed ones may unpack to: lines shrink about thirtyfold, and beyond a hundredfold a file was
    made to burst its reader."""
    return 2**24 + 100 * size


class _Packed(gzip.GzipFile):
    """A gzip file that gives no more than :func:`most_unpacked`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.left = most_unpacked(path.stat().st_size)

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(self.left + 1 if size is None or size < 0 else size)
        self.left -= len(data)
        if self.left < 0:
            raise OSError("it unpacks to far more than lines of a run would")
        return data


def opened(path: Path) -> IO[bytes]:
    """``samples.jsonl`` or ``samples.jsonl.gz``, open for reading."""
    return _Packed(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def _read(path: Path) -> Iterator[Line]:
    try:
        with opened(path) as file:
            data = file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise HarnessError(f"{path} cannot be read: {error}") from error
    try:
        yield from jsonl.parse(Line, data)
    except ValueError as error:
        raise HarnessError(f"{path}, {error}") from error
