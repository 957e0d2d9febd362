"""Memory and speed: what runs measured, against what was removed."""

from __future__ import annotations

import streamlit as st

from harness.errors import HarnessError
from leaderboard.frame import frame, pick, plain
from leaderboard.speed import FIGURES, measured, speed_chart

view = frame("Memory and speed", "Measured figures against the measured removed fraction; nothing is estimated.")
group = pick(view)
part = group.part
try:
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
except HarnessError as error:
    st.error(plain(error, 600))
    st.stop()
tables = {figure: measured(lines, figure) for figure in FIGURES}
st.caption(f"Hardware: {plain(part.hardware)}. Number type: {plain(part.dtype)}.")

methods = sorted({name for one in view.library.entries for name in one.methods})
shown = [figure for figure in FIGURES if not tables[figure].empty]
for figure in shown:
    st.subheader(figure.title, anchor=False)
    st.altair_chart(
        speed_chart(tables[figure], figure, methods), key=figure.name, alt=f"{figure.title} by removed fraction"
    )
    st.dataframe(tables[figure], hide_index=True, key=f"{figure.name}-table")

missing = [figure for figure in FIGURES if figure not in shown]
if missing:
    st.info(f"Not measured by any run of this board: {', '.join(figure.title.lower() for figure in missing)}.")
    with st.expander("How they get here", expanded=not shown):
        st.markdown(
            "The masked engine keeps one full cache for all variants and hides what each has removed. It frees "
            "nothing, so its lines have no figures of memory or speed; a removed fraction does not give them either, "
            "since they depend on the kernel that reads heads of uneven length.\n\n"
            "A run that really removes pairs writes them to the lines of `samples.jsonl`: `physical_bytes`, and in "
            "`metrics` the names `peak_bytes`, `ttft_seconds` and `tokens_per_second`. They are shown as they are. "
            "How long a sweep itself takes is another thing, and is printed by:"
        )
        st.code("python -m harness profile sweep --method kvzap_mlp,kvzip", language="bash")
