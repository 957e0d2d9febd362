"""Benchmark: one board subset by subset, the lengths of a model side by side, and what some benchmarks alone have."""

from __future__ import annotations

import streamlit as st

from leaderboard.data.library import Group, lines_of
from leaderboard.data.multi_question import has_questions
from leaderboard.data.pass_at_k import has_passes
from leaderboard.escaping import plain
from leaderboard.views import benchmark_extras, benchmark_sections
from leaderboard.views.layout import View, frame, guarded, pick


def page() -> None:
    view = frame("Benchmark", "Each method on each subset, as points gained or lost against the full cache.")
    group = pick(view)
    with guarded(group.title):
        _sections(view, group)


def _sections(view: View, group: Group) -> None:
    board, lines = view.library.board(group), lines_of(group)
    cells = [cell for cell in board.cells if view.shows(cell)]
    overall = [cell for cell in cells if cell.subset is None and cell.status != "unsupported"]
    seed, methods = board.runs[0].seed, view.library.methods
    facts = board.runs[0].facts.get(board.benchmark)
    level = benchmark_sections.choose_level(overall)

    with guarded("The differences by subset"):
        benchmark_sections.by_subset(view, group, benchmark_sections.at_level(overall, level))
    with guarded("The lengths"):
        benchmark_sections.by_length(view, group, level)
    with guarded("The metrics"):
        is_fidelity = board.benchmark.startswith("fidelity")
        benchmark_extras.metrics(overall, facts.metrics if facts else [], methods, is_fidelity)
    with guarded("The sampled answers"):
        if has_passes(overall):
            benchmark_extras.rollouts(overall, lines, board.alarms)
    with guarded("The questions on one context"):
        if has_questions(lines):
            benchmark_extras.several_questions(overall, level, lines, seed, methods)
    with guarded("The correlation of methods"):
        benchmark_sections.by_sample(cells, overall, lines, level)
    missing = [f"{cell.variant}: {cell.note}" for cell in cells if cell.status == "unsupported"]
    if missing:
        st.caption(f"Not run: {plain('; '.join(missing))}.")


if __name__ == "__main__":
    page()
