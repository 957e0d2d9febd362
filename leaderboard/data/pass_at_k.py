"""Benchmarks with several sampled answers per problem: pass@k, what each rollout got right, answers cut off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import pandas as pd

from harness.analysis.ranking import level_of
from harness.reporting.columns import settings
from harness.results.schema import Cell, Line
from leaderboard.data.levels import CONTROL, level_name

CORRECT = "correct_rollout_"
#: of :func:`pass_table`, beside what the cells' metrics add to them
COLUMNS = (
    *("variant", "name", "level", "removed", "problems", "rollouts", "pass@1", "se", "low", "high"),
    *("answered", "at limit", "truncated"),
)
#: columns from 0 to 1
SHARES = ("answered", "at limit", "truncated")


def has_passes(cells: Iterable[Cell]) -> bool:
    return any("pass@1" in cell.metrics for cell in cells)


def truncated_shares(lines: Iterable[Line]) -> dict[str, float]:
    """Of each variant's answers the share that was not run since the prompt does not fit."""
    counts: Counter[str] = Counter()
    cut: Counter[str] = Counter()
    for line in lines:
        counts[line.variant] += 1
        cut[line.variant] += line.status == "truncated"
    return {variant: cut[variant] / count for variant, count in counts.items()}


def pass_table(cells: Sequence[Cell], truncated: dict[str, float]) -> pd.DataFrame:
    """A row per overall cell: pass@k in per cent, the standard error of pass@1 and its range, problems that each
    rollout got right, shares (0 to 1) of answers with a final result, at their limit, and truncated."""
    found = []
    for cell in cells:
        metrics = cell.metrics
        if cell.subset is not None or "pass@1" not in metrics:
            continue
        score, error = metrics["pass@1"], metrics.get("pass@1_se")
        found.append(
            {
                "variant": cell.variant,
                "name": cell.curve if level_of(cell) else CONTROL,
                "level": level_name(level_of(cell)),
                "removed": cell.removed_mean,
                "problems": cell.n,
                "rollouts": cell.rollouts,
                "pass@1": score,
                "se": error,
                "low": None if error is None or score is None else max(0.0, score - error),
                "high": None if error is None or score is None else min(100.0, score + error),
                **{k: v for k, v in metrics.items() if k.startswith("pass@") and k not in ("pass@1", "pass@1_se")},
                **{f"right, rollout {int(k.removeprefix(CORRECT)) + 1}": v for k, v in metrics.items() if _counts(k)},
                "answered": metrics.get("answered"),
                "at limit": cell.limit_share,
                "truncated": truncated.get(cell.variant, 0.0),
            }
        )
    return pd.DataFrame(found, columns=None if found else list(COLUMNS))


def _counts(metric: str) -> bool:
    return metric.startswith(CORRECT) and metric.removeprefix(CORRECT).isdigit()


def sampling(cells: Sequence[Cell]) -> str:
    """Rollouts, sampling and limit, in words."""
    overall = [cell for cell in cells if cell.subset is None and cell.n]
    return settings(overall[:1], None) if overall else ""
