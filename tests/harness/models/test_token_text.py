"""The text of each token: together they read as the whole, and no character is torn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from harness.models.loading import load_tokenizer
from harness.models.token_text import HALF, pieces
from tests.harness.toys import toy_tokenizer

TEXTS = [
    "",
    "The access code of basket is: 1234567.\n\n  two  spaces\t.",
    "naïve café, 日本語のテキスト, \U0001f9ea\U0001f469\u200d\U0001f680!",
    "a\ufffdb \ufffd\ufffd",
    "é" * 40 + "\U0001f680" * 40,
    "n't 's  . , <|user|>\nhi<|end|>",
]


def metaspace() -> PreTrainedTokenizerFast:
    """A tokenizer of SentencePiece's kind, with bytes for what it does not know: the first space is not decoded."""
    core = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    core.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1),
        ]
    )
    special = ["<unk>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=special, show_progress=False)
    core.train_from_iterator(TEXTS[:2] * 3, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="</s>", unk_token="<unk>")


def decoder(tokenizer: Any) -> Callable[[Sequence[int]], str]:
    return partial(tokenizer.decode, skip_special_tokens=False, clean_up_tokenization_spaces=False)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("make", [toy_tokenizer, metaspace])
def test_pieces_join_to_the_text(make: Callable[[], PreTrainedTokenizerFast], text: str) -> None:
    tokenizer = make()
    ids = tokenizer.encode(text, add_special_tokens=False)
    found = pieces(ids, decoder(tokenizer))
    assert len(found) == len(ids)
    assert "".join(found) == decoder(tokenizer)(ids)
    if make is toy_tokenizer:
        assert "".join(found) == text
        assert HALF in text or not any(HALF in piece for piece in found)


def test_the_token_that_completes_a_character_has_it() -> None:
    tokenizer = toy_tokenizer()  # which has each byte of an emoji as a token
    ids = tokenizer.encode("a\U0001f9eab", add_special_tokens=False)
    assert pieces(ids, decoder(tokenizer)) == ["a", "", "", "", "\U0001f9ea", "b"]


def test_half_a_character_at_an_end_is_shown_as_such() -> None:
    tokenizer = toy_tokenizer()
    ids = tokenizer.encode("a\U0001f9ea", add_special_tokens=False)
    for cut in range(1, len(ids)):
        found = pieces(ids[:cut], decoder(tokenizer))
        assert "".join(found) == decoder(tokenizer)(ids[:cut])
    both = [*ids[:3], *tokenizer.encode(" b", add_special_tokens=False)]  # as where a middle is left out
    assert "".join(pieces(both, decoder(tokenizer))) == decoder(tokenizer)(both)


def test_many_marks_of_half_characters_do_not_pile_up() -> None:
    def decode(ids: Sequence[int]) -> str:
        assert len(ids) <= 200
        return HALF * len(ids)

    assert "".join(pieces(range(1000), decode)) == HALF * 1000


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_of_the_embedded_models_tokenizer(stored_model: str, text: str) -> None:
    tokenizer = load_tokenizer(stored_model)
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert "".join(pieces(ids, decoder(tokenizer))) == text
