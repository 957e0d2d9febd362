"""Charts from cells. Every line has its own marker and dash, so that none needs its colour to be told apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import altair as alt
import pandas as pd

from harness.ranking import curve_name, is_partial
from leaderboard.text import brief

Cell = dict[str, Any]

#: Vega's names, then drawings of our own: a star, an hourglass, a bar
SHAPES = (
    *("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left"),
    "M0,-1L0.3,-0.35L1,-0.3L0.45,0.15L0.62,0.85L0,0.45L-0.62,0.85L-0.45,0.15L-1,-0.3L-0.3,-0.35Z",
    "M-0.9,-0.9L0.9,-0.9L-0.9,0.9L0.9,0.9Z",
    "M-1,-0.4L1,-0.4L1,0.4L-1,0.4Z",
)
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4], [4, 2, 1, 2], [14, 3, 3, 3, 3, 3])
#: dark enough for a white page, light enough for a dark one
COLOURS = (
    *("#3b82c4", "#e07b1f", "#2f9e6e", "#c2455c", "#8b6fd1", "#a07a3c"),
    *("#d068b4", "#5f9c27", "#2aa3b5", "#b8860b", "#6d7f99", "#e0604c"),
)
GREY = "#8a8f98"
CONTROL = "full cache"
#: lines that stand out until the reader chooses others, in a chart that has more
MOST_BRIGHT = 8
#: lines of a legend in one column
MOST_ROWS = 22


class Style(NamedTuple):
    colour: str
    shape: str
    dash: list[int]


def styles(curves: Iterable[tuple[str, str]], methods: Sequence[str]) -> dict[str, Style]:
    """The look of each (curve, method): a method has one colour and marker wherever ``methods`` are the same; curves
    of a marker differ by dash. No two curves share both, as long as there are markers times dashes of them."""
    order = {method: place for place, method in enumerate(methods)}
    taken: set[tuple[str, int]] = set()
    found: dict[str, Style] = {}
    for curve, method in curves:
        place = order.setdefault(method, len(order))
        choices = [(place + shift, dash) for shift in range(len(SHAPES)) for dash in range(len(DASHES))]
        free = (one for one in choices if (SHAPES[one[0] % len(SHAPES)], one[1]) not in taken)
        shape, dash = next(free, choices[0])
        taken.add((SHAPES[shape % len(SHAPES)], dash))
        found[curve] = Style(COLOURS[place % len(COLOURS)], SHAPES[shape % len(SHAPES)], DASHES[dash])
    return found


COLUMNS = (
    *("curve", "method", "variant", "removed", "range", "factor", "score", "low", "high", "interval", "samples"),
    *("settings", "hollow", "floor"),
)


def points(cells: Sequence[Cell]) -> pd.DataFrame:
    """One row an overall cell that was measured; ``hollow`` where protection binds, ``floor`` where all is equal."""
    return pd.DataFrame([_point(cell) for cell in cells if _drawn(cell)], columns=list(COLUMNS))


def _drawn(cell: Cell) -> bool:
    if cell["subset"] is not None or cell["score"] is None:
        return False
    return cell["level_kind"] == "none" or (cell["removed_mean"] is not None and cell["removed_mean"] < 1)


def _point(cell: Cell) -> dict[str, Any]:
    removed = cell["removed_mean"] or 0.0
    low, high = cell["low"], cell["high"]
    spread = "" if cell["removed_min"] is None else f"{cell['removed_min']:.3f} to {cell['removed_max']:.3f}"
    return {
        "curve": CONTROL if cell["level_kind"] == "none" else brief(curve_name(cell)),
        "method": brief(cell["method"]),
        "variant": brief(cell["variant"]),
        "removed": removed,
        "range": spread,
        "factor": 1 / (1 - removed),
        "score": cell["score"],
        "low": low,
        "high": high,
        "interval": "none under 10 samples a subset" if low is None or high is None else f"{low:.1f} to {high:.1f}",
        "samples": cell["n"],
        "settings": brief(settings(cell)),
        "hollow": bool(cell["bound_by"]),
        "floor": bool(cell["floor"]),
    }


def settings(cell: Cell) -> str:
    """What of a cell's setting its label may leave out."""
    sinks = "template prefix" if cell["sinks"] == "prefix" else f"first {cell['sinks']}"
    told = [f"phase {cell['phase']}", f"protects {sinks} and last {cell['window']}", f"engine {cell['engine']}"]
    told += [] if cell["query_mode"] == "agnostic" else [f"query mode {cell['query_mode']}"]
    told += [] if cell["positions"] == "original" else ["positions in the cache"]
    told += [] if cell["options"] in ("", "{}") else [cell["options"]]
    return ", ".join(told)


def curve_chart(
    cells: Sequence[Cell],
    log: bool,
    methods: Sequence[str] = (),
    order: Sequence[str] = (),
    bright: Sequence[str] | None = None,
) -> alt.LayerChart | alt.FacetChart:
    """Score over measured removed fraction (``log``: over the compression factor, on a log axis), a line a curve.

    methods   decides colours and markers by its order
    order     curves as the legend lists them; others follow
    bright    curves that stand out at first; None: all. A click in the legend chooses others
    """
    table = points(cells)
    control = table[table["curve"] == CONTROL]
    pruned = table[(table["curve"] != CONTROL) & ~table["floor"]]
    grey = table[(table["curve"] != CONTROL) & table["floor"]]
    look = styles(dict(zip(table["curve"], table["method"], strict=True)).items() if len(table) else (), methods)
    there = set(pruned["curve"])
    names = [name for name in dict.fromkeys((*order, *sorted(there))) if name in there]
    partial = next((cell for cell in cells if is_partial(cell)), None)
    title = f"mean of {partial['n_subsets']} of {partial['of_subsets']} subsets" if partial else "score"
    x, y = _x(table, log), alt.Y("score:Q", title=title, scale=_height(table))
    layers = [*_control(control, y), *_grey(grey, x, y), *_lines(pruned, x, y, names, look, bright)]
    return alt.layer(*layers).properties(height=max(430, min(len(names), MOST_ROWS) * 21)).configure_point(size=70)


def _x(table: pd.DataFrame, log: bool) -> alt.X:
    """An axis with both figures at each mark: the removed fraction and the compression factor."""
    most = float(table["removed"].max()) if len(table) else 0.0
    fraction, factor = "format(datum.value, '.3~f')", "format(1 / (1 - datum.value), '.2~f') + '×'"
    if log:
        ends = [1, max(8.0, 1.1 / (1 - most))]
        label = "[format(datum.value, '.2~f') + '×', format(1 - 1 / datum.value, '.3~f')]"
        axis = alt.Axis(labelExpr=label, values=[2**power for power in range(11)], grid=True)
        name = "compression factor 1 / (1 - removed), and measured removed fraction of the cache"
        return alt.X("factor:Q", title=name, axis=axis, scale=alt.Scale(type="log", base=2, domain=ends, nice=False))
    axis = alt.Axis(
        labelExpr=f"[{fraction}, datum.value < 1 ? {factor} : '']", values=[0, 0.25, 0.5, 0.75, 0.875, 1], grid=True
    )
    name = "measured removed fraction of the cache, and compression factor 1 / (1 - removed)"
    scale = alt.Scale(domain=[0, min(1.0, max(0.9, most + 0.02))], nice=False)
    return alt.X("removed:Q", title=name, axis=axis, scale=scale)


def _height(table: pd.DataFrame) -> alt.Scale:
    """0 to 100, or to a round figure above where all scores are low."""
    most = max([20.0, *table["score"], *table["high"].dropna()])
    return alt.Scale(domain=[0, 100 if most > 60 else 10 * -(-most // 10)], nice=False)


TOOLTIP = (
    *(alt.Tooltip("variant:N"), alt.Tooltip("score:Q", format=".1f"), alt.Tooltip("interval:N", title="95 % interval")),
    *(alt.Tooltip("removed:Q", format=".3f"), alt.Tooltip("range:N", title="removed, min to max")),
    *(
        alt.Tooltip("factor:Q", title="times smaller", format=".2f"),
        alt.Tooltip("samples:Q"),
        alt.Tooltip("settings:N"),
    ),
)


def _control(table: pd.DataFrame, y: alt.Y) -> list[alt.Chart]:
    if table.empty:
        return []
    base = alt.Chart(table.head(1))
    rule = base.mark_rule(strokeDash=[7, 5], strokeWidth=1.6, color=GREY).encode(y=y, tooltip=list(TOOLTIP[:3]))
    label = f"{CONTROL} {table['score'].iloc[0]:.1f}"
    place: dict[str, Any] = {"align": "left", "dx": 5, "dy": 11, "color": GREY, "fontSize": 12}
    return [rule, base.mark_text(text=label, **place).encode(y=y, x=alt.value(0))]


def _grey(table: pd.DataFrame, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Cells at the floor: points without a line."""
    if table.empty:
        return []
    return [alt.Chart(table).mark_point(color=GREY, opacity=0.55).encode(x=x, y=y, tooltip=list(TOOLTIP))]


def _lines(
    table: pd.DataFrame,
    x: alt.X,
    y: alt.Y,
    names: Sequence[str],
    look: dict[str, Style],
    bright: Sequence[str] | None,
) -> list[alt.Chart]:
    if table.empty:
        return []
    first = [{"curve": name} for name in bright or () if name in names]
    chosen = alt.selection_point(
        name="chosen", fields=["curve"], bind="legend", toggle="event.shiftKey", value=first or alt.Undefined
    )

    def scale(part: str) -> alt.Scale:
        return alt.Scale(domain=list(names), range=[getattr(look[name], part) for name in names])

    legend = alt.Legend(
        title=None,
        orient="right",
        columns=1 + (len(names) - 1) // MOST_ROWS,
        symbolLimit=0,
        labelLimit=230,
        symbolSize=90,
        symbolStrokeWidth=2,
        symbolOpacity=1,
    )
    colour = alt.Color("curve:N", scale=scale("colour"), legend=legend)
    dash = alt.StrokeDash("curve:N", scale=scale("dash"), legend=legend)
    shape = alt.Shape("curve:N", scale=scale("shape"), legend=legend)
    base = alt.Chart(table)

    def strength(strong: float, weak: float) -> Any:
        return alt.when(chosen).then(alt.value(strong)).otherwise(alt.value(weak))

    tips = list(TOOLTIP)
    band = base.transform_filter("isValid(datum.low) && isValid(datum.high)").mark_area()
    found = [
        band.encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour, opacity=strength(0.13, 0.0)),
        base.mark_line(strokeWidth=2.2).encode(x=x, y=y, color=colour, strokeDash=dash, opacity=strength(1, 0.16)),
    ]
    solid, hollow = table[~table["hollow"]], table[table["hollow"]]
    marked = {"x": x, "y": y, "color": colour, "shape": shape, "tooltip": tips, "opacity": strength(1, 0.16)}
    found.append(alt.Chart(solid).mark_point(filled=True).encode(**marked).add_params(chosen))
    if len(hollow):
        found.append(alt.Chart(hollow).mark_point(filled=False, strokeWidth=1.8).encode(**marked))
    return found
