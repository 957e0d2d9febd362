"""Tables in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from harness.analysis.subset_groups import group_table
from harness.reporting.columns import counted, extra_columns, metric_columns, number, score_column, settings, unit
from harness.results.schema import Cell, Line, Metric, Summary

if TYPE_CHECKING:  # results are read without a model's code
    from harness.evaluation.execute import Outcome
    from harness.evaluation.job import Job

#: most subsets that get a column of their own
MOST_COLUMNS = 8
#: most answers listed that a second scorer judges otherwise
MOST_DISAGREEMENTS = 10
MOST_ALARMS = 10
#: a pipe has no width; tables are for people, so it gets a screen's
PIPE_WIDTH = 180


def console() -> Console:
    """Standard output, wide enough for a table where it is not a terminal."""
    return Console() if sys.stdout.isatty() else Console(width=PIPE_WIDTH)


@contextmanager
def progress(done: int, total: int) -> Iterator[Any]:
    """A bar on standard error with answers done, time left, and the running score of control and variants."""
    bar = Progress(
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[score]}"),
        console=Console(stderr=True),
    )
    scores: dict[bool, list[float]] = {True: [], False: []}

    def advance(line: Line) -> None:
        if line.score is not None:
            scores[line.level_kind == "none"].append(line.score)
        named = (("full", scores[True]), ("pruned", scores[False]))
        text = "  ".join(f"{name} {fmean(some):.1f}" for name, some in named if some)
        bar.update(task, advance=1, score=text)

    with bar:
        task = bar.add_task("answers", total=total, completed=done, score="")
        yield advance


def print_outcome(job: Job, outcome: Outcome) -> None:
    """The table of a run and where its files lie."""
    from harness.models.loading import short_name

    out = console()
    summary = outcome.summary
    for title, cells in _tables(summary.cells):
        told = settings(cells, job.config.max_new_tokens)
        heading = f"{short_name(job.config.model)}, {title}, {_samples(job)}" + (f"\n{told}" if told else "")
        out.print(_table(heading, cells, job.facts[cells[0].benchmark].metrics))
        groups = group_table(f"{short_name(job.config.model)}, {title}", cells)
        if groups is not None:
            out.print(groups)
    _print_disagreements(out, summary)
    _print_alarms(out, summary)
    shown = {one.variant.method for one in job.plan.unsupported}  # they have a row in the table
    for name, reason in ((name, reason) for name, reason in job.plan.skipped.items() if name not in shown):
        out.print(f"not run: {name}: {reason}", markup=False, highlight=False)
    for note in (*job.notes, *outcome.notes):
        out.print(note, markup=False, highlight=False)
    if outcome.stale:
        text = f"stale: {', '.join(outcome.stale)} changed since this run was made; --force runs it again"
        out.print(text, markup=False, highlight=False)
    state = "was complete already" if outcome.was_complete else "complete" if summary.complete else "incomplete"
    out.print(f"Results ({state}): {outcome.folder.path}", markup=False, highlight=False, soft_wrap=True)


def _print_disagreements(out: Console, summary: Summary) -> None:
    found = summary.disagreements
    for one in found[:MOST_DISAGREEMENTS]:
        verdict = "wrong, which we took for right" if one.score else "right, which we took for wrong"
        text = f"{one.scorer} calls {one.sample_id}, {one.variant}, rollout {one.rollout} {verdict}"
        out.print(text, markup=False, highlight=False, soft_wrap=True)
    if len(found) > MOST_DISAGREEMENTS:
        out.print(f"and {len(found) - MOST_DISAGREEMENTS} more in summary.json", markup=False, highlight=False)


def _print_alarms(out: Console, summary: Summary) -> None:
    found = summary.alarms
    for alarm in found[:MOST_ALARMS]:
        out.print(f"alarm: {alarm.text}", markup=False, highlight=False, soft_wrap=True)
    if len(found) > MOST_ALARMS:
        out.print(f"and {len(found) - MOST_ALARMS} more alarms in summary.json", markup=False, highlight=False)


def _samples(job: Job) -> str:
    limits = {limit for limit in job.limits.values() if limit is not None}
    if not limits:
        return "all samples"
    shown = "/".join(map(str, sorted(limits)))
    default = "" if job.config.limit is not None else " (the default with the embedded model; --limit N for more)"
    return f"{shown} samples per subset{default}"


def _tables(cells: Sequence[Cell]) -> Iterator[tuple[str, list[Cell]]]:
    groups: dict[tuple[str, int | None], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.benchmark, cell.length), []).append(cell)
    for (benchmark, length), some in groups.items():
        yield benchmark + (f" at {length:,} tokens" if length else ""), some


def _table(title: str, cells: list[Cell], metrics: Sequence[Metric]) -> Table:
    overall = [cell for cell in cells if cell.subset is None]
    subsets = list(dict.fromkeys(cell.subset for cell in cells if cell.subset is not None))
    shown = subsets if 1 < len(subsets) <= MOST_COLUMNS else []
    by_subset = {(cell.variant, cell.subset): cell for cell in cells}
    table = Table(title=escape(title), title_justify="left", caption=_caption(overall), caption_justify="left")
    table.add_column("variant", no_wrap=True)
    scored = score_column(overall, _mean_name(overall))
    more = [*extra_columns(overall), *metric_columns(overall, metrics).values()]
    names = (scored.name, "95 % interval", "removed", "min-max", "x smaller", "n", *(column.name for column in more))
    for name in names:
        table.add_column(name, justify="right")
    for subset in shown:
        table.add_column(subset, justify="right")
    table.add_column("note")
    for cell in overall:
        extra = [number(by_subset[cell.variant, s].score) if (cell.variant, s) in by_subset else "" for s in shown]
        row = [cell.variant, scored.show(cell), *_row(cell), *(column.show(cell) for column in more)]
        table.add_row(*map(escape, row), *extra, _note(cell), end_section=cell.method == "full")
    return table


def _mean_name(overall: list[Cell]) -> str:
    cell = overall[0]
    if cell.of_subsets and cell.n_subsets < cell.of_subsets:
        return f"mean of {cell.n_subsets} of {cell.of_subsets}"
    return "score"


def _caption(overall: list[Cell]) -> str | None:
    lines = []
    if any(cell.low is None for cell in overall):
        lines.append(f"No interval under 10 {unit(overall)} a subset.")
    if any(cell.floor for cell in overall):
        lines.append("floor: the control itself is at chance or under 20, so nothing can be compared.")
    return " ".join(lines) or None


def _row(cell: Cell) -> list[str]:
    interval = "" if cell.low is None else f"{cell.low:.1f}-{cell.high:.1f}"
    mean = cell.removed_mean
    spread = "" if mean is None else f"{cell.removed_min:.3f}-{cell.removed_max:.3f}"
    removed = "" if mean is None else f"{mean:.3f}"
    factor = "" if mean is None or mean >= 1 else f"{1 / (1 - mean):.2f}"
    return [interval, removed, spread, factor, counted(cell)]


def _note(cell: Cell) -> str:
    notes = [cell.note] if cell.note else []
    if cell.requested_removed is not None:
        notes.append(f"asked {cell.requested_removed:g}")
    if cell.bound_by:
        notes.append("bound by protection")
    if cell.floor:
        notes.append("floor")
    if cell.n_cut:
        notes.append(f"{cell.n_cut} prompts cut")
    if cell.n_failed:
        notes.append(f"{cell.n_failed} not run")
    return ", ".join(notes)


def print_sweep(result: dict[str, Any]) -> None:
    """Both times and their ratio, a row a length and answer length."""
    title = f"{result['model']}, {result['dtype']}, {result['hardware']}"
    table = Table(title=escape(title), title_justify="left")
    for name in ("cached", "question", "new tokens", "variants", "shared s", "one at a time s", "ratio", "same tokens"):
        table.add_column(name, justify="right")
    for row in result["rows"]:
        table.add_row(
            f"{row.length:,}",
            str(row.question_tokens),
            str(row.new_tokens),
            str(row.variants),
            f"{row.shared_seconds:.1f}",
            f"{row.single_seconds:.1f}",
            f"{row.ratio:.1f}",
            f"{row.same_tokens} of {row.variants}",
        )
    console().print(table)


def print_samples_timing(result: dict[str, Any]) -> None:
    """Seconds of each sample with all its variants."""
    seconds = result["seconds"]
    console().print(
        f"{result['model']}, {result['benchmark']} at {result['length']:,} tokens, {result['hardware']}: "
        f"{len(seconds)} samples x {len(result['labels'])} variants in {sum(seconds):.1f} s "
        f"({', '.join(f'{one:.1f}' for one in seconds)})",
        markup=False,
        soft_wrap=True,
    )
