"""The runs of one or more results folders, read once: what each holds, which may stand on one board, what is broken.

Reading 500 summaries takes seconds, so what a page needs of a run is kept in the user's cache folder as JSON, keyed by
the stamp (name, size, time of change) of the run's files. Nothing outside the folders given is read: links are listed
as broken.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from harness.analysis import boards
from harness.analysis.boards import Board
from harness.analysis.paired_tests import scores_of
from harness.analysis.ranking import level_of
from harness.analysis.run_reader import Reading, checked, read
from harness.errors import HarnessError
from harness.results.safe_text import clean
from harness.results.schema import Line, Summary
from leaderboard.data.discovery import Stamp, all_runs, linked, stamp_of
from leaderboard.data.disk_cache import Json, cached, digest
from leaderboard.data.levels import Level
from leaderboard.escaping import brief


@dataclass(frozen=True)
class Broken:
    """A folder that could not be read, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Part:
    """What one run holds of one benchmark and length.

    basis        what another run must share to stand on the same board, see :func:`harness.analysis.boards.basis_of`
    control      hash of the control's scores, sample by sample
    samples      how many there are, by ``items.jsonl``; 0: not known
    floor        the control is at chance or under 20, so that nothing can be compared
    engines, query_modes, levels   those of its pruned variants; levels as asked for, (kind, value)
    """

    benchmark: str
    length: int | None
    basis: dict[str, Any]
    control: str
    dtype: str
    hardware: str
    samples: int = 0
    engines: tuple[str, ...] = ()
    query_modes: tuple[str, ...] = ()
    levels: tuple[Level, ...] = ()
    floor: bool = False

    @property
    def key(self) -> str:
        return digest(json.dumps(self.basis, sort_keys=True, default=str) + self.control)[:10]


PARTS = TypeAdapter(tuple[Part, ...])


@dataclass(frozen=True)
class Entry:
    """One readable run folder."""

    path: Path
    stamp: Stamp
    complete: bool
    methods: tuple[str, ...]
    parts: tuple[Part, ...]

    @property
    def name(self) -> str:
        return self.path.name

    @cached_property
    def reading(self) -> Reading:
        return read(self.path)


@dataclass(frozen=True)
class Group:
    """The runs that share a board; ``key`` names it in an address and stays the same while its data do."""

    key: str
    part: Part
    entries: tuple[Entry, ...]
    parts: tuple[Part, ...] = ()

    @property
    def title(self) -> str:
        length = f" at {self.part.length:,} tokens" if self.part.length else ""
        return f"{self.part.basis['model']}, {self.part.benchmark}{length}"


@dataclass
class Library:
    """All runs found. ``broken`` are the folders that are listed with a reason in place of figures."""

    entries: list[Entry]
    broken: list[Broken]
    _boards: dict[str, Board] = field(default_factory=dict)

    @cached_property
    def groups(self) -> list[Group]:
        """In the order of the board; of one title the largest first."""
        found: dict[str, list[tuple[Part, Entry]]] = {}
        for entry in self.entries:
            for part in entry.parts:
                found.setdefault(part.key, []).append((part, entry))
        groups = [
            Group(key, some[0][0], tuple(entry for _, entry in some), tuple(part for part, _ in some))
            for key, some in found.items()
        ]
        return sorted(groups, key=_place)

    @cached_property
    def methods(self) -> list[str]:
        """All methods of all runs, sorted: what decides the style of each, so that it is the same on every page."""
        return sorted({method for entry in self.entries for method in entry.methods})

    def board(self, group: Group) -> Board:
        """The cells, ranks, curves, pairs and alarms of a group; :class:`HarnessError` where a file broke meanwhile."""
        if group.key not in self._boards:
            self._boards[group.key] = _board(group)
        return self._boards[group.key]

    def kept(self, kind: str, group: Group, make: Callable[[], Json], more: Any = None) -> Json:
        """``make()``, which reads the group's files alone, kept on disk until one of them changes. ``more`` is what
        else the result depends on."""
        stamp = tuple(item for one in group.entries for item in one.stamp)
        return cached(kind, (*stamp, (group.key, 0, 0), [more]), make)


def _place(group: Group) -> tuple[Any, ...]:
    """By model, benchmark and length; what is made of another benchmark (``fidelity:ruler``) after the others, and last
    what the model cannot do. Of one title the board with the most samples first."""
    part = group.part
    name = (str(part.basis["model"]), part.floor, ":" in part.benchmark, part.benchmark, part.length or 0)
    return *name, -part.samples, -len(group.entries), group.key


def _samples(group: Group) -> str:
    count = group.part.samples
    return f"{count:,} sample{'' if count == 1 else 's'}" if count else "samples not known"


def distinct(groups: Iterable[Group], name: Callable[[Group], str]) -> dict[str, str]:
    """A name for each group, by its key; where some have the same, with what tells them apart."""
    own = {group.key: group for group in groups}
    names = {key: name(group) for key, group in own.items()}
    for more in (
        _samples,
        lambda group: f"{group.part.dtype}, {group.part.basis['phase']}, {group.part.basis['query mode']}",
        lambda group: group.key,
    ):
        same: dict[str, list[str]] = {}
        for key, found in names.items():
            same.setdefault(found, []).append(key)
        for keys in same.values():
            told = {key: more(own[key]) for key in keys}
            if len(set(told.values())) > 1:
                names.update({key: f"{names[key]}, {text}" for key, text in told.items()})
    return names


def open_library(paths: Sequence[Path]) -> Library:
    """Everything under ``paths``, up to two folders down; a folder that cannot be read is listed, never fatal."""
    entries: list[Entry] = []
    broken: list[Broken] = []
    for root, folder in all_runs(paths):
        found = Broken(folder.name, why) if (why := linked(folder, root)) else entry(folder)
        if isinstance(found, Broken):
            broken.append(Broken(brief(found.name), brief(found.reason)))
        else:
            entries.append(found)
    return Library(entries, broken)


def entry(folder: Path) -> Entry | Broken:
    """One run folder, from the cache where its files have not changed."""
    stamp = stamp_of(folder)
    try:
        kept = cached("entry", stamp, lambda: _entry(folder))
        return Entry(folder, stamp, kept["complete"], tuple(kept["methods"]), PARTS.validate_python(kept["parts"]))
    except HarnessError as error:
        return Broken(folder.name, str(error))
    except Exception as error:  # a foreign file may be wrong in any way: the board opens and lists it
        return Broken(folder.name, f"cannot be read ({type(error).__name__}: {error})")


def _entry(folder: Path) -> Json:
    run = checked(read(folder))
    cells, controls = run.summary.cells, list(_control_lines(folder))
    places = dict.fromkeys((cell.benchmark, cell.length) for cell in cells)
    parts = [asdict(_part(run, controls, *place)) for place in places]
    return {"complete": run.summary.complete, "methods": sorted({cell.method for cell in cells}), "parts": parts}


def _part(run: Reading, controls: Iterable[Line], benchmark: str, length: int | None) -> Part:
    own = [cell for cell in run.summary.cells if (cell.benchmark, cell.length) == (benchmark, length)]
    pruned = [cell for cell in own if cell.level_kind != "none" and cell.status != "unsupported"]
    control = scores_of(line for line in controls if (line.benchmark, line.length) == (benchmark, length))
    basis = boards.basis_of(run, benchmark, length)
    samples = len(basis["samples"]) if isinstance(basis["samples"], list) else 0
    basis["samples"] = digest(json.dumps(basis["samples"]))  # of a thousand samples the list is no small thing
    return Part(
        benchmark=benchmark,
        length=length,
        basis=basis,
        control=digest(json.dumps(control, sort_keys=True)),
        dtype=str(basis["dtype"]),
        hardware=run.run.hardware,
        samples=samples,
        engines=tuple(sorted({cell.engine for cell in pruned})),
        query_modes=tuple(sorted({cell.query_mode for cell in own})),
        levels=tuple(dict.fromkeys(level for cell in pruned if (level := level_of(cell)))),
        floor=any(cell.floor for cell in own if cell.level_kind == "none" and cell.subset is None),
    )


def _control_lines(folder: Path) -> Iterator[Line]:
    """The control's lines alone: to check all lines of a run takes as long as all else that is read of it."""
    packed = folder / "samples.jsonl.gz"
    path = packed if packed.is_file() else folder / "samples.jsonl"
    if not path.is_file():
        return
    with gzip.open(path) if path == packed else path.open("rb") as file:
        for row in file:
            if b'"none"' in row and row.endswith(b"\n"):  # the last row of a run that was killed has no end
                line = Line.model_validate_json(row, strict=True, extra="ignore")
                if line.level_kind == "none":
                    yield line


def _board(group: Group) -> Board:
    runs = [one.reading for one in group.entries]
    stamp = tuple(item for one in group.entries for item in one.stamp)

    def make() -> Json:
        sound, told = readable(runs)
        board = boards.board_of(sound, group.part.benchmark, group.part.length)
        rows = Summary(
            cells=board.cells, ranks=board.ranks, curves=board.curves, pairs=board.pairs, alarms=board.alarms
        )
        text = json.dumps(clean(rows.to_json()))  # as text, since pydantic reads it faster than what json makes of it
        left_out = [place for place, run in enumerate(runs) if run not in sound]
        return {"rows": text, "notes": [*board.notes, *told], "left out": left_out}

    try:
        kept = cached("board", (*stamp, (group.key, 0, 0)), make)
        rows = Summary.model_validate_json(kept["rows"])
    except HarnessError:
        raise
    except Exception as error:  # as in `entry`
        raise HarnessError(f"cannot be shown ({type(error).__name__}: {error})") from error
    basis = group.part.basis
    return Board(
        model=str(basis["model"]),
        benchmark=group.part.benchmark,
        length=group.part.length,
        runs=[run for place, run in enumerate(runs) if place not in kept["left out"]],
        basis=basis,
        cells=rows.cells,
        ranks=rows.ranks,
        curves=rows.curves,
        pairs=rows.pairs,
        alarms=rows.alarms,
        notes=kept["notes"],
    )


def readable(runs: Sequence[Reading]) -> tuple[list[Reading], list[str]]:
    """Of several runs those whose lines can be read, since one that cannot would take the others' board away, and what
    is told of the rest. A run alone is shown by its summary. :class:`HarnessError` where none is left."""
    if len(runs) == 1:
        return list(runs), []
    faults = [boards.unreadable(run) for run in runs]
    sound = [run for run, fault in zip(runs, faults, strict=True) if not fault]
    if not sound:
        raise HarnessError(faults[0])
    return sound, [f"left out: {fault}" for fault in faults if fault]


def lines_of(group: Group) -> list[Line]:
    """The lines behind a group's board: each variant's from the first run that has it."""
    where = (group.part.benchmark, group.part.length)
    found: list[Line] = []
    known: set[str] = set()
    for run in readable([entry.reading for entry in group.entries])[0]:
        own = [line for line in run.lines if (line.benchmark, line.length) == where]
        found += [line for line in own if line.variant not in known]
        known.update(line.variant for line in own)
    return found
