"""Prompts as token ids, split into what is cached and pruned and what is asked of it.

    context side:  template prefix + context
    question side: question + template suffix + answer prefix

The ids are those of the whole rendered message, split by character offsets, so that the full cache answers the prompt
that the model itself would be given. A token across the border between context and question belongs to the question:
what is cached holds no character of what is asked. With ``compat="kvpress"`` the two sides are tokenised apart, as
NVIDIA/kvpress does.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date
from functools import cached_property
from typing import Any, NamedTuple

from benchmarks.base import Sample, Text, content_hash
from benchmarks.thinking_tags import TAGS
from harness.engine.context import Context
from harness.errors import HarnessError

#: stands for the border between context and question while a template is rendered
BORDER = "\u241fKVPRUNE-BORDER\u241f"
#: what templates that print today's date are told, so that a command gives the same prompts on every day; it is the
#: date that Llama 3's own template falls back to
DATE = date(2024, 7, 26)


class Frame(NamedTuple):
    """The text that a chat template puts before the user's message and after it."""

    prefix: str
    suffix: str


class Split(NamedTuple):
    """One prompt: what is cached, and the ids that are asked of it (at least one).

    ends    for each token of the context side (none has been left out yet) the character at which it ends
    border  characters of the context side
    """

    context: Context
    question: tuple[int, ...]
    ends: tuple[int, ...]
    border: int

    def token_at(self, back: int) -> int:
        """The first token of the context side that ends within its last ``back`` characters."""
        return _first_after(self.ends, self.border - back)


class Prompts:
    """Turns texts into ids for one tokenizer; ``thinking`` and ``today`` are what its chat template is told.

    A template that opens a thought by itself has it closed at once where ``thinking`` is off.

    With ``compat="kvpress"`` as the pipeline of NVIDIA/kvpress 0.5.5 does: the model's template is always used; without
    one a line break follows the question, and BOS is not a prefix; the question is never trimmed.
    """

    def __init__(self, tokenizer: Any, compat: str = "", thinking: bool = False, today: date = DATE) -> None:
        if not tokenizer.is_fast:
            raise HarnessError("the tokenizer has no fast version; its token offsets are needed to find the template")
        self.tokenizer = tokenizer
        self.compat = compat
        self.thinking = thinking
        self.today = today

    def encode(self, text: str) -> list[int]:
        """Ids without special tokens added (a rendered template has its own)."""
        return self.tokenizer.encode(text, add_special_tokens=False)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of an answer, special tokens left out but for the tags around a thought, which scoring needs."""
        parts: list[list[int]] = [[]]
        for token in ids:
            if token in self._special_tags:
                parts += [[token], []]
            else:
                parts[-1].append(token)
        return "".join(
            self._special_tags.get(part[0] if part else -1) or self.tokenizer.decode(part, skip_special_tokens=True)
            for part in parts
        )

    @cached_property
    def _special_tags(self) -> dict[int, str]:
        """Tags around a thought that are special tokens, which decoding would leave out."""
        tags = {tag for pair in TAGS for tag in pair}
        added = self.tokenizer.added_tokens_decoder.items()
        return {index: token.content for index, token in added if token.special and token.content in tags}

    @cached_property
    def text(self) -> Text:
        """The tokenizer as benchmarks may use it."""
        backend = json.loads(self.tokenizer.backend_tokenizer.to_str())
        return Text(self.encode, self.decode, content_hash(backend))

    @cached_property
    def frame(self) -> Frame:
        """The chat template around a user's message; nothing where there is no template."""
        return self._render(BORDER) if self.tokenizer.chat_template else self._bare

    @property
    def _bare(self) -> Frame:
        return Frame(self.tokenizer.bos_token or "", "\n") if self.compat else Frame("", "")

    @cached_property
    def _lead(self) -> tuple[int, ...]:
        """Ids that the tokenizer itself puts before a text."""
        coded = self.tokenizer("a", return_special_tokens_mask=True)
        text = next((i for i, special in enumerate(coded["special_tokens_mask"]) if not special), 0)
        return tuple(coded["input_ids"][:text])

    def _framed(self, chat_template: bool) -> bool:
        """Whether a prompt gets the model's template, where its sample has ``chat_template``."""
        return bool(self.tokenizer.chat_template) and (chat_template or bool(self.compat))

    def _render(self, message: str) -> Frame:
        """The rendered prompt before and after the border in a user's message."""
        text = rendered(self.tokenizer, message, self.thinking, self.today)
        if text.count(BORDER) != 1:
            raise HarnessError(
                "the chat template changes or repeats the user's message, so context and question cannot be split; "
                "use a tokenizer whose template shows a message once, as it is"
            )
        before, _, after = text.partition(BORDER)
        return Frame(before, after + self._closing)

    @cached_property
    def _closing(self) -> str:
        """What ends a thought that the template opens although thinking is off, in the form of Qwen3's empty one."""
        if self.thinking or self.compat:
            return ""
        text = rendered(self.tokenizer, "?", False, self.today)
        end = open_thought(text)
        return ("\n" if text.endswith("\n") else "\n\n") + end + "\n\n" if end else ""

    def split(
        self,
        context: str,
        question: str,
        answer_prefix: str = "",
        chat_template: bool = True,
        stop_ids: frozenset[int] = frozenset(),
    ) -> Split:
        """The two sides of a prompt; ``stop_ids`` are for the extra passes on the context."""
        framed = self._framed(chat_template)
        before, after = self._sides(context, question, framed)
        if self.compat:
            return self._apart(before, after + answer_prefix, framed, stop_ids)
        coded = self._coded(before + after + answer_prefix)
        lead = () if framed else self._lead
        place = _first_after(coded.ends, len(before))
        prefix = sum(start < len(self.frame.prefix) for start in coded.starts[:place]) if framed else len(lead)
        suffix = tuple(self.encode(self.frame.suffix)) if framed else ()
        cached = Context((*lead, *coded.ids[:place]), prefix, suffix, self.encode, stop_ids)
        return Split(cached, self._asked(coded.ids[place:]), (*[0] * len(lead), *coded.ends[:place]), len(before))

    def of(self, sample: Sample, stop_ids: frozenset[int] = frozenset(), query_aware: bool = False) -> Split:
        """A sample's prompt; ``query_aware`` puts its question into the context."""
        context, question = (sample.context + sample.question, "") if query_aware else (sample.context, sample.question)
        return self.split(context, question, sample.answer_prefix, sample.chat_template, stop_ids)

    def _sides(self, context: str, question: str, framed: bool) -> Frame:
        """The rendered prompt up to where its question begins, and from there on."""
        if self.compat:
            frame = self.frame if framed else self._bare
            before = self._render(context + BORDER).prefix if framed else frame.prefix + context
            return Frame(before, question + frame.suffix)
        if not framed:
            return Frame(context, question)
        before, after = self._render(context + BORDER + question)
        if context and question:
            return Frame(before, after)
        # some templates trim a message, which the border prevents
        message = rendered(self.tokenizer, context + question, self.thinking, self.today) + self._closing
        return _around(before, after, message)

    def rendered_hash(self, sample: Sample) -> str:
        """Hash of a sample's whole rendered prompt."""
        sides = self._sides(sample.context, sample.question, self._framed(sample.chat_template))
        return content_hash(*sides, sample.answer_prefix)

    def _apart(self, before: str, after: str, framed: bool, stop_ids: frozenset[int]) -> Split:
        """The two sides as kvpress tokenises them."""
        frame = self.frame if framed else self._bare
        coded = self._coded(before)
        prefix = min(len(self.encode(frame.prefix)), len(coded.ids)) if framed else 0
        cached = Context(coded.ids, prefix, tuple(self.encode(frame.suffix)), self.encode, stop_ids)
        return Split(cached, self._asked(self.encode(after)), coded.ends, len(before))

    def _asked(self, ids: Sequence[int]) -> tuple[int, ...]:
        found = ids or self.encode("\n") or self.encode(".")
        if not found:
            raise HarnessError("the question, the template and the answer prefix are empty; nothing can be asked")
        return tuple(found)

    def _coded(self, text: str) -> _Coded:
        coded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        starts, ends = zip(*coded["offset_mapping"], strict=True) if coded["input_ids"] else ((), ())
        return _Coded(tuple(coded["input_ids"]), starts, ends)

    def context(self, text: str, chat_template: bool = True, stop_ids: frozenset[int] = frozenset()) -> Context:
        """The cached side of a prompt whose question is empty."""
        return self.split(text, "", "", chat_template, stop_ids).context

    def question(self, question: str, answer_prefix: str, chat_template: bool = True) -> tuple[int, ...]:
        """What is asked where the context is empty."""
        return self.split("", question, answer_prefix, chat_template).question

    @cached_property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end an answer: the tokenizer's end token and what the template puts after an assistant's turn."""
        ids = set() if self.tokenizer.eos_token_id is None else {int(self.tokenizer.eos_token_id)}
        if self.tokenizer.chat_template:
            turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": BORDER}]
            after = _applied(self.tokenizer, turns, self.today).partition(BORDER)[2]
            special = set(self.tokenizer.all_special_ids) | set(self.tokenizer.added_tokens_decoder)
            ids |= {token for token in self.encode(after.strip())[:1] if token in special}
        return frozenset(ids)


class _Coded(NamedTuple):
    """Ids of a text with the characters at which each starts and ends."""

    ids: tuple[int, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]


def _first_after(ends: Sequence[int], place: int) -> int:
    """The first token that ends after a character; tokens of one character's bytes share its end."""
    return next((index for index, end in enumerate(ends) if end > place), len(ends))


def _around(before: str, after: str, message: str) -> Frame:
    """The border of a message whose ends the template trimmed: as much of ``before`` as the message still has."""
    same = next((i for i, (a, b) in enumerate(zip(before, message, strict=False)) if a != b), len(before))
    start = min(same, len(message))
    return Frame(message[:start], message[start:]) if message.endswith(after.lstrip()) else Frame(before, after)


def rendered(tokenizer: Any, message: str, thinking: bool, today: date = DATE) -> str:
    """A user's message in the tokenizer's chat template, up to where the assistant's answer begins.

    Templates call the switch for thinking ``enable_thinking`` (Qwen3) or ``thinking`` (DeepSeek-V3.1, Granite); both
    are told. Those that print a date ask for it by ``strftime_now`` (Llama 3).
    """
    turns = [{"role": "user", "content": message}]
    told = {"enable_thinking": thinking, "thinking": thinking}
    return _applied(tokenizer, turns, today, add_generation_prompt=True, **told)


def _applied(tokenizer: Any, turns: list[dict[str, str]], today: date, **told: Any) -> str:
    try:
        template = tokenizer.get_chat_template()
        if "strftime_now" in template:
            template = _dated(today) + template
        return str(tokenizer.apply_chat_template(turns, chat_template=template, tokenize=False, **told))
    except Exception as error:  # templates are programs of strangers, and raise anything
        reason = " ".join(str(error).split()) or "no reason given"
        raise HarnessError(
            f"the tokenizer's chat template fails: {type(error).__name__}: {reason}; mend chat_template in "
            "tokenizer_config.json or chat_template.jinja, or give another --model"
        ) from error


def _dated(today: date) -> str:
    """A macro that takes the place of transformers' ``strftime_now``, which knows the present day alone: what is given
    to a template is made plain data, so no function of ours gets there."""
    forms = [f"%{letter}" for letter in "aAbBdeFjmuUVwWxyYDGg"]
    filters = "".join(f" | replace({form!r}, {today.strftime(form)!r})" for form in forms)
    return f"{{%- macro strftime_now(form) -%}}{{{{- form{filters} -}}}}{{%- endmacro -%}}"


def prints_date(tokenizer: Any) -> bool:
    """Whether the chat template's prompts depend on the date."""
    if not tokenizer.chat_template:
        return False
    days = (date(2001, 1, 2), date(2012, 11, 30))
    return len({rendered(tokenizer, "?", False, day) for day in days}) > 1


def open_thought(text: str) -> str:
    """The tag that ends the thought which a rendered prompt leaves open; empty where it leaves none open."""
    return next((end for start, end in TAGS if text.rfind(start) > text.rfind(end)), "")


def stop_ids(prompts: Prompts, generation_config: Any) -> frozenset[int]:
    """All ids that end an answer: the template's and the generation config's (one or a list)."""
    own = getattr(generation_config, "eos_token_id", None)
    return prompts.stop_ids | frozenset([own] if isinstance(own, int) else own or [])


def cut(text: str, stop: Sequence[str]) -> str:
    """The answer up to its first stop string."""
    places = [text.find(mark) for mark in stop if mark in text]
    return text[: min(places)] if places else text
