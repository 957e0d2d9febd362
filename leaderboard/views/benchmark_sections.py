"""What the benchmark page shows of every benchmark: differences by subset and by length, likeness of methods."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from harness.analysis.paired_tests import scores_of
from harness.analysis.ranking import level_of
from harness.results.run_folder import Line
from leaderboard.charts.heatmap import difference_charts, difference_table, level_name, levels
from leaderboard.charts.theme import look
from leaderboard.data.differences import GROUP, OVERALL, SUBSET, Column, Row, columns, differences_of, siblings
from leaderboard.data.library import Group
from leaderboard.data.score_agreement import MEASURES, SAME, likeness, likeness_chart
from leaderboard.data.standings import row_names
from leaderboard.views.layout import View, guarded, plain

EVERY = "all"
#: the subset that the KVzap paper (arXiv 2601.07891, appendix) leaves out of LongBench's mean
OUTLIER = "trec"
WITHOUT = f"without {OUTLIER}"


def choose_level(overall: Sequence[Row]) -> str:
    """The level to show, by its name; ``all``: every one."""
    names = [level_name(level) for level in levels(overall)]
    chosen = st.segmented_control("Level", [EVERY, *names], default=EVERY, key="levels", bind="query-params")
    return chosen if chosen in names else EVERY


def one_level(names: Sequence[str], level: str) -> str:
    """The level that was chosen, or one of ``names`` where all of them were."""
    return next((name for name in (level, "removed 0.5") if name in names), names[0])


def at_level(overall: Sequence[Row], level: str) -> list[Row]:
    """The control and the cells of a level, or all cells level by level."""
    order = [None, *levels(overall)]
    cells = sorted(overall, key=lambda cell: order.index(level_of(cell)))
    return [cell for cell in cells if level == EVERY or level_of(cell) is None or level_name(level_of(cell)) == level]


def by_subset(view: View, group: Group, cells: Sequence[Row]) -> None:
    """Variants by subsets."""
    st.subheader("Difference from the full cache, subset by subset", anchor=False)
    wanted = columns_of(view, group)
    left, right = st.columns(2)
    with left:
        grey = st.toggle("Grey out ties", value=True, key="ties", bind="query-params")
    if any(column.kind == SUBSET and column.name == OUTLIER for column in wanted):
        with right:
            about = "As the KVzap paper does for LongBench: its gains on trec are no gains of a cache."
            if st.toggle("Leave out trec", key="without", bind="query-params", help=about):
                wanted = without_outlier(wanted)
    rows = differences_of(view.library, group, wanted)
    if not rows:
        st.info("The full cache was not run here, so there is nothing to take differences from.")
        return
    table = difference_table(rows, cells, titles(wanted, rows))
    lacking = [cell["variant"] for cell in cells if cell["variant"] not in {row["variant"] for row in rows}]
    if lacking:
        st.info(f"The summary has these variants and samples.jsonl no line of them: {plain(', '.join(lacking), 600)}.")
    if table.empty:
        return
    _drawn(table, grey, "heat")
    told = [
        "The first row has the full cache’s own scores, the others the mean paired difference from it in points.",
        "≈ and grey: a tie: the cell’s own 95 % interval holds 0, or its own paired p is 0.05 or more; in the column "
        "of all samples, as for the ranks, p after Holm’s correction. With few samples that is not the same as equal, "
        "and of so many cells some stand out by chance: p after Holm’s correction over a column is in the hover and in "
        "the table.",
    ]
    if any(row["floor"] for row in rows):
        told.append("\\* and grey: the full cache itself is at chance or under 20, so nothing can be compared.")
    if any(row["difference"] is not None and row["low"] is None for row in rows):
        told.append("Under 10 samples a subset there is no interval, and p of the cell’s own test decides.")
    st.caption(" ".join(told))
    with st.expander("As a table"):
        names = ["level", "variant", "title", "score", "control", "difference", "low", "high", "p_holm", "says", "n"]
        st.dataframe(table[names], hide_index=True, key="heat table")


def _drawn(table: pd.DataFrame, grey: bool, key: str) -> None:
    for number, chart in enumerate(difference_charts(table, look(), grey)):
        st.altair_chart(chart, width="content", key=f"{key} {number}" if number else key)


def columns_of(view: View, group: Group) -> list[Column]:
    """The columns that a group's board has; no subsets where the benchmark has but one."""
    board = view.library.board(group)
    known = list(dict.fromkeys(cell["subset"] for cell in board.cells if cell["subset"] is not None))
    of = next((cell["of_subsets"] for cell in board.cells if cell.get("of_subsets")), None)
    fact = board.runs[0].facts.get(group.part.benchmark)
    found = columns(known, of, fact.groups if fact else {})
    return found if max(of or 0, len(known)) > 1 else found[:1]


def without_outlier(wanted: Sequence[Column]) -> list[Column]:
    """The columns without trec's own, and with every mean that trec is in taken over its other subsets. The overall one
    is the benchmark's own mean without trec, where it has that."""
    own = next((column for column in wanted if column.name == WITHOUT), None)
    found = [own] if own else []
    for column in wanted:
        rest = tuple(subset for subset in column.subsets if subset != OUTLIER)
        if len(rest) == len(column.subsets):
            found += [column] if column is not own else []
        elif rest and not (own and column.kind == OVERALL):
            name = WITHOUT if column.kind == OVERALL else f"{column.name} {WITHOUT}"
            found.append(Column(GROUP, name, rest, column.of - 1))
    return found


def titles(wanted: Sequence[Column], rows: Sequence[Row]) -> list[tuple[str, str, str]]:
    """Kind, name and title of each column; a star where the control is at the floor."""
    floors = {(row["kind"], row["column"]) for row in rows if row["floor"]}
    return [(c.kind, c.name, c.label + (" *" if (c.kind, c.name) in floors else "")) for c in wanted]


def by_length(view: View, group: Group, level: str) -> None:
    """The same benchmark at several lengths: the overall mean and the groups of subsets, length by length."""
    several = siblings(view.groups, group)
    if len(several) < 2:
        return
    st.subheader("By length", anchor=False)
    rows: list[Row] = []
    places: dict[str, list[tuple[str, str, str]]] = {}
    cells: dict[str, Row] = {}
    for one in several:
        found: list[Row] = []
        with guarded(one.title):
            here = [cell for cell in view.library.board(one).cells if cell["subset"] is None and view.shows(cell)]
            wanted = [column for column in columns_of(view, one) if column.kind != SUBSET]
            found = differences_of(view.library, one, wanted)
        if not found:
            continue
        length = f"{one.part.length:,}" if one.part.length else one.part.benchmark
        rows += [{**row, "column": f"{row['column']} @ {one.key}"} for row in found]
        for kind, name, title in titles(wanted, found):
            places.setdefault(name, []).append((kind, f"{name} @ {one.key}", f"{title}, {length}"))
        for cell in here:
            if cell.get("status") != "unsupported":
                cells.setdefault(cell["variant"], cell)
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


def by_sample(cells: Sequence[Row], overall: Sequence[Row], lines: Sequence[Line], level: str) -> None:
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
    usable = {cell["subset"] for cell in cells if cell["level_kind"] == "none" and not cell["floor"]} - {None}
    by_variant: dict[str, list[Line]] = {cell["variant"]: [] for cell in some}
    for line in lines:
        if line.variant in by_variant and line.subset in usable:
            by_variant[line.variant].append(line)
    scores = {variant: scores_of(own) for variant, own in by_variant.items()}
    if len(some) < 2 or not any(scores.values()):
        st.info("The full cache is at the floor on every subset, or was not run: nothing can be compared.")
        return
    labels = {**row_names(some), **{cell["variant"]: "full cache" for cell in some if level_of(cell) is None}}
    chart = likeness_chart(likeness(scores, measure), labels, measure, look())
    st.altair_chart(chart, width="content", key="likeness")
    st.caption(f"{MEASURES[measure]} Rollouts are averaged. Subsets with the full cache at the floor are left out.")
