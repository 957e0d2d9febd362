"""Every method's score on 64 tokens against its formula written out by brute force (9 query heads over 3 KV heads)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from harness.engine.adapter import LanguageModel
from harness.engine.context import Context
from harness.engine.prefill import prefill
from methods.base import Method, MethodError, Observation, Pass
from methods.knorm import Knorm
from methods.kvzip import REPEAT_ALL, REPEAT_FROM, KVzip
from methods.kvzip_plus import SMALLEST, KVzipPlus
from methods.random import Random
from methods.streaming_llm import StreamingLLM
from tests.methods.scoring import scores_of
from tests.tiny import Plain, Seen, some_ids, tiny

TOKENS, TEMPLATE = 64, 5
SUFFIX = (11, 12, 13)
INSTRUCTIONS = {REPEAT_ALL: [21, 22], REPEAT_FROM: [31, 32, 33, 34]}


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return tiny("llama", torch.float32)


@pytest.fixture(scope="module")
def lm64() -> LanguageModel:
    return tiny("llama", torch.float64)


def context(tokens: int = TOKENS, prefix: int = TEMPLATE) -> Context:
    return Context(some_ids(tokens), prefix, SUFFIX, INSTRUCTIONS.__getitem__)


def score(lm: LanguageModel, method: Method, given: Context | None = None, **more: int) -> Tensor:
    return scores_of(lm, method, given or context(), **more)


def reconstruction(
    lm: LanguageModel, ids: Sequence[int], prefix: int, chunk: int, lead_in: int, first: int | None = None
) -> list[dict[str, Tensor]]:
    """For each layer ``kvzip`` and ``kvzip_plus`` scores ``[H, T]`` in float64, NaN where no pass scores.

    Each pass is one forward of the plain Llama over the dense cache. The softmax and both maxima are loops. ``first``
    is how many of the first pairs are in the denominator, by default the template's.
    """
    plain = Plain(lm.model)
    _, cache = plain.forward(ids)
    past = plain.gathered(cache, torch.ones(lm.info.layers, lm.info.kv_heads, len(ids), dtype=torch.bool))
    found = [
        {
            name: torch.full((lm.info.kv_heads, len(ids)), math.nan, dtype=torch.float64)
            for name in ("kvzip", "kvzip_plus")
        }
        for _ in range(lm.info.layers)
    ]
    for start in range(prefix, len(ids), chunk):
        stop = min(len(ids), start + chunk)
        if start == prefix:
            tokens = [*INSTRUCTIONS[REPEAT_ALL], *SUFFIX, *ids[start:stop]]
        else:
            lead = ids[max(prefix, start - lead_in) : start]
            tokens = [*INSTRUCTIONS[REPEAT_FROM], *lead, *SUFFIX, *ids[start:stop]]
        _, seen = plain.forward(tokens, len(ids), past)
        for layer, one in enumerate(seen):
            weight = lm.model.model.layers[layer].self_attn.o_proj.weight
            _one_pass(found[layer], one, weight, prefix if first is None else min(first, start), start, stop)
    return found


def _one_pass(found: dict[str, Tensor], seen: Seen, projection: Tensor, prefix: int, start: int, stop: int) -> None:
    query_heads, new, size = seen.queries.shape
    group = query_heads // len(seen.keys)
    cached = seen.keys[0].shape[0] - new
    for head in range(len(seen.keys)):
        plain, plus = torch.zeros(stop - start).double(), torch.zeros(stop - start).double()
        for query in range(head * group, (head + 1) * group):
            for j in range(new):
                columns = [*range(prefix), *range(start, stop), *range(cached, cached + j + 1)]
                logits = seen.keys[head][columns].double() @ seen.queries[query, j].double() / math.sqrt(size)
                weights = logits.softmax(dim=0)[prefix : prefix + stop - start]
                values = seen.values[head][start:stop].double()
                columns_of_head = projection[:, query * size : (query + 1) * size].double()
                added = (values @ columns_of_head.T).norm(dim=-1)
                plain = torch.maximum(plain, weights)
                plus = torch.maximum(plus, weights * added / seen.hidden[j].double().norm())
        found["kvzip"][head, start:stop] = plain
        found["kvzip_plus"][head, start:stop] = plus


def test_the_plain_llama_is_the_unpatched_model(lm64: LanguageModel) -> None:
    ids = some_ids(TOKENS)
    hidden, _ = Plain(lm64.model).forward(ids)
    with torch.inference_mode():
        expected = lm64.model.model(torch.tensor([ids])).last_hidden_state[0]
    torch.testing.assert_close(hidden, expected, rtol=0, atol=1e-9)


def test_knorm_is_minus_the_norm_of_each_key(lm: LanguageModel) -> None:
    _, seen = Plain(lm.model).forward(some_ids(TOKENS))
    scores = score(lm, Knorm())
    for layer, head, place in [(la, h, t) for la in range(3) for h in range(3) for t in range(TOKENS)]:
        norm = math.sqrt(sum(x * x for x in seen[layer].keys[head][place].tolist()))
        assert scores[layer, head, place].item() == pytest.approx(-norm, abs=1e-5)


def test_streaming_llm_ranks_by_age_and_keeps_its_four_sinks_whatever_the_flags(lm: LanguageModel) -> None:
    scores = score(lm, StreamingLLM())
    assert scores.dtype == torch.float32
    assert (scores.diff(dim=-1) > 0).all()
    assert torch.equal(scores, scores[:1, :1].expand_as(scores))
    assert StreamingLLM.mechanism.mask(TOKENS, TEMPLATE).nonzero().flatten().tolist() == [0, 1, 2, 3]


def test_random_is_uniform_differs_by_layer_head_context_and_seed_and_repeats(lm: LanguageModel) -> None:
    scores = score(lm, Random())
    assert torch.equal(scores, score(lm, Random()))
    assert (scores >= 0).all() and (scores < 1).all()
    assert abs(scores.mean().item() - 0.5) < 0.05 and abs(scores.var().item() - 1 / 12) < 0.02
    assert scores.flatten().unique().numel() == scores.numel()
    other_context = Context((*some_ids(TOKENS - 1), 0), TEMPLATE, SUFFIX, INSTRUCTIONS.__getitem__)
    for changed in (score(lm, Random(), seed=1), score(lm, Random(), other_context)):
        assert (changed != scores).float().mean() > 0.99


def test_random_does_not_depend_on_which_methods_are_scored_beside_it(lm: LanguageModel) -> None:
    beside = prefill(lm, context(), [Knorm(), KVzip(), Random(), StreamingLLM()]).scores[Random()]
    assert torch.equal(beside, score(lm, Random()))


def test_random_does_not_touch_the_global_random_state(lm: LanguageModel) -> None:
    before = torch.random.get_rng_state()
    score(lm, Random())
    assert torch.equal(torch.random.get_rng_state(), before)


CHUNKS = [(2048, 8), (16, 8), (16, 0), (16, 40), (59, 8), (58, 8), (1, 2)]


@pytest.mark.parametrize(("chunk", "lead_in"), CHUNKS)
@pytest.mark.parametrize("kind", [KVzip, KVzipPlus])
def test_reconstruction_scores_equal_brute_force(
    lm: LanguageModel, lm64: LanguageModel, kind: type[KVzip] | type[KVzipPlus], chunk: int, lead_in: int
) -> None:
    if chunk == 1:  # a pass for every token; few tokens are enough
        given, ids = context(12), some_ids(12)
    else:
        given, ids = context(), some_ids(TOKENS)
    method = kind(chunk=chunk, lead_in=lead_in)
    expected = torch.stack([layer[kind.name] for layer in reconstruction(lm64, ids, TEMPLATE, chunk, lead_in)])
    for model in (lm64, lm):
        scores = score(model, method, given).double()
        if kind is KVzipPlus:
            assert (scores[..., :TEMPLATE] == torch.tensor(math.log(SMALLEST)).double()).all()
            scores = scores.exp()
        else:
            assert (scores[..., :TEMPLATE] == 0).all()
        torch.testing.assert_close(scores[..., TEMPLATE:], expected[..., TEMPLATE:], rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [KVzip, KVzipPlus])
def test_without_a_template_the_whole_context_is_scored(
    lm64: LanguageModel, kind: type[KVzip] | type[KVzipPlus]
) -> None:
    expected = torch.stack([layer[kind.name] for layer in reconstruction(lm64, some_ids(20), 0, 16, 8)])
    scores = score(lm64, kind(chunk=16, lead_in=8), context(20, prefix=0)).double()
    found = scores.exp() if kind is KVzipPlus else scores
    torch.testing.assert_close(found, expected, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("prefix", [2, 7])
@pytest.mark.parametrize("kind", [KVzip, KVzipPlus])
def test_compat_kvpress_has_four_sinks_in_the_denominator_and_as_protection(
    lm64: LanguageModel, kind: type[KVzip] | type[KVzipPlus], prefix: int
) -> None:
    method = kind(chunk=16, compat="kvpress")
    found = reconstruction(lm64, some_ids(24), prefix, 16, 8, first=4)
    expected = torch.stack([layer[kind.name] for layer in found])[..., prefix:]
    scores = score(lm64, method, context(24, prefix=prefix)).double()[..., prefix:]
    torch.testing.assert_close(scores.exp() if kind is KVzipPlus else scores, expected, rtol=2e-5, atol=1e-5)
    assert method.protects().mask(24, 7).nonzero().flatten().tolist() == [0, 1, 2, 3]
    assert kind().protects().mask(24, 7).nonzero().flatten().tolist() == list(range(7))


def test_methods_of_both_choices_do_not_mix_in_one_pass(lm64: LanguageModel) -> None:
    methods = [KVzip(chunk=16), KVzip(chunk=16, compat="kvpress")]
    together = prefill(lm64, context(), methods).scores
    assert not torch.equal(together[methods[0]], together[methods[1]])
    for method in methods:
        assert torch.equal(together[method], score(lm64, method))


def test_kvzip_plus_is_a_natural_logarithm_with_a_floor(lm64: LanguageModel) -> None:
    expected = torch.stack([layer["kvzip_plus"] for layer in reconstruction(lm64, some_ids(TOKENS), TEMPLATE, 2048, 8)])
    scores = score(lm64, KVzipPlus())[..., TEMPLATE:].double()
    torch.testing.assert_close(scores, expected[..., TEMPLATE:].log(), rtol=0, atol=1e-5)


def test_kvzip_plus_of_a_value_that_adds_nothing_is_the_floor() -> None:
    lm = tiny("llama", torch.float32)
    with torch.no_grad():
        lm.model.model.layers[1].self_attn.o_proj.weight.zero_()
    scores = score(lm, KVzipPlus())
    assert torch.isfinite(scores).all()
    assert (scores[1] == math.log(SMALLEST)).all() and (scores[0, :, TEMPLATE:] > -40).all()


@pytest.mark.parametrize("block_bytes", [1, 5000, 40_000])
@pytest.mark.parametrize("kind", [KVzip, KVzipPlus])
def test_reconstruction_scores_do_not_depend_on_the_byte_budget(
    lm64: LanguageModel, kind: type[KVzip] | type[KVzipPlus], block_bytes: int
) -> None:
    whole = score(lm64, kind(chunk=16))
    torch.testing.assert_close(score(lm64, kind(chunk=16), block_bytes=block_bytes), whole, rtol=0, atol=2e-6)


def test_passes_cover_every_context_pair_once_and_no_template_pair() -> None:
    for cached, prefix, chunk in [(64, 5, 16), (64, 5, 59), (64, 0, 64), (6, 5, 16), (5, 5, 16), (100, 3, 1)]:
        passes = KVzip(chunk=chunk).passes(cached, prefix)
        covered = [t for extra in passes for t in range(*extra.target)]
        assert covered == list(range(prefix, cached))
        for index, extra in enumerate(passes):
            assert (extra.instruction == REPEAT_ALL) == (index == 0) == (extra.lead_in is None)
            if extra.lead_in is not None:
                assert extra.lead_in == (max(prefix, extra.target[0] - 8), extra.target[0])


def test_kvzip_and_kvzip_plus_ask_for_the_same_passes() -> None:
    assert KVzip(chunk=16).passes(64, 5) == KVzipPlus(chunk=16).passes(64, 5)
    assert KVzip(chunk=16).passes(64, 5) != KVzipPlus(chunk=17).passes(64, 5)


def test_a_pass_that_is_shared_runs_once_and_gives_what_each_method_gets_alone(
    lm: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    methods = [KVzip(chunk=16), KVzipPlus(chunk=16)]
    alone = {method: score(lm, method) for method in methods}
    forwards: list[tuple[int, ...]] = []
    forward = lm.forward
    monkeypatch.setattr(lm, "forward", lambda ids, *more: forwards.append(tuple(ids.shape)) or forward(ids, *more))
    together = prefill(lm, context(), methods).scores
    assert len(forwards) == 1 + 4  # the prefill and one pass a chunk
    for method in methods:
        assert torch.equal(together[method], alone[method])


def test_a_context_that_is_all_template_needs_no_pass(lm: LanguageModel) -> None:
    assert (score(lm, KVzip(), context(5)) == 0).all()


@pytest.mark.parametrize("options", [{"chunk": 0}, {"chunk": -1}, {"lead_in": -1}])
def test_reconstruction_refuses_senseless_options(options: dict[str, int]) -> None:
    with pytest.raises(MethodError, match="chunk >= 1 and lead_in >= 0"):
        KVzip(**options)


class Spy(KVzip):
    """Shows a test what a method is shown."""

    def score(self, seen: Observation) -> Tensor:
        SHOWN.append(seen)
        return super().score(seen)

    def score_pass(self, seen: Observation, run: Pass) -> Tensor:
        SHOWN.append(seen)
        return super().score_pass(seen, run)


SHOWN: list[Observation] = []


def test_an_observation_shows_what_the_layer_computed(lm64: LanguageModel) -> None:
    SHOWN.clear()
    ids = some_ids(TOKENS)
    prefill(lm64, context(), [Spy()], seed=7)
    plain = Plain(lm64.model)
    _, first = plain.forward(ids)
    tokens = [*INSTRUCTIONS[REPEAT_ALL], *SUFFIX, *ids[TEMPLATE:]]
    _, second = plain.forward(tokens, TOKENS, plain.gathered(first, torch.ones(3, 3, TOKENS, dtype=torch.bool)))
    assert [seen.layer for seen in SHOWN] == [0, 1, 2, 0, 1, 2]
    for seen, expected in zip(SHOWN, first + second, strict=True):
        torch.testing.assert_close(seen.hidden, expected.hidden, rtol=0, atol=1e-9)
        torch.testing.assert_close(seen.queries, expected.queries, rtol=0, atol=1e-9)
        torch.testing.assert_close(seen.keys, torch.stack(expected.keys), rtol=0, atol=1e-9)
        torch.testing.assert_close(seen.values, torch.stack(expected.values), rtol=0, atol=1e-9)
        weight = lm64.model.model.layers[seen.layer].self_attn.o_proj.weight
        for query in range(9):
            assert torch.equal(seen.output_projection[query], weight[:, 8 * query : 8 * query + 8])
        assert (seen.group, seen.scaling, seen.prefix) == (3, 8**-0.5, TEMPLATE)
        assert seen.context_seed == context().seed(7) != context().seed(8)
    assert SHOWN[0].positions.tolist() == list(range(TOKENS))
    assert SHOWN[3].positions.tolist() == list(range(TOKENS, TOKENS + len(tokens)))
    assert (SHOWN[0].new, SHOWN[0].cached) == (TOKENS, TOKENS)
    assert (SHOWN[3].new, SHOWN[3].cached) == (len(tokens), TOKENS + len(tokens))


def test_a_shared_part_is_made_once() -> None:
    empty = torch.empty(1, 1, 1)
    seen = Observation(
        0, empty, empty, empty, empty, empty, 1.0, 0, 0, 1, lambda: empty, lambda positions: (empty, empty)
    )
    made: list[int] = []
    for _ in range(3):
        seen.shared("part", lambda: made.append(1) or len(made))
    assert made == [1]
