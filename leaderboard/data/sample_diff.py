"""The samples of a run on which two variants differ, for a reader who wants to see what pruning did."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from harness.analysis.paired_tests import scores_of
from harness.results.schema import Line


class SampleDifference(NamedTuple):
    """A sample with the mean score over rollouts of two variants; None where one has none."""

    sample_id: str
    subset: str
    a: float | None
    b: float | None

    @property
    def change(self) -> float | None:
        return None if self.a is None or self.b is None else self.b - self.a


def side_by_side(lines: Iterable[Line], a: str, b: str) -> list[SampleDifference]:
    """All samples of two variants, in the order of the run."""
    kept = [line for line in lines if line.variant in (a, b)]
    subsets = {line.sample_id: line.subset for line in kept}
    one = scores_of(line for line in kept if line.variant == a)
    other = scores_of(line for line in kept if line.variant == b)
    return [
        SampleDifference(
            sample,
            subset,
            one[sample].score if sample in one else None,
            other[sample].score if sample in other else None,
        )
        for sample, subset in subsets.items()
    ]


def differing(pairs: Iterable[SampleDifference]) -> list[SampleDifference]:
    """Those with other scores, the largest loss first, then gains, then samples that only one of the two has."""
    found = [pair for pair in pairs if pair.a != pair.b]
    return sorted(found, key=lambda pair: (pair.change is None, pair.change or 0.0))


def variants_of(lines: Sequence[Line]) -> tuple[str | None, list[str]]:
    """The control's label, None where there is none, and those of the pruned variants in the order of the run."""
    labels = dict.fromkeys((line.variant, line.level_kind == "none") for line in lines)
    control = next((label for label, is_control in labels if is_control), None)
    return control, [label for label, is_control in labels if not is_control]
