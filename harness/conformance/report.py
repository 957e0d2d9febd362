"""The outcomes of the checks as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from harness.conformance.suite import FAILED, PASSED, SKIPPED, Outcome
from harness.reporting.run_table import console

STYLES = {PASSED: "green", FAILED: "bold red", SKIPPED: "dim"}


def print_outcomes(title: str, outcomes: Sequence[Outcome]) -> None:
    """A row a check, then the reasons of the failures in full, then one line with the counts."""
    out = console()
    table = Table("check", "outcome", "what is asked", "note", title=escape(title), title_justify="left")
    table.columns[0].no_wrap = True
    for check, status, reason in outcomes:
        note = reason if status == SKIPPED else "see below" if status == FAILED else ""
        table.add_row(check.name, f"[{STYLES[status]}]{status}[/]", escape(check.asks), escape(note))
    out.print(table)
    for check, status, reason in outcomes:
        if status == FAILED:
            out.print(f"{check.name}: {reason}", markup=False, highlight=False, soft_wrap=True)
    counts = {kind: sum(one.status == kind for one in outcomes) for kind in (PASSED, FAILED, SKIPPED)}
    out.print(", ".join(f"{count} {kind}" for kind, count in counts.items()), markup=False, highlight=False)
