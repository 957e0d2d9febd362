"""What ``run`` prints: the tables of ``report`` (:mod:`harness.reporting.report_tables`) for its run, then its own
remarks."""

from __future__ import annotations

from collections.abc import Iterable

from harness.analysis.boards import boards
from harness.analysis.run_reader import read
from harness.reporting import render
from harness.reporting.report_tables import sheet
from harness.results.run_folder import RunFolder
from harness.results.schema import Disagreement

#: most answers listed on which a second scorer disagrees
MOST_DISAGREEMENTS = 10


def print_run(folder: RunFolder, remarks: Iterable[str]) -> None:
    """The tables of a run, answers on which a second scorer disagrees, and ``remarks``."""
    run = read(folder.path)
    render.show([sheet(board) for board in boards([run])])
    found = run.summary.disagreements
    for text in (*map(_disagreement, found[:MOST_DISAGREEMENTS]), *_more(len(found) - MOST_DISAGREEMENTS), *remarks):
        print(text)


def _disagreement(one: Disagreement) -> str:
    verdict = "wrong, which we took for right" if one.score else "right, which we took for wrong"
    return f"{one.scorer} calls {one.sample_id}, {one.variant}, rollout {one.rollout} {verdict}"


def _more(count: int) -> list[str]:
    return [f"and {count} more in summary.json"] if count > 0 else []
