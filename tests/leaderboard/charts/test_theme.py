"""Styles: each curve is recognised without its colour, and a method by the same style on every page."""

from __future__ import annotations

from itertools import product

from leaderboard.charts.theme import COLOURS, category_styles, method_styles


def test_no_two_of_seventy_curves_share_marker_and_dash() -> None:
    methods = [f"method {number}" for number in range(17)]
    curves = [(f"{method} {budget}", method) for method, budget in product(methods, ("head", "layer", "global", "tau"))]
    found = method_styles(curves, methods)
    assert len({(style.shape, tuple(style.dash)) for style in found.values()}) == len(curves) == 68


def test_a_method_has_the_same_style_on_every_board() -> None:
    methods = ["a", "b", "c", "d"]
    few = method_styles([("c head", "c")], methods)
    many = method_styles([(f"{name} head", name) for name in methods], methods)
    assert few["c head"] == many["c head"]


def test_methods_of_one_colour_differ_where_a_colour_is_free() -> None:
    known = [f"method {number}" for number in range(len(COLOURS) + 1)]
    found = method_styles([(name, name) for name in (known[0], known[-1])], known)
    assert found[known[0]].colour == COLOURS[0] != found[known[-1]].colour


def test_categories_have_a_style_each() -> None:
    found = category_styles(f"name {number}" for number in range(30))
    assert len({(style.colour, style.shape, tuple(style.dash)) for style in found.values()}) == 30
