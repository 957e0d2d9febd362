"""The chart of a board: score over the measured removed fraction, a line per curve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from harness.analysis.ranking import is_partial
from harness.results.schema import Cell
from leaderboard.charts.theme import GREY, Style, method_styles
from leaderboard.data.levels import CONTROL
from leaderboard.escaping import brief

Spec = dict[str, Any]

#: lines that stand out until the reader chooses others, in a chart that has more
MOST_BRIGHT = 8
#: pixels of a column of the legend, and of the height of a chart without it
COLUMN, PLOT = 196, 330


COLUMNS = (
    *("curve", "method", "variant", "removed", "range", "factor", "score", "low", "high", "interval", "samples"),
    *("settings", "hollow", "floor"),
)


def points(cells: Sequence[Cell]) -> pd.DataFrame:
    """One row an overall cell that was measured; ``hollow`` where protection binds, ``floor`` where all is equal."""
    return pd.DataFrame([_point(cell) for cell in cells if _drawn(cell)], columns=list(COLUMNS))


def _drawn(cell: Cell) -> bool:
    if cell.subset is not None or cell.score is None:
        return False
    return cell.level_kind == "none" or (cell.removed_mean is not None and cell.removed_mean < 1)


def _point(cell: Cell) -> dict[str, Any]:
    removed = cell.removed_mean or 0.0
    low, high = cell.low, cell.high
    spread = "" if cell.removed_min is None else f"{cell.removed_min:.3f} to {cell.removed_max:.3f}"
    return {
        "curve": CONTROL if cell.level_kind == "none" else brief(cell.curve),
        "method": brief(cell.method),
        "variant": brief(cell.variant),
        "removed": removed,
        "range": spread,
        "factor": 1 / (1 - removed),
        "score": cell.score,
        "low": low,
        "high": high,
        "interval": "none under 10 samples a subset" if low is None or high is None else f"{low:.1f} to {high:.1f}",
        "samples": cell.n,
        "settings": brief(settings(cell)),
        "hollow": bool(cell.bound_by),
        "floor": bool(cell.floor),
    }


def settings(cell: Cell) -> str:
    """What of a cell's setting its label may leave out."""
    sinks = "template prefix" if cell.sinks == "prefix" else f"first {cell.sinks}"
    told = [f"phase {cell.phase}", f"protects {sinks} and last {cell.window}", f"engine {cell.engine}"]
    told += [] if cell.query_mode == "agnostic" else [f"query mode {cell.query_mode}"]
    told += [] if cell.positions == "original" else ["positions in the cache"]
    told += [] if cell.options in ("", "{}") else [cell.options]
    return ", ".join(told)


def curve_chart(
    cells: Sequence[Cell],
    log: bool,
    methods: Sequence[str] = (),
    order: Sequence[str] = (),
    bright: Sequence[str] | None = None,
) -> Spec:
    """Score over measured removed fraction (``log``: over the compression factor, on a log axis), a line a curve; as a
    Vega-Lite specification. Altair takes a quarter of a second to make it, longer than all the rest of a board.

    methods   decides colours and markers by its order
    order     curves as the legend lists them; others follow
    bright    curves that stand out at first; None: all. A click in the legend chooses others
    """
    table = points(cells)
    pruned = table["curve"] != CONTROL
    data = {
        "control": table[~pruned].head(1),
        "grey": table[pruned & table["floor"]],
        "lines": table[pruned & ~table["floor"]],
        "solid": table[pruned & ~table["floor"] & ~table["hollow"]],
        "hollow": table[pruned & ~table["floor"] & table["hollow"]],
    }
    styles = method_styles(
        dict(zip(table["curve"], table["method"], strict=True)).items() if len(table) else (), methods
    )
    there = set(data["lines"]["curve"])
    names = [name for name in dict.fromkeys((*order, *sorted(there))) if name in there]
    partial = next((cell for cell in cells if is_partial(cell)), None)
    title = f"mean of {partial.n_subsets} of {partial.of_subsets} subsets" if partial else "score"
    x, y = _x(table, log), {**_number("score"), "title": title, "scale": _height(table)}
    layers = [*_control(data["control"], y), *_grey(x, y), *_lines(x, y, names, styles, bright)]
    return {
        "layer": [layer for layer in layers if len(data[layer["data"]["name"]])],
        "datasets": {name: _rows(some) for name, some in data.items() if len(some)},
        "height": PLOT,
        "autosize": {"type": "fit-x", "contains": "padding"},  # the legend takes nothing of the height
        "config": {"point": {"size": 70}, "legend": {"unselectedOpacity": 0.6}},  # of names that stand back
    }


def _number(field: str) -> Spec:
    return {"field": field, "type": "quantitative"}


def _rows(table: pd.DataFrame) -> list[Spec]:
    """Without the figures that there are none of."""
    return [{str(name): value for name, value in row.items() if not pd.isna(value)} for row in table.to_dict("records")]


def _x(table: pd.DataFrame, log: bool) -> Spec:
    """An axis with both figures at each mark: the removed fraction and the compression factor."""
    most = float(table["removed"].max()) if len(table) else 0.0
    fraction, factor = "format(datum.value, '.3~f')", "format(1 / (1 - datum.value), '.2~f') + '×'"
    if log:
        ends = [1, max(8.0, 1.1 / (1 - most))]
        label = "[format(datum.value, '.2~f') + '×', format(1 - 1 / datum.value, '.3~f')]"
        axis = {"labelExpr": label, "values": [2**power for power in range(11)], "grid": True}
        name = "compression factor, and measured removed fraction"
        scale = {"type": "log", "base": 2, "domain": ends, "nice": False}
        return {**_number("factor"), "title": name, "axis": axis, "scale": scale}
    label = f"[{fraction}, datum.value < 1 ? {factor} : '']"
    axis = {"labelExpr": label, "values": [0, 0.25, 0.5, 0.75, 0.875, 1], "grid": True}
    name = "measured removed fraction, and compression factor"
    scale = {"domain": [0, min(1.0, max(0.9, most + 0.02))], "nice": False}
    return {**_number("removed"), "title": name, "axis": axis, "scale": scale}


def _height(table: pd.DataFrame) -> Spec:
    """0 to 100, or to a round figure above where all scores are low."""
    most = max([20.0, *table["score"], *table["high"].dropna()])
    return {"domain": [0, 100 if most > 60 else 10 * -(-most // 10)], "nice": False}


TOOLTIP: list[Spec] = [
    {"field": "variant", "type": "nominal"},
    {**_number("score"), "format": ".1f"},
    {"field": "interval", "type": "nominal", "title": "95 % interval"},
    {**_number("removed"), "format": ".3f"},
    {"field": "range", "type": "nominal", "title": "removed, min to max"},
    {**_number("factor"), "title": "times smaller", "format": ".2f"},
    _number("samples"),
    {"field": "settings", "type": "nominal"},
]


def _control(table: pd.DataFrame, y: Spec) -> Iterator[Spec]:
    if table.empty:
        return
    rule = {"type": "rule", "strokeDash": [7, 5], "strokeWidth": 1.6, "color": GREY}
    yield _layer("control", rule, y=y, tooltip=TOOLTIP[:3])
    label = f"{CONTROL} {table['score'].iloc[0]:.1f}"
    text = {"type": "text", "text": label, "align": "left", "dx": 5, "dy": 11, "color": GREY, "fontSize": 12}
    yield _layer("control", text, x={"value": 0}, y=y)


def _grey(x: Spec, y: Spec) -> Iterator[Spec]:
    """Cells at the floor: points without a line."""
    yield _layer("grey", {"type": "point", "color": GREY, "opacity": 0.55}, x=x, y=y, tooltip=TOOLTIP)


def _lines(
    x: Spec, y: Spec, names: Sequence[str], styles: dict[str, Style], bright: Sequence[str] | None
) -> Iterator[Spec]:
    def styled(part: str) -> Spec:
        scale = {"domain": list(names), "range": [getattr(styles[name], part) for name in names]}
        return {"field": "curve", "type": "nominal", "scale": scale, "legend": LEGEND}

    def strength(strong: float, weak: float) -> Spec:
        return {"condition": {"param": "chosen", "value": strong}, "value": weak}

    colour, shape = styled("colour"), styled("shape")
    band = _layer(
        *("lines", {"type": "area"}),
        x=x,
        y={**y, "field": "low"},
        y2={"field": "high"},
        color=colour,
        opacity=strength(0.13, 0.0),
    )
    yield {**band, "transform": [{"filter": "isValid(datum.low) && isValid(datum.high)"}]}
    line = _layer(
        *("lines", {"type": "line", "strokeWidth": 2.2}),
        x=x,
        y=y,
        color=colour,
        strokeDash=styled("dash"),
        opacity=strength(1, 0.16),
    )
    first = [{"curve": name} for name in bright or () if name in names]
    by = {"type": "point", "fields": ["curve"], "toggle": "event.shiftKey"}
    yield {
        **line,
        "params": [{"name": "chosen", "select": by, "bind": "legend", **({"value": first} if first else {})}],
    }
    marked = {"x": x, "y": y, "color": colour, "shape": shape, "tooltip": TOOLTIP, "opacity": strength(1, 0.16)}
    yield _layer("solid", {"type": "point", "filled": True}, **marked)
    yield _layer("hollow", {"type": "point", "filled": False, "strokeWidth": 1.8}, **marked)


def _layer(data: str, mark: Spec, **encoding: Any) -> Spec:
    return {"data": {"name": data}, "mark": mark, "encoding": encoding}


#: under the chart, in as many columns as it is wide
LEGEND: Spec = {
    "title": None,
    "orient": "bottom",
    "columns": {"expr": f"max(1, floor(width / {COLUMN}))"},
    "symbolLimit": 0,
    "labelLimit": COLUMN - 12,
    "symbolSize": 90,
    "symbolStrokeWidth": 2,
    "symbolOpacity": 1,
}
