"""Colours of the board, and the style by which each method is recognised on every page.

Every line has its own marker and dash, so that none needs its colour to be distinguished.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

#: dark enough for a white page, light enough for a dark one
COLOURS = (
    *("#3b82c4", "#e07b1f", "#2f9e6e", "#c2455c", "#8b6fd1", "#a07a3c"),
    *("#d068b4", "#5f9c27", "#2aa3b5", "#b8860b", "#6d7f99", "#e0604c"),
)
BLUE, ORANGE, *_ = COLOURS
GREY = "#8a8f98"
#: Vega's names, then drawings of our own: a star, an hourglass, a bar
SHAPES = (
    *("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left"),
    "M0,-1L0.3,-0.35L1,-0.3L0.45,0.15L0.62,0.85L0,0.45L-0.62,0.85L-0.45,0.15L-1,-0.3L-0.3,-0.35Z",
    "M-0.9,-0.9L0.9,-0.9L-0.9,0.9L0.9,0.9Z",
    "M-1,-0.4L1,-0.4L1,0.4L-1,0.4Z",
)
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4], [4, 2, 1, 2], [14, 3, 3, 3, 3, 3])


class Theme(NamedTuple):
    """ink      text on the page
    quiet     lines and text in the background
    grey      fill of a cell that says nothing
    plain     fill of a cell without a difference
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


LIGHT = Theme(
    ink="#1f2430",
    quiet="#6b7280",
    grey="#e4e6ea",
    plain="#f6f7f9",
    diverging=("#b5451b", "#fbfaf8", "#1d5fa8"),
    rising=("#f2f6fb", "#1d5fa8"),
    bright="#ffffff",
)
DARK = Theme(
    ink="#e8eaf0",
    quiet="#9aa1ad",
    grey="#31353f",
    plain="#1b1f29",
    diverging=("#d9622f", "#1b1f29", "#3f86d6"),
    rising=("#1b2431", "#3f86d6"),
    bright="#ffffff",
)


class Style(NamedTuple):
    colour: str
    shape: str
    dash: list[int]


#: the full cache, wherever it is a line among others
CONTROL_STYLE = Style(GREY, SHAPES[0], [7, 5])


def method_styles(curves: Iterable[tuple[str, str]], methods: Sequence[str]) -> dict[str, Style]:
    """The style of each (curve, method), by curve.

    A method has the same colour and marker wherever ``methods`` are the same; curves of one marker differ by dash. No
    two curves share both, as long as there are enough combinations of marker and dash. Where two methods would have one
    colour, the later takes a free one, if any.
    """
    curves = list(curves)
    order = {method: place for place, method in enumerate(methods)}
    colours = _colours([order.setdefault(method, len(order)) for method in dict.fromkeys(own for _, own in curves)])
    taken: set[tuple[str, int]] = set()
    found: dict[str, Style] = {}
    for curve, method in curves:
        place = order[method]
        choices = [(place + shift, dash) for shift in range(len(SHAPES)) for dash in range(len(DASHES))]
        free = (one for one in choices if (SHAPES[one[0] % len(SHAPES)], one[1]) not in taken)
        shape, dash = next(free, choices[0])
        taken.add((SHAPES[shape % len(SHAPES)], dash))
        found[curve] = Style(colours[place], SHAPES[shape % len(SHAPES)], DASHES[dash])
    return found


def category_styles(names: Iterable[str]) -> dict[str, Style]:
    """The style of each of some names that are not methods, by their order."""
    return {
        name: Style(COLOURS[place % len(COLOURS)], SHAPES[place % len(SHAPES)], DASHES[place % len(DASHES)])
        for place, name in enumerate(names)
    }


def _colours(places: Sequence[int]) -> dict[int, str]:
    """The colour of each method by its place among all, the first ones' own before the others'."""
    found: dict[int, str] = {}
    for place in sorted(places):
        own = COLOURS[place % len(COLOURS)]
        free = [colour for colour in COLOURS if colour not in found.values()]
        found[place] = own if own in free or not free else free[0]
    return found
