"""Paired comparisons: each variant with the control, and with each other variant of the same level and query mode.

Data are the samples that both have with a status that is averaged, each with the mean of its rollouts. The difference
is the unweighted mean over subsets of the mean difference, so it is that of two overall scores where both have all
samples. Where one has a subset that the other lacks, nothing is compared. Questions on one context are not independent:
bootstraps draw contexts, and permutations flip all of a context's signs together.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from harness.analysis.grouping import Place, PlaceLines
from harness.analysis.stats import Interval, Matrix, Tested, holm, mcnemar, mean_intervals, sign_flips, unit_sums
from harness.results.schema import AVERAGED, Asked, Difference, LevelKind, Line, Pair

#: of two-sided tests
SIGNIFICANT = 0.05
#: scores of a benchmark whose answers are right or wrong
RIGHT_OR_WRONG = (0.0, 100.0)


class Scored(NamedTuple):
    subset: str
    score: float


#: the score of each sample of one variant, by ``sample_id``
Scores = Mapping[str, Scored]


def scores_of(lines: Iterable[Line]) -> dict[str, Scored]:
    """The samples of one variant that are averaged, each with the mean over its rollouts."""
    found: dict[str, list[float]] = {}
    subsets: dict[str, str] = {}
    for line in lines:
        if line.status in AVERAGED and line.score is not None:
            found.setdefault(line.sample_id, []).append(line.score)
            subsets[line.sample_id] = line.subset
    return {sample: Scored(subsets[sample], fmean(scores)) for sample, scores in found.items()}


def contexts_of(lines: Iterable[Line]) -> dict[str, str]:
    """The context of each sample."""
    return {line.sample_id: line.context_id for line in lines}


def asked(
    level_kind: LevelKind, level: float | None, requested_removed: float | None
) -> tuple[LevelKind, float] | None:
    """The level by which variants are put beside each other: the removed fraction, also where a threshold was chosen
    for it; else tokens kept, or tau. None for the control. What was then removed is measured, and may differ."""
    if level_kind == "none" or level is None:
        return None
    return (level_kind, level) if requested_removed is None else ("removed", requested_removed)


def all_pairs(groups: Mapping[Place, PlaceLines], seed: int = 0) -> list[Pair]:
    """The pairs of each benchmark and length: every variant with the control (``against: control``; one Holm table),
    then those of one level and query mode with each other (``against: level``; a Holm table each): what was pruned with
    the question in view is no rival of what was pruned without."""
    found = []
    for (benchmark, length), group in groups.items():
        by_variant = group.variants
        names = _names(by_variant)
        scores = {variant: scores_of(own) for variant, own in by_variant.items()}
        contexts = contexts_of(group.lines)
        tables = [table for *_, table in names]
        rows = compare([(scores[a], scores[b]) for a, b, _, _ in names], seed, tables, contexts)
        for (a, b, level, table), row in zip(names, rows, strict=True):
            found.append(
                Pair(
                    benchmark=benchmark,
                    length=length,
                    a=a,
                    b=b,
                    against="control" if table == "control" else "level",
                    asked=Asked(kind=level[0], value=level[1]),
                    query_mode=by_variant[a][0].query_mode,
                    **dict(row),
                )
            )
    return found


def _names(by_variant: Mapping[str, Sequence[Line]]) -> list[tuple[str, str, tuple[LevelKind, float], Hashable]]:
    """(a, b, level, Holm table) of the pairs of one benchmark and length."""
    levels = {
        variant: asked(own[0].level_kind, own[0].level, own[0].requested_removed) for variant, own in by_variant.items()
    }
    control = next((variant for variant, level in levels.items() if level is None), None)
    pruned = [(variant, level) for variant, level in levels.items() if level is not None]
    first = [] if control is None else [(variant, control, level, "control") for variant, level in pruned]
    more = [
        (a, b, level, (level, by_variant[a][0].query_mode))
        for place, (a, level) in enumerate(pruned)
        for b, other in pruned[place + 1 :]
        if level == other and by_variant[a][0].query_mode == by_variant[b][0].query_mode
    ]
    return [*first, *more]


def compare(
    pairs: Sequence[tuple[Scores, Scores]],
    seed: int = 0,
    tables: Sequence[Hashable] | None = None,
    contexts: Mapping[str, str] | None = None,
) -> list[Difference]:
    """Differences a - b with interval and tests, one row a pair; p-values are adjusted within each of ``tables``.
    ``contexts`` has the context of each sample; None: each has its own.

    A row: ``n`` pairs of samples, on ``n_contexts``, and ``n_unpaired`` others, ``n_subsets``; ``difference, low,
    high``; on how many samples a is ``better`` or ``worse``; ``p`` of ``test`` (``mcnemar`` where all scores are 0 or
    100, all contexts differ and all subsets have as many samples, else ``sign_flip``), both tests' own figures,
    ``p_holm``; ``tie``. All but the counts are null where there is nothing to compare.

    ``tie``: the interval holds 0, or p adjusted is 0.05 or more.
    """
    made, data = _made(pairs, contexts)
    intervals, tested = _intervals(made, data, seed), _tests(made, data, seed)
    rows = [pair.row(interval, test) for pair, interval, test in zip(made, intervals, tested, strict=True)]
    _adjust(rows, tables or ["one"] * len(rows))
    return rows


def differences(
    pairs: Sequence[tuple[Scores, Scores]], seed: int = 0, contexts: Mapping[str, str] | None = None
) -> list[tuple[float | None, Interval | None]]:
    """:func:`compare` without tests: each pair's difference, None where there is nothing to compare, and interval."""
    made, data = _made(pairs, contexts)
    return [(pair.difference, interval) for pair, interval in zip(made, _intervals(made, data, seed), strict=True)]


class _Data(NamedTuple):
    """Subset and context of each sample, in one order for all pairs."""

    subsets: Any
    contexts: Any


def _made(pairs: Sequence[tuple[Scores, Scores]], contexts: Mapping[str, str] | None) -> tuple[list[_Pair], _Data]:
    samples = _ordered(pairs)
    place = {sample: index for index, (sample, _) in enumerate(samples)}
    columns: dict[int, Matrix] = {}
    for side in (side for pair in pairs for side in pair):
        if id(side) not in columns:
            columns[id(side)] = column = np.full(len(samples), np.nan)
            for sample, scored in side.items():
                column[place[sample]] = scored.score
    own = [sample if contexts is None else contexts[sample] for sample, _ in samples]
    data = _Data(np.array([subset for _, subset in samples]), np.array(own))
    return [_Pair.of(columns[id(a)], columns[id(b)], data) for a, b in pairs], data


def _ordered(pairs: Sequence[tuple[Scores, Scores]]) -> list[tuple[str, str]]:
    """All (sample, subset), subset by subset, in the order in which they first appear."""
    seen: dict[str, dict[str, None]] = {}
    done: set[int] = set()
    for side in (side for pair in pairs for side in pair):
        if id(side) not in done:
            done.add(id(side))
            for sample, scored in side.items():
                seen.setdefault(scored.subset, {})[sample] = None
    return [(sample, subset) for subset, some in seen.items() for sample in some]


class _Pair(NamedTuple):
    """Two columns of scores; ``both`` says which samples are compared, ``weights`` what each adds to the mean."""

    a: Matrix
    b: Matrix
    both: Any
    weights: Matrix
    difference: float | None
    n: int
    n_contexts: int
    n_unpaired: int
    n_subsets: int

    @classmethod
    def of(cls, a: Matrix, b: Matrix, data: _Data) -> _Pair:
        subsets = data.subsets
        has_a, has_b = ~np.isnan(a), ~np.isnan(b)
        both = has_a & has_b
        common = list(dict.fromkeys(subsets[both]))
        whole = set(common) == set(subsets[has_a | has_b])
        weights, means = np.zeros(len(a)), []
        if whole:
            for subset in common:
                own = both & (subsets == subset)
                weights[own] = 1.0 / (len(common) * own.sum())
                means.append(fmean(a[own] - b[own]))
        else:
            both = np.zeros(len(a), dtype=bool)
        n, contexts = int(both.sum()), len(set(data.contexts[both]))
        unpaired = int((has_a | has_b).sum()) - n
        return cls(a, b, both, weights, fmean(means) if means else None, n, contexts, unpaired, len(means))

    @property
    def differences(self) -> Matrix:
        """a - b of the samples that are compared, 0 of the others."""
        return np.where(self.both, np.nan_to_num(self.a) - np.nan_to_num(self.b), 0.0)

    def row(self, interval: Interval | None, tested: Tested) -> Difference:
        values = self.differences
        counts = {name: getattr(self, name) for name in ("n", "n_contexts", "n_unpaired", "n_subsets")}
        if self.n == 0:
            return Difference(**{**dict.fromkeys(Difference.model_fields), **counts})
        better, worse = int((values > 0).sum()), int((values < 0).sum())
        binary = bool(np.isin(np.concatenate([self.a[self.both], self.b[self.both]]), RIGHT_OR_WRONG).all())
        # McNemar's coins are thrown independently, and each counts as much as any other
        binary = binary and self.n_contexts == self.n and len(set(self.weights[self.both])) == 1
        discordant = mcnemar(better, worse) if binary else None
        return Difference(
            **counts,
            difference=self.difference,
            low=interval.low if interval else None,
            high=interval.high if interval else None,
            better=better,
            worse=worse,
            test="mcnemar" if binary else "sign_flip",
            p=tested.p if discordant is None else discordant,
            p_sign_flip=tested.p,
            exact=tested.exact,
            p_mcnemar=discordant,
        )


def _intervals(pairs: Sequence[_Pair], data: _Data, seed: int) -> list[Interval | None]:
    """Bootstrap intervals; pairs of the same samples share their draws."""
    alike: dict[bytes, list[int]] = {}
    for index, pair in enumerate(pairs):
        alike.setdefault(pair.both.tobytes(), []).append(index)
    found: list[Interval | None] = [None] * len(pairs)
    for indices in alike.values():
        both = pairs[indices[0]].both
        if not both.any():
            continue
        values = np.stack([pairs[index].differences for index in indices], axis=1)
        picked = [both & (data.subsets == subset) for subset in dict.fromkeys(data.subsets[both])]
        units = [data.contexts[own].tolist() for own in picked]
        for index, interval in zip(
            indices, mean_intervals([values[own] for own in picked], seed, units=units), strict=True
        ):
            found[index] = interval
    return found


def _tests(pairs: Sequence[_Pair], data: _Data, seed: int) -> list[Tested]:
    if not pairs:
        return []
    weighted = np.stack([pair.weights * pair.differences for pair in pairs], axis=1)
    return sign_flips(unit_sums(weighted, data.contexts.tolist()), seed)


def _adjust(rows: Sequence[Difference], tables: Sequence[Hashable]) -> None:
    """Holm within each table; then what is a tie."""
    members: dict[Hashable, list[Difference]] = {}
    for row, table in zip(rows, tables, strict=True):
        if row.n:
            members.setdefault(table, []).append(row)
    for some in members.values():
        for row, p in zip(some, holm([row.p for row in some if row.p is not None]), strict=True):
            within = row.low is not None and row.high is not None and row.low <= 0 <= row.high
            row.p_holm = p
            row.tie = within or p >= SIGNIFICANT
