"""Several questions on one context: the score by the question's place, and the prefills paid by query mode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import NamedTuple

import pandas as pd

from harness.analysis.ranking import level_of
from harness.analysis.stats import mean_interval
from harness.results.schema import AVERAGED, Line
from leaderboard.data.levels import level_name, row_names

#: query modes, in the order of what they cost
MODES = ("agnostic", "aware-reused", "aware")


class _Variant(NamedTuple):
    """``name``: its curve's, without the query mode, which has a column of its own."""

    variant: str
    name: str
    method: str
    level: str
    mode: str


SCORES = (*_Variant._fields, "question", "score", "low", "high", "n")
PREFILLS = (*_Variant._fields, "questions", "contexts", "prefills", "per context", "score")


def has_questions(lines: Iterable[Line]) -> bool:
    return any(line.question_index is not None for line in lines)


def by_question(lines: Iterable[Line], seed: int = 0) -> pd.DataFrame:
    """A row per variant and place of a question (from 1), with columns :data:`SCORES`.

    The score is the mean over contexts, with a bootstrap interval from ten contexts on.
    """
    groups: dict[tuple[str, int], list[Line]] = {}
    for line in lines:
        if line.question_index is not None:
            groups.setdefault((line.variant, line.question_index), []).append(line)
    named = _named(own[0] for own in groups.values())
    found = []
    for (variant, index), own in sorted(groups.items(), key=lambda item: item[0][1]):
        scores = [line.score for line in own if line.status in AVERAGED and line.score is not None]
        interval = mean_interval([scores], seed) if scores else None
        mean = fmean(scores) if scores else None
        found.append((*named[variant], index + 1, mean, *(interval or (None, None)), len(scores)))
    return pd.DataFrame(found, columns=SCORES).astype({"score": float, "low": float, "high": float})


def prefills(lines: Iterable[Line], scores: Mapping[str, float | None]) -> pd.DataFrame:
    """A row per variant, with columns :data:`PREFILLS`: those of the context that were paid for all questions, and for
    one context; its overall score from ``scores``."""
    groups: dict[str, list[Line]] = {}
    for line in lines:
        if line.prefills_paid is not None:
            groups.setdefault(line.variant, []).append(line)
    named = _named(own[0] for own in groups.values())
    found = []
    for variant, own in groups.items():
        contexts = len({(line.benchmark, line.length, line.context_id) for line in own})
        paid = sum(line.prefills_paid or 0 for line in own)
        found.append((*named[variant], len(own), contexts, paid, paid / contexts, scores.get(variant)))
    return pd.DataFrame(found, columns=PREFILLS).astype({"score": float})


def _named(lines: Iterable[Line]) -> dict[str, _Variant]:
    """The variant of each line, by its label."""
    some = {line.variant: line for line in lines}
    names = row_names(some.values())
    return {
        variant: _Variant(
            variant,
            names[variant].removesuffix(f" {line.query_mode}"),
            line.method,
            level_name(level_of(line)),
            line.query_mode,
        )
        for variant, line in some.items()
    }
