"""Colours for light and dark, and styles that tell lines apart without colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import altair as alt
import streamlit as st

from leaderboard.charts.curves import DASHES, SHAPES


class Look(NamedTuple):
    """ink      text on the page
    quiet     lines and text that stand back
    grey      fill of a cell that says nothing
    plain     fill of a cell that is no difference
    diverging worse, the same, better; safe for colour-blind readers
    rising    little to much
    bright    text on the ends of a scale
    """

    ink: str
    quiet: str
    grey: str
    plain: str
    diverging: tuple[str, str, str]
    rising: tuple[str, str]
    bright: str


LIGHT = Look(
    ink="#1f2430",
    quiet="#6b7280",
    grey="#e4e6ea",
    plain="#f6f7f9",
    diverging=("#b5451b", "#fbfaf8", "#1d5fa8"),
    rising=("#f2f6fb", "#1d5fa8"),
    bright="#ffffff",
)
DARK = Look(
    ink="#e8eaf0",
    quiet="#9aa1ad",
    grey="#31353f",
    plain="#1b1f29",
    diverging=("#d9622f", "#1b1f29", "#3f86d6"),
    rising=("#1b2431", "#3f86d6"),
    bright="#ffffff",
)


def look() -> Look:
    """That of the reader's theme; light where it is not known."""
    return DARK if getattr(st.context.theme, "type", None) == "dark" else LIGHT


def colours(names: Sequence[str], title: str, **legend: Any) -> alt.Color:
    """A colour a name; the legend shows marker and dash too where they have the same names and title."""
    return alt.Color(
        "name:N",
        title=title,
        scale=alt.Scale(domain=list(names), scheme="tableau10" if len(names) <= 10 else "tableau20"),
        legend=alt.Legend(labelLimit=320, symbolSize=90, symbolOpacity=1, symbolStrokeWidth=2, **legend),
    )


def dashes(names: Sequence[str], title: str) -> alt.StrokeDash:
    return alt.StrokeDash("name:N", title=title, scale=_scale(names, DASHES))


def shapes(names: Sequence[str], title: str) -> alt.Shape:
    return alt.Shape("name:N", title=title, scale=_scale(names, SHAPES))


def _scale(names: Sequence[str], styles: Sequence[Any]) -> alt.Scale:
    return alt.Scale(domain=list(names), range=[styles[place % len(styles)] for place in range(len(names))])
