"""Figures from papers, each with its source: ``published.yaml``, checked field by field. Nothing here is measured."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import pandas as pd
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from harness.errors import HarnessError

FILE = Path(__file__).with_name("published.yaml")

Text = Annotated[str, Field(min_length=1)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Solved = Annotated[int, Field(ge=0, le=30)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Paper(_Strict):
    title: Text
    name: Text
    url: Annotated[str, Field(pattern=r"^https://arxiv\.org/abs/[0-9.]+$")]


class Source(_Strict):
    """Where a figure is from: the key of a paper, and the table, figure, section or appendix in it."""

    paper: Text
    place: Text


class Entry(_Strict):
    source: Source


class Result(Entry):
    """A score with the full and the pruned cache, 0-100, or pass@4, 0-1. Both null, with a note: there is none."""

    model: Text
    setting: Text
    benchmark: Text
    full: Annotated[float, Field(ge=0, le=100)] | None
    pruned: Annotated[float, Field(ge=0, le=100)] | None
    note: str = ""

    @model_validator(mode="after")
    def _both(self) -> Result:
        if (self.full is None) != (self.pruned is None) or (self.full is None and not self.note):
            raise ValueError("give full and pruned, or neither and a note that says why")
        return self


class Removed(Entry):
    model: Text
    setting: Text
    mean: Fraction


class Surrogate(Entry):
    model: Text
    kind: Text
    parameters: Text
    r2_linear: Fraction
    r2_mlp: Fraction


class Rollouts(Entry):
    """Problems of AIME25's 30 that each answer solved."""

    model: Text
    setting: Text
    solved: Annotated[tuple[Solved, ...], Field(min_length=1)]
    removed: Fraction | None = None


class Window(Entry):
    benchmark: Text
    window: Annotated[int, Field(ge=0)]
    score: Annotated[float, Field(ge=0, le=100)]


class Overhead(Entry):
    model: Text
    kind: Text
    percent: Annotated[float, Field(ge=0)]


class Published(_Strict):
    """All figures, by what they are of."""

    papers: dict[str, Paper]
    results: tuple[Result, ...]
    removed: tuple[Removed, ...]
    surrogates: tuple[Surrogate, ...]
    rollouts: tuple[Rollouts, ...]
    windows: tuple[Window, ...]
    overheads: tuple[Overhead, ...]

    @model_validator(mode="after")
    def _known(self) -> Published:
        unknown = sorted({entry.source.paper for entry in self.entries} - self.papers.keys())
        if unknown:
            raise ValueError(f"source {unknown[0]!r} is not a paper of the file; papers: {', '.join(self.papers)}")
        return self

    @property
    def entries(self) -> tuple[Entry, ...]:
        return (*self.results, *self.removed, *self.surrogates, *self.rollouts, *self.windows, *self.overheads)

    def source(self, entry: Entry) -> str:
        """As a table prints it: ``arXiv 2601.07891, Table 2``."""
        return f"{self.papers[entry.source.paper].name}, {entry.source.place}"

    def sources(self, entries: Iterable[Entry]) -> str:
        """The sources of several entries, each once."""
        return "; ".join(dict.fromkeys(self.source(entry) for entry in entries))


def load(path: Path = FILE) -> Published:
    """The file's figures; :class:`HarnessError` with file and field where it is damaged."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        return Published.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise HarnessError(f"{path.name}: {where}: {first['msg']}") from error
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise HarnessError(f"{path.name} cannot be read: {error}") from error


def table(published: Published, entries: Iterable[Entry]) -> pd.DataFrame:
    """One row per entry, its fields as columns, the source last; columns that no row fills are left out."""
    rows = [{**entry.model_dump(exclude={"source"}), "source": published.source(entry)} for entry in entries]
    found = pd.DataFrame(rows)
    return found[[name for name in found if not found[name].isna().all() and not (found[name] == "").all()]]


def results_table(published: Published) -> pd.DataFrame:
    """The results with the difference, and the mean removed fraction of their model and setting."""
    removed = {(one.model, one.setting): one.mean for one in published.removed}
    rows = [
        {
            "model": one.model,
            "KVzap": one.setting,
            "benchmark": one.benchmark,
            "full cache": one.full,
            "pruned": one.pruned,
            "difference": None if one.full is None or one.pruned is None else round(one.pruned - one.full, 4),
            "mean removed": removed.get((one.model, one.setting)),
            "note": one.note,
            "source": published.source(one),
        }
        for one in published.results
    ]
    return pd.DataFrame(rows)


def rollout_points(published: Published) -> pd.DataFrame:
    """One row an answer to all of AIME25's problems: ``setting, rollout, solved, removed``."""
    rows = [
        {"setting": one.setting, "answer": place, "solved": solved, "removed": one.removed}
        for one in published.rollouts
        for place, solved in enumerate(one.solved, 1)
    ]
    return pd.DataFrame(rows)


def r2_points(published: Published) -> pd.DataFrame:
    rows = [
        {"model": one.model, "surrogate": kind, "R2": value}
        for one in published.surrogates
        for kind, value in (("linear", one.r2_linear), ("MLP", one.r2_mlp))
    ]
    return pd.DataFrame(rows)
