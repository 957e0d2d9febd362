"""The summary of a run: one cell a variant, benchmark, subset and length; derived from the lines alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from benchmarks.base import Benchmark
from harness.analysis import metrics, subset_groups
from harness.analysis.alarms import alarms
from harness.analysis.floor import is_at_floor
from harness.analysis.grouping import by_subset, grouped
from harness.analysis.paired_tests import all_pairs, contexts_of, scores_of
from harness.analysis.ranking import curves, ranks
from harness.analysis.stats import mean_interval
from harness.results.schema import (
    AVERAGED,
    SCHEMA_VERSION,
    Cell,
    Disagreement,
    Facts,
    Line,
    Metric,
    Summary,
    VariantFields,
)


def facts_of(benchmark: Benchmark) -> Facts:
    """Those of a benchmark."""
    b = benchmark
    return Facts(
        subsets=len(b.subsets),
        chance=b.chance,
        answer_limit=b.answer_limit,
        pass_at=list(b.pass_at),
        cross_check=b.cross_check,
        groups={name: list(some) for name, some in b.groups.items()},
        metrics=[Metric(**asdict(metric)) for metric in b.metrics],
    )


def summarise(
    lines: Sequence[Line],
    facts: Mapping[str, Facts],
    complete: bool,
    seed: int = 0,
    unsupported: Iterable[tuple[VariantFields, str]] = (),
) -> Summary:
    """Cells in the order in which variants and subsets first appear; after each benchmark's, those of methods that are
    ``unsupported`` in the run's phase, with what is noted of them. Then what is derived from lines and cells: alarms,
    ranks, curves, pairs."""
    cells: list[Cell] = []
    groups = grouped(lines)
    for (benchmark, length), group in groups.items():
        fact = facts.get(benchmark, Facts(subsets=0, chance=0.0))
        floors = _floors(group.control, fact.chance)
        for own in group.variants.values():
            subsets = by_subset(own)
            for subset, some in subsets.items():
                cells.append(_cell(benchmark, length, subset, {subset: some}, floors.get(subset, False), seed, fact))
            overall = _cell(benchmark, length, None, subsets, floors[None], seed, fact)
            overall.of_subsets = fact.subsets or None
            overall.groups = subset_groups.group_means(subset_groups.scores_of(subsets), fact.groups)
            cells.append(overall)
        cells += [_unsupported(variant, note, benchmark, length, fact) for variant, note in unsupported]
    pairs = all_pairs(groups, seed)
    metrics.differences_from_control(groups, pairs, seed)
    disagreements = list(_disagreements(lines, facts))
    return Summary(
        schema_version=SCHEMA_VERSION,
        complete=complete,
        lines=len(lines),
        alarms=alarms(groups, cells, pairs),
        cells=cells,
        ranks=ranks(cells, pairs),
        curves=curves(cells),
        pairs=pairs,
        **({"disagreements": disagreements} if any(fact.cross_check for fact in facts.values()) else {}),
    )


def _cell(
    benchmark: str,
    length: int | None,
    subset: str | None,
    subsets: dict[str, list[Line]],
    floor: bool,
    seed: int,
    fact: Facts,
) -> Cell:
    lines = [line for some in subsets.values() for line in some]
    counted = [line for line in lines if line.status in AVERAGED]
    samples = [scores_of(some) for some in subsets.values()]
    scores = [[scored.score for scored in some.values()] for some in samples]
    contexts = contexts_of(counted)
    whole = all(scores)
    units = [[contexts[name] for name in some] for some in samples]
    interval = mean_interval(scores, seed, units=units) if whole else None
    removed = [value for line in counted if (value := removed_of(line)) is not None]
    further = metrics.of_cell(counted, subsets, fact.pass_at, seed)
    return Cell(
        **lines[0].model_dump(include=set(VariantFields.model_fields)),
        benchmark=benchmark,
        subset=subset,
        length=length,
        score=fmean(map(fmean, scores)) if whole else None,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        n=len({line.sample_id for line in counted}),
        n_contexts=len(set(contexts.values())),
        n_subsets=len(subsets),
        n_failed=len(lines) - len(counted),
        rollouts=len({line.rollout for line in lines}),
        sampling=_common(line.sampling for line in lines),
        max_new_tokens=_common(line.max_new_tokens for line in lines),
        of_new_tokens=fact.answer_limit,
        removed_mean=_of_subsets(subsets, removed_of),
        removed_min=min(removed, default=None),
        removed_max=max(removed, default=None),
        removed_total_mean=_of_subsets(subsets, lambda line: line.removed_total),
        generated_mean=_mean(line.generated_tokens for line in counted),
        limit_share=_mean(float(line.finish_reason == "length") for line in counted),
        requested_removed=lines[0].requested_removed,
        n_cut=sum(line.prompt_cut for line in counted),
        floor=floor,
        bound_by="protection" if any(line.bound_by for line in counted) else None,
        **_paid(lines),
        metrics=further.means,
        metric_intervals=further.intervals,
    )


def _unsupported(variant: VariantFields, note: str, benchmark: str, length: int | None, fact: Facts) -> Cell:
    """The cell of a method that cannot prune in the run's phase: a note in place of figures."""
    figures = {name: field.get_default() for name, field in Cell.model_fields.items() if not field.is_required()}
    own = {"of_new_tokens": fact.answer_limit, "of_subsets": fact.subsets or None}
    columns = variant.model_dump(include=set(VariantFields.model_fields))
    place = {"benchmark": benchmark, "subset": None, "length": length, "status": "unsupported", "note": note}
    return Cell(**{**figures, "n_contexts": 0, **own, **columns, **place})


def _paid(lines: Iterable[Line]) -> dict[str, Any]:
    """The prefills that all these answers cost, where lines say so."""
    known = [line.prefills_paid for line in lines if line.prefills_paid is not None]
    return {"prefills_paid": sum(known)} if known else {}


def _common(values: Iterable[Any]) -> Any:
    """What all values are, None where they differ."""
    first, *rest = values
    return first if all(value == first for value in rest) else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _disagreements(lines: Iterable[Line], facts: Mapping[str, Facts]) -> Iterator[Disagreement]:
    """Lines whose second scorer does not agree."""
    for line in lines:
        fact = facts.get(line.benchmark)
        if fact is not None and fact.cross_check is not None and line.metrics.get(fact.cross_check) == 0:
            yield Disagreement(
                benchmark=line.benchmark,
                sample_id=line.sample_id,
                variant=line.variant,
                rollout=line.rollout,
                score=line.score,
                scorer=fact.cross_check,
            )


def _of_subsets(subsets: Mapping[str, Iterable[Line]], of: Callable[[Line], float | None]) -> float | None:
    """The mean of the subsets' means, as that of the scores which it stands beside; of those subsets that have any."""
    means = [_mean(of(line) for line in some if line.status in AVERAGED) for some in subsets.values()]
    return _mean(means)


def removed_of(line: Line) -> float | None:
    """The x-axis: measured removed fraction of the context for phase prefill, the mean over time otherwise."""
    return line.removed_context if line.phase == "prefill" else line.removed_time_mean


def _floors(control: Iterable[Line], chance: float) -> dict[str | None, bool]:
    """For each subset, and (None) for all of them, whether the control is at the floor there."""
    scores = {subset: [ln.score for ln in own if ln.score is not None] for subset, own in by_subset(control).items()}
    means = {subset: fmean(some) for subset, some in scores.items() if some}
    overall = bool(means) and is_at_floor(fmean(means.values()), chance)
    return {None: overall, **{subset: is_at_floor(mean, chance) for subset, mean in means.items()}}
