"""What a viewer needs to look inside a run: of one sample, what each variant kept of the context and answered.

Pure data, without torch: ``masks/`` of a run folder (``run --store-masks N``) beside its lines and items. Whatever a
file holds, all that is raised is :class:`HarnessError`, with a text to show in place of the view.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import benchmarks.registry
from benchmarks.base import BenchmarkError, Sample
from harness.analysis.rescore import samples_from_data
from harness.analysis.run_reader import Reading
from harness.errors import HarnessError
from harness.results.mask_file import Shares, StoredMasks, path_of, read
from harness.results.schema import Item, Line


class Place(NamedTuple):
    """A sample that has masks, and where it belongs."""

    sample_id: str
    benchmark: str
    subset: str
    length: int | None


@dataclass(frozen=True)
class Shown:
    """A variant of a sample: its lines, one a rollout, and whether its mask is there.

    has_mask   false where the variant failed; the lines say why
    agrees     the mask keeps as many pairs as the lines say; false in a folder whose files are not of one run
    """

    variant: str
    lines: tuple[Line, ...]
    has_mask: bool
    agrees: bool

    @property
    def is_control(self) -> bool:
        return bool(self.lines) and self.lines[0].level_kind == "none"

    @property
    def answers(self) -> tuple[str | None, ...]:
        """What it answered, a text a rollout; None where it has no answer (``status`` and ``reason`` of the line)."""
        return tuple(line.prediction for line in self.lines)

    @property
    def score(self) -> float | None:
        """The mean score over rollouts, 0-100; None where there is none."""
        scores = [line.score for line in self.lines if line.score is not None]
        return sum(scores) / len(scores) if scores else None


@dataclass(frozen=True, eq=False)
class SampleView:
    """One sample, ready to be shown.

    place        sample, benchmark, subset, length
    variants     in the order of the run, the control among them
    references   right answers; None where they are not stored with the run
    question     what was asked of the pruned cache, and the forced start of the answer; None where not stored
    tokens       the text of each of the T cached tokens; None where it is not stored: ``tokens_note`` then says why,
                 and how it can be seen
    prefix       P: the first P tokens are the chat template's
    cut          tokens that were left out of the middle of the context, since the prompt was too long
    """

    place: Place
    variants: tuple[Shown, ...]
    references: tuple[str, ...] | None
    question: str | None
    answer_prefix: str | None
    tokens: tuple[str, ...] | None
    tokens_note: str
    prefix: int
    cut: int
    masks: StoredMasks

    @property
    def shape(self) -> tuple[int, int, int]:
        """L, H, T: layers that can be pruned, KV heads, cached tokens of the context."""
        return self.masks.shape

    @property
    def control(self) -> Shown | None:
        """The full cache's row, which the others are held against."""
        return next((shown for shown in self.variants if shown.is_control), None)

    def shown(self, variant: str) -> Shown:
        """A variant by its label. One that the sample does not have: :class:`HarnessError`."""
        found = next((shown for shown in self.variants if shown.variant == variant), None)
        if found is None:
            known = ", ".join(shown.variant for shown in self.variants)
            raise HarnessError(f"{self.place.sample_id} has no variant {variant!r}; it has: {known}")
        return found

    def share_by_token(self, variant: str) -> Shares:
        """``[T]``, 0..1: of each token, the share of its pairs over all layers and heads that is kept."""
        return self.masks.share_by_token(variant)

    def share_by_head(self, variant: str) -> Shares:
        """``[L, H]``, 0..1: of each layer and KV head, the share of the context's tokens that is kept."""
        return self.masks.share_by_head(variant)

    def kept(self, variant: str) -> NDArray[np.bool_]:
        """``[L, H, T]``: the keep mask right after the prefill, before any question or answer token."""
        return self.masks.kept(variant)


def samples_with_masks(run: Reading) -> list[Place]:
    """The samples of a run whose masks are stored, in the order of the run; empty where there are none. No mask file is
    opened, so one that is damaged shows in :func:`sample_view`."""
    if not (run.folder.path / "masks").is_dir():
        return []
    places = dict.fromkeys(Place(ln.sample_id, ln.benchmark, ln.subset, ln.length) for ln in _lines(run))
    return [place for place in places if path_of(run.folder.path, place.sample_id).is_file()]


def sample_view(run: Reading, sample_id: str, data: Path | None = None) -> SampleView:
    """Everything about one sample of a run that has masks.

    data   the benchmark's rows, as in ``run --data``: where the tokens' text may not be stored with a run, it is taken
           from there, proved to be the run's own by the hash of its prompt

    A sample without masks, a damaged file, rows of something else: :class:`HarnessError`.
    """
    lines = [line for line in _lines(run) if line.sample_id == sample_id]
    if not lines:
        raise HarnessError(f"{run.name} has no answers to a sample {sample_id!r}")
    path = path_of(run.folder.path, sample_id)
    if not path.is_file():
        raise HarnessError(
            f"no masks of {sample_id} are stored in {run.name}; the run's command with --store-masks N, and the rest "
            "as it was, stores those of the first N samples of each subset"
        )
    masks = read(path)
    if masks.sample_id != sample_id:
        raise HarnessError(f"{path} holds the masks of another sample, {masks.sample_id}")
    item = run.items.get(sample_id)
    texts = _stored(item)
    if masks.tokens is not None:
        tokens, note = masks.tokens, ""
    elif data is None:
        tokens, note = None, _why_no_texts(masks)
    else:
        sample = _from_data(run, item, masks, data)
        texts = _Texts(tuple(sample.references), sample.question, sample.answer_prefix)
        tokens, note = _token_texts(sample, masks, lines)
    return SampleView(
        Place(sample_id, lines[0].benchmark, lines[0].subset, lines[0].length),
        _variants(masks, lines),
        *texts,
        tokens,
        note,
        masks.prefix,
        masks.about.cut,
        masks,
    )


class _Texts(NamedTuple):
    """What a run or its data say of a sample; None where they do not."""

    references: tuple[str, ...] | None = None
    question: str | None = None
    answer_prefix: str | None = None


def _stored(item: Item | None) -> _Texts:
    if item is None:
        return _Texts()
    return _Texts(
        tuple(item.references) if item.holds("references") else None,
        item.question if item.holds("question") else None,
        item.answer_prefix if item.holds("answer_prefix") else None,
    )


def _lines(run: Reading) -> list[Line]:
    try:
        return run.lines
    except (KeyError, TypeError, AttributeError) as error:  # records of another form than runs have
        raise HarnessError(f"{run.folder.path} holds records that cannot be read: {error!r}") from error


def _variants(masks: StoredMasks, lines: Sequence[Line]) -> tuple[Shown, ...]:
    by_label: dict[str, list[Line]] = {}
    for line in lines:
        by_label.setdefault(line.variant, []).append(line)
    found = []
    for label, own in by_label.items():
        has_mask = label in masks.variants
        kept = masks.kept_pairs(label) if has_mask else None
        agrees = has_mask and all(line.kept_pairs in (None, kept) for line in own)
        found.append(Shown(label, tuple(sorted(own, key=lambda line: line.rollout)), has_mask, agrees))
    return tuple(found)


def _why_no_texts(masks: StoredMasks) -> str:
    name = masks.about.benchmark
    if masks.lengths is None:
        return f"The contexts of {name} are not stored with a run, nor where their tokens end: no text can be shown."
    if masks.about.cut:
        return (
            f"The contexts of {name} are not stored with a run, and the middle of this one was left out to fit the "
            "model: no text can be shown."
        )
    return (
        f"The contexts of {name} are not stored with a run, since they may not be redistributed. Give the rows that "
        "it was run on (--data) to see them."
    )


def _from_data(run: Reading, item: Item | None, masks: StoredMasks, data: Path) -> Sample:
    try:
        benchmark = benchmarks.registry.get(masks.about.benchmark)
        return samples_from_data(run, benchmark, [item] if item else [], data)[masks.sample_id]
    except (BenchmarkError, OSError, KeyError, TypeError) as error:
        raise HarnessError(f"--data {data} does not give the context of {masks.sample_id}: {error}") from error


def _token_texts(sample: Sample, masks: StoredMasks, lines: Sequence[Line]) -> tuple[tuple[str, ...] | None, str]:
    """Token texts of a context that is not stored with its run, or why there are none."""
    if masks.lengths is None or masks.about.cut:
        return None, _why_no_texts(masks)
    control = next((line for line in lines if line.level_kind == "none"), lines[0])
    text = sample.context + (sample.question if control.query_mode == "aware" else "")
    tokens = split(text, [int(length) for length in masks.lengths], masks.prefix)
    if tokens is None:
        return None, f"The tokens of {masks.sample_id} do not fit its text: the model's chat template changes it."
    return tokens, ""


def split(text: str, lengths: Sequence[int], prefix: int) -> tuple[str, ...] | None:
    """Texts of the tokens of a prompt that ends with ``text``, from the characters that each token has.

    What stands before the text is the chat template, whose last token is number ``prefix``; it is shown as ``·`` for
    each character, since no run stores it. Templates that trim a message are allowed for. None where nothing fits.
    """
    total, most = sum(lengths), sum(lengths[:prefix])
    least = sum(lengths[: prefix - 1]) + 1 if prefix else 0  # the template's last token starts within the template
    for candidate in dict.fromkeys((text, text.lstrip(), text.rstrip(), text.strip())):
        before = total - len(candidate)
        if least <= before <= most:
            whole, found, start = "·" * before + candidate, [], 0
            for length in lengths:
                found.append(whole[start : start + length])
                start += length
            return tuple(found)
    return None
