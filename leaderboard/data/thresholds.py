"""What a threshold removes of each prompt, as measured, and against what the score histograms tell of it.

After Figure 5 of the KVzap paper (Jegou and Jeblick, arXiv 2601.07891): one threshold removes more where the context
has less to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

import numpy as np
import pandas as pd

from harness.analysis.summary import removed_of
from harness.results.run_folder import AVERAGED, Line
from harness.results.score_histograms import Histogram, Told, told
from leaderboard.data.histograms import Prompt, Source


def by_threshold(line: Line, source: Source) -> bool:
    """Whether a line is of a threshold on these scores, of a context that was pruned once for all its questions."""
    return _is_threshold(line) and Source.of(line) == source


def _is_threshold(line: Line) -> bool:
    """With a question in view the scores are others, and so is what a threshold removes."""
    return (line.budget, line.level_kind, line.query_mode) == ("threshold", "threshold", "agnostic")


def measured(lines: Iterable[Line], source: Source, tau: float) -> pd.DataFrame:
    """A row a prompt that was run at ``tau``: ``subset, prompt, removed, score``; means over its questions and
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
            score = fmean(scores) if scores else None
            found.append({"subset": own[0].subset, "prompt": context, "removed": fmean(removed), "score": score})
    return pd.DataFrame(found, columns=["subset", "prompt", "removed", "score"])


def spread(table: pd.DataFrame, by: str) -> pd.DataFrame:
    """Mean, ends and quartiles of ``removed`` for each value of ``by``: ``name, prompts, mean, min, q25, median, q75,
    max``, in the order in which they appear."""
    found = []
    for name in dict.fromkeys(table[by]):
        own = table.loc[table[by] == name, "removed"].to_numpy(dtype=float)
        low, q25, median, q75, high = (float(value) for value in np.quantile(own, [0, 0.25, 0.5, 0.75, 1]))
        row = {"name": name, "prompts": len(own), "mean": float(own.mean()), "min": low, "q25": q25}
        found.append({**row, "median": median, "q75": q75, "max": high})
    return pd.DataFrame(found, columns=["name", "prompts", "mean", "min", "q25", "median", "q75", "max"])


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
