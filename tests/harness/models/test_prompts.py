"""Chat templates split into context and question, with toy tokenizers and with the embedded model's own."""

from __future__ import annotations

import string
from datetime import date
from typing import Any

import pytest
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import GenerationConfig, PreTrainedTokenizerFast

from harness.engine.context import Context
from harness.errors import HarnessError
from harness.models.loading import Loaded
from harness.models.prompts import BORDER, Prompts, cut, prints_date, stop_ids

MARKS = ["<s>", "</s>", "<|user|>", "<|bot|>", "<|end|>"]
CHAT = (
    "{{ bos_token }}{% for m in messages %}"
    "<|{{ 'user' if m['role'] == 'user' else 'bot' }}|>{{ m['content']%s }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|bot|>{% endif %}"
)
PLAIN, TRIMMING = CHAT.replace("%s }", " }"), CHAT.replace("%s }", " | trim }")


def letters(template: str | None = PLAIN, adds_bos: bool = True, **special: Any) -> PreTrainedTokenizerFast:
    """One token a character: it splits at every border. By default it also adds BOS to what it encodes itself."""
    table = {piece: index for index, piece in enumerate([*MARKS, "?unknown?", *string.printable])}
    backend = Tokenizer(models.WordLevel(table, unk_token="?unknown?"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in MARKS])
    if adds_bos:
        backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    made = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        **{"bos_token": "<s>", "eos_token": "</s>", **special},
        clean_up_tokenization_spaces=False,
    )
    made.chat_template = template
    return made


def whole(tokenizer: Any, message: str, answer_prefix: str = "") -> list[int]:
    """Ids of the template applied to the whole message."""
    turns = [{"role": "user", "content": message}]
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    return tokenizer.encode(text + answer_prefix, add_special_tokens=False)


def split(prompts: Prompts, context: str, question: str, answer_prefix: str = "", **more: bool) -> list[int]:
    found = prompts.split(context, question, answer_prefix, **more)
    return [*found.context.ids, *found.question]


@pytest.mark.parametrize("template", [PLAIN, TRIMMING])
@pytest.mark.parametrize("answer_prefix", ["", " The answer:"])
@pytest.mark.parametrize(
    ("context", "question"),
    [
        ("The grass is green.", "What colour?"),
        ("The grass is green. \n\n", "\n What colour?"),
        ("  indented context", "q"),
        ("\n\n\t", "q"),
        ("", "q"),
        ("only context", ""),
        ("", ""),
        ("a <|end|> inside", "and <s> here"),
    ],
)
def test_both_sides_together_are_the_template_applied_to_the_whole_message(
    template: str, answer_prefix: str, context: str, question: str
) -> None:
    tokenizer = letters(template)
    found = split(Prompts(tokenizer), context, question, answer_prefix)
    assert found == whole(tokenizer, context + question, answer_prefix)


@pytest.mark.parametrize(("context", "question"), [("", "  q"), ("ends in space ", ""), ("a", "ends in spaces \n")])
def test_white_space_at_either_end_of_the_message_stays_where_the_template_keeps_it(
    context: str, question: str
) -> None:
    tokenizer = letters(PLAIN)
    assert split(Prompts(tokenizer), context, question) == whole(tokenizer, context + question)


def test_a_template_that_trims_a_message_trims_the_end_of_the_question() -> None:
    tokenizer = letters(TRIMMING)
    assert split(Prompts(tokenizer), "a", "ends in spaces \n") == whole(tokenizer, "aends in spaces \n")


def test_a_token_that_straddles_the_border_of_the_template_counts_as_the_templates() -> None:
    tokenizer = letters(PLAIN.replace("|>{{ m", "|>:{{ m"))
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]{1,2}"), "isolated")
    made = Prompts(tokenizer).context("abcd")
    assert len(made.ids) == 5 and made.prefix == 3  # <s>, the user's mark, ":a" | "bc", "d"


STORY = "The grass is green.\n\nThe sky is blue.  What colour\tis the grass?\n"


def metaspace() -> PreTrainedTokenizerFast:
    """As Llama 2's: a blank in front of every text, blanks inside tokens, no splitting into words first."""
    backend = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    trainer = trainers.BpeTrainer(vocab_size=120, special_tokens=["<unk>", *MARKS], show_progress=False)
    backend.train_from_iterator([STORY, STORY.upper(), "[INST] [/INST]", string.printable], trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    made.chat_template = "{{ bos_token }}{% for m in messages %}[INST] {{ m['content'] }} [/INST]{% endfor %}"
    return made


def pairs_of_letters() -> PreTrainedTokenizerFast:
    """Two characters a token, so that every other border falls into a token."""
    tokenizer = letters(PLAIN)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]{1,2}"), "isolated")
    return tokenizer


@pytest.mark.parametrize("make", [metaspace, pairs_of_letters, letters])
@pytest.mark.parametrize("chat_template", [True, False])
def test_wherever_the_border_falls_the_ids_are_those_of_the_whole_message(make: Any, chat_template: bool) -> None:
    tokenizer = make()
    prompts = Prompts(tokenizer)
    ids = whole(tokenizer, STORY, " It is") if chat_template else tokenizer.encode(STORY + " It is")
    for place in range(len(STORY) + 1):
        context, question = STORY[:place], STORY[place:]
        assert split(prompts, context, question, " It is", chat_template=chat_template) == ids
        found = prompts.split(context, question, " It is", chat_template)
        assert max(found.ends, default=0) <= found.border, "no character of the question is cached"


def test_a_question_tokenised_by_itself_would_have_got_a_blank_that_the_message_lacks() -> None:
    tokenizer = metaspace()
    prompts = Prompts(tokenizer)
    context, question = "The grass is green.\n", "What colour?"
    asked = prompts.split(context, question, chat_template=False).question
    assert asked != tuple(prompts.encode(question))
    assert tokenizer.decode(asked) == question and tokenizer.decode(prompts.encode(question)) == " " + question


def test_the_token_at_a_character_counted_from_the_border_back() -> None:
    found = Prompts(pairs_of_letters()).split("abcdefg", "hij", chat_template=False)
    assert len(found.context.ids) == 4  # BOS, "ab", "cd", "ef"; "gh" is asked
    assert [found.token_at(back) for back in (1, 2, 3, 4, 7)] == [4, 3, 3, 2, 1]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("m['content'] }}{{ m['content']", "changes or repeats"),
        ("raise_exception('roles must alternate')", "roles must alternate"),
        ("m['content'] | nonsense", "nonsense"),
        ("m['content'] }}{% if %}{{ ''", "TemplateSyntaxError"),
        ("m['content'].missing.field", "UndefinedError"),
    ],
)
def test_what_a_template_cannot_do_is_one_message(content: str, told: str) -> None:
    with pytest.raises(HarnessError, match=told):
        Prompts(letters(PLAIN.replace("m['content']", content))).split("a", "b")


def test_a_template_that_prints_the_date_is_told_the_same_one_on_every_day() -> None:
    dated = PLAIN.replace("{{ bos_token }}", "{{ bos_token }}{{ strftime_now('%d %b %Y') }}:")
    prompts = Prompts(letters(dated))
    assert prompts.tokenizer.decode(prompts.context("x").ids).startswith("<s>26 Jul 2024:")
    other = Prompts(letters(dated), today=date(2025, 1, 31))
    assert other.tokenizer.decode(other.context("x").ids).startswith("<s>31 Jan 2025:")
    assert prints_date(letters(dated)) and not prints_date(letters(PLAIN)) and not prints_date(letters(None))


@pytest.mark.parametrize("template", [PLAIN, TRIMMING])
@pytest.mark.parametrize("text", ["The grass.", "  indented", "", " "])
def test_the_prefix_is_the_templates_tokens_before_the_message(template: str, text: str) -> None:
    made = Prompts(letters(template)).context(text)
    assert made.prefix == 2  # BOS and the user's mark
    assert made.suffix == tuple(whole(letters(template), "")[2:])


@pytest.mark.parametrize("template", [PLAIN, TRIMMING, None])
@pytest.mark.parametrize("adds_bos", [True, False])
@pytest.mark.parametrize("chat_template", [True, False])
def test_bos_comes_once_and_first_where_the_template_or_the_tokenizer_adds_it(
    template: str | None, adds_bos: bool, chat_template: bool
) -> None:
    tokenizer = letters(template, adds_bos)
    expected = bool(template and chat_template) or adds_bos  # this template prints BOS
    for context in ("some text", ""):
        ids = split(Prompts(tokenizer), context, "question", "answer", chat_template=chat_template)
        assert (ids[0] == tokenizer.bos_token_id) == expected
        assert ids.count(tokenizer.bos_token_id) == int(expected)


@pytest.mark.parametrize("chat_template", [True, False])
def test_without_a_template_the_context_follows_a_bare_bos(chat_template: bool) -> None:
    prompts = Prompts(letters(None))
    made = prompts.context("ab", chat_template)
    assert made.ids == (0, *prompts.encode("ab")) and (made.prefix, made.suffix) == (1, ())
    assert prompts.question("c", "d", chat_template) == tuple(prompts.encode("cd"))


def test_without_a_template_and_without_a_bos_there_is_no_prefix() -> None:
    prompts = Prompts(letters(None, adds_bos=False, bos_token=None))
    assert prompts.context("ab") == Context(tuple(prompts.encode("ab")), 0, (), prompts.encode)
    assert prompts.context("").ids == ()


def test_a_sample_that_turns_the_template_off_gets_none_of_it() -> None:
    prompts = Prompts(letters(PLAIN))
    assert split(prompts, "ab", "c", "d", chat_template=False) == [0, *prompts.encode("abcd")]
    assert prompts.context("ab", chat_template=False).suffix == ()


@pytest.mark.parametrize("template", [PLAIN, None])
@pytest.mark.parametrize("chat_template", [True, False])
def test_an_empty_question_still_asks_at_least_one_token(template: str | None, chat_template: bool) -> None:
    prompts = Prompts(letters(template))
    asked = prompts.question("", "", chat_template)
    assert len(asked) >= 1
    if template and chat_template:
        assert asked == prompts.context("x").suffix


def test_a_tokenizer_that_drops_white_space_still_asks_at_least_one_token() -> None:
    backend = Tokenizer(models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    prompts = Prompts(PreTrainedTokenizerFast(tokenizer_object=backend))
    assert prompts.encode("\n") == []
    assert len(prompts.question("", "")) >= 1


def test_thinking_is_off_where_the_template_knows_it() -> None:
    thinking = PLAIN.replace(
        "<|bot|>{% endif %}", "<|bot|>{% if enable_thinking is false %}(none){% endif %}{% endif %}"
    )
    prompts = Prompts(letters(thinking))
    assert prompts.decode(prompts.question("q", "")).endswith("(none)")


@pytest.mark.parametrize("change", ["lower", "length", "reverse"])
def test_a_template_that_changes_the_message_is_refused(change: str) -> None:
    with pytest.raises(HarnessError, match="changes or repeats the user's message"):
        Prompts(letters(PLAIN.replace("m['content']", f"m['content'] | {change}"))).context("x")


def test_a_slow_tokenizer_is_refused() -> None:
    class Slow:
        is_fast = False

    with pytest.raises(HarnessError, match="no fast version"):
        Prompts(Slow())


def test_stop_ids_are_the_end_token_the_templates_turn_end_and_the_generation_configs() -> None:
    tokenizer = letters(PLAIN)
    end, turn_end, bot = (tokenizer.convert_tokens_to_ids(mark) for mark in ("</s>", "<|end|>", "<|bot|>"))
    assert Prompts(tokenizer).stop_ids == {end, turn_end}
    assert stop_ids(Prompts(tokenizer), GenerationConfig(eos_token_id=bot)) == {end, turn_end, bot}
    assert stop_ids(Prompts(tokenizer), GenerationConfig(eos_token_id=[bot, 50])) == {end, turn_end, bot, 50}
    assert stop_ids(Prompts(tokenizer), GenerationConfig()) == {end, turn_end}
    assert stop_ids(Prompts(tokenizer), None) == {end, turn_end}


def test_stop_ids_hold_an_end_token_with_id_0() -> None:
    assert stop_ids(Prompts(letters(None, eos_token="<s>")), GenerationConfig(eos_token_id=0)) == {0}


def test_plain_text_after_an_assistants_turn_is_no_stop() -> None:
    tokenizer = letters(PLAIN.replace("<|end|>\n", "\nnext"), eos_token=None)
    assert Prompts(tokenizer).stop_ids == frozenset()
    assert Prompts(letters(None, eos_token=None)).stop_ids == frozenset()


def test_a_decoded_answer_holds_no_special_token() -> None:
    tokenizer = letters(PLAIN)
    ids = tokenizer.encode("<|bot|>Green <|end|>\n</s>", add_special_tokens=False)
    assert Prompts(tokenizer).decode(ids) == "Green \n"


def test_the_fingerprint_tells_tokenizers_apart_and_repeats() -> None:
    one, same, other = (Prompts(made).text for made in (letters(), letters(), letters(adds_bos=False)))
    assert one.fingerprint == same.fingerprint != other.fingerprint
    assert one.decode(one.encode("a b")) == "a b"


@pytest.mark.parametrize(
    ("text", "stop", "left"),
    [
        ("Green.\nNext", ("\n",), "Green."),
        ("a STOP b END", ("END", "STOP"), "a "),
        ("nothing here", ("\n", "STOP"), "nothing here"),
        ("no marks", (), "no marks"),
        ("\nGreen", ("\n",), ""),
        ("aXYb", ("XYb", "XY"), "a"),
        ("", ("\n",), ""),
    ],
)
def test_cut_ends_an_answer_before_its_first_stop_string(text: str, stop: tuple[str, ...], left: str) -> None:
    assert cut(text, stop) == left


@pytest.mark.real_model
def test_the_embedded_models_tokenizer_and_template(smollm2: Loaded) -> None:
    tokenizer, prompts = smollm2.tokenizer, Prompts(smollm2.tokenizer)
    assert len(prompts.encode("The grass is green.")) == 5
    assert prompts.decode(prompts.encode("The grass is green.")) == "The grass is green."
    context, question, answer_prefix = "The grass is green. The sky is blue.\n", "What colour is grass?", "It is"
    made = prompts.context(context)
    found = split(prompts, context, question, answer_prefix)
    assert found == whole(tokenizer, context + question, answer_prefix)
    before = tokenizer.decode(made.ids[: made.prefix])
    assert before.endswith("<|im_start|>user\n") and before.count("<|im_start|>") == 2
    assert tokenizer.decode(made.ids[made.prefix :]) == context
    assert tokenizer.decode(made.suffix) == "<|im_end|>\n<|im_start|>assistant\n"
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert end in stop_ids(prompts, smollm2.lm.model.generation_config)
    assert BORDER not in tokenizer.decode(found)
