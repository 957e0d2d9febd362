"""Means over named groups of a benchmark's subsets (``Benchmark.groups``), beside the overall mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from rich.markup import escape
from rich.table import Table

from harness.results.schema import AVERAGED, Cell, Group, Line

#: most groups that a table shows; a summary has them all
MOST_COLUMNS = 12


def group_means(scores: Mapping[str, Sequence[float]], groups: Mapping[str, Sequence[str]]) -> dict[str, Group]:
    """For each group of which a subset is there: the unweighted mean of its subsets' means, and what it is of.

    scores   the scores of each subset that was run; an empty one (nothing could be scored) leaves its groups without a
             mean
    """
    found: dict[str, Group] = {}
    for name, subsets in groups.items():
        strata = [scores[subset] for subset in subsets if subset in scores]
        if strata:
            found[name] = Group(
                score=fmean(map(fmean, strata)) if all(strata) else None,
                n=sum(map(len, strata)),
                n_subsets=len(strata),
                of_subsets=len(subsets),
            )
    return found


def scores_of(subsets: Mapping[str, Sequence[Line]]) -> dict[str, list[float]]:
    """The scores of each subset's lines that are averaged."""
    return {
        subset: [line.score for line in lines if line.status in AVERAGED and line.score is not None]
        for subset, lines in subsets.items()
    }


def label(name: str, n_subsets: int, of_subsets: int | None) -> str:
    """A group's name, with how much of it there is."""
    return name if n_subsets == of_subsets else f"{name} ({n_subsets} of {of_subsets})"


def named_groups(cells: Sequence[Cell]) -> dict[str, str]:
    """The groups that a table of these overall cells shows, and the headings of their columns."""
    groups: dict[str, Group] = {}
    for cell in cells:
        groups = {**cell.groups, **groups}
    order = dict.fromkeys(name for cell in cells for name in cell.groups)
    return {name: label(name, groups[name].n_subsets, groups[name].of_subsets) for name in list(order)[:MOST_COLUMNS]}


def group_table(title: str, cells: Sequence[Cell]) -> Table | None:
    """The groups' means of each variant, from a benchmark's cells; None where there are no groups."""
    overall = [cell for cell in cells if cell.subset is None and cell.groups]
    names = named_groups(overall)
    if not names:
        return None
    table = Table(title=escape(title), title_justify="left")
    table.add_column("mean of subset means", no_wrap=True)
    table.add_column(label("all", overall[0].n_subsets, overall[0].of_subsets), justify="right")
    for heading in names.values():
        table.add_column(heading, justify="right")
    for cell in overall:
        scores = [cell.score, *(cell.groups[name].score if name in cell.groups else None for name in names)]
        texts = ["-" if score is None else f"{score:.1f}" for score in scores]
        table.add_row(escape(cell.variant), *texts, end_section=cell.level_kind == "none")
    return table
