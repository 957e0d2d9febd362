"""``--store-masks``: which samples' masks a run stores, and their files while it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from harness.config.variants import Planned
from harness.engine.context import Context
from harness.errors import HarnessError
from harness.evaluation.evaluator import Item
from harness.evaluation.keep_masks import Masks
from harness.models.prompts import Prompts
from harness.models.token_text import pieces
from harness.results import mask_file
from harness.results.schema import AVERAGED, Line


def first_of_each(items: Iterable[Item], count: int) -> Iterator[str]:
    """Ids of the first ``count`` samples of each benchmark, subset and length."""
    seen: Counter[tuple[str, str, int | None]] = Counter()
    for benchmark, sample in items:
        group = (benchmark.name, sample.subset, sample.length)
        seen[group] += 1
        if seen[group] <= count:
            yield sample.sample_id


class MaskKeeper:
    """Stores the masks of the first ``count`` samples of each subset of a run whose folder is ``path``.

    ``lacking`` are the samples that are yet to be stored: those without a file that can be read, unless lines of theirs
    say that none of their variants could run. ``lines`` are those that are there already; a mask that keeps another
    number of pairs than its line says is not stored, since it is not the mask of that answer.
    """

    def __init__(self, path: Path, prompts: Prompts, items: Iterable[Item], count: int, lines: Sequence[Line]) -> None:
        self.path, self.prompts = path, prompts
        self._stored: set[str] = set()
        self._refused: dict[str, str] = {}
        self._kept = {line.key[:2]: line.kept_pairs for line in lines if line.kept_pairs is not None}
        failed = {line.sample_id for line in lines} - {line.sample_id for line in lines if line.status in AVERAGED}
        wanted = [sample for sample in first_of_each(items, count) if sample not in failed]
        self.lacking = frozenset(sample for sample in wanted if not self._there(sample))

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be told of samples that were lacking and are still."""
        left = [sample for sample in self.lacking if sample not in self._stored]
        if not left:
            return ()
        first = min(left)
        reason = self._refused.get(first, "its prompt could not be run")
        more = f" ({len(left)} such samples)" if len(left) > 1 else ""
        return (f"masks of {first} are not stored: {reason}{more}",)

    def _there(self, sample: str) -> bool:
        try:
            return mask_file.read(mask_file.path_of(self.path, sample)).sample_id == sample
        except HarnessError:
            return False

    def keep(self, item: Item, context: Context, planned: Sequence[Planned], made: Masks) -> None:
        """Store a sample's masks, those of variants that failed left out."""
        sample = item.sample
        able = [index for index in range(len(planned)) if index not in made.failed]
        labels = [planned[index].variant.label for index in able]
        keep = [made.keep[index].cpu().numpy() for index in able]  # views, as all of them may take gigabytes
        for label, mask in zip(labels, keep, strict=True):
            then, now = self._kept.get((sample.sample_id, label)), int(mask.sum())
            if then not in (None, now):
                self._refused[sample.sample_id] = (
                    f"{label} kept {then:,} pairs when its line was made and would keep {now:,} now; hardware or "
                    "versions are others"
                )
                return
        _, layers, heads, cached = made.keep.shape
        decode = partial(self.prompts.tokenizer.decode, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        texts = pieces(context.ids, decode)
        about = mask_file.About(
            sample_id=sample.sample_id,
            context_id=sample.context_id,
            benchmark=item.benchmark.name,
            subset=sample.subset,
            length=sample.length,
            shape=(layers, heads, cached),
            prefix=context.prefix,
            cut=context.cut,
            variants=tuple(labels),
        )
        shown = texts if item.benchmark.shareable else None
        try:
            mask_file.write(
                mask_file.path_of(self.path, sample.sample_id), about, keep, shown, [len(text) for text in texts]
            )
        except HarnessError as error:  # a run of days does not end for a picture of it
            self._refused[sample.sample_id] = str(error)
        else:
            self._stored.add(sample.sample_id)
