"""A context's tokens as a chart, coloured by how many heads kept them. Texts go to Vega as data and are drawn as
letters on a canvas: whatever a token holds, it is neither HTML nor markdown nor a formula."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.cells import cell_len, set_cell_size

from harness.results.safe_text import clean
from leaderboard.charts.lines import Layered
from leaderboard.charts.theme import BLUE, Theme

#: columns of a line, of one grid and of two beside each other; their width in pixels, height of a line
WIDTH, BESIDE, COLUMN, LINE = 108, 64, 7.2, 19
#: what an end of line looks like
RETURN = "↵"
#: tokens in one view
MOST_TOKENS = 2_000
#: heads of a map that has its figures written in
MOST_HEADS = 10


class Spot(NamedTuple):
    """Where a token stands: line, and columns from ``start`` up to ``stop``."""

    line: int
    start: int
    stop: int
    text: str


def layout(tokens: Sequence[str], width: int = WIDTH) -> list[Spot]:
    """A place for each token, in lines of ``width`` columns. A token that ends lines ends one here; one that is wider
    than a line is cut; one without text of its own (part of a character) takes one column."""
    found, line, column = [], 0, 0
    for token in tokens:
        text = _visible(token, width)
        wide = max(1, cell_len(text))
        if column + wide > width and column:
            line, column = line + 1, 0
        found.append(Spot(line, column, column + wide, text))
        column += wide
        if RETURN in text:
            line, column = line + 1, 0
    return found


def _visible(token: str, width: int) -> str:
    """The text of a token on one line, without control marks or turned directions, no wider than a line."""
    text = str(clean(token[: 4 * width])).replace("\n", RETURN).replace("\t", "→")
    text = "".join(mark if mark.isprintable() else "\ufffd" for mark in text)
    return text if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


def token_table(
    share: NDArray[np.float64], tokens: Sequence[str] | None, prefix: int, start: int = 0, width: int = WIDTH
) -> pd.DataFrame:
    """A row a token from number ``start`` on, :data:`MOST_TOKENS` at most: place, text and share kept, 0..1. Without
    ``tokens`` each is a cell of one column."""
    stop = min(len(share), start + MOST_TOKENS)
    spots = layout([" "] * (stop - start) if tokens is None else tokens[start:stop], width)
    table = pd.DataFrame(spots, columns=["line", "start", "stop", "text"])
    # Vega leaves out the spaces that a text starts with
    table["ink"] = table["start"] + [len(text) - len(text.lstrip()) for text in table["text"]]
    table["end"] = table["line"] + 1
    table["token"] = range(start, stop)
    table["kept"] = np.asarray(share[start:stop], dtype=float)
    table["part"] = np.where(table["token"] < prefix, "chat template", "context")
    return table


def token_chart(table: pd.DataFrame, theme: Theme, width: int = WIDTH) -> Layered:
    """Background and letters are the stronger the more heads kept a token; what all of them kept is underlined, what
    none of them did is struck through. The figure shows on hovering."""
    lines = int(table["line"].max()) + 1 if len(table) else 1
    x = alt.X("start:Q", axis=None, scale=alt.Scale(domain=[0, width], nice=False))
    y = alt.Y("line:Q", axis=None, scale=alt.Scale(domain=[lines, 0], nice=False))
    hover = [
        alt.Tooltip("token:Q", title="token"),
        alt.Tooltip("text:N", title="text"),
        alt.Tooltip("kept:Q", title="kept by", format=".0%"),
        alt.Tooltip("part:N", title="part of"),
    ]
    strength = alt.Opacity("kept:Q", legend=None, scale=alt.Scale(domain=[0, 1], range=[0.0, 0.55]))
    letters = alt.Opacity("kept:Q", legend=None, scale=alt.Scale(domain=[0, 1], range=[0.45, 1.0]))
    base = alt.Chart(table).encode(x=x, y=y)
    boxes = base.mark_rect(color=BLUE, cornerRadius=2).encode(x2="stop:Q", y2="end:Q", opacity=strength, tooltip=hover)
    # a mark that is not seen, but is there for the pointer where a box is clear
    catch = base.mark_rect(color=BLUE, opacity=0.001).encode(x2="stop:Q", y2="end:Q", tooltip=hover)
    texts = base.mark_text(font="monospace", fontSize=12, align="left", baseline="middle", color=theme.ink).encode(
        x=alt.X("ink:Q", axis=None, scale=alt.Scale(domain=[0, width], nice=False)),
        y=alt.Y("centre:Q", axis=None, scale=alt.Scale(domain=[lines, 0], nice=False)),
        text="text:N",
        opacity=letters,
    )
    ruled = base.transform_calculate(low="datum.line + 0.93")
    under = (
        ruled.transform_filter("datum.kept >= 1")
        .mark_rule(color=theme.ink, strokeWidth=1)
        .encode(y=alt.Y("low:Q", axis=None, scale=alt.Scale(domain=[lines, 0], nice=False)), x2="stop:Q")
    )
    struck = (
        base.transform_filter("datum.kept <= 0")
        .mark_rule(color=theme.ink, strokeWidth=1, opacity=0.6)
        .encode(y=alt.Y("centre:Q", axis=None, scale=alt.Scale(domain=[lines, 0], nice=False)), x2="stop:Q")
    )
    layers = alt.layer(
        boxes,
        texts.transform_calculate(centre="datum.line + 0.5"),
        under,
        struck.transform_calculate(centre="datum.line + 0.5"),
        catch,
    )
    return layers.resolve_scale(opacity="independent").properties(width=width * COLUMN, height=lines * LINE)


def head_table(shares: NDArray[np.float64]) -> pd.DataFrame:
    """``[L, H]`` as one row a layer and head, with the share of the context that it keeps."""
    layers, heads = shares.shape
    rows = [(layer, head, float(shares[layer, head])) for layer in range(layers) for head in range(heads)]
    return pd.DataFrame(rows, columns=["layer", "head", "kept"])


def head_chart(table: pd.DataFrame) -> Layered:
    """Layer by head; with few heads the figures stand in the cells."""
    heads = int(table["head"].max()) + 1 if len(table) else 0
    x = alt.X("head:O", title="KV head", axis=alt.Axis(labelAngle=0, labelOverlap=False, orient="top"))
    y = alt.Y("layer:O", title="layer")
    hover = ["layer:O", "head:O", alt.Tooltip("kept:Q", title="kept of the context", format=".1%")]
    colour = alt.Color(
        "kept:Q", title="kept", scale=alt.Scale(domain=[0, 1], scheme="viridis"), legend=alt.Legend(format=".0%")
    )
    base = alt.Chart(table).encode(x=x, y=y)
    layers = [base.mark_rect().encode(color=colour, tooltip=hover)]
    if heads <= MOST_HEADS:
        ink = alt.condition("datum.kept > 0.55", alt.value("#111111"), alt.value("#ffffff"))
        layers.append(base.mark_text(fontSize=11).encode(text=alt.Text("kept:Q", format=".0%"), color=ink))
    # steps, since a width in pixels would be that of axis and legend too
    return alt.layer(*layers).properties(width=alt.Step(max(12, min(46, 560 // max(1, heads)))), height=alt.Step(18))
