"""RULER (Hsieh et al. 2024): 13 synthetic long-context tasks, generated for any tokenizer and length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks import lmeval_prompts
from benchmarks.base import Benchmark, BenchmarkError, Request, Sample, Score, Text, content_hash
from benchmarks.prompt_lengths import check_prompt_lengths
from benchmarks.registry import register
from benchmarks.ruler.rows import as_samples, choose, read_rows, score, slack, without_rows
from benchmarks.ruler.source_texts import SOURCES
from benchmarks.ruler.tasks.plan import Draft, Filler, Plan, Stream
from benchmarks.ruler.tasks.words import wonderwords_version
from benchmarks.sample_cache import cached_samples

#: module of each subset, in RULER's order; imported only where something is generated
FAMILIES = {
    "niah_single_1": "niah",
    "niah_single_2": "niah",
    "niah_single_3": "niah",
    "niah_multikey_1": "niah",
    "niah_multikey_2": "niah",
    "niah_multikey_3": "niah",
    "niah_multivalue": "niah",
    "niah_multiquery": "niah",
    "vt": "vt",
    "cwe": "cwe",
    "fwe": "fwe",
    "qa_1": "qa",
    "qa_2": "qa",
}

#: the paper's four categories of tasks (section 3)
CATEGORIES = {
    "retrieval": tuple(name for name, family in FAMILIES.items() if family == "niah"),
    "tracing": ("vt",),
    "aggregation": ("cwe", "fwe"),
    "qa": ("qa_1", "qa_2"),
}


@register
class Ruler(Benchmark):
    """RULER's 13 subsets under NVIDIA's names.

    Texts and structure are as NVIDIA/RULER c3f5e3b writes them, with the prompts read from the installed lm-eval.
    Context, question and answer prefix, encoded as one text, plus the answer limit take at most ``length`` tokens, and
    one more unit (word, needle, noise line, document) would exceed it. The tokens of a chat template come on top.
    Every sample has its own seed, so ``limit`` N gives the first N of the same stream, whatever else is requested.
    They are kept under the user's cache folder (:mod:`benchmarks.sample_cache`).

    Seven subsets are made from published texts (:mod:`benchmarks.ruler.source_texts`): those of a ``--data`` folder,
    or the hub's for subsets that are requested by name. Without either they are left out, and :meth:`notes` says so.

    Unlike NVIDIA's scripts: samples are filled exactly; keys, values and variables are distinct within a sample; words
    and documents are shuffled for each sample (there: by one fixed permutation, so that a question's own document
    is at the same place in all samples); sentences are found by rules (:mod:`benchmarks.ruler.tasks.essays`). Of a
    HotpotQA question's ten documents the two with the answer are taken first, so that short lengths work; from ten
    documents on there is no difference. Questions whose own documents do not fit are left out, and so are documents so
    long that they would leave more than a quarter of the room free.

    With ``--data`` FILE: all finished rows of the file, or the first ``limit`` of each subset. They are
    not filtered by ``--length``: a single one is taken as their label, and rejected if they have another length; more
    are an error.
    """

    name = "ruler"
    summary = "13 synthetic long-context tasks: needles, variable tracking, word counts, questions; at any length"
    paper = "https://arxiv.org/abs/2404.06654"
    licence = "Apache-2.0 (NVIDIA/RULER); qa_1 and qa_2 rows CC BY-SA 4.0; the essays are their author's"
    version = "2"
    subsets = tuple(FAMILIES)
    needs_data = tuple(SOURCES)
    groups = CATEGORIES
    default_lengths = (4096,)
    shortest = 1024
    default_limit = 100

    def check(self, request: Request) -> None:
        self.check_subsets(request)
        if request.data is not None and not request.data.is_dir():
            self._from_file(request.data, request)
            return
        self.check_lengths(request)
        # everything that can be missing is looked for before a model is loaded
        lmeval_prompts.templates()
        wonderwords_version()
        for subset in self._wanted(request):
            if subset in SOURCES:
                SOURCES[subset].load(request.data)

    def notes(self, request: Request) -> tuple[str, ...]:
        if request.data is not None and not request.data.is_dir():
            rows = read_rows(request.data, self.subsets) if request.optional else []
            return without_rows(rows, request, f"--data {request.data}")
        requested = request.subsets or self.subsets
        lacking = [name for name in requested if name not in self._wanted(request)]
        if not lacking:
            return ()
        files = ", ".join(dict.fromkeys(SOURCES[name].files[0] for name in lacking))
        hub = "" if request.subsets else ", or name them with --subset to take the texts from the Hugging Face hub"
        return (
            f"ruler: {len(lacking)} of {len(requested)} subsets not run because their texts are missing: "
            f"{', '.join(lacking)}. Give a folder with {files} as --data{hub}.",
        )

    def samples(self, request: Request, text: Text) -> list[Sample]:
        self.check(request)
        if request.data is not None and not request.data.is_dir():
            return self._from_file(request.data, request)
        count = request.limit or self.default_limit
        return [
            sample
            for length in request.lengths or self.default_lengths
            for subset in self._wanted(request)
            for sample in self._stream(subset, length, request, count, text)
        ]

    def check_samples(self, request: Request, samples: Sequence[Sample], text: Text) -> None:
        if request.data is None or request.data.is_dir() or not request.lengths:
            return
        remedy = "give the length that they have, or leave --length out"
        check_prompt_lengths(samples, slack, text, f"--data {request.data}", "--length says", remedy)

    def score(self, sample: Sample, prediction: str) -> Score:
        return score(sample, prediction)

    def _wanted(self, request: Request) -> list[str]:
        """The subsets named, without optional ones whose texts are missing; without names those that need no texts or
        have them in the ``--data`` folder."""
        if request.subsets:
            named = [name for name in self.subsets if name in request.subsets]
            texts = {SOURCES[name] for name in named if name in SOURCES and name in request.optional}
            lacking = {source for source in texts if source.lacking(request.data)}
            return [name for name in named if name not in request.optional or SOURCES.get(name) not in lacking] or named
        found = [name for name, source in SOURCES.items() if request.data is not None and source.found(request.data)]
        if request.data is not None and not found:
            files = ", ".join(dict.fromkeys(source.files[0] for source in SOURCES.values()))
            raise BenchmarkError(
                f"--data {request.data} has none of {files}; give a folder that has some, or a .jsonl file of finished "
                "rows"
            )
        return [name for name in self.subsets if name in found or name not in SOURCES]

    def _from_file(self, path: Path, request: Request) -> list[Sample]:
        if len(request.lengths) > 1:
            raise BenchmarkError(
                f"--data {path} has rows of one length, got --length {','.join(map(str, request.lengths))}; give one"
            )
        rows = read_rows(path, self.subsets)
        chosen = choose(rows, self.subsets, request, f"--data {path}")
        return as_samples(chosen, request.lengths[0] if request.lengths else None)

    def _stream(self, subset: str, length: int, request: Request, count: int, text: Text) -> list[Sample]:
        key = {
            "tokenizer": text.fingerprint,
            "subset": subset,
            "length": length,
            "seed": request.seed,
            "version": self.version,
            "wonderwords": wonderwords_version(),
            "lm_eval": lmeval_prompts.installed_version(),
        }
        source = None
        if subset in SOURCES:
            source, key["source"] = SOURCES[subset].load(request.data)
        return cached_samples(
            f"ruler-{subset}-{length}", key, count, lambda: generate(subset, length, request.seed, count, text, source)
        )


def generate(subset: str, length: int, seed: int, count: int, text: Text, source: Any = None) -> list[Sample]:
    """The first ``count`` samples of one stream. Raises :class:`BenchmarkError` if a sample cannot be filled.

    source   the loaded content of the subset's entry in :data:`benchmarks.ruler.source_texts.SOURCES`
    """
    templates = lmeval_prompts.templates()
    limit = templates.max_new_tokens[subset]
    stream = Stream(subset, length, seed, length - limit, text, templates, source)
    plan: Callable[[Stream, int], Plan | None] = import_module(f"benchmarks.ruler.tasks.{FAMILIES[subset]}").plan
    filler = Filler(stream)
    samples: list[Sample] = []
    index = 0
    while len(samples) < count:
        planned = plan(stream, index)
        if planned is not None:
            samples.append(_sample(filler.draw(planned), stream, index, limit))
        index += 1
    return samples


def _sample(draft: Draft, stream: Stream, index: int, limit: int) -> Sample:
    return Sample(
        sample_id=f"ruler/{stream.subset}/{stream.length}/{stream.seed}/{index}",
        context_id=content_hash(draft.context),
        context=draft.context,
        question=draft.question,
        answer_prefix=draft.answer_prefix,
        max_new_tokens=limit,
        references=draft.references,
        subset=stream.subset,
        length=stream.length,
    )
