"""What the overview shows: for each board its chart, its table, and what must be said beside them."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from harness.analysis.boards import Board
from harness.analysis.floor import AT_FLOOR
from harness.results.schema import Cell
from leaderboard.charts.score_curves import MOST_BRIGHT, curve_chart, points
from leaderboard.data import method_code
from leaderboard.data.levels import Level, exact
from leaderboard.data.library import Group, distinct
from leaderboard.data.standings import Standing, standings
from leaderboard.escaping import brief, plain
from leaderboard.views.layout import View, frame, guarded
from leaderboard.views.overview_table import counted, show_table

#: boards shown at first, and more with each press of the button
FEW = 4
#: the level that is ranked where a board has it
USUAL: Level = ("removed", 0.5)
SHOWN = "boards"


def page() -> None:
    view = frame(
        "KV-cache pruning, measured",
        "Score against the measured removed fraction of the KV cache. The dashed line is the full cache, run in the "
        "same batch.",
    )
    log, level = _controls(view)
    count = _count(len(view.groups))
    names = distinct(view.groups, lambda group: group.title)
    for group in view.groups[:count]:
        with st.container(gap="small"):
            _shown(view, group, names[group.key], log, level)
    if count < len(view.groups):
        _more(view.groups, count)


def _controls(view: View) -> tuple[bool, Level | None]:
    """A log axis or not, and the level that is ranked."""
    levels = {exact(level): level for group in view.groups for part in group.parts for level in part.levels}
    texts = sorted(levels, key=lambda text: (levels[text][0] != "removed", levels[text][0], levels[text][1]))
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


def _shown(view: View, group: Group, name: str, log: bool, level: Level | None) -> None:
    with guarded(group.title):
        board = view.library.board(group)
        rows = standings(board, level, view.shows, method_code.stale(board))
        cells = [cell for cell in board.cells if view.shows(cell)]
        st.subheader(plain(name), anchor=False)
        st.caption(_facts(board))
        _chart(board, group, cells, rows, log, view.library.methods)
        show_table(board, group, rows, level)


def _facts(board: Board) -> str:
    """What all of the board shares, on one line."""
    basis, count = board.basis, max((cell.n for cell in board.cells if cell.subset is None), default=0)
    told = [f"{count:,} samples", f"{basis['dtype']} on {basis['device']}", f"kernel {basis['attention kernel']}"]
    told += [f"phase {basis['phase']}", f"question in view: {_in_view(basis['query mode'])}", f"seed {basis['seed']}"]
    names = ", ".join(run.name for run in board.runs)
    return " · ".join(map(plain, told)) + f" · {counted(len(board.runs), 'run')}: {plain(names)}"


def _in_view(mode: object) -> str:
    return "no" if mode == "agnostic" else f"yes ({mode})"


def _chart(
    board: Board,
    group: Group,
    cells: Sequence[Cell],
    rows: Sequence[Standing],
    log: bool,
    methods: Sequence[str],
) -> None:
    curves = {row.curve: row for row in rows}.values()  # of a curve with several rows one is enough
    drawn = [row for row in curves if not row.floor and any(cell.score is not None for cell in row.cells)]
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
    told = ["PNG: the buttons at the chart’s corner."]
    if len(drawn) > 1:
        told.insert(0, "Click a name in the legend to single it out, shift-click for more, double-click for all.")
    if bright is not None:
        told.insert(0, f"The {MOST_BRIGHT} best curves at 50 and 75 % removed stand out.")
    if any(cell.bound_by for cell in cells):
        told.append("Hollow: protection kept more than was asked for.")
    if any(cell.floor for cell in cells if cell.subset is None):
        told.append(f"Grey: at the floor, where the full cache itself is {AT_FLOOR}, so nothing is claimed.")
    st.caption(" ".join(told))


if __name__ == "__main__":
    page()
