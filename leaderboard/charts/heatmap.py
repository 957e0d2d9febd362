"""Tables of coloured numbers: differences from the control, agreement of scores, counts. Each is readable in grey."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from harness.analysis.ranking import level_of
from leaderboard.charts.theme import Look
from leaderboard.data.differences import SUBSET
from leaderboard.data.standings import exact, row_names

Row = dict[str, Any]
#: what stands between the place of a row or column, which makes it one of a kind, and its name
MARK = "\u241f"
TIE, AT_FLOOR, NONE = "≈", "*", "–"
#: pixels
CELL, HEIGHT, NAMES = 58, 25, 250
#: columns that stand beside each other on a page
MOST_COLUMNS = 12
#: of :func:`difference_table`
COLUMNS = (
    *("kind", "column", "control", "floor", "variant", "score", "n", "difference", "low", "high", "p_holm", "tie"),
    *("level", "name", "removed", "title", "place", "text", "says"),
)
#: a difference this large has the deepest colour, where none is larger
LEAST = 20.0


def level_name(level: tuple[str, Any] | None) -> str:
    """A level in words: ``removed 0.5``, ``keep 64``, ``tau -4``."""
    if level is None:
        return "full cache"
    return ("removed " if level[0] == "removed" else "") + exact(level)


def levels(cells: Sequence[Row]) -> list[tuple[str, Any]]:
    """The levels of overall cells that were run: removed fractions first, each kind in order."""
    run = [cell for cell in cells if cell["subset"] is None and cell.get("status") != "unsupported"]
    found = {level for cell in run if (level := level_of(cell)) is not None}
    return sorted(found, key=lambda level: (level[0] != "removed", level[0], float(level[1])))


def cell_text(row: Row) -> str:
    """The control's score, or a difference from it; ``≈``: a tie, ``*``: the control is at the floor."""
    value = row["difference"] if row["level"] else row["score"]
    if value is None:
        return NONE
    text = f"{value:+.1f}".replace("-", "−") if row["level"] else f"{value:.1f}"
    return text + (AT_FLOOR if row["floor"] else TIE if row["tie"] else "")


def difference_table(
    rows: Sequence[Row], cells: Sequence[Row], columns: Sequence[tuple[str, str, str]]
) -> pd.DataFrame:
    """What :func:`difference_charts` draws: a row a cell, in the order of variants and columns.

    cells     overall cells of the variants to show, in order; the control is among them
    columns   kind, name, title of each
    """
    place = {(kind, name): number for number, (kind, name, _) in enumerate(columns)}
    titles = [title for *_, title in columns]
    by_cell = {
        (row["variant"], place[row["kind"], row["column"]]): row
        for row in rows
        if (row["kind"], row["column"]) in place
    }
    names = row_names(cells)
    found = []
    for cell in cells:
        level = level_of(cell)
        for number, title in enumerate(titles):
            row = by_cell.get((cell["variant"], number))
            if row is None:
                continue
            row = {**row, "level": level_name(level) if level else ""}
            text = cell_text(row)
            found.append(
                {
                    **row,
                    "name": names[cell["variant"]] if level else "full cache",
                    "removed": cell["removed_mean"],
                    "title": title,
                    "place": f"{number:03d}{MARK}{title}",
                    "text": text,
                    "says": says(row),
                }
            )
    return pd.DataFrame(found, columns=list(COLUMNS))


def says(row: Row) -> str:
    """What a cell's colour means, in a word."""
    if not row["level"]:
        return "control at the floor" if row["floor"] else "control"
    if row["difference"] is None:
        return "nothing to compare"
    if row["floor"]:
        return "control at the floor: no comparison"
    return "tie" if row["tie"] else "worse" if row["difference"] < 0 else "better"


def difference_charts(table: pd.DataFrame, look: Look, grey_ties: bool = True) -> list[alt.LayerChart | alt.FacetChart]:
    """Variants by columns, level by level, the control's own scores on top; where there are many columns as several
    charts, means and groups apart from subsets, with one scale of colours.

    Colour is the difference from the control; ties (unless ``grey_ties`` is off) and what has no comparison are grey.
    Of an empty table there is none.
    """
    if table.empty:
        return []
    table = table.copy()
    pruned = table["level"] != ""
    grey = pruned & (table["floor"] | table["difference"].isna() | (table["tie"].eq(True) & grey_ties))
    table["fill"] = ["none" if not p else "grey" if g else "colour" for p, g in zip(pruned, grey, strict=True)]
    table["row"] = _rows(table)
    most = max([LEAST, *table.loc[table["fill"] == "colour", "difference"].astype(float).abs()])
    table["deep"] = (table["fill"] == "colour") & (table["difference"].astype(float).abs() > 0.6 * most)
    colour = alt.Color(
        "difference:Q",
        title="points from the control",
        scale=alt.Scale(domain=[-most, 0, most], range=list(look.diverging), clamp=True, interpolate="rgb"),
        legend=alt.Legend(orient="top", gradientLength=220, gradientThickness=10, titleLimit=300, format="+.0f"),
    )
    hover = [
        *(alt.Tooltip(f"{name}:N") for name in ("variant", "title", "says")),
        *(alt.Tooltip(f"{name}:Q", format=".2f") for name in ("score", "control")),
        *(alt.Tooltip(f"{name}:Q", format="+.2f") for name in ("difference", "low", "high")),
        alt.Tooltip("p_holm:Q", format=".3g", title="p (Holm)"),
        alt.Tooltip("removed:Q", format=".3f"),
        alt.Tooltip("n:Q", title="samples"),
    ]
    rows = sorted({*_heads(table), *table["row"]})
    return [
        grid(
            table[table["place"].isin(places)],
            colour if number == 0 else colour.legend(None),
            hover,
            rows,
            places,
            look,
        )
        for number, places in enumerate(_side_by_side(table))
    ]


def _side_by_side(table: pd.DataFrame) -> list[list[str]]:
    """The places of each chart's columns; of few columns there is one chart."""
    places = sorted(set(table["place"]))
    if len(places) <= MOST_COLUMNS:
        return [places]
    subsets = set(table.loc[table["kind"] == SUBSET, "place"])
    found = []
    for some in ([one for one in places if one not in subsets], [one for one in places if one in subsets]):
        charts = -(-len(some) // MOST_COLUMNS)
        size = -(-len(some) // charts) if charts else 1
        found += [some[start : start + size] for start in range(0, len(some), size)]
    return found


def grid(
    table: pd.DataFrame,
    colour: alt.Color,
    hover: Sequence[alt.Tooltip],
    rows: Sequence[str],
    places: Sequence[str],
    look: Look,
    width: int = CELL,
) -> alt.LayerChart | alt.FacetChart:
    """Rectangles with their ``text`` on them at ``row`` and ``place``. ``fill`` is ``colour``, ``grey`` or ``none``;
    text is bright where the colour is ``deep``."""
    name = f"split(datum.label, '{MARK}')"
    head = f"indexof({name}[0], '#') > 0"
    x = alt.X(
        "place:N",
        scale=alt.Scale(domain=list(places), padding=0),
        axis=alt.Axis(
            title=None,
            orient="top",
            labelAngle=-45,
            labelExpr=f"{name}[1]",
            labelLimit=150,
            labelOverlap=False,
            ticks=False,
            domain=False,
        ),
    )
    y = alt.Y(
        "row:N",
        scale=alt.Scale(domain=list(rows), padding=0),
        axis=alt.Axis(
            title=None,
            labelExpr=f"{name}[1]",
            labelLimit=NAMES,
            labelOverlap=False,
            minExtent=NAMES,
            maxExtent=NAMES,
            ticks=False,
            domain=False,
            labelFontWeight=_on_heads(head, "bold", "normal"),
            labelColor=_on_heads(head, look.ink, look.quiet),
        ),
    )
    base = alt.Chart(table).encode(x=x, y=y, tooltip=list(hover))
    box: dict[str, Any] = {"stroke": look.plain, "strokeWidth": 2, "cornerRadius": 3}
    tones = {
        look.bright: "datum.deep",
        look.quiet: "datum.fill == 'grey'",
        look.ink: "!datum.deep && datum.fill != 'grey'",
    }
    texts = [
        base.transform_filter(test).mark_text(fontSize=11, baseline="middle", color=tone).encode(text="text:N")
        for tone, test in tones.items()
    ]
    return alt.layer(
        base.transform_filter("datum.fill == 'grey'").mark_rect(color=look.grey, **box),
        base.transform_filter("datum.fill == 'colour'").mark_rect(invalid=None, **box).encode(color=colour),
        *texts,
    ).properties(width=alt.Step(width), height=alt.Step(HEIGHT))


def _on_heads(test: str, head: str, other: str) -> Any:
    return {"condition": {"test": test, "value": head}, "value": other}


def _rows(table: pd.DataFrame) -> list[str]:
    """Each row's place and name; the place starts with that of its level, so that rows sort by it."""
    known = list(dict.fromkeys(table["level"]))
    variants = list(dict.fromkeys(table["variant"]))
    numbers = {variant: number for number, variant in enumerate(variants)}
    return [
        f"{known.index(level):03d}-{numbers[variant]:05d}{MARK}{name}"
        for level, variant, name in zip(table["level"], table["variant"], table["name"], strict=True)
    ]


def _heads(table: pd.DataFrame) -> list[str]:
    """A row of its own for the name of each level, before the level's variants (``#`` sorts before ``-``)."""
    known = list(dict.fromkeys(table["level"]))
    return [f"{place:03d}#{MARK}{level}" for place, level in enumerate(known) if level]
