"""What the adaptivity page shows: one threshold prompt by prompt, any threshold by a slider, budgets side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from harness.analysis.boards import Board
from harness.results.schema import Line
from leaderboard.charts.thresholds import budget_chart, spread_chart, threshold_chart
from leaderboard.data import histograms, thresholds
from leaderboard.data.histograms import Prompt, Source
from leaderboard.data.levels import control_of, number
from leaderboard.data.threshold_axis import Axis, axis_of
from leaderboard.escaping import plain
from leaderboard.views.layout import current_theme

BENCHMARKS, SUBSETS = "benchmarks", "subsets"
Lines = Mapping[str, Sequence[Line]]
Boards = Mapping[str, Board]
FRACTION = st.column_config.NumberColumn(format="%.3f")


def one_threshold(lines: Lines, source: Source, by_subset: bool) -> None:
    """The removed fraction of each prompt at a threshold that was run."""
    st.subheader("One threshold, prompt by prompt", anchor=False)
    run = thresholds.thresholds((line for own in lines.values() for line in own), source)
    if not run:
        st.info("These scores were stored, but no threshold on them was run; the slider below tells what one would do.")
        return
    taus = list(run)
    start = next((place for place, requested in enumerate(run.values()) if requested == 0.5), len(run) // 2)
    chosen = st.selectbox(
        *("Threshold", taus, start), format_func=lambda tau: _tau_name(tau, run[tau]), key="run", bind="query-params"
    )
    tau = chosen if chosen in run else taus[start]
    table = thresholds.measured_everywhere(lines, source, tau, by_subset)
    boxes = thresholds.spread(table, "name")
    title = "removed fraction of the KV cache, measured"
    st.altair_chart(spread_chart(table, boxes, "name", title, current_theme()), key="spread")
    st.caption(
        "One dot per prompt; box: the middle half; thick tick: the median; line: the whole range. Of the context in "
        "phase prefill, the mean over decode steps otherwise. A top-k budget would be one vertical line."
    )
    with st.expander("As a table"):
        st.dataframe(boxes, hide_index=True, key="spread table", column_config=_fractions(boxes))


def any_threshold(
    prompts: Sequence[Prompt], lines: Lines, boards: Boards, source: Source, by_subset: bool, key: str = "tau"
) -> None:
    """A slider over thresholds: what each would remove, derived from the stored histograms. ``key`` is the slider's; it
    is another for other scores, to which a threshold of these means nothing."""
    st.subheader("Any threshold", anchor=False)
    if not prompts:
        st.info("No score histograms of this method are stored here; runs write them to histograms.jsonl.")
        return
    named = thresholds.by_subset(prompts, len(lines)) if by_subset else list(prompts)
    axis = axis_of(named, thresholds.measured_points(boards, source, by_subset))
    tau = st.slider(
        "Threshold τ: pairs with a score below it are removed",
        min_value=axis.low,
        max_value=axis.high,
        value=axis.start,
        step=axis.step,
        format=f"%.{axis.digits}f",
        key=key,
        bind="query-params",
    )
    _removed_at(named, tau, axis)
    _curves(named, tau, axis)
    checked = thresholds.check(prompts, lines, source)
    if not checked.empty:
        with st.expander("Derived against measured, at the thresholds that were run"):
            st.dataframe(checked, hide_index=True, key="check", column_config=_fractions(checked))
            st.caption(
                "largest: of one prompt. outside: prompts whose measured figure their bin does not allow; should be 0."
            )


def _removed_at(prompts: Sequence[Prompt], tau: float, axis: Axis) -> None:
    """What the slider's threshold would remove, prompt by prompt and in the mean."""
    told = histograms.told_table(prompts, tau)
    boxes = thresholds.spread(told, "place")
    bounds = told.groupby("place", sort=False)[["least", "most"]].mean()
    boxes.insert(3, "at least", bounds["least"].to_numpy())
    boxes.insert(4, "at most", bounds["most"].to_numpy())
    title = f"removed at τ = {tau:.{axis.digits}f}, from the stored scores"
    st.altair_chart(spread_chart(told, boxes, "place", title, current_theme()), key="told")
    st.dataframe(boxes, hide_index=True, key="told table", column_config=_fractions(boxes))
    error = max(float((told["most"] - told["removed"]).max()), float((told["removed"] - told["least"]).max()))
    st.caption(
        f"Not measured, but derived from counts of scores in bins {axis.width:.3g} wide. Pairs in the threshold’s own "
        f"bin are split evenly: a prompt’s figure is off by {_at_most(error)} here. “at least”, “at most”: bounds of "
        "the means. What an answer then scores can only be measured."
    )


def _curves(prompts: Sequence[Prompt], tau: float, axis: Axis) -> None:
    """What every threshold would remove, and the scores of those that were run."""
    curves = histograms.curves(prompts)
    removed, scores = threshold_chart(curves, axis.points, tau, (axis.low, axis.high), current_theme())
    st.altair_chart(removed, key="curves")
    lines_are = "Lines: mean removed at the bins’ edges, which is exact; bands: the middle 80 % of prompts."
    if axis.points.empty:
        st.caption(f"{lines_are} No threshold was run, so there is no score to draw.")
    else:
        st.altair_chart(scores, key="scores at thresholds")
        st.caption(
            f"{lines_are} Markers: thresholds that were run, with their measured removed fraction and score; bars: 95 "
            "% intervals; dashed: the full cache’s score."
        )
    if axis.beyond:
        st.caption(f"Run too, but beyond all stored scores and so not on this axis: τ = {plain(axis.beyond)}.")


def fixed_budgets(boards: Boards, source: Source) -> None:
    """Thresholds against head and layer budgets on the same scores."""
    st.subheader("Threshold against fixed budgets on the same scores", anchor=False)
    shown = 0
    for place, board in boards.items():
        cells = thresholds.budget_cells(board.cells, source.method, source.options)
        if not cells:
            continue
        shown += 1
        st.markdown(f"**{plain(place)}**")
        st.altair_chart(budget_chart(cells, control_of(board.cells)), key=f"budgets {shown}")
        rows = thresholds.budget_pairs(board, {cell.variant for cell in cells})
        if rows:
            st.dataframe(rows, hide_index=True, key=f"budget pairs {shown}")
    if shown:
        st.caption(
            "head: top-k in each head; layer: shared out over a layer’s heads (AdaKV); threshold: all that score high "
            "enough. Horizontal bars: the range over prompts of what was removed. Compare points, not levels: at one "
            "level a threshold may have removed less. a − b: mean paired difference with its 95 % interval."
        )
    else:
        st.info("These scores were run under one budget alone. To compare budgets, run them together:")
        flags = "--budget threshold,head,layer --removed 0.25,0.5,0.75,0.875"
        st.code(f"kvprune run --method {source.method} {flags}", language="bash")


def _tau_name(tau: float, requested: float | None) -> str:
    return f"τ = {number(tau)}" + (f", chosen for {requested:g}" if requested is not None else "")


def _fractions(table: pd.DataFrame) -> dict[str, Any]:
    return {str(name): FRACTION for name in table.columns if table[name].dtype == float and name != "tau"}


def _at_most(error: float) -> str:
    return "under 0.0001" if error < 1e-4 else f"at most {error:.4f}"
