"""The tables of ``kvprune profile``."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from harness.measure.figures import SamplesFigures, SweepFigures
from harness.reporting.console import console, print_table


def print_sweep(result: SweepFigures) -> None:
    """Both times and their ratio, one row per length and answer length."""
    title = f"{result.model}, {result.dtype}, {result.hardware}"
    table = Table(title=escape(title), title_justify="left")
    for name in ("cached", "question", "new tokens", "variants", "shared s", "one at a time s", "ratio", "same tokens"):
        table.add_column(name, justify="right")
    for row in result.rows:
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
    print_table(table)


def print_samples_timing(result: SamplesFigures) -> None:
    """Seconds of each sample with all its variants."""
    seconds = result.seconds
    console().print(
        f"{result.model}, {result.benchmark} at {result.length:,} tokens, {result.hardware}: "
        f"{len(seconds)} samples x {len(result.labels)} variants in {sum(seconds):.1f} s "
        f"({', '.join(f'{one:.1f}' for one in seconds)})",
        markup=False,
        soft_wrap=True,
    )
