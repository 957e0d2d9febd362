"""Benchmark: one board subset by subset, the lengths of a model side by side, and what some benchmarks alone have."""

from __future__ import annotations

import streamlit as st

from leaderboard.data.differences import lines_of
from leaderboard.data.fidelity import has_closeness
from leaderboard.data.multi_question import has_questions
from leaderboard.data.pass_at_k import has_passes
from leaderboard.views import benchmark_extras, benchmark_sections
from leaderboard.views.layout import frame, guarded, pick, plain

view = frame("Benchmark", "Each method on each subset, as points gained or lost against the full cache.")
group = pick(view)
with guarded(group.title):
    board, lines = view.library.board(group), lines_of(group)
    cells = [cell for cell in board.cells if view.shows(cell)]
    overall = [cell for cell in cells if cell["subset"] is None and cell.get("status") != "unsupported"]
    seed = board.runs[0].seed
    level = benchmark_sections.choose_level(overall)
    some = benchmark_sections.at_level(overall, level)

    with guarded("The differences by subset"):
        benchmark_sections.by_subset(view, group, some)
    with guarded("The lengths"):
        benchmark_sections.by_length(view, group, level)
    with guarded("How near the predictions stay"):
        if has_closeness(overall):
            benchmark_extras.fidelity(overall, lines, seed)
    with guarded("The drawn answers"):
        if has_passes(overall):
            benchmark_extras.rollouts(overall, lines, board.alarms)
    with guarded("The questions on one context"):
        if has_questions(lines):
            benchmark_extras.several_questions(overall, level, lines, seed)
    with guarded("The likeness of methods"):
        benchmark_sections.by_sample(cells, overall, lines, level)
    missing = [cell for cell in cells if cell.get("status") == "unsupported"]
    if missing:
        st.caption("Not run: " + plain("; ".join(f"{cell['variant']}: {cell['note']}" for cell in missing)) + ".")
