"""Whether finished rows are as long as a benchmark's name or ``--length`` says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.base import BenchmarkError, Sample, Text

#: one prompt has this many times the tokens that another tokenizer gives it: measured on RULER's rows are 0.96 to 1.2,
#: of Qwen3's tokens; one without digits of its own splits numbers further
SHORTER, LONGER = 0.85, 1.4


def check_prompt_lengths(
    samples: Sequence[Sample], slack: Callable[[str], int], text: Text, place: str, claim: str, remedy: str
) -> None:
    """:class:`BenchmarkError` if a prompt (with its answer limit) is longer than its sample's ``length``, or shorter
    by more than ``slack``, beyond what another tokenizer explains.

    slack   tokens by which a subset's generator falls short of the length, by its coarsest step
    place   where the rows come from
    claim   what says that they have that length
    remedy  what to do

    Only the prompts of each subset with the fewest and the most characters are counted.
    """
    found = {id(one): (len(text.encode(_prompt(one))) + one.max_new_tokens, one) for one in _extremes(samples)}
    shortest, longest = (pick(n for n, _ in found.values()) for pick in (min, max))
    for tokens, sample in found.values():
        length = sample.length
        if length is None:
            continue
        least = max(length - slack(sample.subset), length // 2) * SHORTER
        if not least <= tokens <= length * LONGER:
            several = f" (the rows have {shortest:,} to {longest:,})" if shortest < longest else ""
            raise BenchmarkError(
                f"{place}: {claim} {length:,} tokens, but {sample.sample_id} has {tokens:,} with this model's "
                f"tokenizer, answer limit included{several}; {remedy}"
            )


def _extremes(samples: Sequence[Sample]) -> list[Sample]:
    """The samples of each subset and length with the shortest and the longest text."""
    groups: dict[tuple[str, int | None], list[Sample]] = {}
    for sample in samples:
        groups.setdefault((sample.subset, sample.length), []).append(sample)
    return [pick(group, key=lambda one: len(_prompt(one))) for group in groups.values() for pick in (min, max)]


def _prompt(sample: Sample) -> str:
    return sample.context + sample.question + sample.answer_prefix
