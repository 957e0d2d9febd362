"""What a threshold removes of each prompt, as measured, and against what the score histograms tell of it.

After Figure 5 of the KVzap paper (Jegou and Jeblick, arXiv 2601.07891): one threshold removes more where the context
has less to say.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

import pandas as pd

from harness.analysis.boards import Board
from harness.analysis.ranking import level_of
from harness.analysis.summary import removed_of
from harness.reporting.report_tables import difference
from harness.results.schema import AVERAGED, Cell, Line
from harness.results.score_histograms import Histogram, Told, told
from leaderboard.data.histograms import Prompt, Source
from leaderboard.data.levels import exact

#: of :func:`measured_points`
POINTS = ["name", "tau", "removed", "score", "low", "high", "full"]


def by_threshold(line: Line, source: Source) -> bool:
    """Whether a line is of a threshold on these scores, of a context that was pruned once for all its questions."""
    return _is_threshold(line) and Source.of(line) == source


def _is_threshold(line: Line) -> bool:
    """With a question in view the scores are others, and so is what a threshold removes."""
    return (line.budget, line.level_kind, line.query_mode) == ("threshold", "threshold", "agnostic")


def measured(lines: Iterable[Line], source: Source, tau: float) -> pd.DataFrame:
    """A row per prompt that was run at ``tau``: ``subset, prompt, removed, score``; means over its questions and
    rollouts. ``removed`` is the x-axis' figure: of the context in phase prefill, the mean over time otherwise."""
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        if by_threshold(line, source) and line.level == tau and line.status in AVERAGED:
            groups.setdefault((line.subset if line.question_index is None else "", line.context_id), []).append(line)
    found = []
    for (_, context), own in groups.items():
        removed = [value for line in own if (value := removed_of(line)) is not None]
        scores = [line.score for line in own if line.score is not None]
        if removed:
            found.append((own[0].subset, context, fmean(removed), fmean(scores) if scores else None))
    return pd.DataFrame(found, columns=["subset", "prompt", "removed", "score"])


def measured_everywhere(
    lines: Mapping[str, Iterable[Line]], source: Source, tau: float, by_subset: bool
) -> pd.DataFrame:
    """:func:`measured` of each place, with its name, or that of place and subset, as ``name``."""
    parts = []
    for place, own in lines.items():
        part = measured(own, source, tau)
        names = [_joined(place, subset, len(lines)) if by_subset else place for subset in part["subset"]]
        parts.append(part.assign(name=names))
    return pd.concat(parts, ignore_index=True)


def spread(table: pd.DataFrame, by: str) -> pd.DataFrame:
    """Mean, ends and quartiles of ``removed`` for each value of ``by``: ``name, prompts, mean, min, q25, median, q75,
    max``, in the order in which they appear."""
    found = table.astype({"removed": float}).groupby(by, sort=False)["removed"].describe().drop(columns="std")
    found = found.rename_axis("name").reset_index().astype({"count": int})
    return found.rename(columns={"count": "prompts", "25%": "q25", "50%": "median", "75%": "q75"})


def thresholds(lines: Iterable[Line], source: Source) -> dict[float, float | None]:
    """The thresholds that were run, lowest first, each with the removed fraction that it was chosen for, if any."""
    found = {line.level: line.requested_removed for line in lines if by_threshold(line, source)}
    return {tau: found[tau] for tau in sorted(tau for tau in found if tau is not None)}


def sources(lines: Iterable[Line], histograms: Iterable[Histogram]) -> list[Source]:
    """Those that were run with a threshold, then those whose scores are stored alone."""
    run = [Source.of(line) for line in lines if _is_threshold(line)]
    return list(dict.fromkeys([*run, *map(Source.of, histograms)]))


def source_names(found: Sequence[Source]) -> dict[Source, str]:
    """By method; where two are of one method, with what they protect and their options."""
    methods = [source.method for source in found]
    return {
        source: source.method
        if methods.count(source.method) == 1
        else f"{source.method}, window {source.window}, sinks {source.sinks}, {source.options}"
        for source in found
    }


def check(prompts: Sequence[Prompt], lines: Mapping[str, Iterable[Line]], source: Source) -> pd.DataFrame:
    """What the histograms tell of the thresholds that were run, against what was measured (phase prefill): a row a
    place and threshold, ``place, tau, prompts, measured, told`` (means)``, largest`` (difference of a prompt) ``,
    outside`` (prompts measured outside what their bin allows)."""
    found = []
    for place, own in lines.items():
        known = {prompt.sample_id: prompt.histogram for prompt in prompts if prompt.place == place}
        run: dict[float, list[tuple[float, Told]]] = {}
        for line in own:
            fits = by_threshold(line, source) and line.phase == "prefill" and line.rollout == 0
            if fits and line.sample_id in known and line.level is not None and line.removed_context is not None:
                expected = told(known[line.sample_id], line.level)
                run.setdefault(line.level, []).append((line.removed_context, expected))
        for tau in sorted(run):
            pairs = run[tau]
            found.append(
                {
                    "place": place,
                    "tau": tau,
                    "prompts": len(pairs),
                    "measured": fmean(value for value, _ in pairs),
                    "told": fmean(one.likely for _, one in pairs),
                    "largest": max(abs(value - one.likely) for value, one in pairs),
                    "outside": sum(not one.least - 1e-9 <= value <= one.most + 1e-9 for value, one in pairs),
                }
            )
    return pd.DataFrame(found, columns=["place", "tau", "prompts", "measured", "told", "largest", "outside"])


def budget_cells(cells: Iterable[Cell], method: str, options: str) -> list[Cell]:
    """The overall cells of a method under its budgets, by budget; none where fewer than two budgets were run."""
    own = [
        cell
        for cell in cells
        if (cell.subset, cell.method, cell.options) == (None, method, options)
        and level_of(cell) is not None
        and None not in (cell.removed_mean, cell.score)
    ]
    return own if len({cell.budget for cell in own}) > 1 else []


def budget_pairs(board: Board, variants: set[str]) -> list[dict[str, str | int]]:
    """The paired differences of two budgets at one level."""
    return [
        {
            "level": exact((pair.asked.kind, pair.asked.value)),
            "a": pair.a,
            "b": pair.b,
            "a − b": difference(pair),
            "samples": pair.n,
        }
        for pair in board.pairs
        if pair.against == "level" and {pair.a, pair.b} <= variants
    ]


def measured_points(boards: Mapping[str, Board], source: Source, by_subset: bool) -> pd.DataFrame:
    """The thresholds that were run (phase prefill, question not in view), lowest first, with columns
    :data:`POINTS`; ``full`` is the control's score."""
    found = []
    for place, board in boards.items():
        full = {cell.subset: cell.score for cell in board.cells if cell.level_kind == "none"}
        for cell in board.cells:
            run, tau = (cell.budget, cell.level_kind, cell.phase, cell.query_mode), cell.level
            if (
                run != ("threshold", "threshold", "prefill", "agnostic")
                or (cell.subset is not None) != by_subset
                or Source.of(cell) != source
                or None in (cell.removed_mean, cell.score)
                or tau is None
                or not math.isfinite(tau)
            ):
                continue
            name = _joined(place, cell.subset, len(boards)) if cell.subset is not None else place
            figures = (cell.removed_mean, cell.score, cell.low, cell.high, full.get(cell.subset))
            found.append((name, tau, *figures))
    table = pd.DataFrame(found, columns=POINTS).astype(dict.fromkeys(POINTS[1:], float))
    return table.sort_values("tau", kind="stable", ignore_index=True)


def by_subset(prompts: Iterable[Prompt], several: int) -> list[Prompt]:
    """Prompts with their subset as place; with their place too where there are ``several``."""
    return [prompt._replace(place=_joined(prompt.place, prompt.subset, several)) for prompt in prompts]


def _joined(place: str, subset: str, several: int) -> str:
    return f"{place}, {subset}" if several > 1 else subset
