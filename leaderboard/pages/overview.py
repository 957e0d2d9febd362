"""Overview: score against what was removed, one chart a benchmark, and the ranked table."""

from __future__ import annotations

import streamlit as st

from leaderboard.charts import curve_chart
from leaderboard.frame import frame, plain

view = frame("KV-cache pruning, measured", "Score against the measured removed fraction of the KV cache.")
for group in view.groups:
    board = view.library.board(group)
    st.subheader(plain(board.title), anchor=False)
    st.altair_chart(
        curve_chart([cell for cell in board.cells if view.shows(cell)], log=False), key=f"chart-{group.key}"
    )
