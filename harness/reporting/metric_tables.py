"""Tables beside a board's scores: means of groups of subsets, and metrics with their intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.analysis.ranking import is_partial
from harness.reporting.columns import Column, metric_columns, number
from harness.reporting.table import Table
from harness.results.schema import Cell, Group, Metric, MetricDifference, Pair

#: most groups that a table shows; a summary has them all
MOST_GROUPS = 12


def group_label(name: str, n_subsets: int, of_subsets: int | None) -> str:
    """A group's name, with how much of it there is."""
    return name if n_subsets == of_subsets else f"{name} ({n_subsets} of {of_subsets})"


def _named_groups(cells: Sequence[Cell]) -> dict[str, str]:
    """The groups that a table of these overall cells shows, and the headings of their columns."""
    groups: dict[str, Group] = {}
    for cell in cells:
        groups = {**cell.groups, **groups}
    order = dict.fromkeys(name for cell in cells for name in cell.groups)
    return {
        name: group_label(name, groups[name].n_subsets, groups[name].of_subsets) for name in list(order)[:MOST_GROUPS]
    }


def group_table(overall: Sequence[Cell]) -> Table | None:
    """Each variant's means of its benchmark's groups; None where there are none. ``overall`` in the order of rows."""
    cells = [cell for cell in overall if cell.groups]
    titles = _named_groups(cells)
    if not titles:
        return None
    rows = []
    for cell in cells:
        scores = [cell.score, *(cell.groups[name].score if name in cell.groups else None for name in titles)]
        rows.append([cell.variant, *map(number, scores)])
    caption = "Unweighted means of subsets' means; in brackets how many of a group's subsets there are."
    return Table(
        "Groups of subsets",
        ["variant", group_label("all", cells[0].n_subsets, cells[0].of_subsets), *titles.values()],
        rows,
        captions=[caption],
    )


def metric_table(overall: Sequence[Cell], metrics: Sequence[Metric], pairs: Iterable[Pair]) -> Table | None:
    """Each variant's further figures with 95 % intervals, and paired differences from the control where a summary has
    them; None where there are no figures."""
    columns = metric_columns(overall, metrics)
    if not columns:
        return None
    control = {pair.a: pair.metrics for pair in pairs if pair.against == "control"}
    header, rows = ["variant"], [[cell.variant] for cell in overall]
    for name, column in columns.items():
        header.append(column.name)
        for row, cell in zip(rows, overall, strict=True):
            row.append(_with_interval(column.show(cell), column, cell.metric_intervals.get(name)))
        if any(name in own for own in control.values()):
            header.append(f"{column.name} against control")
            for row, cell in zip(rows, overall, strict=True):
                row.append(_difference(column, control.get(cell.variant, {}).get(name)))
    partial = next((cell for cell in overall if is_partial(cell)), None)
    captions = [f"Means of {partial.n_subsets} of {partial.of_subsets} subsets."] if partial else []
    return Table("Further figures, with 95 % intervals", header, rows, captions=captions)


def _with_interval(shown: str, column: Column, bounds: Sequence[float] | None) -> str:
    return f"{shown} ({column.text(bounds[0])} to {column.text(bounds[1])})" if shown and bounds else shown


def _difference(column: Column, found: MetricDifference | None) -> str:
    if found is None:
        return ""
    if found.difference is None:
        return "-"
    interval = None if found.low is None or found.high is None else [found.low, found.high]
    sign = "+" if found.difference >= 0 else ""
    return _with_interval(sign + column.text(found.difference), column, interval)
