"""The heatmap of how alike the scores of methods are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import pandas as pd

from leaderboard.charts.heatmap import HEIGHT, heatmap, scale_of
from leaderboard.charts.lines import Layered
from leaderboard.charts.theme import Theme
from leaderboard.data.differences import NONE
from leaderboard.data.method_correlation import SAME, Pair

#: pixels of all columns beside row names on a common page, and of a column with a figure in it at least
WIDE, NARROW = 580, 30


def correlation_chart(pairs: Sequence[Pair], names: Mapping[str, str], measure: str, theme: Theme) -> Layered:
    """The lower half of the matrix. ``names`` has the label of each variant, in order; no two are the same."""
    same = measure == SAME
    table = pd.DataFrame(pairs, columns=Pair._fields).astype({"value": float})
    table["row"], table["column"] = table["a"].map(names), table["b"].map(names)
    table["fill"] = table["value"].isna().map({True: "grey", False: "colour"})
    table["text"] = [NONE if value != value else _text(value, same) for value in table["value"]]
    table["deep"] = table["value"].abs() > (0.6 if same else 0.7)
    domain, colours = ([0.0, 1.0], theme.rising) if same else ([-1.0, 0.0, 1.0], theme.diverging)
    rows, columns = ([name for name in names.values() if name in set(table[side])] for side in ("row", "column"))
    return heatmap(
        table,
        scale_of(measure, domain, colours, ".0%" if same else ".2f"),
        [alt.Tooltip("a:N"), alt.Tooltip("b:N"), alt.Tooltip("value:Q", format=".3f"), alt.Tooltip("n:Q")],
        rows,
        columns,
        theme,
        max(NARROW, min(HEIGHT + 20, WIDE // len(columns))),
    )


def _text(value: float, same: bool) -> str:
    return f"{value:.0%}" if same else f"{value:.2f}".replace("-", "−")
