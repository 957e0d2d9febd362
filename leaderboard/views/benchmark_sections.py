"""What the benchmark page shows of every benchmark: differences by subset and by length, correlation of methods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd
import streamlit as st

from harness.analysis.floor import AT_FLOOR
from harness.analysis.paired_tests import scores_of
from harness.results.schema import Cell, Line
from leaderboard.charts.differences import difference_charts
from leaderboard.charts.method_correlation import correlation_chart
from leaderboard.data.differences import (
    OUTLIER,
    SUBSET,
    ColumnDifference,
    columns_of,
    difference_table,
    differences_of,
    siblings,
    titles,
    without_outlier,
)
from leaderboard.data.levels import EVERY, at_level, level_name, levels, one_level, row_names
from leaderboard.data.library import Group
from leaderboard.data.method_correlation import MEASURES, SAME, method_correlation
from leaderboard.escaping import plain
from leaderboard.views.layout import View, current_theme, guarded


def choose_level(overall: Sequence[Cell]) -> str:
    """The level to show, by its name; ``all``: every one."""
    names = [level_name(level) for level in levels(overall)]
    chosen = st.segmented_control("Level", [EVERY, *names], default=EVERY, key="levels", bind="query-params")
    return chosen if chosen in names else EVERY


def by_subset(view: View, group: Group, cells: Sequence[Cell]) -> None:
    """Variants by subsets."""
    st.subheader("Difference from the full cache, subset by subset", anchor=False)
    wanted = columns_of(view.library, group)
    left, right = st.columns(2)
    with left:
        grey = st.toggle("Grey out ties", value=True, key="ties", bind="query-params")
    if any(column.kind == SUBSET and column.name == OUTLIER for column in wanted):
        with right:
            about = "As the KVzap paper does for LongBench: its gains on trec do not come from the cache."
            if st.toggle("Leave out trec", key="without", bind="query-params", help=about):
                wanted = without_outlier(wanted)
    rows = differences_of(view.library, group, wanted)
    if not rows:
        st.info("The full cache was not run here, so there is nothing to take differences from.")
        return
    there = {row.variant for row in rows}
    lacking = [cell.variant for cell in cells if cell.variant not in there]
    if lacking:
        st.info(f"These variants are in the summary, but not in samples.jsonl: {plain(', '.join(lacking), 600)}.")
    table = difference_table(rows, cells, titles(wanted, rows))
    if table.empty:
        return
    _drawn(table, grey, "heat")
    st.caption(" ".join(_legend(rows)))
    with st.expander("As a table"):
        names = ["level", "variant", "title", "score", "control", "difference", "low", "high", "p_holm", "says", "n"]
        st.dataframe(table[names], hide_index=True, key="heat table")


def _legend(rows: Sequence[ColumnDifference]) -> Iterator[str]:
    yield "First row: the full cache’s own scores; others: the mean paired difference from it in points."
    yield (
        "≈ and grey: a tie, by the cell’s own 95 % interval and paired p; in the column of all samples by p after "
        "Holm’s correction, as for the ranks. With few samples a tie is not equality, and of so many cells some stand "
        "out by chance: see p (Holm) in the hover and in the table."
    )
    if any(row.floor for row in rows):
        yield f"\\* and grey: the full cache itself is {AT_FLOOR}, so nothing can be compared."
    if any(row.difference is not None and row.low is None for row in rows):
        yield "Under 10 samples per subset there is no interval, and p of the cell’s own test decides."


def _drawn(table: pd.DataFrame, grey: bool, key: str) -> None:
    for number, chart in enumerate(difference_charts(table, current_theme(), grey)):
        st.altair_chart(chart, width="content", key=f"{key} {number}" if number else key)


def by_length(view: View, group: Group, level: str) -> None:
    """The same benchmark at several lengths: the overall mean and the groups of subsets, length by length."""
    several = siblings(view.groups, group)
    if len(several) < 2:
        return
    st.subheader("By length", anchor=False)
    rows: list[ColumnDifference] = []
    places: dict[str, list[tuple[str, str, str]]] = {}
    cells: dict[str, Cell] = {}
    for one in several:
        found: list[ColumnDifference] = []
        with guarded(one.title):
            here = [cell for cell in view.library.board(one).cells if cell.subset is None and view.shows(cell)]
            wanted = [column for column in columns_of(view.library, one) if column.kind != SUBSET]
            found = differences_of(view.library, one, wanted)
        if not found:
            continue
        length = f"{one.part.length:,}" if one.part.length else one.part.benchmark
        rows += [row._replace(column=f"{row.column} @ {one.key}") for row in found]
        for kind, name, title in titles(wanted, found):
            places.setdefault(name, []).append((kind, f"{name} @ {one.key}", f"{title}, {length}"))
        for cell in here:
            if cell.status != "unsupported":
                cells.setdefault(cell.variant, cell)
    table = difference_table(
        rows, at_level(list(cells.values()), level), [one for some in places.values() for one in some]
    )
    if table.empty:
        st.info("The full cache was not run at these lengths, so there is nothing to take differences from.")
        return
    _drawn(table, True, "lengths")
    st.caption(
        "Each difference is from the full cache at the same length; other seeds than this board’s may be among them."
    )


def by_sample(cells: Sequence[Cell], overall: Sequence[Cell], lines: Sequence[Line], level: str) -> None:
    """Which methods get the same samples right.

    cells   the board's, those of subsets among them
    """
    names = [level_name(one) for one in levels(overall)]
    if not names:
        return
    st.subheader("Do methods fail on the same samples?", anchor=False)
    left, right = st.columns(2)
    start = one_level(names, level)
    with left:
        at = st.selectbox("At level", names, index=names.index(start), key="at", bind="query-params")
    with right:
        measure = st.segmented_control("Measure", list(MEASURES), default=SAME, key="alike", bind="query-params")
    measure = measure if measure in MEASURES else SAME
    some = at_level(overall, at if at in names else start)
    usable = {cell.subset for cell in cells if cell.level_kind == "none" and not cell.floor} - {None}
    by_variant: dict[str, list[Line]] = {cell.variant: [] for cell in some}
    for line in lines:
        if line.variant in by_variant and line.subset in usable:
            by_variant[line.variant].append(line)
    scores = {variant: scores_of(own) for variant, own in by_variant.items()}
    if len(some) < 2 or not any(scores.values()):
        st.info("The full cache is at the floor on every subset, or was not run: nothing can be compared.")
        return
    chart = correlation_chart(method_correlation(scores, measure), row_names(some), measure, current_theme())
    st.altair_chart(chart, width="content", key="correlation")
    st.caption(f"{MEASURES[measure]} Rollouts are averaged. Subsets with the full cache at the floor are left out.")
