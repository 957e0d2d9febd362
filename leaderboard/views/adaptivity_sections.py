"""What the adaptivity page shows: one threshold prompt by prompt, any threshold by a slider, budgets side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
import streamlit as st

from harness.analysis.boards import Board
from harness.reporting.board_tables import difference
from harness.results.run_folder import Line
from leaderboard.charts.theme import look
from leaderboard.charts.thresholds import budget_cells, budget_chart, spread_chart, threshold_chart
from leaderboard.data import histograms, thresholds
from leaderboard.data.histograms import Prompt, Source
from leaderboard.data.standings import exact, number
from leaderboard.views.layout import plain

BENCHMARKS, SUBSETS = "benchmarks", "subsets"
Lines = Mapping[str, Sequence[Line]]
Boards = Mapping[str, Board]
#: of a slider from its one end to the other
MOST_PLACES = 100_000
#: after the point
MOST_DIGITS = 20
FRACTION = st.column_config.NumberColumn(format="%.3f")


def one_threshold(lines: Lines, source: Source, by_subset: bool) -> None:
    """The removed fraction of each prompt at a threshold that was run."""
    st.subheader("One threshold, prompt by prompt", anchor=False)
    run = thresholds.thresholds((line for own in lines.values() for line in own), source)
    if not run:
        st.info("These scores were stored, but no threshold on them was run; the slider below tells what one would do.")
        return
    taus = list(run)
    start = next((place for place, asked in enumerate(run.values()) if asked == 0.5), len(run) // 2)
    chosen = st.selectbox(
        *("Threshold", taus, start), format_func=lambda tau: _tau_name(tau, run[tau]), key="run", bind="query-params"
    )
    tau = chosen if chosen in run else taus[start]
    parts = []
    for place, own in lines.items():
        part = thresholds.measured(own, source, tau)
        parts.append(part.assign(name=_names(part, place, len(lines), by_subset)))
    table = pd.concat(parts, ignore_index=True)
    boxes = thresholds.spread(table, "name")
    st.altair_chart(
        spread_chart(table, boxes, "name", "removed fraction of the KV cache, measured", look()), key="spread"
    )
    st.caption(
        "A dot a prompt; the box is the middle half, the thick tick the median, the line the whole range. The "
        "figure is that of the context in phase prefill, the mean over decode steps otherwise. A top-k budget "
        "would be one vertical line."
    )
    with st.expander("As a table"):
        st.dataframe(boxes, hide_index=True, key="spread table", column_config=_fractions(boxes))


def any_threshold(
    prompts: Sequence[Prompt], lines: Lines, boards: Boards, source: Source, by_subset: bool, key: str = "tau"
) -> None:
    """A slider over thresholds: what each would remove, told from the stored histograms. ``key`` is the slider's; it is
    another for other scores, to which a threshold of these means nothing."""
    st.subheader("Any threshold", anchor=False)
    if not prompts:
        st.info("No score histograms of this method are stored here; runs write them to histograms.jsonl.")
        return
    several = len(lines)
    named = [
        prompt._replace(place=_joined(prompt.place, prompt.subset, several) if by_subset else prompt.place)
        for prompt in prompts
    ]
    axis = axis_of(named, measured_points(boards, source, by_subset))
    tau = st.slider(
        "Threshold τ: pairs with a score under it are removed",
        min_value=axis.low,
        max_value=axis.high,
        value=axis.start,
        step=axis.step,
        format=f"%.{axis.digits}f",
        key=key,
        bind="query-params",
    )
    told = histograms.told_table(named, tau)
    boxes = thresholds.spread(told, "place")
    least, most = (told.groupby("place", sort=False)[name].mean() for name in ("least", "most"))
    boxes.insert(3, "at least", [float(least[name]) for name in boxes["name"]])
    boxes.insert(4, "at most", [float(most[name]) for name in boxes["name"]])
    st.altair_chart(
        spread_chart(told, boxes, "place", f"removed at τ = {tau:.{axis.digits}f}, from the stored scores", look()),
        key="told",
    )
    st.dataframe(boxes, hide_index=True, key="told table", column_config=_fractions(boxes))
    error = max(float((told["most"] - told["removed"]).max()), float((told["removed"] - told["least"]).max()))
    st.caption(
        f"Worked out from counts of scores in bins {axis.width:.3g} wide, not measured: pairs in the threshold’s own "
        f"bin are split evenly, which puts a prompt’s figure off by {_at_most(error)} here; “at least” and “at most” "
        "are the means’ bounds. What an answer then scores cannot be worked out, only measured."
    )
    told_chart, score_chart = threshold_chart(histograms.curves(named), axis.points, tau, (axis.low, axis.high), look())
    st.altair_chart(told_chart, key="curves")
    lines_are = (
        "Lines: mean removed over prompts at the bins’ edges, where there is no error of binning; bands: the "
        "middle 80 % of prompts."
    )
    if axis.points.empty:
        st.caption(f"{lines_are} No threshold was run, so there is no score to draw.")
    else:
        st.altair_chart(score_chart, key="scores at thresholds")
        st.caption(
            f"{lines_are} Markers: thresholds that were run, with their measured removed and (below; beside those that "
            "stand alone too) score; dashed: the full cache’s score. Bars below are 95 % intervals."
        )
    if axis.beyond:
        st.caption(f"Run too, but beyond all stored scores and so not on this axis: τ = {plain(axis.beyond)}.")
    checked = thresholds.check(prompts, lines, source)
    if not checked.empty:
        with st.expander("Worked out against measured, at the thresholds that were run"):
            st.dataframe(checked, hide_index=True, key="check", column_config=_fractions(checked))
            st.caption(
                "largest: of one prompt. outside: prompts whose measured figure their bin does not allow; should be 0."
            )


class Axis(NamedTuple):
    """The slider's ends, step and first value, the digits that tell its steps apart, the width of the finest bins, the
    measured points that lie on it, and the thresholds of the others."""

    low: float
    high: float
    step: float
    start: float
    digits: int
    width: float
    points: pd.DataFrame
    beyond: str


def axis_of(prompts: Sequence[Prompt], points: pd.DataFrame) -> Axis:
    """All thresholds that make a difference, and those that were run, as far as there are bins: beyond the first and
    the last a threshold removes nothing or all, however far it is."""
    first, last, width = histograms.span(prompts)
    ends = [(prompt.histogram.low, prompt.histogram.high) for prompt in prompts]
    least, most = min(low for low, _ in ends), max(high for _, high in ends)
    here = (points["tau"] >= least) & (points["tau"] <= most)
    inside = points[here]
    first, last = min([first, *inside["tau"]]), max([last, *inside["tau"]])
    # no finer than a float can tell apart here, nor than a hundred thousand places
    bin_ = max(width, last / MOST_PLACES - first / MOST_PLACES, 4 * math.ulp(max(abs(first), abs(last))))
    size = math.floor(math.log10(bin_) + 1e-9)
    exactly = max(0, 6 - size)  # -5.300000000000001 is -5.3
    low, high = (round(of(end / bin_) * bin_, exactly) for of, end in ((math.floor, first), (math.ceil, last)))
    if not (low < high and math.isfinite(low) and math.isfinite(high)):
        low, high = (first, last) if first < last else (least, most)
    step = bin_ / 10
    start = float(inside["tau"].iloc[len(inside) // 2]) if len(inside) else low / 2 + high / 2
    start = min(max(round(round(start / step) * step, exactly), low), high)
    beyond = ", ".join(number(tau) for tau in dict.fromkeys(points.loc[~here, "tau"]))
    return Axis(low, high, step, start, min(max(0, 1 - size), MOST_DIGITS), width, inside, beyond)


def fixed_budgets(boards: Boards, source: Source) -> None:
    """Thresholds against head and layer budgets on the same scores."""
    st.subheader("Threshold against fixed budgets on the same scores", anchor=False)
    shown = 0
    for place, board in boards.items():
        cells = budget_cells(board.cells, source.method, source.options)
        if not cells:
            continue
        shown += 1
        st.markdown(f"**{plain(place)}**")
        control = next((cell for cell in board.cells if cell["subset"] is None and cell["level_kind"] == "none"), None)
        st.altair_chart(budget_chart(cells, control), key=f"budgets {shown}")
        rows = budget_pairs(board, {cell["variant"] for cell in cells})
        if rows:
            st.dataframe(rows, hide_index=True, key=f"budget pairs {shown}")
    if shown:
        st.caption(
            "head: top-k in each head; layer: shared out over a layer’s heads (AdaKV); threshold: as many as score "
            "high enough. Horizontal bars: the range over prompts of what was removed. Points, not levels, compare: "
            "at one level a threshold may have removed less. a − b is the mean paired difference at a level, with its"
            " 95 % interval."
        )
    else:
        st.info("These scores were run under one budget alone. To compare budgets, run them together:")
        flags = "--budget threshold,head,layer --removed 0.25,0.5,0.75,0.875"
        st.code(f"python -m harness run --method {source.method} {flags}", language="bash")


def measured_points(boards: Boards, source: Source, by_subset: bool) -> pd.DataFrame:
    """The thresholds that were run (phase prefill, question not in view): ``name, tau, removed, score, low, high,
    full``."""
    found: list[dict[str, Any]] = []
    for place, board in boards.items():
        full = {cell["subset"]: cell["score"] for cell in board.cells if cell["level_kind"] == "none"}
        for cell in board.cells:
            own = tuple(str(cell[name]) for name in Source._fields) == tuple(map(str, source))
            plain_case = (cell["budget"], cell["level_kind"], cell["phase"]) == ("threshold", "threshold", "prefill")
            wanted = (cell["subset"] is not None) == by_subset and cell["query_mode"] == "agnostic"
            if own and plain_case and wanted and None not in (cell["removed_mean"], cell["score"]):
                tau = float(cell["level"])
                if math.isfinite(tau):
                    name = _joined(place, cell["subset"], len(boards)) if by_subset else place
                    told = {key: cell[key] for key in ("score", "low", "high")}
                    row = {"name": name, "tau": tau, "removed": cell["removed_mean"], **told}
                    found.append({**row, "full": full.get(cell["subset"])})
    columns = ["name", "tau", "removed", "score", "low", "high", "full"]
    table = pd.DataFrame(found, columns=columns).astype(dict.fromkeys(columns[1:], float))
    return table.sort_values("tau", kind="stable", ignore_index=True)


def budget_pairs(board: Board, variants: set[str]) -> list[dict[str, Any]]:
    """The paired differences of two budgets at one level."""
    return [
        {
            "level": exact((pair["asked"]["kind"], pair["asked"]["value"])),
            "a": pair["a"],
            "b": pair["b"],
            "a − b": difference(pair),
            "samples": pair["n"],
        }
        for pair in board.pairs
        if pair["against"] == "level" and {pair["a"], pair["b"]} <= variants
    ]


def _tau_name(tau: float, asked: float | None) -> str:
    return f"τ = {number(tau)}" + (f", chosen for {asked:g}" if asked is not None else "")


def _joined(place: str, subset: str, several: int) -> str:
    return f"{place}, {subset}" if several > 1 else subset


def _names(part: pd.DataFrame, place: str, several: int, by_subset: bool) -> list[str]:
    return [_joined(place, subset, several) if by_subset else place for subset in part["subset"]]


def _fractions(table: pd.DataFrame) -> dict[str, Any]:
    return {str(name): FRACTION for name in table.columns if table[name].dtype == float and name != "tau"}


def _at_most(error: float) -> str:
    return "under 0.0001" if error < 1e-4 else f"at most {error:.4f}"
