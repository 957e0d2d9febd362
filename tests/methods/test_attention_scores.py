"""Scores that come from attention, queries or keys against their formulas over full dense attention."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.engine.adapter import LanguageModel
from harness.engine.context import Context
from methods.base import Method, MethodError
from methods.expected_attention import ExpectedAttention
from methods.h2o import H2O
from methods.keydiff import KeyDiff
from methods.kvzip import KVzip
from methods.kvzip_plus import KVzipPlus
from methods.observed_attention import ObservedAttention
from methods.pyramidkv import PyramidKV
from methods.snapkv import SnapKV
from methods.tova import TOVA
from tests.methods.scoring import masks_of, observations, scores_of, unturned_queries
from tests.tiny import Plain, Seen, some_ids, tiny

TOKENS, GROUP, SIZE = 100, 3, 8
METHODS = [H2O, ObservedAttention, ExpectedAttention, SnapKV, TOVA, KeyDiff, PyramidKV]
POOLED = (SnapKV, PyramidKV)
#: float32 scores against formulas in float64
CLOSE = {"rtol": 2e-5, "atol": 1e-5}


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return tiny("llama", torch.float32)


@pytest.fixture(scope="module")
def lm64() -> LanguageModel:
    return tiny("llama", torch.float64)


def context(tokens: int = TOKENS, prefix: int = 0) -> Context:
    return Context(some_ids(tokens), prefix)


def dense(lm: LanguageModel, tokens: int = TOKENS) -> list[Seen]:
    return Plain(lm.model).forward(some_ids(tokens))[1]


def received(layer: Seen, head: int, place: int) -> list[float]:
    """For each query head of a KV head the sum of the weights that a pair gets from the queries that can see it."""
    heads = range(GROUP * head, GROUP * head + GROUP)
    tokens = len(layer.hidden)
    return [sum(layer.weights[q][row, place].item() for row in range(place, tokens)) for q in heads]


def table(seen: list[Seen], tokens: int, formula: Any) -> Tensor:
    """``[L, H, tokens]`` of ``formula(layer, head, place)``."""
    rows = [[[formula(layer, head, t) for t in range(tokens)] for head in range(3)] for layer in seen]
    return torch.tensor(rows, dtype=torch.float32)


@pytest.mark.parametrize("tokens", [64, 75])
def test_h2o_is_the_sum_of_the_weights_received_over_queries_and_the_heads_of_a_group(
    lm64: LanguageModel, tokens: int
) -> None:
    expected = table(dense(lm64, tokens), tokens, lambda layer, head, t: sum(received(layer, head, t)))
    torch.testing.assert_close(scores_of(lm64, H2O(), context(tokens)), expected, **CLOSE)


def test_observed_attention_is_the_mean_over_the_queries_that_can_see_the_pair(lm64: LanguageModel) -> None:
    def mean(layer: Seen, head: int, t: int) -> float:
        return sum(received(layer, head, t)) / GROUP / (70 - t)

    torch.testing.assert_close(
        scores_of(lm64, ObservedAttention(), context(70)), table(dense(lm64, 70), 70, mean), **CLOSE
    )


@pytest.mark.parametrize("pool", ["mean", "max"])
@pytest.mark.parametrize("kernel", [1, 5, 7])
@pytest.mark.parametrize("tokens", [65, 66, 100])
def test_snapkv_pools_the_mean_weight_from_the_last_64_tokens_for_each_query_head(
    lm64: LanguageModel, tokens: int, kernel: int, pool: str
) -> None:
    before, reach = tokens - 64, kernel // 2

    def pooled(layer: Seen, head: int, t: int) -> float:
        found = []
        for weights in layer.weights[GROUP * head : GROUP * head + GROUP]:
            means = weights[before:].mean(dim=0).tolist()
            near = means[max(0, t - reach) : min(before, t + reach + 1)]
            found.append(max(near) if pool == "max" else sum(near) / kernel)
        return sum(found) / GROUP

    scores = scores_of(lm64, SnapKV(kernel=kernel, pool=pool), context(tokens))
    torch.testing.assert_close(scores[..., :before], table(dense(lm64, tokens), before, pooled), **CLOSE)
    assert torch.isfinite(scores).all()
    assert torch.equal(scores_of(lm64, PyramidKV(kernel=kernel, pool=pool), context(tokens)), scores)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        *((kind, {"kernel": kernel}, f"{kind.name} needs an odd kernel") for kind in POOLED for kernel in (0, 4, -3)),
        *((kind, {"pool": "sum"}, f"{kind.name} needs an odd kernel") for kind in POOLED),
        (PyramidKV, {"beta": 0}, "beta >= 1"),
        (ExpectedAttention, {"n_future": 0}, "n_future >= 1 and epsilon >= 0"),
        *((ExpectedAttention, {"epsilon": bad}, "epsilon >= 0") for bad in (-0.1, math.nan, math.inf)),
        (KVzip, {"chunk": 0}, "chunk >= 1 and lead_in >= 0"),
        (KVzip, {"chunk": -1}, "chunk >= 1 and lead_in >= 0"),
        (KVzip, {"lead_in": -1}, "chunk >= 1 and lead_in >= 0"),
    ],
)
def test_senseless_options_are_refused(kind: type[Method], options: dict[str, Any], message: str) -> None:
    with pytest.raises(MethodError, match=message):
        kind(**options)


def test_tova_is_the_newest_tokens_weight_averaged_over_all_query_heads(lm64: LanguageModel) -> None:
    expected = table(dense(lm64), TOKENS, lambda layer, _, t: sum(w[-1, t].item() for w in layer.weights) / 9)
    scores = scores_of(lm64, TOVA(), context())
    torch.testing.assert_close(scores, expected, **CLOSE)
    assert torch.equal(scores, scores[:, :1].expand_as(scores))


def test_tova_keeps_the_newest_token_where_it_is_told_to(lm64: LanguageModel) -> None:
    options = ("tova.keep_newest=true", "tova.keep_newest=false")
    found, scores = masks_of(lm64, context(), "tova", keep_tokens=(1,), option=options)
    best = scores["tova"].argmax(dim=-1)
    assert (best != TOKENS - 1).any()
    forced, free = found.keep[1:].int().argmax(dim=-1)
    assert (forced == TOKENS - 1).all() and torch.equal(free, best)
    assert (found.keep[1:].sum(dim=-1) == 1).all()


def test_keydiff_is_minus_the_cosine_to_the_mean_direction_of_the_keys(lm64: LanguageModel) -> None:
    def difference(layer: Seen, head: int, t: int) -> float:
        directions = [key / math.sqrt(float(key @ key)) for key in layer.keys[head]]
        mean = sum(directions[1:], directions[0]) / len(directions)
        return -float(directions[t] @ mean) / math.sqrt(float(mean @ mean))

    torch.testing.assert_close(scores_of(lm64, KeyDiff(), context(64)), table(dense(lm64, 64), 64, difference), **CLOSE)


def rotation_matrix(position: int, theta: float) -> Tensor:
    """The model's rotation of a position written out: component i turns with component i + d/2."""
    matrix = torch.zeros(SIZE, SIZE, dtype=torch.float64)
    for i in range(SIZE // 2):
        angle = position / theta ** (2 * i / SIZE)
        matrix[i, i] = matrix[i + SIZE // 2, i + SIZE // 2] = math.cos(angle)
        matrix[i, i + SIZE // 2], matrix[i + SIZE // 2, i] = -math.sin(angle), math.sin(angle)
    return matrix


def expected_attention(
    method: ExpectedAttention, queries: Tensor, keys: Tensor, values: Tensor, theta: float, scaling: float
) -> Tensor:
    """Scores ``[H, T]`` of one layer from its queries before RoPE ``[Hq, T, d]`` and rotated keys ``[H, T, d]``."""
    heads, tokens, _ = keys.shape
    future = [rotation_matrix(position, theta) for position in range(tokens, tokens + method.n_future)]
    mean_rotation = torch.stack(future).mean(dim=0)
    scores = torch.zeros(heads, tokens, dtype=torch.float64)
    for query, own in enumerate(queries[:, 4:]):
        head = query // (len(queries) // heads)
        mean = own.mean(dim=0)
        spread = sum(torch.outer(q - mean, q - mean) for q in own) / len(own)
        mean, spread = mean_rotation @ mean, mean_rotation @ spread @ mean_rotation.T
        logits = torch.stack([scaling * mean @ key for key in keys[head, 4:]])
        if method.covariance:
            logits += torch.stack([scaling**2 / 2 * key @ spread @ key for key in keys[head, 4:]])
        scores[head, 4:] += logits.softmax(dim=0) / (len(queries) // heads)
    scores[:, 4:] += method.epsilon
    return (scores * values.norm(dim=-1) if method.vnorm else scores).float()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"epsilon": 0.0},
        {"covariance": False},
        {"vnorm": False},
        {"covariance": False, "vnorm": False, "epsilon": 0.3},
        {"n_future": 1},
        {"n_future": 77},
    ],
)
def test_expected_attention_equals_explicit_matrices(lm64: LanguageModel, options: dict[str, Any]) -> None:
    method = ExpectedAttention(**options)
    scores = scores_of(lm64, method, context(64))
    for index, layer in enumerate(dense(lm64, 64)):
        with torch.inference_mode():
            queries = lm64.model.model.layers[index].self_attn.q_proj(layer.hidden)
        expected = expected_attention(
            method,
            queries.view(64, 9, SIZE).transpose(0, 1),
            torch.stack(layer.keys),
            torch.stack(layer.values),
            lm64.config.rope_parameters["rope_theta"],
            SIZE**-0.5,
        )
        torch.testing.assert_close(scores[index, :, 4:], expected[:, 4:], **CLOSE)


def test_expected_attention_turns_by_the_angles_of_the_layers_own_kind() -> None:
    gemma = tiny("gemma3")
    shown = observations(gemma, context(64))
    scores = scores_of(gemma, ExpectedAttention(), context(64))
    theta = gemma.config.rope_parameters["full_attention"]["rope_theta"]
    assert theta != gemma.config.rope_parameters["sliding_attention"]["rope_theta"]
    assert [seen.layer for seen in shown] == [0, 1]
    for seen in shown:
        queries = unturned_queries(gemma, seen)
        expected = expected_attention(ExpectedAttention(), queries, seen.keys, seen.values, theta, seen.scaling)
        torch.testing.assert_close(scores[seen.layer, :, 4:], expected[:, 4:], **CLOSE)


def test_expected_attention_keeps_its_four_sinks_whatever_the_flags(lm: LanguageModel) -> None:
    found, _ = masks_of(lm, context(), "expected_attention", removed=(Decimal("0.8"),), sinks=(0,), window=(0,))
    assert found.keep[1, :, :, :4].all()
    assert (found.keep[1].sum(dim=(1, 2)) == 3 * 20).all()


@pytest.mark.parametrize("kind", METHODS)
def test_float32_and_float64_models_get_the_same_scores(
    lm: LanguageModel, lm64: LanguageModel, kind: type[Method]
) -> None:
    single, double = scores_of(lm, kind(), context()), scores_of(lm64, kind(), context())
    torch.testing.assert_close(single, double, rtol=2e-4, atol=2e-5)


RECONSTRUCTION = [kind(**more) for kind in (KVzip, KVzipPlus) for more in ({"chunk": 16}, {"pretext": "summary"})]


@pytest.mark.parametrize("block_bytes", [1, 5000, 40_000])
@pytest.mark.parametrize("method", [*(kind() for kind in METHODS), *RECONSTRUCTION], ids=repr)
def test_scores_do_not_depend_on_the_byte_budget(lm64: LanguageModel, method: Method, block_bytes: int) -> None:
    given = Context(some_ids(TOKENS), 0, (11, 12), lambda text: [21, len(text) % 60])
    whole = scores_of(lm64, method, given)
    small = scores_of(lm64, method, given, block_bytes=block_bytes)
    torch.testing.assert_close(small, whole, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("tokens", [1, 2, 4, 5, 6, 7, 63, 64, 65, 66, 70])
@pytest.mark.parametrize("kind", METHODS)
def test_short_contexts_are_scored_and_keep_a_sane_number(lm: LanguageModel, kind: type[Method], tokens: int) -> None:
    budgets = tuple(budget for budget in ("head", "layer", "global") if budget in kind.budgets)
    removed = (Decimal("0.25"), Decimal("0.5"), Decimal("0.9"))
    found, scores = masks_of(lm, context(tokens, prefix=1), kind.name, budget=budgets, removed=removed)
    assert found.failed == {}
    assert torch.isfinite(scores[kind.name]).all()
    assert len(found.keep) == 1 + len(budgets) * len(removed)
    for index, level in enumerate(removed * len(budgets), 1):
        kept = max(1, int(tokens * (1 - level)))
        if found.short[index]:
            assert found.keep[index].all()
        elif found.bound[index]:
            assert (found.keep[index].sum(dim=-1) > kept).all()
        else:
            assert int(found.keep[index].sum()) == 3 * 3 * kept


@pytest.mark.parametrize("tokens", [1, 3, 64])
def test_a_context_within_snapkvs_window_is_too_short_to_prune(lm: LanguageModel, tokens: int) -> None:
    found, _ = masks_of(lm, context(tokens), "snapkv", "pyramidkv", removed=(Decimal("0.5"),))
    assert found.short == [False, True, True]


def test_h2o_keeps_the_newest_half_and_of_the_others_those_with_the_largest_sums(lm64: LanguageModel) -> None:
    numbers = (1, 2, 7, 30, 99)
    found, _ = masks_of(lm64, context(), "h2o", keep_tokens=numbers)
    sums = table(dense(lm64), TOKENS, lambda layer, head, t: sum(received(layer, head, t)))
    assert not any(found.bound)
    for mask, kept in zip(found.keep[1:].flatten(1, 2), numbers, strict=True):
        newest = (kept + 1) // 2
        for keep, own in zip(mask, sums.flatten(0, 1).tolist(), strict=True):
            others = sorted(range(TOKENS - newest), key=own.__getitem__, reverse=True)
            expected = {*range(TOKENS - newest, TOKENS), *others[: kept - newest]}
            assert set(keep.nonzero().flatten().tolist()) == expected


@pytest.mark.parametrize("kept", [1, 2, 31, 50])
@pytest.mark.parametrize("budget", ["layer", "global"])
def test_h2o_keeps_the_newest_half_of_every_head_under_uneven_budgets(
    lm: LanguageModel, budget: str, kept: int
) -> None:
    found, scores = masks_of(lm, context(), "h2o", budget=(budget,), keep_tokens=(kept,))
    newest = (kept + 1) // 2
    keep, others = found.keep[1], found.keep[1, :, :, : TOKENS - newest]
    assert keep[:, :, TOKENS - newest :].all()
    assert int(keep.sum()) == 9 * kept
    if budget == "layer":
        assert (keep.sum(dim=(1, 2)) == 3 * kept).all()
        assert (others.sum(dim=-1) >= (kept - newest) // 5).all()
    for heavy, sums in zip(others.flatten(0, 1), scores["h2o"][:, :, : TOKENS - newest].flatten(0, 1), strict=True):
        if heavy.any() and not heavy.all():
            assert sums[heavy].min() >= sums[~heavy].max()


def test_the_window_flag_does_not_shrink_the_recent_half_of_h2o(lm: LanguageModel) -> None:
    found, _ = masks_of(lm, context(), "h2o", keep_tokens=(20,), window=(0, 14, 30))
    assert found.bound == [False, False, False, True]
    for mask, newest, kept in zip(found.keep[1:], (10, 14, 30), (20, 20, 30), strict=True):
        assert mask[:, :, -newest:].all()
        assert (mask.sum(dim=-1) == kept).all()
