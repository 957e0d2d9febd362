"""What a reader must know before believing a table: alarms, derived from the lines and cells of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from harness.analysis.floor import AT_FLOOR
from harness.analysis.grouping import Place, PlaceLines, by_place
from harness.analysis.paired_tests import SIGNIFICANT
from harness.analysis.ranking import FAR, is_partial, level_of, off_level
from harness.results.schema import AVERAGED, Alarm, Cell, Line, Pair


def alarms(groups: Mapping[Place, PlaceLines], cells: Sequence[Cell], pairs: Iterable[Pair]) -> list[Alarm]:
    """One row per alarm: ``kind, benchmark, length, variant`` (null: all), ``text``. Kinds:

    ``beats_control``    a variant's paired difference from the control lies above 0 with its whole interval; where
                         there is no interval, p adjusted is under 0.05
    ``control_at_floor`` the control is at chance or under 20
    ``truncated``        prompts that do not fit the model, which were not run
    ``prompt_cut``       prompts that lost their middle
    ``answer_limit``     answers that ran into their limit
    ``failed``           lines of other prompts whose status is not averaged: ``truncated`` if a pass does not fit
    ``off_level``        measured removed differs from the requested fraction by more than 0.05
    ``partial``          fewer subsets than the benchmark has
    """
    found = []
    overall = [cell for cell in cells if cell.subset is None and cell.status != "unsupported"]
    cells_of, pairs_of = by_place(overall), by_place(pairs)
    for place, group in groups.items():
        own, here, pairs_here = group.lines, cells_of.get(place, []), pairs_of.get(place, [])
        told = [*_control(here), *_partial(here), *_beating(pairs_here), *_not_run(own), *_limits(own), *_off(here)]
        for kind, variant, text in told:
            found.append(Alarm(kind=kind, benchmark=place[0], length=place[1], variant=variant, text=text))
    return found


Told = tuple[str, str | None, str]  # kind, variant, text


def _control(cells: Sequence[Cell]) -> Iterator[Told]:
    for cell in cells:
        if cell.level_kind == "none" and cell.floor:
            scores = "lies" if cell.score is None else f"scores {cell.score:.1f},"
            text = f"the control {scores} {AT_FLOOR}: nothing can be compared"
            yield "control_at_floor", cell.variant, text


def _partial(cells: Sequence[Cell]) -> Iterator[Told]:
    partial = [cell for cell in cells if is_partial(cell)]
    if partial:
        has, of = min(cell.n_subsets for cell in partial), partial[0].of_subsets
        yield "partial", None, f"{has} of {of} subsets: no overall mean, no rank"


def _beating(pairs: Sequence[Pair]) -> Iterator[Told]:
    for pair in pairs:
        if pair.against == "control" and pair.difference is not None and pair.difference > 0:
            low, p = pair.low, pair.p_holm
            if low > 0 if low is not None else p is not None and p < SIGNIFICANT:
                interval = f"p {p:.2g}" if low is None else f"95 % interval {low:.1f} to {pair.high:.1f}"
                text = f"{pair.a} beats the control by {pair.difference:.1f} ({interval}): pruning should not help"
                yield "beats_control", pair.a, text


def _not_run(lines: Sequence[Line]) -> Iterator[Told]:
    samples = len({line.sample_id for line in lines})
    # where others ran the prompt, it fits: what does not is an extra pass of the method
    truncated = {line.sample_id for line in lines} - {line.sample_id for line in lines if line.status != "truncated"}
    if truncated:
        yield "truncated", None, f"{len(truncated)} of {samples} prompts do not fit the model and were not run"
    cut = {line.sample_id for line in lines if line.prompt_cut}
    if cut:
        yield "prompt_cut", None, f"{len(cut)} of {samples} prompts were cut in the middle"
    failed: dict[str, Counter[str]] = {}
    for line in lines:
        if line.status not in AVERAGED and line.sample_id not in truncated:
            failed.setdefault(line.variant, Counter())[line.status] += 1
    for variant, counts in failed.items():
        told = ", ".join(f"{count} {status}" for status, count in counts.items())
        yield "failed", variant, f"{variant}: {told}; not averaged, not ranked"


def _limits(lines: Sequence[Line]) -> Iterator[Told]:
    """One alarm for all variants: an answer that wanders off is often what pruning did, so the control's share says
    whether the limit itself is at fault."""
    answered = [line for line in lines if line.status in AVERAGED]
    cut_off = Counter(line.variant for line in answered if line.finish_reason == "length")
    if not cut_off:
        return
    counts = Counter(line.variant for line in answered)
    control = next((line.variant for line in answered if line.level_kind == "none"), None)
    worst, most = max(cut_off.items(), key=lambda item: item[1] / counts[item[0]])
    parts = [f"{sum(cut_off.values())} of {len(answered)} answers ran into their limit"]
    if control is not None:
        parts.append(f"the control's {cut_off[control]} of {counts[control]}")
    if worst != control:
        parts.append(f"most of {worst}, {most} of {counts[worst]}")
    yield "answer_limit", None, "; ".join(parts)


def _off(cells: Sequence[Cell]) -> Iterator[Told]:
    for cell in cells:
        off = off_level(cell)
        if off is not None and abs(off) > FAR:
            _, value = level_of(cell) or (None, None)
            bound = ", bound by protection" if cell.bound_by else ""
            text = f"{cell.variant} removed {cell.removed_mean:.3f} where {value:g} was asked for{bound}"
            yield "off_level", cell.variant, text
