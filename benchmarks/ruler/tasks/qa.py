"""RULER's question answering: the documents of a question among others, numbered, until the prompt is full."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.base import BenchmarkError
from benchmarks.ruler.source_texts import Corpus
from benchmarks.ruler.tasks.plan import Draft, Plan, Stream, join, lay


def plan(stream: Stream, index: int) -> Plan | None:
    """The question ``index`` of the texts; None where its own documents do not fit, so that it is left out.

    n counts documents. The question's own come first, then those near it, then any other; all n are shuffled. One that
    is so long that it would leave much of the room free is passed over.
    """
    corpus: Corpus = stream.source
    if index >= len(corpus.questions):
        raise BenchmarkError(
            f"ruler {stream.subset} at {stream.length} tokens: its texts have only {len(corpus.questions)} questions, "
            "of which those with documents that are too long are left out; use a smaller --limit"
        )
    asked = corpus.questions[index]
    rng = stream.rng(index)
    near = rng.sample(asked.near, len(asked.near))
    mine = {*asked.own, *near}
    others = [number for number in range(len(corpus.documents)) if number not in mine]
    rng.shuffle(others)

    def planned(ranked: Sequence[int]) -> Plan:
        def build(n: int) -> Draft:
            chosen = [corpus.documents[number] for number in ranked[:n]]
            stream.rng(index, "order").shuffle(chosen)
            return draft(stream, chosen, asked.query, asked.answers)

        def without(place: int) -> Plan:
            return planned([*ranked[:place], *ranked[place + 1 :]])

        return Plan(build, unit="document", least=len(asked.own), most=len(ranked), without=without)

    plan = planned([*asked.own, *near, *others])
    if len(stream.text.encode(plan.build(plan.least).prompt)) > stream.room:
        return None
    return plan


def draft(stream: Stream, documents: Sequence[str], query: str, answers: Sequence[str]) -> Draft:
    """The texts of a question on these documents."""
    texts = stream.templates
    numbered = (texts.document.format(i=number, document=text) for number, text in enumerate(documents, 1))
    context, question = lay(texts.qa, context="\n\n".join(numbered), query=query)
    return join(context, question, texts.qa_prefix, tuple(answers))
