"""A tiny model with its tokenizer on disk, a benchmark and methods, for tests that run the whole command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from benchmarks import needles
from benchmarks.base import Benchmark, Request, Sample, Score, Text
from methods.base import Method, ModelInfo, Observation, Pass, Protection
from tests.tiny import tiny

TEMPLATE = (
    "{% for turn in messages %}<|{{ turn['role'] }}|>\n{{ turn['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
MARKS = ["<|user|>", "<|assistant|>", "<|end|>"]


WORDING = (needles.INTRO, needles.LINE, needles.NEEDLE, needles.QUESTION, needles.ANSWER_PREFIX, *needles.KEYS)


def toy_tokenizer(texts: Sequence[str] = WORDING) -> PreTrainedTokenizerFast:
    """Byte-level BPE trained on some texts (of none: one token a byte), with the marks of a chat template."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=450, initial_alphabet=alphabet, show_progress=False)
    core.train_from_iterator([*texts] * 3, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|end|>")
    tokenizer.add_special_tokens({"additional_special_tokens": MARKS[:2]})
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def save_model(folder: Path, **changes: int) -> Path:
    """A tiny Llama in float32 and its tokenizer, as ``--model`` takes them."""
    tokenizer = toy_tokenizer()
    tiny("llama", torch.float32, vocab_size=len(tokenizer), **changes).model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


class Toy(Benchmark):
    """Contexts of random letters, two questions on each; the score is a checksum of the answer."""

    name = "toy"
    summary = "checksums"
    version = "7"
    subsets = ("red", "blue", "hidden")
    needs_data = ("hidden",)
    default_lengths = (64,)
    default_limit = 4
    shareable = False

    def samples(self, request: Request, text: Text) -> list[Sample]:
        wanted = [name for name in self.subsets[:2] if not request.subsets or name in request.subsets]
        count = self.default_limit if request.limit is None else request.limit
        lengths = request.lengths or self.default_lengths
        return [toy_sample(s, n, i, request.seed) for n in lengths for s in wanted for i in range(count)]

    def score(self, sample: Sample, prediction: str) -> Score:
        return Score(checksum(prediction), {"letters": float(len(prediction))})


def checksum(text: str) -> float:
    return float(sum(text.encode()) % 101)


def toy_sample(subset: str, length: int, index: int, seed: int = 0) -> Sample:
    pair = index // 2
    letters = "".join(chr(97 + (pair * 31 + i * i * 7 + len(subset) + seed) % 26) for i in range(length))
    return Sample(
        sample_id=f"toy/{subset}/{length}/{seed}/{index}",
        context_id=f"{subset}-{length}-{pair}",
        context=letters,
        question=f" number {index}?",
        answer_prefix=" It is",
        max_new_tokens=4,
        references=(f"r{index}",),
        subset=subset,
        length=length,
    )


@dataclass(frozen=True)
class Carded(Method):
    """Scores between -4 and 0, the same for each model, and a card that knows three fractions."""

    name: ClassVar[str] = "carded"
    default_budget: ClassVar[str] = "threshold"
    protection: ClassVar[Protection] = Protection(window=4)
    score_range: ClassVar[tuple[float, float] | None] = (-5.0, 1.0)
    card: ClassVar[dict[str, float]] = {"0.25": -3.0, "0.5": -2.0, "0.75": -1.0, "0.875": -0.5}

    def thresholds(self, info: ModelInfo) -> dict[str, float]:
        return self.card

    def score(self, seen: Observation) -> Tensor:
        heads, cached = seen.keys.shape[:2]
        places = torch.arange(heads * cached, dtype=torch.float32).view(heads, cached)
        return -4.0 * ((places * 0.618034 + seen.layer * 0.1) % 1.0)


@dataclass(frozen=True)
class Broken(Method):
    """Fails in the way its option says."""

    how: str = "raise"
    name: ClassVar[str] = "broken"

    def passes(self, cached: int, prefix: int) -> list[Pass]:
        if self.how == "passes":
            raise RuntimeError("no pass today")
        return []

    def score(self, seen: Observation) -> Tensor:
        good = torch.zeros(seen.keys.shape[:2])
        if self.how in RAISED:
            raise RAISED[self.how]
        bad = {"nan": good / 0, "inf": good + torch.inf, "shape": good[:, 1:], "dtype": good.double()}
        return bad.get(self.how, good)


RAISED: dict[str, BaseException] = {
    "raise": RuntimeError("the method's own reason"),
    "memory": MemoryError("no room"),
    "cuda": torch.OutOfMemoryError("no room on the card"),
    "interrupt": KeyboardInterrupt(),
}
#: how Broken fails -> the status of its lines and a part of their reason
FAILURES = {
    "raise": ("error", "RuntimeError: the method's own reason"),
    "memory": ("oom", "no room"),
    "cuda": ("oom", "no room on the card"),
    "nan": ("nan", "not finite"),
    "inf": ("nan", "not finite"),
    "shape": ("error", "expected float32 [3, "),
    "dtype": ("error", "torch.float64"),
    "passes": ("error", "RuntimeError: no pass today"),
}
