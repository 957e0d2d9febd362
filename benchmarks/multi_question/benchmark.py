"""Several questions on one context, the case that query-agnostic pruning is meant for: SQuAD's paragraphs, or rows of a
file."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from benchmarks.base import Benchmark, BenchmarkError, Metric, Request, Sample, Score, Text, content_hash
from benchmarks.multi_question.passages import Asked, Passage, Passages, published_passages, read_passages
from benchmarks.multi_question.squad_metrics import exact_match, f1
from benchmarks.prompt_filling import largest_fit
from benchmarks.prompt_lengths import check_prompt_lengths
from benchmarks.registry import register

QUESTIONS = 5
ANSWER_ROOM = 32
#: tokens of a long paragraph, by which a finished context may be shorter than its length
PARAGRAPH = 1024

INTRO = "Answer questions about these passages with as few words as possible, taken from the passages.\n\n"
QUESTION = "Question: {question}\n"
ANSWER_PREFIX = "Answer:"


@register
class MultiQuestion(Benchmark):
    """Up to five questions on each context; subset ``qN`` has the N-th ones, so that scores can be read by position.

    From SQuAD (``--data`` with its .json files, by default the development set of version 2.0 from the hub): paragraphs
    drawn at random are joined until one more would exceed ``--length``, by the rule of RULER: context, the longest
    question and the answer prefix, encoded as one text, plus 32 tokens for the answer take at most the length. The
    tokens of a chat template come on top. The questions are drawn from as many of the paragraphs as possible; those
    without an answer are left out. Sample i does not depend on how many are requested.

    From JSON lines: rows with the same ``context`` are its questions, in the file's order, at most five; contexts stay
    as they are. A row with ``answer_prefix`` is used in its own wording; ``max_new_tokens`` replaces 32.

    ``--limit`` counts contexts. Score: F1 in SQuAD's normalisation x 100, best over the references, of the answer's
    first line; ``exact_match`` likewise.
    """

    name = "multi-question"
    summary = "up to 5 questions on each context, F1; pruned with no, each, or the first question in view"
    paper = "https://arxiv.org/abs/1806.03822"
    licence = "CC BY-SA 4.0 (SQuAD)"
    version = "1"
    subsets = tuple(f"q{number + 1}" for number in range(QUESTIONS))
    needs_data = subsets
    default_lengths = (4096,)
    shortest = 256
    default_limit = 100
    metrics = (Metric("exact_match", "exact", ".1f", "exact match"),)
    query_modes = ("agnostic", "aware", "aware-reused")

    def check(self, request: Request) -> None:
        self.check_subsets(request)
        if set(request.subsets) != set(self.subsets[: len(request.subsets)]):
            raise BenchmarkError(
                f"multi-question takes a context's questions from the first on (got --subset "
                f"{','.join(request.subsets)}); give {','.join(self.subsets[: len(request.subsets)])}"
            )
        passages = self._passages(request)
        if passages.whole and len(request.lengths) > 1:
            raise BenchmarkError(f"--data {request.data} has finished contexts; give one --length, as their label")
        if passages.whole and all(len(passage.questions) < 2 for passage in passages.found):
            raise BenchmarkError(
                f"--data {request.data}: no two rows have the same context; multi-question needs contexts with "
                "several questions"
            )
        if not passages.whole:
            self.check_lengths(request)

    def samples(self, request: Request, text: Text) -> list[Sample]:
        self.check(request)
        passages, most = self._passages(request), len(request.subsets) or QUESTIONS
        if passages.whole:
            length = request.lengths[0] if request.lengths else None
            contexts: Iterator[Passage] = iter(passages.found[: request.limit])
            return [one for i, context in enumerate(contexts) for one in _samples(context, "data", i, most, length)]
        count = request.limit or self.default_limit
        found: list[Sample] = []
        for length in request.lengths or self.default_lengths:
            joiner = Joiner(passages.found, length, request.seed, text)
            for index in range(count):
                found += _samples(joiner.context(index), f"{length}/{request.seed}", index, most, length)
        return found

    def check_samples(self, request: Request, samples: Sequence[Sample], text: Text) -> None:
        if request.lengths and self._passages(request).whole:
            remedy = "give the length that they have, or leave --length out"
            place = f"--data {request.data}"
            check_prompt_lengths(samples, lambda _: PARAGRAPH, text, place, "--length says", remedy)

    def score(self, sample: Sample, prediction: str) -> Score:
        answer = prediction.strip().partition("\n")[0].strip()
        right = 100.0 * exact_match(answer, sample.references)
        return Score(100.0 * f1(answer, sample.references), {"exact_match": right})

    def _passages(self, request: Request) -> Passages:
        return published_passages() if request.data is None else read_passages(request.data)


class Joiner:
    """Joins paragraphs into contexts of one length."""

    def __init__(self, paragraphs: Sequence[Passage], length: int, seed: int, text: Text) -> None:
        self.stream = f"multi-question/{MultiQuestion.version}/{length}/{seed}"
        self.what = f"multi-question at {length} tokens"
        self.room = length - ANSWER_ROOM
        self.encode = text.encode
        self.sizes = {asked: len(text.encode(asked.question)) for one in paragraphs for asked in one.questions}
        self.paragraphs = [one for one in paragraphs if self.cost([one]) <= self.room]
        whole = self.cost(self.paragraphs)
        if whole <= self.room or not self.paragraphs:
            raise BenchmarkError(
                f"{self.what}: the {len(self.paragraphs)} paragraphs that fit take {whole} tokens; use "
                f"{'a longer' if not self.paragraphs else 'a shorter'} --length or give more paragraphs with --data"
            )

    def cost(self, paragraphs: Sequence[Passage]) -> int:
        """Tokens of the prompt with the longest question of these paragraphs."""
        longest = max((q for one in paragraphs for q in one.questions), key=self.sizes.__getitem__, default=None)
        asked = _wording(longest) if longest else ("", "")
        return len(self.encode("".join([_joined(paragraphs), *asked])))

    def context(self, index: int) -> Passage:
        """Context ``index`` of the stream: as many paragraphs as fit, questions from different ones first."""
        rng = random.Random(f"{self.stream}/{index}")
        order = rng.sample(self.paragraphs, len(self.paragraphs))
        guess = self.room // max(1, self.cost(order[:1]))
        chosen = order[: largest_fit(lambda n: self.cost(order[:n]), self.room, guess, least=1, what=self.what)]
        decks = [rng.sample(one.questions, len(one.questions)) for one in rng.sample(chosen, len(chosen))]
        rounds = [deck[turn] for turn in range(QUESTIONS) for deck in decks if turn < len(deck)]
        return Passage(_joined(chosen), tuple(rounds[:QUESTIONS]))


def _joined(paragraphs: Sequence[Passage]) -> str:
    return INTRO + "".join(f"{one.text.strip()}\n\n" for one in paragraphs)


def _wording(asked: Asked) -> tuple[str, str]:
    """Question and answer prefix as the model reads them."""
    if asked.answer_prefix is not None:
        return asked.question, asked.answer_prefix
    return QUESTION.format(question=asked.question.strip()), ANSWER_PREFIX


def _samples(context: Passage, stream: str, index: int, most: int, length: int | None) -> Iterator[Sample]:
    for place, asked in enumerate(context.questions[:most]):
        question, prefix = _wording(asked)
        yield Sample(
            sample_id=f"multi-question/{stream}/{index}/{place}",
            context_id=content_hash(context.text),
            context=context.text,
            question=question,
            answer_prefix=prefix,
            max_new_tokens=asked.max_new_tokens or ANSWER_ROOM,
            references=asked.references,
            subset=f"q{place + 1}",
            length=length,
        )
