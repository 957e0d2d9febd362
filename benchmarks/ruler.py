"""RULER (Hsieh et al. 2024): 13 synthetic long-context tasks. Six are generated, all 13 run from a file of rows."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module

from benchmarks import _lmeval
from benchmarks.base import Benchmark, BenchmarkError, Request, Sample, Score, Text, content_hash
from benchmarks.frozen import frozen
from benchmarks.registry import nearest_first, register
from benchmarks.ruler_data import as_samples, read_rows
from benchmarks.ruler_tasks.plan import Draft, Filler, Plan, Stream
from benchmarks.ruler_tasks.words import wonderwords_version

SHORTEST = 1024

#: module of each subset that is generated; imported only where something is generated
FAMILIES = {
    "niah_single_1": "niah",
    "niah_multikey_2": "niah",
    "niah_multikey_3": "niah",
    "vt": "vt",
    "cwe": "cwe",
    "fwe": "fwe",
}
#: subsets where one right answer of several is enough
ANY_ANSWER = ("qa_1", "qa_2")


@register
class Ruler(Benchmark):
    """RULER's 13 subsets under NVIDIA's names.

    Generated (``FAMILIES``): texts and structure as NVIDIA/RULER c3f5e3b writes them, with the texts read from the
    installed lm-eval. Context, question and answer prefix, encoded as one text, plus the answer limit take at most
    ``length`` tokens, and one more unit (needle, noise line, word) would exceed it. The tokens of a chat template come
    on top.
    Every sample has a seed of its own, so ``limit`` N gives the first N of the same stream, whatever else is asked for.
    They are kept under the user's cache folder (:mod:`benchmarks.frozen`).

    Unlike NVIDIA's scripts: samples are filled exactly; keys, values and variables are distinct within a sample; words
    are shuffled anew for each sample (there: by one fixed permutation).

    With ``--data``: all rows of the file, or the first ``limit`` of each subset. The rows say nothing of a length: they
    are not filtered by ``--length``; a single one given is taken as their label, more are an error.

    Score: the share of the references found in the answer x 100; for qa_1 and qa_2 100 if any is found.
    """

    name = "ruler"
    summary = "13 synthetic long-context tasks: needles, variable tracking, word counts, questions"
    paper = "https://arxiv.org/abs/2404.06654"
    licence = "Apache-2.0 (NVIDIA/RULER); qa_1 and qa_2 rows CC BY-SA 4.0"
    version = "1"
    subsets = (
        "niah_single_1",
        "niah_single_2",
        "niah_single_3",
        "niah_multikey_1",
        "niah_multikey_2",
        "niah_multikey_3",
        "niah_multivalue",
        "niah_multiquery",
        "vt",
        "cwe",
        "fwe",
        "qa_1",
        "qa_2",
    )
    needs_data = tuple(name for name in subsets if name not in FAMILIES)
    default_lengths = (4096,)
    default_limit = 100

    def check(self, request: Request) -> None:
        for subset in request.subsets:
            if subset not in self.subsets:
                known = ", ".join(nearest_first(subset, self.subsets))
                raise BenchmarkError(f"ruler has no subset {subset!r}; its subsets, nearest first: {known}")
        if request.limit is not None and request.limit < 1:
            raise BenchmarkError(f"ruler needs --limit 1 or more, got {request.limit}")
        if request.data is not None:
            self._from_data(request)
        else:
            self._check_generated(request)

    def samples(self, request: Request, text: Text) -> list[Sample]:
        if request.data is not None:
            return self._from_data(request)
        self.check(request)
        count = self.default_limit if request.limit is None else request.limit
        return [
            sample
            for length in request.lengths or self.default_lengths
            for subset in self._wanted(request)
            for sample in self._stream(subset, length, request.seed, count, text)
        ]

    def score(self, sample: Sample, prediction: str) -> Score:
        answer = re.sub(r"[\x00-\x1f]", "\n", prediction.strip()).strip().lower()
        found = [reference.lower() in answer for reference in sample.references]
        if sample.subset in ANY_ANSWER:
            return Score(100.0 if any(found) else 0.0)
        return Score(100.0 * sum(found) / len(found))

    def _wanted(self, request: Request) -> list[str]:
        return [name for name in self.subsets if (name in request.subsets if request.subsets else name in FAMILIES)]

    def _check_generated(self, request: Request) -> None:
        lacking = [name for name in self.needs_data if name in request.subsets]
        if lacking:
            raise BenchmarkError(
                f"ruler cannot generate {', '.join(lacking)}: they need texts of others; give their rows with "
                f"--data FILE.jsonl, or choose from {', '.join(FAMILIES)}"
            )
        for length in request.lengths:
            if length < SHORTEST:
                raise BenchmarkError(f"ruler needs --length {SHORTEST} or more, got {length}")
        # all that can be missing is looked for before a model is loaded
        _lmeval.templates()
        wonderwords_version()

    def _from_data(self, request: Request) -> list[Sample]:
        assert request.data is not None
        if len(request.lengths) > 1:
            raise BenchmarkError(
                f"--data {request.data} holds rows of one length, got --length {request.lengths}; give one"
            )
        rows = read_rows(request.data, self.subsets)
        present = [name for name in self.subsets if any(row["task"] == name for row in rows)]
        for subset in request.subsets:
            if subset not in present:
                raise BenchmarkError(f"--data {request.data} has no rows of {subset}; it has {', '.join(present)}")
        length = request.lengths[0] if request.lengths else None
        by_subset = {name: [row for row in rows if row["task"] == name] for name in request.subsets or present}
        chosen = {id(row) for subset_rows in by_subset.values() for row in subset_rows[: request.limit]}
        return as_samples([row for row in rows if id(row) in chosen], length)

    def _stream(self, subset: str, length: int, seed: int, count: int, text: Text) -> list[Sample]:
        key = {
            "tokenizer": text.fingerprint,
            "subset": subset,
            "length": length,
            "seed": seed,
            "version": self.version,
            "wonderwords": wonderwords_version(),
            "lm_eval": _lmeval.installed_version(),
        }
        return frozen(f"ruler-{subset}-{length}", key, count, lambda: generate(subset, length, seed, count, text))


def generate(subset: str, length: int, seed: int, count: int, text: Text) -> list[Sample]:
    """The first ``count`` samples of one stream. Raises :class:`BenchmarkError` where a sample cannot be filled."""
    templates = _lmeval.templates()
    limit = templates.max_new_tokens[subset]
    stream = Stream(subset, length, seed, length - limit, text, templates)
    family = import_module(f"benchmarks.ruler_tasks.{FAMILIES[subset]}")
    plan: Callable[[Stream, int], Plan] = family.plan
    filler = Filler(stream)
    return [_sample(filler.draw(plan(stream, index)), stream, index, limit) for index in range(count)]


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
