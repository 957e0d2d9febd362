"""Benchmark: one board subset by subset, the lengths of a model side by side, and what some benchmarks alone have."""

from __future__ import annotations

import streamlit as st

from leaderboard import sections, special
from leaderboard.closeness import has_closeness
from leaderboard.differences import lines_of
from leaderboard.drawn import has_passes
from leaderboard.frame import frame, guarded, pick, plain
from leaderboard.questions import has_questions

view = frame("Benchmark", "Each method on each subset, as points gained or lost against the full cache.")
group = pick(view)
with guarded(group.title):
    board, lines = view.library.board(group), lines_of(group)
    cells = [cell for cell in board.cells if view.shows(cell)]
    overall = [cell for cell in cells if cell["subset"] is None and cell.get("status") != "unsupported"]
    seed = board.runs[0].seed
    level = sections.choose_level(overall)
    some = sections.at_level(overall, level)

    with guarded("The differences by subset"):
        sections.by_subset(view, group, some)
    with guarded("The lengths"):
        sections.by_length(view, group, level)
    with guarded("How near the predictions stay"):
        if has_closeness(overall):
            special.fidelity(overall, lines, seed)
    with guarded("The drawn answers"):
        if has_passes(overall):
            special.rollouts(overall, lines, board.alarms)
    with guarded("The questions on one context"):
        if has_questions(lines):
            special.several_questions(overall, level, lines, seed)
    with guarded("The likeness of methods"):
        sections.by_sample(cells, overall, lines, level)
    missing = [cell for cell in cells if cell.get("status") == "unsupported"]
    if missing:
        st.caption("Not run: " + plain("; ".join(f"{cell['variant']}: {cell['note']}" for cell in missing)) + ".")
