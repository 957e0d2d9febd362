"""Prompts as token ids, split into what is cached and pruned and what is asked of it.

    context side:  template prefix + context
    question side: question + template suffix + answer prefix

The two sides are tokenised apart, for the control as for every variant, because a pruned cache cannot know what
comes next. Where the tokenizer splits at the border anyway, the ids equal those of the whole message.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

from benchmarks.base import Text, content_hash
from benchmarks.thinking_tags import TAGS
from harness.engine.context import Context
from harness.errors import HarnessError

#: stands for the border between context and question while a template is rendered
BORDER = "\u241fKVPRUNE-BORDER\u241f"


class Frame(NamedTuple):
    """The text that a chat template puts before the user's message and after it."""

    prefix: str
    suffix: str


class Prompts:
    """Turns texts into ids for one tokenizer; ``thinking`` is what its chat template is told.

    With ``compat="kvpress"`` as the pipeline of NVIDIA/kvpress 0.5.5 does: the model's template is always used; without
    one a line break follows the question, and BOS is not a prefix; the question is never trimmed.
    """

    def __init__(self, tokenizer: Any, compat: str = "", thinking: bool = False) -> None:
        if not tokenizer.is_fast:
            raise HarnessError("the tokenizer has no fast version; its token offsets are needed to find the template")
        self.tokenizer = tokenizer
        self.compat = compat
        self.thinking = thinking

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
        """The chat template around a user's message; a bare BOS where there is no template."""
        if not self.tokenizer.chat_template:
            return self._bare
        return self._render(BORDER)

    @property
    def _bare(self) -> Frame:
        return Frame(self.tokenizer.bos_token or "", "\n" if self.compat else "")

    def _framed(self, chat_template: bool) -> bool:
        """Whether a prompt gets the model's template, where its sample has ``chat_template``."""
        return bool(self.tokenizer.chat_template) and (chat_template or bool(self.compat))

    def _render(self, message: str) -> Frame:
        turns = [{"role": "user", "content": message}]
        text = self.tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=True, enable_thinking=self.thinking
        )
        before, border, after = text.partition(BORDER)
        if not border:
            raise HarnessError("the chat template changes the user's message; context and question cannot be split")
        return Frame(before, after)

    def context(self, text: str, chat_template: bool = True, stop_ids: frozenset[int] = frozenset()) -> Context:
        """The cached side: template prefix and context; the template's suffix and ``stop_ids`` are for extra passes."""
        framed = self._framed(chat_template)
        frame = self.frame if framed else self._bare
        # Rendered with the context inside, since some templates trim a message
        left = self._render(text + BORDER).prefix if framed else frame.prefix + text
        coded = self.tokenizer(left, add_special_tokens=False, return_offsets_mapping=True)
        prefix = sum(start < len(frame.prefix) for start, _ in coded["offset_mapping"])
        if self.compat:
            prefix = min(len(self.encode(frame.prefix)), len(coded["input_ids"])) if framed else 0
        return Context(tuple(coded["input_ids"]), prefix, tuple(self.encode(frame.suffix)), self.encode, stop_ids)

    def question(self, question: str, answer_prefix: str, chat_template: bool = True) -> tuple[int, ...]:
        """The side that is asked of a pruned cache; never empty."""
        if self.compat:
            text = question + (self.frame if self._framed(chat_template) else self._bare).suffix
        elif self._framed(chat_template):
            text = self._render(BORDER + question).suffix  # with the question inside, since some templates trim it
        else:
            text = question
        ids = self.encode(text + answer_prefix) or self.encode("\n") or self.encode(".")
        if not ids:
            raise HarnessError("the question, the template and the answer prefix are empty; nothing can be asked")
        return tuple(ids)

    @cached_property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end an answer: the tokenizer's end token and what the template puts after an assistant's turn."""
        ids = set() if self.tokenizer.eos_token_id is None else {int(self.tokenizer.eos_token_id)}
        if self.tokenizer.chat_template:
            turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": BORDER}]
            after = self.tokenizer.apply_chat_template(turns, tokenize=False).partition(BORDER)[2]
            special = set(self.tokenizer.all_special_ids) | set(self.tokenizer.added_tokens_decoder)
            ids |= {token for token in self.encode(after.strip())[:1] if token in special}
        return frozenset(ids)


def stop_ids(prompts: Prompts, generation_config: Any) -> frozenset[int]:
    """All ids that end an answer: the template's and the generation config's (one or a list)."""
    own = getattr(generation_config, "eos_token_id", None)
    return prompts.stop_ids | frozenset([own] if isinstance(own, int) else own or [])


def cut(text: str, stop: Sequence[str]) -> str:
    """The answer up to its first stop string."""
    places = [text.find(mark) for mark in stop if mark in text]
    return text[: min(places)] if places else text
