"""Columns and headings of a table that only some runs need: pruning while decoding, drawn answers, answer limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

#: of a run made before a figure was reported, cells lack it
Cell = dict[str, Any]
UNKNOWN = "n/a"
#: what is reported of variants that read a given answer: metric -> heading and format
FIDELITY = {
    "kl_mean": ("KL", "{:.4f}"),
    "kl_p95": ("KL 95th", "{:.4f}"),
    "ppl_ratio": ("perplexity x", "{:.3f}"),
}


class Column(NamedTuple):
    name: str
    show: Callable[[Cell], str]


def score_column(cells: Sequence[Cell], name: str) -> Column:
    """The mean score under ``name``, or pass@1 with its standard error."""
    if not _has(cells, "pass@1"):
        return Column(name, lambda cell: number(cell["score"]))
    return Column("pass@1 ± se", lambda cell: _with_error(cell["score"], cell["metrics"].get("pass@1_se")))


def extra_columns(cells: Sequence[Cell]) -> list[Column]:
    """What stands between the removed fraction and the subsets. ``removed`` itself is the mean over decode steps in
    phases decode and both, so the figure at the end of the answers stands beside it."""
    decoding = any(cell["phase"] != "prefill" for cell in cells)
    columns = [Column("at end", lambda cell: _fraction(cell.get("removed_total_mean")))] if decoding else []
    if decoding or any(cell.get("sampling") for cell in cells):
        columns.append(Column("tokens", lambda cell: _blank(cell.get("generated_mean"), "{:,.0f}")))
        columns.append(Column("at limit", lambda cell: _blank(cell.get("limit_share"), "{:.0%}")))
    if _has(cells, "exact_match"):
        columns.append(Column("exact", lambda cell: number(cell["metrics"].get("exact_match"))))
    if any("prefills_paid" in cell for cell in cells):
        columns.append(Column("prefills", lambda cell: _blank(cell.get("prefills_paid"), "{:,}")))
    if _has(cells, "answered"):
        columns.append(Column("answered", lambda cell: _blank(cell["metrics"].get("answered"), "{:.0%}")))
    if _has(cells, "kl_mean"):
        columns += [_metric(title, name, form) for name, (title, form) in FIDELITY.items()]
    passes = dict.fromkeys(name for cell in cells for name in cell["metrics"] if name.startswith("pass@"))
    columns += [_pass(name) for name in passes if name not in ("pass@1", "pass@1_se")]
    return columns


def settings(cells: Sequence[Cell], given_limit: int | None) -> str:
    """How the answers came about, where that is not the plain case; ``given_limit`` is ``--max-new-tokens``."""
    cell = cells[0]
    parts = [] if cell["phase"] == "prefill" else [f"phase {cell['phase']}"]
    limit, full = cell.get("max_new_tokens"), cell.get("of_new_tokens")
    if limit is not None and full is not None and limit < full:
        parts.append(f"limit {limit:,} of {full:,} new tokens")
    elif limit is not None and (full is not None or given_limit is not None):
        parts.append(f"limit {limit:,} new tokens")
    if sampling := cell.get("sampling"):
        drawn = ", ".join(f"{name} {value:g}" for name, value in sampling.items())
        parts += [f"{cell['rollouts']} rollouts at {drawn}", f"thinking {'on' if cell['thinking'] else 'off'}"]
    return "; ".join(parts)


def number(score: float | None) -> str:
    return "-" if score is None else f"{score:.1f}"


def _has(cells: Sequence[Cell], metric: str) -> bool:
    return any(metric in cell["metrics"] for cell in cells)


def _metric(title: str, name: str, form: str) -> Column:
    return Column(title, lambda cell: _blank(cell["metrics"].get(name), form))


def _pass(name: str) -> Column:
    def show(cell: Cell) -> str:
        if name not in cell["metrics"]:
            return ""
        value = cell["metrics"][name]
        return UNKNOWN if value is None else number(value)

    return Column(name, show)


def _with_error(score: float | None, error: float | None) -> str:
    return number(score) if error is None else f"{number(score)} ± {error:.1f}"


def _fraction(value: float | None) -> str:
    return _blank(value, "{:.3f}")


def _blank(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
