"""The table under a board's chart: its rows, what must be said below them, and its cells as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

import streamlit as st

from harness.analysis.boards import Board
from harness.analysis.ranking import is_partial
from harness.reporting import render
from harness.results.schema import Cell
from leaderboard.data import method_code
from leaderboard.data.levels import CONTROL, Level, control_of, exact
from leaderboard.data.library import Group
from leaderboard.data.standings import AT, ReadOff, Standing
from leaderboard.escaping import brief, plain

#: rows of a table that are shown without scrolling
MOST_ROWS = 30
NOT_MEASURED = "not measured"
SCORE = "Score"
#: of the table: a cell by the name of its column
Row = dict[str, float | str | None]


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def show_table(board: Board, group: Group, rows: Sequence[Standing], level: Level | None) -> None:
    partial = next((cell for cell in board.cells if is_partial(cell)), None)
    named = f"Mean of {partial.n_subsets} of {partial.of_subsets}" if partial else SCORE
    costs, memory = method_code.costs(board), _memory(board)
    control = control_of(board.cells)
    table = [] if control is None else [_control_row(control, named)]
    table += [_row(row, named, costs, memory) for row in rows]
    if not table:
        return
    st.dataframe(
        table,
        hide_index=True,
        key=f"table-{group.key}",
        height=38 + 35 * min(len(table), MOST_ROWS),
        placeholder="–",
        column_config=_columns(named, level),
        alt=f"Methods of {brief(board.title)}, ranked",
    )
    for text in _said(board, rows, level):
        st.caption(text)
    if board.alarms:
        with st.expander(counted(len(board.alarms), "alarm"), icon=":material/warning:"):
            st.markdown("\n".join(f"- {plain(alarm.text)}" for alarm in board.alarms))
    st.download_button(
        "CSV of all cells",
        lambda: csv_of(board),
        file_name=f"{_file_name(board.title)}.csv",
        mime="text/csv",
        key=f"csv-{group.key}",
        on_click="ignore",
        icon=":material/download:",
    )


def _columns(named: str, level: Level | None) -> dict[str, Any]:
    text, number = st.column_config.TextColumn, st.column_config.NumberColumn
    asked = f" at {exact(level)}{' removed' if level[0] == 'removed' else ''}" if level else ""
    read = "Score at this removed fraction. ≈: on the line between two measured levels; never beyond them."
    return {
        "Rank": text(width=54, alignment="right", help=f"Among the methods asked for the same level{asked}. = : a tie "
                     "with the best, by the paired test with Holm's correction."),
        "Method": text(width=200),
        named: number(width=64 if named == SCORE else 122, format="%.1f", help=f"Mean score{asked}."),
        "95 %": text(width=92, alignment="right", help="Bootstrap interval over samples; none under 10 a subset."),
        "Removed": number(width=74, format="%.3f", help="Measured, not asked for."),
        "× smaller": number(width=74, format="%.2f", help="1 / (1 - removed)"),
        "At 50 %": text(width=72, alignment="right", help=read),
        "At 75 %": text(width=72, alignment="right", help=read),
        "Area": number(width=56, format="%.1f", help="Mean score over removed 0 to 0.875, by interpolation. It has no "
                       "interval: small differences say nothing."),
        "Cost": text(width=170, help="What scoring adds, as the method declares."),
        "Cache": text(width=104, alignment="right", help="Measured bytes of the pruned cache. The masked engine saves "
                      "none, so it has none. For speed see the page Memory and speed."),
        "Remarks": text(width=230),
    }  # fmt: skip


def _control_row(cell: Cell, named: str) -> Row:
    removed = {"Removed": 0.0, "× smaller": 1.0}
    figures = {named: cell.score, "95 %": _interval(cell), **removed, "At 50 %": None, "At 75 %": None, "Area": None}
    return {"Rank": None, "Method": CONTROL, **figures, "Remarks": "the control", "Cost": None, "Cache": None}


def _row(row: Standing, named: str, costs: dict[str, str], memory: dict[str, float]) -> Row:
    cell = row.cell
    removed = cell.removed_mean if cell else None
    return {
        "Rank": None if row.rank is None else f"{row.rank} =" if row.tie else str(row.rank),
        "Method": brief(row.name, 100),
        named: cell.score if cell else None,
        "95 %": _interval(cell) if cell else None,
        "Removed": removed,
        "× smaller": 1 / (1 - removed) if removed is not None and removed < 1 else None,
        **{f"At {removed:.0%}".replace("%", " %"): _read(row.read_off[removed]) for removed in AT},
        "Area": row.area,
        "Remarks": brief("; ".join(row.remarks)) or None,
        "Cost": costs.get(row.method, method_code.NOT_STATED),
        "Cache": _mebibytes(memory.get(cell.variant) if cell else None),
    }


def _read(one: ReadOff | None) -> str | None:
    return None if one is None else str(one)


def _interval(cell: Cell) -> str | None:
    return None if cell.low is None or cell.high is None else f"{cell.low:.1f}–{cell.high:.1f}"


def _mebibytes(count: float | None) -> str:
    return NOT_MEASURED if count is None else f"{count / 2**20:,.1f} MiB"


def _memory(board: Board) -> dict[str, float]:
    """Mean bytes of the cache by variant, of engines that really drop pairs."""
    if all(cell.engine == "masked" for cell in board.cells):
        return {}
    found: dict[str, list[int]] = {}
    for line in (line for run in board.runs for line in run.lines):
        if (line.benchmark, line.length) == (board.benchmark, board.length) and line.physical_bytes is not None:
            found.setdefault(line.variant, []).append(line.physical_bytes)
    return {variant: fmean(counts) for variant, counts in found.items()}


def _said(board: Board, rows: Sequence[Standing], level: Level | None) -> Iterable[str]:
    """Captions: why there are no ranks, no areas, and what does not fit together."""
    reasons = dict.fromkeys(row.why for row in rows if row.why)
    if level is not None and not any(row.cell for row in rows):
        yield f"No method here was asked for {plain(exact(level))}."
    elif reasons and not any(row.rank for row in rows):
        yield f"No ranks: {plain('; '.join(str(one) for one in reasons))}."
    elif reasons:
        names = [f"{row.name} ({row.why})" for row in rows if row.why]
        yield f"Not ranked: {plain(', '.join(names), 600)}."
    if any(row.tie and row.rank for row in rows):
        yield "“=” behind a rank: a tie with the best, by the paired test. With few samples that is not equality."
    measured = [cell for cell in board.cells if cell.subset is None and cell.low is not None]
    if any(cell.low == cell.high for cell in measured):
        yield (
            "An interval of no width: all samples have the same score. Bootstrap intervals are too narrow where "
            "samples are few and a score is near 0 or 100."
        )
    modes = dict.fromkeys(row.cells[0].query_mode for row in rows)
    if len(modes) > 1:
        yield f"Ranked apart by what was in view while pruning: {plain(', '.join(map(str, modes)))}."
    areas = dict.fromkeys(row.no_area for row in rows if row.no_area)
    if areas and all(row.area is None for row in rows):
        yield f"No areas: {plain('; '.join(str(one) for one in areas), 300)}."
    elif areas:
        without = dict.fromkeys(f"{row.curve} ({row.no_area})" for row in rows if row.no_area)
        yield f"No area: {plain(', '.join(without), 600)}."
    for note in board.notes:
        yield f"Note: {plain(note, 600)}"


def csv_of(board: Board) -> str:
    """All cells of a board with all fields. A text that a spreadsheet would take for a formula gets a ' before it."""
    out = io.StringIO()
    rows = csv.reader(io.StringIO(render.to_csv([board])))
    csv.writer(out, lineterminator="\n").writerows([_no_formula(text) for text in row] for row in rows)
    return out.getvalue()


def _no_formula(text: str) -> str:
    if not text.startswith(("=", "+", "-", "@", "\t")):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def _file_name(title: str) -> str:
    kept = "".join(mark if mark.isascii() and mark.isalnum() else "-" for mark in title.lower())
    return "-".join(part for part in kept.split("-") if part)[:80] or "board"
