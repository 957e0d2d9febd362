"""Thinking: what a chat template can do, what a run makes of it, what of an answer is scored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken

from benchmarks.base import Benchmark, Score
from harness.engine.decode import Answer
from harness.errors import HarnessError
from harness.evaluation import evaluator as runner
from harness.evaluation.evaluator import Evaluator
from harness.models.prompts import Prompts
from harness.models.thinking import ability, check_samples, resolve
from tests.harness.driving import evaluate, some
from tests.harness.toys import TEMPLATE, Toy, toy_tokenizer

ASK = "{% if add_generation_prompt %}<|assistant|>\n"
SWITCH = TEMPLATE.replace(ASK, ASK + "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}")
ALWAYS = TEMPLATE.replace(ASK, ASK + "<think>\n")
STRIPS = TEMPLATE.replace("turn['content']", "turn['content'].split('</think>')[-1]")
UNKNOWN = TEMPLATE.replace(ASK, ASK + "{% if enable_thinking %}Ponder:{% endif %}")


class Thinker(Toy):
    name = "thinker"
    thinks = True


def tokenizer(template: str | None, added: bool = False, special: bool = False) -> Any:
    made = toy_tokenizer()
    made.chat_template = template
    if added:
        made.add_tokens([AddedToken(tag, special=special, normalized=False) for tag in ("<think>", "</think>")])
    return made


@pytest.mark.parametrize(
    ("template", "added", "able"),
    [
        (None, True, "none"),
        (TEMPLATE, False, "none"),
        (TEMPLATE, True, "tag"),
        (STRIPS, False, "tag"),
        (SWITCH, False, "switch"),
        (SWITCH, True, "switch"),
        (ALWAYS, True, "always"),
        (ALWAYS, False, "none"),  # a thought that no known tag ends cannot be told from the answer
        (UNKNOWN, False, "none"),
    ],
)
def test_what_a_template_can_do(template: str | None, added: bool, able: str) -> None:
    assert ability(tokenizer(template, added)) == able


@pytest.mark.parametrize(
    ("able", "asked", "thinker", "thinks"),
    [
        ("switch", "auto", True, True),
        ("switch", "auto", False, False),
        ("switch", "on", False, True),
        ("switch", "off", True, False),
        ("always", "auto", True, True),
        ("always", "on", True, True),
        ("tag", "auto", True, False),
        ("always", "off", True, False),
        ("none", "auto", True, False),
        ("none", "off", True, False),
    ],
)
def test_what_was_asked_becomes_a_fact(able: str, asked: str, thinker: bool, thinks: bool) -> None:
    made = {"switch": (SWITCH, True), "always": (ALWAYS, True), "tag": (STRIPS, True), "none": (TEMPLATE, False)}
    wanted: list[Benchmark] = [Thinker() if thinker else Toy()]
    assert resolve(asked, wanted, tokenizer(*made[able]), "m") is thinks


def test_what_a_template_cannot_do_is_refused() -> None:
    with pytest.raises(HarnessError, match=r"--thinking on: the chat template of 'm' has no end-of-thought tag"):
        resolve("on", [Thinker()], tokenizer(TEMPLATE), "m")
    for deaf in (STRIPS, TEMPLATE.replace("{% for", "{% set ignored = enable_thinking %}{% for")):
        with pytest.raises(
            HarnessError, match=r"--thinking on: the chat template of 'm' gives the same prompt without"
        ):
            resolve("on", [Thinker()], tokenizer(deaf, added=True), "m")
    with pytest.raises(HarnessError, match=r"would be on for thinker alone, but a run has one setting: give on or off"):
        resolve("auto", [Thinker(), Toy()], tokenizer(SWITCH), "m")
    assert resolve("auto", [Thinker(), Toy()], tokenizer(TEMPLATE), "m") is False


def test_thinking_forbids_a_forced_start_of_the_answer() -> None:
    forced, free, bare = (
        some(1)[0],
        some(1, answer_prefix="")[0],
        some(1, answer_prefix="", chat_template=False)[0],
    )
    check_samples(True, [free])
    check_samples(False, [forced, bare])
    with pytest.raises(
        HarnessError, match=r"toy forces the start of the answer \(toy/red/40/0/0\); use --thinking off"
    ):
        check_samples(True, [free, forced])
    with pytest.raises(HarnessError, match="toy leaves the chat template out"):
        check_samples(True, [bare])


@pytest.mark.parametrize(
    ("template", "on", "off"),
    [
        (SWITCH, "", "<think>\n\n</think>\n\n"),
        (SWITCH.replace("enable_thinking", "thinking"), "", "<think>\n\n</think>\n\n"),
        (ALWAYS, "<think>\n", "<think>\n\n</think>\n\n"),
        (ALWAYS.replace("<think>\n", "<think>"), "<think>", "<think>\n\n</think>\n\n"),
    ],
)
def test_a_run_that_thinks_and_one_that_does_not_have_different_prompts(template: str, on: str, off: str) -> None:
    asked = [Prompts(tokenizer(template), thinking=thinking).split("c", "q?", "So") for thinking in (True, False)]
    texts = [tokenizer(template).decode(one.question) for one in asked]
    assert texts == [f"q?<|end|>\n<|assistant|>\n{thought}So" for thought in (on, off)]
    assert asked[0].context.ids == asked[1].context.ids


@pytest.mark.parametrize("special", [True, False])
def test_the_tags_of_a_thought_survive_decoding(special: bool) -> None:
    prompts = Prompts(tokenizer(SWITCH, added=True, special=special))
    ids = prompts.encode("<think>The code.</think> The rain<|end|>")
    assert prompts.tokenizer.convert_tokens_to_ids("</think>") in ids
    assert prompts.decode(ids) == "<think>The code.</think> The rain"
    assert prompts.decode([]) == ""


class Kept(Toy):
    """Keeps what it was given to score."""

    seen: tuple[str, ...] = ()

    def score(self, sample: Any, prediction: str) -> Score:
        type(self).seen += (prediction,)
        return Score(0.0)


@pytest.mark.parametrize(
    ("text", "thinking", "scored"),
    [
        ("<think>one</think>two", True, "two"),
        ("one</think>two", True, "two"),
        ("one and two", True, ""),
        ("<think>one</think>two", False, "<think>one</think>two"),
        ("one and two", False, "one and two"),
    ],
)
def test_only_what_follows_the_thought_is_scored_and_all_of_it_is_stored(
    evaluator: Callable[..., Evaluator], monkeypatch: pytest.MonkeyPatch, text: str, thinking: bool, scored: str
) -> None:
    made = evaluator("full", thinking=thinking)
    ids = tuple(made.prompts.encode(text))
    monkeypatch.setattr(runner, "decode_all", lambda *_: [[Answer(ids, "length", len(ids), (9,) * len(ids))]])
    Kept.seen = ()
    (item,) = some(1)
    (line,) = evaluate(made, [item._replace(benchmark=Kept())])
    assert (Kept.seen, line.prediction, line.thinking) == ((scored,), text, thinking)
    assert line.variant == ("full thinking" if thinking else "full")


def test_an_answer_cut_off_in_its_thought_is_unanswered(evaluator: Callable[..., Evaluator], tmp_path: Path) -> None:
    import benchmarks.registry

    benchmark = benchmarks.registry.get("aime25")
    (item,) = some(1, references=("5",))
    assert benchmark.score(item.sample, "<think>maybe \\boxed{5}").metrics["answered"] == 0
    assert benchmark.score(item.sample, "<think>maybe</think> \\boxed{5}").score == 100
