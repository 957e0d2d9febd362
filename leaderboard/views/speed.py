"""Memory and speed: what runs measured, against what was removed."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from leaderboard.charts.speed import speed_chart
from leaderboard.data.library import Group
from leaderboard.data.speed import FIGURES, Figure, measured
from leaderboard.escaping import plain
from leaderboard.views.layout import View, frame, guarded, pick


def page() -> None:
    view = frame("Memory and speed", "Measured figures against the measured removed fraction; nothing is estimated.")
    group = pick(view)
    with guarded(group.title):
        _figures(view, group)


def _figures(view: View, group: Group) -> None:
    part, board = group.part, view.library.board(group)
    lines = [
        line
        for run in board.runs
        for line in run.lines
        if (line.benchmark, line.length) == (part.benchmark, part.length) and view.shows(line)
    ]
    st.caption(f"Hardware: {plain(part.hardware)}. Number type: {plain(part.dtype)}.")
    missing = []
    for figure in FIGURES:
        table = measured(lines, figure)
        if table.empty:
            missing.append(figure)
            continue
        with guarded(figure.title):
            st.subheader(figure.title, anchor=False)
            chart = speed_chart(table, figure, view.library.methods)
            st.altair_chart(chart, key=figure.name, alt=f"{figure.title} by removed fraction")
            st.dataframe(table, hide_index=True, key=f"{figure.name}-table")
    if missing:
        _not_measured(missing, expanded=len(missing) == len(FIGURES))


def _not_measured(missing: Sequence[Figure], expanded: bool) -> None:
    st.info(f"Not measured by any run of this board: {', '.join(figure.title.lower() for figure in missing)}.")
    with st.expander("How they get here", expanded=expanded):
        st.markdown(
            "The masked engine keeps one full cache for all variants and hides what each has removed. It frees no "
            "memory, so its lines have no figures of memory or speed. A removed fraction does not give them either: "
            "they depend on the kernel that reads heads of uneven length.\n\n"
            "A run that really removes pairs writes them to the lines of `samples.jsonl`: `physical_bytes`, and in "
            "`metrics` the names `peak_bytes`, `ttft_seconds` and `tokens_per_second`. They are shown unchanged. "
            "The duration of a sweep itself is something else, and is printed by:"
        )
        st.code("kvprune profile sweep --method kvzap_mlp,kvzip", language="bash")


if __name__ == "__main__":
    page()
