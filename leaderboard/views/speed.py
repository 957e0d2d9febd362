"""Memory and speed: what runs measured, against what was removed."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from leaderboard.data.speed import FIGURES, Figure, measured, speed_chart
from leaderboard.views.layout import frame, guarded, pick, plain


def not_measured(missing: Sequence[Figure], expanded: bool) -> None:
    st.info(f"Not measured by any run of this board: {', '.join(figure.title.lower() for figure in missing)}.")
    with st.expander("How they get here", expanded=expanded):
        st.markdown(
            "The masked engine keeps one full cache for all variants and hides what each has removed. It frees "
            "nothing, so its lines have no figures of memory or speed; a removed fraction does not give them either, "
            "since they depend on the kernel that reads heads of uneven length.\n\n"
            "A run that really removes pairs writes them to the lines of `samples.jsonl`: `physical_bytes`, and in "
            "`metrics` the names `peak_bytes`, `ttft_seconds` and `tokens_per_second`. They are shown as they are. "
            "How long a sweep itself takes is another thing, and is printed by:"
        )
        st.code("python -m harness profile sweep --method kvzap_mlp,kvzip", language="bash")


view = frame("Memory and speed", "Measured figures against the measured removed fraction; nothing is estimated.")
group = pick(view)
part = group.part
with guarded(group.title):
    board = view.library.board(group)
    lines = [
        line
        for run in board.runs
        for line in run.lines
        if (line.benchmark, line.length) == (part.benchmark, part.length)
        and view.shows(
            {"level_kind": line.level_kind, "method": line.method, "query_mode": line.query_mode, "engine": line.engine}
        )
    ]
    tables = {figure: measured(lines, figure) for figure in FIGURES}
    st.caption(f"Hardware: {plain(part.hardware)}. Number type: {plain(part.dtype)}.")
    methods = sorted({name for one in view.library.entries for name in one.methods})
    shown = [figure for figure in FIGURES if not tables[figure].empty]
    for figure in shown:
        with guarded(figure.title):
            st.subheader(figure.title, anchor=False)
            st.altair_chart(
                speed_chart(tables[figure], figure, methods), key=figure.name, alt=f"{figure.title} by removed fraction"
            )
            st.dataframe(tables[figure], hide_index=True, key=f"{figure.name}-table")

    missing = [figure for figure in FIGURES if figure not in shown]
    if missing:
        not_measured(missing, expanded=not shown)
