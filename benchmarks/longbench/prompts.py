"""LongBench's prompts in THUDM's wording, split into context, question and answer prefix."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from benchmarks import lmeval_prompts
from benchmarks.base import BenchmarkError

CONTEXT, QUESTION = "{{context}}", "{{question}}"
#: white space of THUDM's prompts that lm-eval's do not have: at their end
LOST_AT_THE_END = {"passage_count": " ", "passage_retrieval_en": " ", "lcc": "\n", "repobench-p": "\n"}
#: and right after the document
LOST_AFTER_THE_DOCUMENT = {"triviaqa": "\n", "samsum": "\n"}


class Prompt(NamedTuple):
    """A row's prompt; context + question + answer prefix is THUDM's prompt, character by character.

    The context ends where the document ends, so that the instruction that most prompts repeat after it belongs to the
    question. ``document`` is the character offset in the context at which the document starts.
    """

    context: str
    question: str
    answer_prefix: str
    document: int


@cache
def template(subset: str) -> str:
    """THUDM's prompt with the fields ``{{context}}`` and ``{{question}}`` (there ``{input}``)."""
    text = lmeval_prompts.longbench()[subset].text + LOST_AT_THE_END.get(subset, "")
    text = text.replace(CONTEXT, CONTEXT + LOST_AFTER_THE_DOCUMENT.get(subset, ""))
    plain = text.replace(CONTEXT, "").replace(QUESTION, "")
    if text.count(CONTEXT) != 1 or text.count(QUESTION) > 1 or "{{" in plain or "{%" in plain:
        raise BenchmarkError(f"lm-eval's prompt of {subset} has unknown fields; {lmeval_prompts.REMEDY}")
    return text


def answer_limit(subset: str) -> int:
    """Most tokens of an answer."""
    return lmeval_prompts.longbench()[subset].max_new_tokens


def prompt(subset: str, context: str, question: str) -> Prompt:
    """A row's prompt. The answer prefix is the template's last line, from its last field on; where a field is the last
    of the template (the few-shot subsets), the last line of the row's own question."""
    head, _, tail = template(subset).partition(CONTEXT)
    asked = tail.replace(QUESTION, question)
    prefix = _last_line(tail.rpartition(QUESTION)[2] or asked)
    return Prompt(head + context, asked.removesuffix(prefix), prefix, len(head))


def _last_line(text: str) -> str:
    """The last line that is not blank, with all white space after it."""
    return text[text.rstrip().rfind("\n") + 1 :]
