"""Columns and headings of a table that only some runs need: pruning while decoding, sampled answers, answer limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from harness.results.schema import Cell, Difference, Metric

#: of a run made before a figure was reported, cells lack it
UNKNOWN = "n/a"


class Column(NamedTuple):
    """A heading and what stands under it for a cell; ``form`` is how its figures are written."""

    name: str
    show: Callable[[Cell], str]
    form: str = "{}"

    def text(self, value: float) -> str:
        return self.form.format(value)


def score_column(cells: Sequence[Cell], name: str) -> Column:
    """The mean score under ``name``, or pass@1 with its standard error."""
    if not _has(cells, "pass@1"):
        return Column(name, lambda cell: number(cell.score))
    return Column("pass@1 ± se", lambda cell: _with_error(cell.score, cell.metrics.get("pass@1_se")))


def extra_columns(cells: Sequence[Cell]) -> list[Column]:
    """What stands between the removed fraction and the metrics or subsets. ``removed`` itself is the mean
    over decode steps in phases decode and both, so the figure at the end of the answers stands beside it."""
    decoding = any(cell.phase != "prefill" for cell in cells)
    columns = [Column("at end", lambda cell: _fraction(cell.removed_total_mean))] if decoding else []
    if decoding or any(cell.sampling for cell in cells):
        columns.append(Column("tokens", lambda cell: _blank(cell.generated_mean, "{:,.0f}")))
        columns.append(Column("at limit", lambda cell: _blank(cell.limit_share, "{:.0%}")))
    if any(cell.prefills_paid is not None for cell in cells):
        columns.append(Column("prefills", lambda cell: _blank(cell.prefills_paid, "{:,}")))
    return columns


def metric_columns(cells: Sequence[Cell], metrics: Sequence[Metric]) -> dict[str, Column]:
    """The columns of those of a benchmark's ``metrics`` that any of the cells has, and of pass@k, by their names in the
    cells."""
    columns = {metric.name: _metric(metric) for metric in metrics if _has(cells, metric.name)}
    passes = dict.fromkeys(name for cell in cells for name in cell.metrics if name.startswith("pass@"))
    return columns | {name: _pass(name) for name in passes if name not in ("pass@1", "pass@1_se")}


def counted(row: Cell | Difference) -> str:
    """The samples of a cell or pair, and on how many contexts they are, where some share one."""
    contexts = row.n if row.n_contexts is None else row.n_contexts
    return str(row.n) if contexts == row.n else f"{row.n} on {contexts} contexts"


def settings(cells: Sequence[Cell], given_limit: int | None) -> str:
    """How the answers came about, where that is not the plain case; ``given_limit`` is ``--max-new-tokens``."""
    cell = cells[0]
    parts = [] if cell.phase == "prefill" else [f"phase {cell.phase}"]
    limit, full = cell.max_new_tokens, cell.of_new_tokens
    if limit is not None and full is not None and limit < full:
        parts.append(f"limit {limit:,} of {full:,} new tokens")
    elif limit is not None and (full is not None or given_limit is not None):
        parts.append(f"limit {limit:,} new tokens")
    if sampling := cell.sampling:
        drawn = ", ".join(f"{name} {value:g}" for name, value in sampling.items())
        parts += [f"{cell.rollouts or 1} rollouts at {drawn}", f"thinking {'on' if cell.thinking else 'off'}"]
    return "; ".join(parts)


def number(score: float | None) -> str:
    return "-" if score is None else f"{score:.1f}"


def _has(cells: Sequence[Cell], metric: str) -> bool:
    return any(metric in cell.metrics for cell in cells)


def _metric(metric: Metric) -> Column:
    form = f"{{:{metric.format}}}"
    return Column(metric.title, lambda cell: _blank(cell.metrics.get(metric.name), form), form)


def _pass(name: str) -> Column:
    def show(cell: Cell) -> str:
        if name not in cell.metrics:
            return ""
        value = cell.metrics[name]
        return UNKNOWN if value is None else number(value)

    return Column(name, show, "{:.1f}")


def _with_error(score: float | None, error: float | None) -> str:
    return number(score) if error is None else f"{number(score)} ± {error:.1f}"


def _fraction(value: float | None) -> str:
    return _blank(value, "{:.3f}")


def _blank(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
