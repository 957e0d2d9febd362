"""The tables of ``kvprune agreement``."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from rich.markup import escape
from rich.table import Table

from harness.measure.agreement import QUESTION
from harness.measure.figures import AgreementFigures
from harness.reporting.console import console, print_table

Row = Sequence[float | None]


def print_agreement(result: AgreementFigures) -> None:
    """Rank correlations and shares of all pairs, then layer by layer how much of what the question uses is kept."""
    out = console()
    removed, names = result.removed, result.methods
    length = ", ".join(f"{length:,}" for length in result.length if length)
    title = f"{result.model}, {result.benchmark}" + (f" at {length} tokens" if length else "")
    title += f", {result.contexts} contexts, {removed:g} removed"
    for line in (title, "", "Spearman's rank correlation of scores"):
        out.print(line, markup=False, highlight=False)
    print_table(_square(names, result.rank))
    told = f"Of what the row keeps, the share that the column keeps too; unrelated: about {1 - removed:.2f}"
    out.print(told, markup=False, highlight=False)
    print_table(_square(names, result.share))
    out.print(f"Of what the {QUESTION} uses, the share that each keeps, layer by layer", markup=False, highlight=False)
    print_table(_layers(result))
    for name, reason in (*result.skipped.items(), *result.failed.items()):
        out.print(f"not compared: {name}: {reason}", markup=False, highlight=False)


def _square(names: Sequence[str], values: Sequence[Row]) -> Table:
    """Rows and columns are the same; the columns have the rows' numbers."""
    table = _table(("", *(str(number) for number in range(1, len(names) + 1))))
    for number, (name, row) in enumerate(zip(names, values, strict=True), 1):
        table.add_row(escape(f"{number} {name}"), *map(_figure, row))
    return table


def _layers(result: AgreementFigures) -> Table:
    names, repeat = result.methods, result.methods.index(result.repeat)
    asked = names.index(QUESTION)
    rank = result.rank_by_head[repeat][asked]
    share = result.share_by_head[asked]
    others = [index for index in range(len(names)) if index != asked]
    table = _table(("layer", f"rank, {names[repeat]}", *(str(index + 1) for index in others)))
    for layer, ranks in enumerate(rank):
        figures = [_mean(share[index][layer]) for index in others]
        table.add_row(str(layer), _figure(_mean(ranks)), *map(_figure, figures))
    return table


def _table(names: Sequence[str]) -> Table:
    table = Table()
    for place, name in enumerate(names):
        table.add_column(name, justify="right" if place else "left", no_wrap=True)
    return table


def _mean(values: Row) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
