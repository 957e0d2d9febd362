"""Fidelity: how far a pruned cache's predictions are from the full cache's, on any text or any benchmark's prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import benchmarks.registry
from benchmarks.base import Benchmark, BenchmarkError, Metric, Request, Sample, Score, Text, content_hash
from benchmarks.fidelity.text_windows import EXPECTED, SHORTEST, TARGET, read_texts, windows
from benchmarks.registry import register

REFERENCES = ("answer", "text", "repeat")
#: the source that is not a benchmark
TEXT = "text"
#: whose prompts are taken by default
DEFAULT_SOURCE = "needles"
#: most context tokens that are repeated in one chunk, as in the KVzip paper (arXiv 2505.23416, section 3.3); part of
#: this benchmark's definition, so independent of the chunk size of any method or model code
CHUNK = 2048
#: tokens that a chat template may add where it meets the context
BORDER = 8
#: facts that a benchmark's prompts bring along; all others are about its answers and scores
SOURCE_FACTS = (
    "licence",
    "subsets",
    "needs_data",
    "groups",
    "default_lengths",
    "default_limit",
    "default_phase",
    "query_modes",
    "thinks",
    "answer_limit",
    "shareable",
)


@register
class Fidelity(Benchmark):
    """All variants read the same reference, teacher-forced, and each predicted distribution is compared with the full
    cache's. It needs no labels and no sampling, so that few samples separate methods.

    source      a benchmark whose prompts are used (``fidelity:ruler``), or ``text``: any text, with ``--data``
    reference   ``answer``: the full cache's own greedy answer and its stop token. ``text``: a given one; with texts,
                what comes next in them. ``repeat``: the context once more, after KVzip's instruction, in chunks of
                2,048 tokens (or ``--max-new-tokens``): the KVzip paper's own test of a pruned cache.
                Default: ``text`` with texts, else ``answer``

    Texts are cut between words, about every ``--length`` + 256 tokens: at most ``--length`` of context, a word that is
    fed as it is, and at most 256 that are predicted, without a chat template. The rest of a document is not used
    if fewer than 16 tokens of it could be predicted. With ``answer`` and ``repeat`` the context alone is used, in the
    chat template.

    Score: 100 x the share of tokens for which variant and full cache find the same one most likely. Metrics of a line:
    ``kl_mean`` and ``kl_p95`` (KL(full || variant) per token in nats), ``top1`` (the score as a share), ``nll`` and
    ``nll_full`` (mean -log p of the reference's tokens), ``ppl_ratio`` = exp(nll - nll_full).
    """

    name = "fidelity"
    summary = "the full cache's predictions against a pruned one's, token by token; no labels, any text or prompts"
    version = "1"
    default_lengths = (1024,)
    default_limit = 20
    metrics = (
        Metric("kl_mean", "KL", ".4f", "KL(full ‖ pruned) per token, mean, nats", False, log_scale=True),
        Metric("kl_p95", "KL 95th", ".4f", "KL per token, 95th percentile, nats", False, log_scale=True),
        Metric("ppl_ratio", "perplexity x", ".3f", "perplexity, relative to the full cache's", False, log_scale=True),
    )

    def __init__(self, source: str = "", reference: str = "") -> None:
        self.source, self.reference = source, reference
        if not source:
            return
        default = "text" if source == TEXT else "answer"
        self.reference = self.teacher_forced = reference or default
        if self.reference not in REFERENCES:
            raise BenchmarkError(f"unknown reference {reference!r}; choose one of {', '.join(REFERENCES)}")
        self.name = f"{self.name}:{source}" + ("" if self.reference == default else f":{self.reference}")
        if source == TEXT:
            self.subsets = self.needs_data = (TEXT,)
            self.answer_limit = TARGET
            self.shortest = SHORTEST
        else:
            prompts = benchmarks.registry.get(source)
            for fact in SOURCE_FACTS:
                setattr(self, fact, getattr(prompts, fact))
            self.summary = f"fidelity on {source}"
            self.version = f"{self.version}/{prompts.version}"
        if self.reference == "repeat":
            self.answer_limit = None

    def with_suffix(self, suffix: str) -> Benchmark:
        """``SOURCE`` or ``SOURCE:REFERENCE``."""
        source, _, reference = suffix.partition(":")
        if self.source or not source or source == Fidelity.name:
            raise BenchmarkError(
                f"fidelity:{suffix} is not a benchmark; write fidelity:SOURCE or fidelity:SOURCE:REFERENCE, where the "
                f"source is a benchmark or text and the reference one of {', '.join(REFERENCES)}, as in "
                "fidelity:needles:repeat"
            )
        return Fidelity(source, reference)

    def check(self, request: Request) -> None:
        if self.source != TEXT:
            benchmarks.registry.get(self.source).check(request)
            return
        super().check(request)
        if request.data is None:
            raise BenchmarkError(f"{self.name} needs --data: {EXPECTED}")

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
        prompts = benchmarks.registry.get(self.source)
        found = prompts.samples(request, text)
        prompts.check_samples(request, found, text)
        for sample in found if self.reference == "text" else ():
            if not sample.target:
                raise BenchmarkError(
                    f"--reference text: {self.source} has no reference text ({sample.sample_id}); use answer or repeat"
                )
        # one greedy reference, no labels
        return [replace(one, references=(), all_classes=(), sampling=None, rollouts=1) for one in found]

    def _of_texts(self, request: Request, text: Text) -> list[Sample]:
        assert request.data is not None
        documents = read_texts(request.data)
        limit = request.limit or self.default_limit
        found = []
        for length in request.lengths or self.default_lengths:
            streams = [windows(document, length, text) for document in documents]
            own: list[Sample] = []
            for turn in range(limit):  # the first window of each document, then the second of each
                for document, stream in enumerate(streams):
                    window = next(stream, None) if len(own) < limit else None
                    if window is not None:
                        own.append(self._sample(window, length, f"{TEXT}/{length}/{document}/{turn}"))
            if not own:
                raise BenchmarkError(
                    f"--data {request.data}: no text is longer than {length} tokens; use a smaller --length"
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
    """The benchmarks of a run without repeats, where each fidelity has a source (by default needles, or texts if there
    is ``data``) and ``reference``, if one is given. Raises :class:`BenchmarkError` on a reference without fidelity."""
    if reference is not None and not any(isinstance(one, Fidelity) for one in named):
        raise BenchmarkError(f"--reference {reference} is for fidelity; add --benchmark fidelity, or leave it out")
    default = DEFAULT_SOURCE if data is None else TEXT
    found = [
        Fidelity(one.source or default, reference or one.reference) if isinstance(one, Fidelity) else one
        for one in named
    ]
    return list({one.name: one for one in found}.values())
