"""The heatmaps of the benchmark page: each variant's difference from the control, column by column."""

from __future__ import annotations

import altair as alt
import pandas as pd

from leaderboard.charts.heatmap import heatmap, scale_of
from leaderboard.charts.lines import Layered, tips
from leaderboard.charts.theme import Theme
from leaderboard.data.differences import SUBSET

#: columns that stand beside each other on a page
MOST_COLUMNS = 12
#: a difference this large has the deepest colour, where none is larger
LEAST = 20.0


def difference_charts(table: pd.DataFrame, theme: Theme, grey_ties: bool = True) -> list[Layered]:
    """Variants by columns, level by level, the control's own scores on top; where there are many columns as several
    charts, means and groups apart from subsets, with one scale of colours. Of an empty table there is none.

    table       :func:`leaderboard.data.differences.difference_table`
    grey_ties   colour is the difference from the control; ties, too, are then grey, as is what has no comparison
    """
    if table.empty:
        return []
    table = table.drop(columns="column").rename(columns={"difference": "value", "name": "row", "title": "column"})
    table["value"] = table["value"].astype(float)
    pruned = table["level"] != ""
    grey = pruned & (table["floor"] | table["value"].isna() | (table["tie"].eq(True) & grey_ties))
    table["fill"] = ["none" if not p else "grey" if g else "colour" for p, g in zip(pruned, grey, strict=True)]
    most = max([LEAST, *table.loc[table["fill"] == "colour", "value"].abs()])
    table["deep"] = (table["fill"] == "colour") & (table["value"].abs() > 0.6 * most)
    colour = scale_of("points from the control", [-most, 0, most], theme.diverging, "+.0f", clamp=True)
    hover = [
        alt.Tooltip("variant:N"),
        alt.Tooltip("column:N", title="title"),
        alt.Tooltip("says:N"),
        *tips(".2f", "score", "control"),
        alt.Tooltip("value:Q", format="+.2f", title="difference"),
        *tips("+.2f", "low", "high"),
        alt.Tooltip("p_holm:Q", format=".3g", title="p (Holm)"),
        alt.Tooltip("removed:Q", format=".3f"),
        alt.Tooltip("n:Q", title="samples"),
    ]
    rows, heads = _rows(table)
    return [
        heatmap(
            table[table["column"].isin(titles)],
            colour if number == 0 else colour.legend(None),
            hover,
            rows,
            titles,
            theme,
            heads=heads,
        )
        for number, titles in enumerate(_side_by_side(table))
    ]


def _rows(table: pd.DataFrame) -> tuple[list[str], list[str]]:
    """The variants level by level, each level under a row of its own with its name; and those rows."""
    by_level = table.groupby("level", sort=False)["row"].unique()
    heads = [level for level in by_level.index if level]
    return [name for level, variants in by_level.items() for name in ([level] if level else []) + list(variants)], heads


def _side_by_side(table: pd.DataFrame) -> list[list[str]]:
    """The titles of each chart's columns; of few columns there is one chart."""
    titles = list(table.sort_values("place")["column"].unique())
    if len(titles) <= MOST_COLUMNS:
        return [titles]
    subsets = set(table.loc[table["kind"] == SUBSET, "column"])
    found = []
    for some in ([one for one in titles if one not in subsets], [one for one in titles if one in subsets]):
        charts = -(-len(some) // MOST_COLUMNS)
        size = -(-len(some) // charts) if charts else 1
        found += [some[start : start + size] for start in range(0, len(some), size)]
    return found
