"""What the overview shows: for each board its chart, its table, and what must be said beside them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

import streamlit as st

from harness import formats
from harness.merging import Board
from harness.ranking import is_partial
from leaderboard import code
from leaderboard.charts import CONTROL, MOST_BRIGHT, curve_chart, points
from leaderboard.frame import View, frame, guarded, plain
from leaderboard.library import Group
from leaderboard.standing import AT, ReadOff, Standing, exact, standings
from leaderboard.text import brief

#: boards shown at first, and more with each press of the button
FEW = 4
#: the level that is ranked where a board has it
USUAL = ("removed", 0.5)
#: rows of a table that are shown without scrolling
MOST_ROWS = 30
SHOWN = "boards"
NOT_MEASURED = "not measured"
SCORE = "Score"
Level = tuple[str, Any]


def page() -> None:
    view = frame(
        "KV-cache pruning, measured",
        "Score against the measured removed fraction of the KV cache. The dashed line is the full cache, run in the "
        "same batch.",
    )
    log, level = _controls(view)
    methods = sorted({method for group in view.library.groups for entry in group.entries for method in entry.methods})
    count = _count(len(view.groups))
    for group in view.groups[:count]:
        with st.container(gap="small"):
            _shown(view, group, log, level, methods)
    if count < len(view.groups):
        _more(view.groups, count)


def _controls(view: View) -> tuple[bool, Level | None]:
    """A log axis or not, and the level that is ranked."""
    levels = {exact(level): level for group in view.groups for part in group.parts for level in part.levels}
    texts = sorted(levels, key=lambda text: (levels[text][0] != "removed", str(levels[text][0]), _size(levels[text])))
    usual = texts.index(exact(USUAL)) if exact(USUAL) in texts else len(texts) // 2
    left, right = st.columns([1, 3], vertical_alignment="bottom")
    with left:
        chosen = st.selectbox(
            "Rank at the level (removed fraction)",
            texts,
            index=usual if texts else None,
            key="level",
            bind="query-params",
            help="Methods are ranked among those that were asked for the same level. For a threshold it is the removed "
            "fraction that the threshold was chosen for; what was then removed is measured, and may differ.",
        )
    with right:
        log = st.toggle("Log axis of the compression factor", key="log", bind="query-params")
    return log, levels.get(chosen or "")


def _size(level: Level) -> float:
    try:
        return float(level[1])
    except (TypeError, ValueError):
        return 0.0


def _count(there: int) -> int:
    """How many boards are shown, which the address says where it is more than a few."""
    given = str(st.query_params.get(SHOWN, ""))
    return min(there, max(FEW, int(given))) if given.isascii() and given.isdigit() and len(given) < 5 else FEW


def _more(groups: Sequence[Group], count: int) -> None:
    def show() -> None:
        st.query_params[SHOWN] = str(count + FEW)

    left = len(groups) - count
    st.button(f"Show {min(FEW, left)} more of {left} boards", on_click=show, key="more", icon=":material/expand_more:")
    with st.expander(f"The {left} boards below"):
        rows = [{"board": brief(group.title), "runs": len(group.entries)} for group in groups[count:]]
        st.dataframe(rows, hide_index=True, key="below")


def _shown(view: View, group: Group, log: bool, level: Level | None, methods: Sequence[str]) -> None:
    with guarded(group.title):
        board = view.library.board(group)
        rows = standings(board, level, view.shows, code.stale(board))
        cells = [cell for cell in board.cells if view.shows(cell)]
        st.subheader(plain(board.title), anchor=False)
        st.caption(_facts(board))
        _chart(board, group, cells, rows, log, methods)
        _table(board, group, rows, level)


def _facts(board: Board) -> str:
    """What all of the board shares, on one line."""
    basis, count = board.basis, max((cell["n"] for cell in board.cells if cell["subset"] is None), default=0)
    told = [f"{count:,} samples", f"{basis['dtype']} on {basis['device']}", f"kernel {basis['attention kernel']}"]
    told += [f"phase {basis['phase']}", f"question in view: {_in_view(basis['query mode'])}", f"seed {basis['seed']}"]
    names = ", ".join(run.name for run in board.runs)
    return " · ".join(map(plain, told)) + f" · {_number(len(board.runs), 'run')}: {plain(names)}"


def _in_view(mode: object) -> str:
    return "no" if mode == "agnostic" else f"yes ({mode})"


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _chart(
    board: Board,
    group: Group,
    cells: Sequence[dict[str, Any]],
    rows: Sequence[Standing],
    log: bool,
    methods: Sequence[str],
) -> None:
    curves = {row.curve: row for row in rows}.values()  # of a curve with several rows one is enough
    drawn = [row for row in curves if not row.floor and any(cell["score"] is not None for cell in row.cells)]
    bright = None
    if len(drawn) > MOST_BRIGHT:
        best = sorted(drawn, key=lambda row: -1.0 if row.overall is None else row.overall, reverse=True)
        bright = [brief(row.curve) for row in best[:MOST_BRIGHT]]
    if points(cells).empty:
        st.info("Nothing was measured here.")
        return
    order = [brief(row.curve) for row in rows]
    st.vega_lite_chart(
        spec=curve_chart(cells, log, methods, order, bright),
        key=f"chart-{group.key}",
        width="stretch",
        alt=f"Score over the removed fraction: {brief(board.title)}; the table below has the figures",
    )
    told = ["PNG and SVG: the chart's “…” menu."]
    if len(drawn) > 1:
        told.insert(0, "Click a name in the legend to single it out, shift-click for more, double-click for all.")
    if bright is not None:
        told.insert(0, f"The {MOST_BRIGHT} best curves at 50 and 75 % removed stand out.")
    if any(cell["bound_by"] for cell in cells):
        told.append("Hollow: protection kept more than was asked for.")
    if any(cell["floor"] for cell in cells):
        told.append("Grey: at the floor, where the full cache itself is at chance or under 20, so nothing is claimed.")
    st.caption(" ".join(told))


def _table(board: Board, group: Group, rows: Sequence[Standing], level: Level | None) -> None:
    partial = next((cell for cell in board.cells if is_partial(cell)), None)
    named = f"Mean of {partial['n_subsets']} of {partial['of_subsets']}" if partial else SCORE
    costs, memory = code.costs(board), _memory(board)
    control = [cell for cell in board.cells if cell["subset"] is None and cell["level_kind"] == "none"][:1]
    table = [*(_control_row(cell, named) for cell in control), *(_row(row, named, costs, memory) for row in rows)]
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
        with st.expander(_number(len(board.alarms), "alarm"), icon=":material/warning:"):
            st.markdown("\n".join(f"- {plain(alarm['text'])}" for alarm in board.alarms))
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


def _control_row(cell: dict[str, Any], named: str) -> dict[str, Any]:
    removed = {"Removed": 0.0, "× smaller": 1.0}
    figures = {named: cell["score"], "95 %": _interval(cell), **removed, "At 50 %": None, "At 75 %": None, "Area": None}
    return {"Rank": None, "Method": CONTROL, **figures, "Remarks": "the control", "Cost": None, "Cache": None}


def _row(row: Standing, named: str, costs: dict[str, str], memory: dict[str, float]) -> dict[str, Any]:
    cell = row.cell or {}
    removed = cell.get("removed_mean")
    return {
        "Rank": None if row.rank is None else f"{row.rank} =" if row.tie else str(row.rank),
        "Method": brief(row.name, 100),
        named: cell.get("score"),
        "95 %": _interval(cell) if cell else None,
        "Removed": removed,
        "× smaller": 1 / (1 - removed) if removed is not None and removed < 1 else None,
        **{f"At {removed:.0%}".replace("%", " %"): _read(row.read_off[removed]) for removed in AT},
        "Area": row.area,
        "Remarks": brief("; ".join(row.remarks)) or None,
        "Cost": costs.get(row.method, code.NOT_STATED),
        "Cache": _mebibytes(memory.get(cell.get("variant", ""))),
    }


def _read(one: ReadOff | None) -> str | None:
    return None if one is None else str(one)


def _interval(cell: dict[str, Any]) -> str | None:
    return None if cell["low"] is None or cell["high"] is None else f"{cell['low']:.1f}–{cell['high']:.1f}"


def _mebibytes(count: float | None) -> str:
    return NOT_MEASURED if count is None else f"{count / 2**20:,.1f} MiB"


def _memory(board: Board) -> dict[str, float]:
    """Mean bytes of the cache by variant, of engines that really drop pairs."""
    if all(cell["engine"] == "masked" for cell in board.cells):
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
    modes = dict.fromkeys(row.cells[0]["query_mode"] for row in rows)
    if len(modes) > 1:
        yield f"Ranked apart by what was in view while pruning: {plain(', '.join(map(str, modes)))}."
    areas = dict.fromkeys(row.no_area for row in rows if row.no_area)
    if areas and all(row.area is None for row in rows):
        yield f"No areas: {plain('; '.join(str(one) for one in areas), 300)}."
    for note in board.notes:
        yield f"Note: {plain(note, 600)}"


def csv_of(board: Board) -> str:
    """All cells of a board with all fields. A text that a spreadsheet would take for a formula gets a ' before it."""
    out = io.StringIO()
    rows = csv.reader(io.StringIO(formats.to_csv([board])))
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
