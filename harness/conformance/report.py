"""The outcomes of the checks, each printed when it is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape

from harness.conformance.suite import FAILED, PASSED, SKIPPED, Outcome

STYLES = {PASSED: "green", FAILED: "bold red", SKIPPED: "dim"}


def print_outcomes(title: str, outcomes: Iterable[Outcome]) -> int:
    """A line for each check as soon as it has run, below it the reason where it failed or was skipped, and at the end
    the counts. Returns the number of failures."""
    out, counts = Console(soft_wrap=True, highlight=False), Counter[str]()
    out.print(escape(title))
    for check, status, reason in outcomes:
        counts[status] += 1
        out.print(f"[{STYLES[status]}]{status:<7}[/] {check.name:<15} {escape(check.asks)}")
        if reason:
            out.print(f"        {check.name}: {reason}", markup=False)
    out.print(", ".join(f"{counts[kind]} {kind}" for kind in (PASSED, FAILED, SKIPPED)))
    return counts[FAILED]
