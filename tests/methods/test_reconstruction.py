"""KVzip and KVzip+ while the context is repeated and under other tasks, against the attention of unpatched eager
forwards over context, instruction, template suffix and target."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from harness.engine.adapter import LanguageModel
from harness.engine.context import Context
from harness.engine.extra_passes import run_pass
from harness.engine.prefill import prefill
from methods.base import Generated, MethodError, ModelInfo, Observation, Pass
from methods.knorm import Knorm
from methods.kvzip import ANSWER_TOKENS, ASK, REPEAT_ALL, REPEAT_FROM, SUMMARIZE, KVzip
from methods.kvzip_plus import SMALLEST, KVzipPlus
from tests.methods.scoring import reconstruction, scores_of
from tests.tiny import VOCABULARY, greedy, some_ids, tiny

TOKENS, TEMPLATE = 40, 5
SUFFIX = (11, 12, 13)
FILE_INSTRUCTION, FILE_TARGET = "\n\nTranslate it.", "the translation"
TEXTS = {
    SUMMARIZE: [21, 22],
    ASK: [31, 32, 33],
    REPEAT_ALL: [41, 42],
    REPEAT_FROM: [43],
    FILE_INSTRUCTION: [51, 52],
    FILE_TARGET: [53, 54, 55, 56],
    "": [],
}
OPENINGS = {"summary": TEXTS[SUMMARIZE], "questions": TEXTS[ASK]}
INFO = ModelInfo("no-model", layers=3, query_heads=9, kv_heads=3, head_size=8, hidden_size=54)
#: every ninth token ends an answer, so that answers are short where their length is not the point
STOP = range(0, VOCABULARY, 9)
KINDS = [KVzip, KVzipPlus]
Kind = type[KVzip] | type[KVzipPlus]


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return tiny("llama")


def context(tokens: int = TOKENS, prefix: int = TEMPLATE, stop: Sequence[int] = STOP) -> Context:
    return Context(some_ids(tokens), prefix, SUFFIX, TEXTS.__getitem__, frozenset(stop))


def pretext_file(folder: Path, name: str = "translate.yaml", **content: Any) -> Path:
    path = folder / name
    text = yaml.safe_dump({"instruction": FILE_INSTRUCTION, "target": FILE_TARGET} | content)
    path.write_text(text, encoding="utf-8")
    return path


def reading(path: Path, kind: Kind = KVzip, **options: Any) -> KVzip | KVzipPlus:
    """A method with its pretext from a file, bound, as a run has it."""
    method = kind(pretext=str(path), **options).bind(INFO)
    assert isinstance(method, kind)
    return method


def answer_of(model: Any, ids: Sequence[int], stop: Sequence[int] = STOP, most: int = 40) -> list[int]:
    """What the unpatched model itself goes on with, up to a stop token."""
    found = greedy(model, ids, most)
    ends = [place for place, token in enumerate(found) if token in stop]
    assert ends or most == ANSWER_TOKENS
    return found[: ends[0]] if ends else found


def assert_equal(method: KVzip | KVzipPlus, scores: Tensor, expected: Tensor) -> None:
    if method.name == "kvzip_plus":
        expected = expected.clamp(min=SMALLEST).log()
    torch.testing.assert_close(scores.double(), expected, rtol=1e-5, atol=1e-5)


def assert_scores(lm: LanguageModel, method: KVzip | KVzipPlus, given: Context, new: Sequence[int]) -> None:
    """Scores of all pairs, the template's too, are those of the forward whose new tokens are ``new``."""
    expected = reconstruction(lm, given.ids, new)[method.name]
    for block_bytes in (2**29, 5000):
        assert_equal(method, scores_of(lm, method, given, block_bytes=block_bytes), expected)


def repeated(lm: LanguageModel, given: Context, method: KVzip | KVzipPlus) -> Tensor:
    """Scores by brute force of what follows the template, where the context is repeated in chunks."""
    ids, prefix, chunk, found = given.ids, given.prefix, method.chunk, []
    first = 4 if method.compat else prefix
    for start in range(prefix, len(ids), chunk):
        stop = min(len(ids), start + chunk)
        lead = ids[max(prefix, start - method.lead_in) : start]
        opening = TEXTS[REPEAT_ALL] if start == prefix else [*TEXTS[REPEAT_FROM], *lead]
        new = [*opening, *SUFFIX, *ids[start:stop]]
        found.append(reconstruction(lm, ids, new, slice(start, stop), min(first, start))[method.name])
    return torch.cat(found, dim=-1)


@pytest.mark.parametrize(
    ("tokens", "prefix", "options"),
    [
        *((TOKENS, TEMPLATE, {"chunk": chunk}) for chunk in (2048, 35, 34, 16)),
        *((TOKENS, TEMPLATE, {"chunk": 16, "lead_in": lead_in}) for lead_in in (0, 40)),
        (12, TEMPLATE, {"chunk": 1, "lead_in": 2}),  # a pass for every token; few tokens are enough
        (20, 0, {"chunk": 16}),
        *((24, prefix, {"chunk": 16, "compat": "kvpress"}) for prefix in (2, 7)),  # four sinks in the denominator
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_scores_of_the_repeated_context_equal_brute_force(
    kind: Kind, tokens: int, prefix: int, options: dict[str, Any]
) -> None:
    given, method, lm64 = context(tokens, prefix), kind(**options), tiny("llama", torch.float64)
    expected = repeated(lm64, given, method)
    for lm in (lm64, tiny("llama", torch.float32)):
        scores = scores_of(lm, method, given)
        assert (scores[..., :prefix] == (math.log(SMALLEST) if kind is KVzipPlus else 0)).all()
        assert_equal(method, scores[..., prefix:], expected)


@pytest.mark.parametrize("kind", KINDS)
def test_the_template_is_protected_and_with_kvpress_four_sinks(kind: Kind) -> None:
    for method, sure in ((kind(), 7), (kind(compat="kvpress"), 4)):
        assert method.protects().mask(24, 7).nonzero().flatten().tolist() == list(range(sure))


def test_kvzip_plus_of_values_that_add_nothing_is_the_floor() -> None:
    lm = tiny("llama")
    with torch.no_grad():
        lm.model.model.layers[1].self_attn.o_proj.weight.zero_()
    scores = scores_of(lm, KVzipPlus(), context())
    assert torch.isfinite(scores).all()
    assert (scores[1] == math.log(SMALLEST)).all() and (scores[0, :, TEMPLATE:] > -40).all()


def test_passes_cover_every_context_pair_once_and_no_template_pair() -> None:
    for cached, prefix, chunk in [(64, 5, 16), (64, 5, 59), (64, 0, 64), (6, 5, 16), (5, 5, 16), (100, 3, 1)]:
        passes = KVzip(chunk=chunk).passes(cached, prefix)
        assert passes == KVzipPlus(chunk=chunk).passes(cached, prefix)
        assert [t for extra in passes for t in range(*extra.columns)] == list(range(prefix, cached))
        for index, extra in enumerate(passes):
            assert (extra.instruction == REPEAT_ALL) == (index == 0) == (extra.lead_in is None)
            if extra.lead_in is not None:
                assert extra.lead_in == (max(prefix, extra.columns[0] - 8), extra.columns[0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pretext", ["summary", "questions"])
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_scores_from_a_generated_answer_equal_brute_force(
    kind: Kind, pretext: str, family: str, dtype: torch.dtype
) -> None:
    lm, given = tiny(family, dtype), context()
    opening = [*OPENINGS[pretext], *SUFFIX]
    answer = answer_of(lm.model, [*given.ids, *opening])
    assert_scores(lm, kind(pretext=pretext), given, [*opening, *answer])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("target", [FILE_TARGET, ""])
def test_scores_from_a_files_text_equal_brute_force(
    kind: Kind, dtype: torch.dtype, target: str, tmp_path: Path
) -> None:
    method = reading(pretext_file(tmp_path, target=target), kind)
    new = [*TEXTS[FILE_INSTRUCTION], *SUFFIX, *TEXTS[target]]
    assert_scores(tiny("llama", dtype), method, context(), new)


@pytest.mark.parametrize("place", [0, 3, 6])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_token_ends_the_answer_and_is_no_part_of_it(lm: LanguageModel, kind: Kind, place: int) -> None:
    opening = [*TEXTS[SUMMARIZE], *SUFFIX]
    stop = greedy(lm.model, [*some_ids(TOKENS), *opening], 10)[place]
    answer = answer_of(lm.model, [*some_ids(TOKENS), *opening], [stop])
    assert len(answer) == place  # none at place 0: the answer is empty
    assert_scores(lm, kind(pretext="summary"), context(stop=[stop]), [*opening, *answer])


def fed(lm: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The ids of every forward from here on."""
    forwards: list[list[int]] = []
    forward = lm.forward

    def watched(ids: Tensor, *more: Any) -> Tensor:
        forwards.append(ids[0].tolist())
        return forward(ids, *more)

    monkeypatch.setattr(lm, "forward", watched)
    return forwards


def test_the_generated_target_is_the_full_caches_own_greedy_answer(
    lm: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = [*TEXTS[ASK], *SUFFIX]
    expected = greedy(lm.model, [*some_ids(TOKENS), *opening], ANSWER_TOKENS)
    forwards = fed(lm, monkeypatch)
    scores_of(lm, KVzip(pretext="questions"), context(stop=()))
    first, *steps, last = forwards
    assert len(expected) == 128  # of an answer that does not stop
    assert first == list(some_ids(TOKENS))
    assert steps == [opening, *([token] for token in expected[:-1])]
    assert last == [*opening, *expected]


def test_methods_with_the_same_pretext_share_the_answer_and_the_forward_and_pretexts_do_not_mix(
    lm: LanguageModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = pretext_file(tmp_path)
    apart = [KVzip(chunk=16), KVzip(pretext="summary"), KVzip(pretext="questions"), reading(path)]
    apart += [KVzip(chunk=16, compat="kvpress")]
    methods = [*apart, KVzipPlus(pretext="summary"), KVzip(pretext="summary", chunk=9), KVzipPlus(chunk=16)]
    methods += [reading(path, KVzipPlus)]
    alone = {method: scores_of(lm, method, context()) for method in methods}
    answers = [answer_of(lm.model, [*some_ids(TOKENS), *opening, *SUFFIX]) for opening in OPENINGS.values()]
    forwards = fed(lm, monkeypatch)
    scored = prefill(lm, context(), methods)
    # prefill, each answer and its pass, the file's, one for each chunk
    assert len(forwards) == 1 + sum(len(answer) + 2 for answer in answers) + 1 + 3
    assert scored.failed == {} and list(scored.scores) == methods
    for method in methods:
        assert torch.equal(scored.scores[method], alone[method])
    assert not any(torch.equal(alone[one], alone[other]) for one, other in combinations(apart, 2))


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_with_the_context_as_target_repeats_it_with_the_same_instruction_for_every_chunk(
    kind: Kind, tmp_path: Path
) -> None:
    repeat = pretext_file(tmp_path, "repeat.yaml", instruction=REPEAT_ALL, target="context")
    assert reading(repeat, kind).passes(TOKENS, TEMPLATE) == kind().passes(TOKENS, TEMPLATE)
    own = reading(pretext_file(tmp_path, target="context\n"), kind, chunk=16)
    passes, repeated = (method.passes(64, 5) for method in (own, kind(chunk=16)))
    assert [one.instruction for one in passes] == [FILE_INSTRUCTION] * 4
    assert [(one.target, one.lead_in) for one in passes] == [(one.target, one.lead_in) for one in repeated]


def test_a_pass_whose_target_is_no_span_must_say_what_it_scores() -> None:
    assert Pass("", (3, 7)).columns == (3, 7) == Pass("", "text", scored=(3, 7)).columns
    with pytest.raises(MethodError, match="must say in `scored`"):
        _ = Pass("", Generated(4)).columns


class Largest(TorchDispatchMode):
    """Remembers the bytes of the largest tensor that any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for made in out if isinstance(out, tuple | list) else [out]:
            if isinstance(made, Tensor):
                self.bytes = max(self.bytes, made.numel() * made.element_size())
        return out


def test_a_pass_over_a_long_context_makes_nothing_larger_than_its_keys_and_the_byte_budget() -> None:
    lm, tokens, budget = tiny("llama", torch.float32, max_position_embeddings=2048), 1500, 2**16
    methods = [KVzip(pretext="questions"), KVzipPlus(pretext="questions")]
    given = context(tokens)
    prefix = prefill(lm, given).prefix
    (extra,) = methods[0].passes(tokens, TEMPLATE)
    scored: list[Tensor] = []

    def observe(seen: Observation) -> None:
        scored.extend(method.score_pass(seen, extra) for method in methods)

    with torch.inference_mode(), Largest() as largest:
        assert run_pass(lm, prefix, extra, 0, budget, observe) is None
    assert [scores.shape for scores in scored] == [(3, tokens)] * 6
    keys = 3 * (tokens + 40) * 8 * 4  # a layer's keys [H, T + n, d]; of all query heads they would be three times that
    assert budget < keys and largest.bytes <= keys


@pytest.mark.parametrize("tokens", [0, 1, 2])
@pytest.mark.parametrize("pretext", ["summary", "questions", "file"])
def test_empty_and_very_short_contexts_run(lm: LanguageModel, tokens: int, pretext: str, tmp_path: Path) -> None:
    path = pretext_file(tmp_path)
    methods = [reading(path, kind) if pretext == "file" else kind(pretext=pretext) for kind in KINDS]
    given = context(tokens, prefix=0)
    scored = prefill(lm, given, methods)
    assert scored.failed == {} and len(scored.scores) == 2
    if tokens:
        opening = [*(TEXTS[FILE_INSTRUCTION] if pretext == "file" else OPENINGS[pretext]), *SUFFIX]
        target = TEXTS[FILE_TARGET] if pretext == "file" else answer_of(lm.model, [*given.ids, *opening])
        for method in methods:
            assert_scores(lm, method, given, [*opening, *target])


def test_a_context_that_is_all_template_needs_no_pass(lm: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    forwards = fed(lm, monkeypatch)
    assert (scores_of(lm, KVzip(pretext="summary"), context(5)) == 0).all()
    assert len(forwards) == 1


def test_a_pass_without_positions_for_its_longest_answer_is_truncated_for_its_methods_alone() -> None:
    needed = TOKENS + len(TEXTS[SUMMARIZE]) + len(SUFFIX) + ANSWER_TOKENS
    methods = [Knorm(), KVzip(), KVzip(pretext="summary"), KVzipPlus(pretext="summary")]
    fits = prefill(tiny("llama", max_position_embeddings=needed), context(), methods)
    assert fits.failed == {} and list(fits.scores) == methods
    short = prefill(tiny("llama", max_position_embeddings=needed - 1), context(), methods)
    assert list(short.scores) == methods[:2] and list(short.failed) == methods[2:]
    for failure in short.failed.values():
        assert failure.status == "truncated"
        assert failure.reason == f"an extra pass needs {needed} positions, the model has {needed - 1}"


def test_an_answer_that_cannot_be_generated_fails_its_methods_alone(lm: LanguageModel) -> None:
    broken, failing = tiny("llama"), KVzip(pretext="summary")
    with torch.no_grad():
        broken.model.lm_head.weight[3, 3] = math.nan
    silent = Context(some_ids(TOKENS), TEMPLATE, (), lambda text: [])
    for model, given, status, reason in ((lm, silent, "error", "has no token"), (broken, context(), "nan", "")):
        scored = prefill(model, given, [failing, KVzip(), Knorm()])
        assert list(scored.scores) == [KVzip(), Knorm()]
        assert scored.failed[failing].status == status and reason in scored.failed[failing].reason


def test_other_texts_are_another_method_and_another_folder_is_the_same_one(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    first = KVzip(pretext=str(pretext_file(tmp_path))).bind(INFO)
    same = KVzip(pretext=str(pretext_file(tmp_path / "other"))).bind(INFO)
    renamed = KVzip(pretext=str(pretext_file(tmp_path, "render.yml"))).bind(INFO)
    target = KVzip(pretext=str(pretext_file(tmp_path, target="another text"))).bind(INFO)
    instruction = KVzip(pretext=str(pretext_file(tmp_path, instruction="Translate."))).bind(INFO)
    assert first == same and first.fingerprint() == same.fingerprint() == renamed.fingerprint() != ""
    assert len({first, renamed, target, instruction}) == 4
    assert len({method.fingerprint() for method in (first, target, instruction)}) == 3
    assert str(tmp_path) not in str(first.options())
    assert first.options()["pretext"].startswith("translate@")
    assert KVzip(**first.options()) == first  # as a variant's label makes it, without the file


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot be read"),
        (Path, "cannot be read"),  # a folder
        (b"instruction: [", "is not YAML in line 1: .*; give a YAML file with the keys instruction and target"),
        (b"instruction: x\n\ttarget: y", "is not YAML in line 2: "),
        (b"instruction: x\ninstruction: y\ntarget: z", "has the key instruction twice, the second time in line 2"),
        (b"\xff\xfe\xff", "is not UTF-8 text"),
        (b"", "must hold the keys instruction and target"),
        (b"- instruction\n- target", "must hold the keys instruction and target"),
        (b"target: context", "lacks the key instruction"),
        (b"instruction: Repeat.", "lacks the key target"),
        (b"instruction: Repeat.\ntarget: context\nlimit: 3", "unknown key 'limit'"),
        (b"instruction: Repeat.\ntarget:", "target must be a text, got None"),
        (b"instruction: 5\ntarget: context", "instruction must be a text, got 5"),
        (b"instruction: ' '\ntarget: context", "instruction must not be empty"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_says_something_else_is_refused_with_its_path(
    kind: Kind, content: Any, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.yaml"
    if content is Path:
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(MethodError, match=reason) as error:
        kind(pretext=str(path))
    assert f"{kind.name}.pretext: {path}" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["sumary", "", "Repeat", "mine.txt", "mine@12345"])
def test_an_unknown_pretext_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(MethodError, match=r"unknown kvzip_plus.pretext .*known, nearest first.*\.yaml or \.yml"):
        KVzipPlus(pretext=name)


def test_the_name_that_results_give_a_file_does_not_stand_for_the_file(lm: LanguageModel) -> None:
    named = KVzip(pretext="translate@0123abcd")
    with pytest.raises(MethodError, match="give the file itself"):
        named.bind(INFO)
    assert "give the file itself" in prefill(lm, context(), [named]).failed[named].reason


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pretext", ["summary", "questions", "file"])
def test_kvpress_has_only_repeat(kind: Kind, pretext: str, tmp_path: Path) -> None:
    name = str(pretext_file(tmp_path)) if pretext == "file" else pretext
    reason = kind.kvpress.lacks(kind(pretext=name, compat="kvpress"))
    assert "has only the pretext repeat" in reason and str(tmp_path) not in reason
    assert kind(pretext="repeat", compat="kvpress").passes(9, 2) == kind().passes(9, 2)
