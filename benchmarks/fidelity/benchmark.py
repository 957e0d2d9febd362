"""Fidelity: how far a pruned cache's predictions are from the full cache's, on any text or any benchmark's prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import benchmarks.registry
from benchmarks.base import Benchmark, BenchmarkError, Request, Sample, Score, Text, content_hash
from benchmarks.fidelity.text_windows import TARGET, read_texts, windows
from benchmarks.registry import register

REFERENCES = ("answer", "text", "repeat")
#: the source that is no benchmark
TEXT = "text"
#: whose prompts are taken where nothing is said
DEFAULT_SOURCE = "needles"
SHORTEST = 16
#: most context tokens that are repeated in one go, KVzip's own number (arXiv 2505.23416, section 3.3)
CHUNK = 2048
#: tokens that a chat template may add where it meets the context
BORDER = 8
#: facts that do not hold of a source's prompts whatever is done with them
OWN = ("name", "summary", "paper", "version", "chance", "pass_at", "cross_check", "teacher_forced")


@register
@dataclass(frozen=True)
class Fidelity(Benchmark):
    """All variants read the same reference, teacher-forced, and each predicted distribution is compared with the full
    cache's. It needs no labels and draws nothing, so few samples tell methods apart.

    source      a benchmark whose prompts are used (``fidelity:ruler``), or ``text``: any text, with ``--data``
    reference   ``answer``: the full cache's own greedy answer and its stop token. ``text``: a given one, with texts
                what comes next in them. ``repeat``: the context once more, after KVzip's instruction, in chunks of
                2,048 tokens (or ``--max-new-tokens``): the KVzip paper's own test of a pruned cache.
                Default: ``text`` with texts, else ``answer``

    Texts are cut between words, about every ``--length`` + 256 tokens: at most ``--length`` of context, a word that is
    fed as it stands, and at most 256 that are predicted, without a chat template. What is left of a document at its end
    makes no sample where fewer than 16 tokens could be predicted. With ``answer`` and ``repeat`` the context alone is
    used, in the chat template.

    Score: 100 x the share of tokens where variant and full cache find the same one most likely. Metrics of a line:
    ``kl_mean`` and ``kl_p95`` (KL(full || variant) a token in nats), ``top1`` (the score as a share), ``nll`` and
    ``nll_full`` (mean -log p of the reference's tokens), ``ppl_ratio`` = exp(nll - nll_full).
    """

    source: str = ""
    reference: str = ""

    name = "fidelity"
    summary = "the full cache's predictions against a pruned one's, token by token; no labels, any text or prompts"
    version = "1"
    default_lengths = (1024,)
    default_limit = 20

    def __post_init__(self) -> None:
        if not self.source:
            return
        usual = "text" if self.source == TEXT else "answer"
        reference = self.reference or usual
        if reference not in REFERENCES:
            raise BenchmarkError(f"unknown reference {reference!r}; it is one of {', '.join(REFERENCES)}")
        name = f"{Fidelity.name}:{self.source}" + ("" if reference == usual else f":{reference}")
        own: dict[str, Any] = {"name": name, "reference": reference, "teacher_forced": reference}
        if self.source == TEXT:
            own |= {"subsets": (TEXT,), "needs_data": (TEXT,), "answer_limit": TARGET}
        else:
            source = benchmarks.registry.get(self.source)
            own |= {fact: getattr(source, fact) for fact in Benchmark.__annotations__ if fact not in OWN}
            own |= {"summary": f"fidelity on {self.source}", "version": f"{self.version}/{source.version}"}
        if reference == "repeat":
            own["answer_limit"] = None
        for fact, value in own.items():
            object.__setattr__(self, fact, value)

    def of(self, what: str) -> Benchmark:
        """``SOURCE`` or ``SOURCE:REFERENCE``."""
        source, _, reference = what.partition(":")
        if self.source or not source or source == Fidelity.name:
            raise BenchmarkError(
                f"fidelity:{what} is no benchmark; after the colon stand a benchmark or text, and perhaps a second "
                f"colon and the reference ({', '.join(REFERENCES)}), as in fidelity:needles:repeat"
            )
        return Fidelity(source, reference)

    def check(self, request: Request) -> None:
        if self.source != TEXT:
            benchmarks.registry.get(self.source).check(request)
            return
        if request.data is None:
            raise BenchmarkError(
                "fidelity:text needs --data: a text, a .jsonl file with the column text, or a folder of such files"
            )
        for length in request.lengths:
            if length < SHORTEST:
                raise BenchmarkError(f"fidelity needs --length {SHORTEST} or more, got {length}")
        if request.limit is not None and request.limit < 1:
            raise BenchmarkError(f"fidelity needs --limit 1 or more, got {request.limit}")

    def notes(self, request: Request) -> tuple[str, ...]:
        return () if self.source in ("", TEXT) else benchmarks.registry.get(self.source).notes(request)

    def samples(self, request: Request, text: Text) -> list[Sample]:
        self.check(request)
        found = self._of_texts(request, text) if self.source == TEXT else self._of_prompts(request, text)
        if self.reference == "repeat":
            contexts = {(sample.context_id, sample.subset, sample.length): sample for sample in reversed(found)}
            found = [_repeated(sample, text) for sample in reversed(contexts.values())]
        return [replace(sample, sample_id=f"{self.name}/{sample.sample_id}") for sample in found]

    def score(self, sample: Sample, prediction: str) -> Score:
        raise BenchmarkError(f"{self.name} compares distributions; it cannot be scored from the text of an answer")

    def _of_prompts(self, request: Request, text: Text) -> list[Sample]:
        found = benchmarks.registry.get(self.source).samples(request, text)
        for sample in found if self.reference == "text" else ():
            if not sample.target:
                raise BenchmarkError(
                    f"--reference text: {self.source} gives no text to read ({sample.sample_id}); use answer or repeat"
                )
        # one greedy reference, no labels
        return [replace(one, references=(), all_classes=(), sampling=None, rollouts=1) for one in found]

    def _of_texts(self, request: Request, text: Text) -> list[Sample]:
        assert request.data is not None
        documents = read_texts(request.data)
        most = self.default_limit if request.limit is None else request.limit
        found = []
        for length in request.lengths or self.default_lengths:
            streams = [windows(document, length, text) for document in documents]
            own: list[Sample] = []
            for turn in range(most):  # the first window of each document, then the second of each
                for document, stream in enumerate(streams):
                    window = next(stream, None) if len(own) < most else None
                    if window is not None:
                        own.append(self._sample(window, length, f"{TEXT}/{length}/{document}/{turn}"))
            if not own:
                raise BenchmarkError(
                    f"--data {request.data}: no text is longer than {length} tokens; give a smaller --length"
                )
            found += own
        return found

    def _sample(self, window: tuple[str, str, str], length: int, sample_id: str) -> Sample:
        context, question, target = window
        given = self.reference == "text"
        return Sample(
            sample_id=sample_id,
            context_id=content_hash(context),
            context=context,
            question=question if given else "",
            answer_prefix="",
            max_new_tokens=TARGET,
            references=(),
            subset=TEXT,
            length=length,
            chat_template=not given,
            target=target if given else None,
        )


def _repeated(sample: Sample, text: Text) -> Sample:
    tokens = min(CHUNK, len(text.encode(sample.context)) + BORDER)
    return replace(sample, question="", answer_prefix="", stop=(), target=None, max_new_tokens=tokens)


def resolve_fidelity(named: Sequence[Benchmark], reference: str | None, data: Path | None) -> list[Benchmark]:
    """The benchmarks of a run, with ``--reference`` and a default source in those that are fidelity; each once."""
    forced = [one for one in named if isinstance(one, Fidelity)]
    if reference is not None and not forced:
        raise BenchmarkError(f"--reference {reference} is for fidelity; add --benchmark fidelity, or leave it out")
    usual = DEFAULT_SOURCE if data is None else TEXT
    found = [
        Fidelity(one.source or usual, reference or one.reference) if isinstance(one, Fidelity) else one for one in named
    ]
    return list({one.name: one for one in found}.values())
