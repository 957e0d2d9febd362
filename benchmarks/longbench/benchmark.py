"""LongBench (Bai et al. 2023): 21 subsets of real long documents in English, Chinese and code; LongBench-E has 13 of
them with lengths spread evenly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from benchmarks import lmeval_prompts
from benchmarks.base import Benchmark, BenchmarkError, Request, Sample, Score, Text, content_hash, left_out
from benchmarks.longbench import metrics
from benchmarks.longbench.prompts import answer_limit, prompt
from benchmarks.longbench.rows import PREDICTION_COLUMNS, Row, Source, from_hub
from benchmarks.registry import register

CATEGORIES = {
    "single_doc_qa": ("narrativeqa", "qasper", "multifieldqa_en", "multifieldqa_zh"),
    "multi_doc_qa": ("hotpotqa", "2wikimqa", "musique", "dureader"),
    "summarization": ("gov_report", "qmsum", "multi_news", "vcsum"),
    "few_shot": ("trec", "triviaqa", "samsum", "lsht"),
    "synthetic": ("passage_count", "passage_retrieval_en", "passage_retrieval_zh"),
    "code": ("lcc", "repobench-p"),
}
TASKS = tuple(name for names in CATEGORIES.values() for name in names)
#: prompts that show the answer's format themselves, or are code: no chat template
BARE = (*CATEGORIES["few_shot"], *CATEGORIES["code"])
METRICS: dict[str, Callable[[str, str], float]] = {
    **dict.fromkeys(("narrativeqa", "qasper", "multifieldqa_en"), metrics.qa_f1),
    **dict.fromkeys(("hotpotqa", "2wikimqa", "musique", "triviaqa"), metrics.qa_f1),
    **dict.fromkeys(("gov_report", "qmsum", "multi_news", "samsum"), metrics.rouge),
    **dict.fromkeys(("dureader", "vcsum"), metrics.rouge_zh),
    **dict.fromkeys(CATEGORIES["synthetic"], metrics.right_numbers),
    **dict.fromkeys(CATEGORIES["code"], metrics.code_similarity),
    "multifieldqa_zh": metrics.qa_f1_zh,
}


@register
class LongBench(Benchmark):
    """THUDM's rows, prompts, answer limits and metrics.

    Rows come from a folder of ``SUBSET.jsonl`` files (``--data``) or from the hub. Context + question + answer prefix
    is THUDM's prompt, character by character; the context ends with the document, and what follows it, such as the
    repeated instruction, belongs to the question. Where a chat template is used, the answer prefix opens the
    assistant's turn (THUDM leaves it in the user's). A document that is too long for the model is cut in its middle.
    Few-shot answers end after their first line. Of several references the best counts.
    """

    name = "longbench"
    summary = "21 subsets of real documents: questions, summaries, few-shot, retrieval, code; English and Chinese"
    paper = "https://arxiv.org/abs/2308.14508"
    licence = "MIT (THUDM/LongBench); the texts keep their own"
    version = "1"
    subsets = TASKS
    needs_data = subsets
    groups: Mapping[str, tuple[str, ...]] = {
        **CATEGORIES,
        "without_trec": tuple(name for name in TASKS if name != "trec"),
    }
    #: files named ``SUBSET_e.jsonl`` come first
    even: ClassVar[bool] = False

    def check(self, request: Request) -> None:
        super().check(request)
        lmeval_prompts.longbench()
        self._rows(request)

    def check_lengths(self, request: Request) -> None:
        if request.lengths:
            raise BenchmarkError(
                f"{self.name} takes no --length (got {', '.join(map(str, request.lengths))}): its documents have their "
                "own, and those that exceed the model's positions are truncated; leave --length out"
            )

    def notes(self, request: Request) -> tuple[str, ...]:
        if not request.optional:
            return ()
        source = self._source(request)
        lacking = [subset for subset in request.subsets if self._task(subset) not in source.present]
        return left_out(request, lacking, source.what)

    def samples(self, request: Request, text: Text) -> list[Sample]:
        samples = [self._sample(row) for row in self._rows(request)]
        first: dict[str, int] = {}
        for place, sample in enumerate(samples):
            first.setdefault(sample.context_id, place)
        return sorted(samples, key=lambda sample: first[sample.context_id])  # one prefill for questions on one document

    def score(self, sample: Sample, prediction: str) -> Score:
        task = self._task(sample.subset)
        answer = metrics.first_line(prediction) if task in CATEGORIES["few_shot"] else prediction
        best = max(self._metric(task, sample, answer, reference) for reference in sample.references)
        return Score(100 * min(1.0, best))

    def read_predictions(self, folder: Path) -> Iterator[tuple[Sample, str]]:
        """Rows of ``SUBSET.jsonl`` files with ``pred, answers, all_classes, length``, as THUDM's scripts write them."""
        source = Source(folder, self._tasks, self.even, "--predictions")
        for task in source.present:
            for row in source.rows(task, PREDICTION_COLUMNS):
                yield self._blank(row), row.texts[0]

    @property
    def _tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(self._task, self.subsets)))

    @staticmethod
    def _task(subset: str) -> str:
        return subset

    @staticmethod
    def _subset(row: Row) -> str:
        return row.subset

    @staticmethod
    def _metric(task: str, sample: Sample, answer: str, reference: str) -> float:
        if task in METRICS:
            return METRICS[task](answer, reference)
        return metrics.classification(answer, reference, sample.all_classes)

    def _source(self, request: Request) -> Source:
        return Source(request.data or from_hub(), self._tasks, self.even)

    def _rows(self, request: Request) -> list[Row]:
        """The first ``limit`` rows of each subset, subsets in the benchmark's order."""
        source = self._source(request)
        named = tuple(dict.fromkeys(self._task(subset) for subset in request.subsets))
        needed = {self._task(subset) for subset in request.subsets if subset not in request.optional}
        tasks = [task for task in named if task in source.present or task in needed] or named or source.present
        lacking = [task for task in tasks if task not in source.present]
        if lacking:
            raise BenchmarkError(
                f"{source.what} has no rows of {', '.join(lacking)}; it has {', '.join(source.present)}"
            )
        found: dict[str, list[Row]] = {subset: [] for subset in request.subsets or self.subsets}
        for task in tasks:
            for row in source.rows(task, limit=None if self.even else request.limit):
                found.get(self._subset(row), []).append(row)
        return [row for rows in found.values() for row in rows[: request.limit]]

    def _sample(self, row: Row) -> Sample:
        context, question, answer_prefix, document = prompt(row.subset, row.texts[1], row.texts[0])
        return Sample(
            sample_id=f"{self.name}/{row.subset}/{row.number}-{content_hash(row.texts, row.answers)}",
            context_id=content_hash(context),
            context=context,
            question=question,
            answer_prefix=answer_prefix,
            max_new_tokens=answer_limit(row.subset),
            references=row.answers,
            subset=self._subset(row),
            all_classes=row.all_classes,
            chat_template=row.subset not in BARE,
            cut_from=document,
        )

    def _blank(self, row: Row) -> Sample:
        """A sample to score with, without a prompt."""
        return Sample(
            sample_id=f"{self.name}/{row.subset}/{row.number}",
            context_id="",
            context="",
            question="",
            answer_prefix="",
            max_new_tokens=0,
            references=row.answers,
            subset=self._subset(row),
            all_classes=row.all_classes,
        )


#: LongBench-E's tasks
EVEN_TASKS = tuple(
    name
    for name in TASKS
    if not name.endswith("_zh") and name not in ("narrativeqa", "musique", "dureader", "qmsum", "vcsum", "lsht")
)
#: its lengths, in words as the rows give them, each with its upper end
BUCKETS: dict[str, int | None] = {"0-4k": 4000, "4-8k": 8000, "8k+": None}


def _even(tasks: Iterable[str], buckets: Iterable[str] = tuple(BUCKETS)) -> tuple[str, ...]:
    """LongBench-E's subsets of these tasks and lengths."""
    return tuple(f"{task}:{bucket}" for task in EVEN_TASKS if task in tasks for bucket in buckets)


@register
class LongBenchE(LongBench):
    """LongBench-E: the same prompts and metrics on rows of ``SUBSET_e.jsonl`` (or ``SUBSET.jsonl``).

    A subset is a task and a length, such as ``trec:0-4k``. ``--subset trec`` takes all three lengths of a task,
    ``--subset 0-4k`` all tasks of a length.
    """

    name = "longbench_e"
    summary = "LongBench's 13 subsets with lengths spread evenly over 0-4k, 4-8k and 8k+ words"
    subsets = _even(EVEN_TASKS)
    needs_data = subsets
    groups: Mapping[str, tuple[str, ...]] = {
        **{bucket: _even(EVEN_TASKS, (bucket,)) for bucket in BUCKETS},
        **{category: _even(tasks) for category, tasks in CATEGORIES.items()},
        "without_trec": _even(set(EVEN_TASKS) - {"trec"}),
        **{task: _even((task,)) for task in EVEN_TASKS},
    }
    even = True

    @staticmethod
    def _task(subset: str) -> str:
        return subset.partition(":")[0]

    @staticmethod
    def _subset(row: Row) -> str:
        bucket = next(name for name, end in BUCKETS.items() if end is None or row.length < end)
        return f"{row.subset}:{bucket}"
