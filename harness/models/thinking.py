"""Whether a run's model thinks before it answers: what the chat template can do, and what was requested."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from benchmarks.base import Benchmark, Sample
from benchmarks.thinking_tags import TAGS
from harness.errors import HarnessError
from harness.models.prompts import open_thought, rendered

#: what a tokenizer's chat template can do: be told to think or not; open a thought whatever it is told, which is closed
#: at once where thinking is off (:class:`harness.models.prompts.Prompts`); nothing, but there is an end-of-thought
#: tag, so the model may think unasked; nothing
Ability = Literal["switch", "always", "tag", "none"]


def ability(tokenizer: Any) -> Ability:
    """Found by rendering the template both ways, and by the tags of :data:`benchmarks.thinking_tags.TAGS` in it."""
    if not tokenizer.chat_template:
        return "none"
    on, off = (rendered(tokenizer, "?", thinking) for thinking in (True, False))
    known = f"{tokenizer.chat_template}\n" + "\n".join(map(str, tokenizer.added_tokens_decoder.values()))
    if not any(end in known for _, end in TAGS):
        return "none"
    if on != off:
        return "switch"
    return "always" if open_thought(on) else "tag"


def resolve(asked: str, wanted: Sequence[Benchmark], tokenizer: Any, model: str) -> bool:
    """``--thinking`` on, off or auto as a fact. Auto: on where the benchmark is one for it and the template can be told
    to think, or always does. On is refused where it would change nothing in the prompt: :class:`HarnessError`."""
    able = ability(tokenizer)
    if asked == "on" and able in ("none", "tag"):
        lacks = "has no end-of-thought tag such as </think>" if able == "none" else "gives the same prompt without it"
        raise HarnessError(
            f"--thinking on: the chat template of {model!r} {lacks}; use --thinking off or auto, or another --model"
        )
    if asked != "auto":
        return asked == "on"
    if able not in ("switch", "always"):
        return False
    if len({benchmark.thinks for benchmark in wanted}) > 1:
        made = ", ".join(benchmark.name for benchmark in wanted if benchmark.thinks)
        raise HarnessError(f"--thinking auto would be on for {made} alone, but a run has one setting: give on or off")
    return all(benchmark.thinks for benchmark in wanted)


def check_samples(thinking: bool, samples: Sequence[tuple[Benchmark, Sample]]) -> None:
    """A model that thinks must be free to: :class:`HarnessError` on a forced start of the answer, and on a prompt
    outside the chat template."""
    for benchmark, sample in samples if thinking else ():
        forced = "forces the start of the answer" if sample.answer_prefix else "leaves the chat template out"
        if sample.answer_prefix or not sample.chat_template:
            raise HarnessError(f"--thinking on: {benchmark.name} {forced} ({sample.sample_id}); use --thinking off")
