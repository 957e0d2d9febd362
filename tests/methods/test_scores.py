"""Scores against their formulas, written out by brute force over full dense attention (9 query heads, 3 KV heads)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.conformance.fixtures import Recorder
from harness.engine.adapter import LanguageModel
from harness.engine.context import Context
from harness.engine.prefill import prefill
from methods.base import Method, MethodError, Pass
from methods.expected_attention import ExpectedAttention
from methods.h2o import H2O
from methods.keydiff import KeyDiff
from methods.knorm import Knorm
from methods.kvzip import KVzip
from methods.observed_attention import ObservedAttention
from methods.pyramidkv import PyramidKV
from methods.random import Random
from methods.snapkv import SnapKV
from methods.streaming_llm import StreamingLLM
from methods.tova import TOVA
from tests.methods.scoring import masks_of, observations, scores_of, unturned_queries
from tests.tiny import Plain, Seen, some_ids, tiny

TOKENS, GROUP = 100, 3
POOLED = (SnapKV, PyramidKV)
#: float32 scores against formulas in float64
CLOSE = {"rtol": 2e-5, "atol": 1e-5}
#: of one layer, KV head and place
Formula = Callable[[Seen, int, int], float]


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


def table(seen: list[Seen], formula: Formula, places: range) -> Tensor:
    """``[L, H, places]`` of a formula."""
    return torch.tensor([[[formula(layer, head, t) for t in places] for head in range(3)] for layer in seen])


def group(layer: Seen, head: int) -> list[Tensor]:
    """Weights ``[T, T]`` of the query heads of a KV head."""
    return list(layer.weights[GROUP * head : GROUP * head + GROUP])


def received(layer: Seen, head: int, t: int) -> float:
    """Sum of the weights that a pair gets from the queries that can see it."""
    return sum(weights[row, t].item() for weights in group(layer, head) for row in range(t, len(layer.hidden)))


def mean_received(layer: Seen, head: int, t: int) -> float:
    return received(layer, head, t) / GROUP / (len(layer.hidden) - t)


def norm(layer: Seen, head: int, t: int) -> float:
    return -math.sqrt(sum(x * x for x in layer.keys[head][t].tolist()))


def newest(layer: Seen, head: int, t: int) -> float:
    """The newest token's weight, over all query heads of the layer."""
    return sum(weights[-1, t].item() for weights in layer.weights) / 9


def difference(layer: Seen, head: int, t: int) -> float:
    """Minus the cosine to the mean direction of the keys."""
    directions = [key / math.sqrt(float(key @ key)) for key in layer.keys[head]]
    mean = sum(directions[1:], directions[0]) / len(directions)
    return -float(directions[t] @ mean) / math.sqrt(float(mean @ mean))


def pooled(kernel: int, pool: str) -> Formula:
    """Mean weight from the last 64 tokens, pooled for each query head."""

    def formula(layer: Seen, head: int, t: int) -> float:
        before, reach, found = len(layer.hidden) - 64, kernel // 2, 0.0
        for weights in group(layer, head):
            means = weights[before:].mean(dim=0).tolist()
            near = means[max(0, t - reach) : min(before, t + reach + 1)]
            found += (max(near) if pool == "max" else sum(near) / kernel) / GROUP
        return found

    return formula


@pytest.mark.parametrize(
    ("method", "tokens", "formula"),
    [
        (Knorm(), 64, norm),
        (H2O(), 64, received),
        (H2O(), 75, received),
        (ObservedAttention(), 70, mean_received),
        (TOVA(), TOKENS, newest),
        (KeyDiff(), 64, difference),
        *(
            (kind(kernel=kernel, pool=pool), tokens, pooled(kernel, pool))
            for kind in POOLED
            for kernel in (1, 5, 7)
            for pool in ("mean", "max")
            for tokens in (65, 66, 100)
        ),
    ],
    ids=lambda given: None if callable(given) and not isinstance(given, Method) else repr(given),
)
def test_scores_are_what_the_formula_says_whatever_the_dtype_and_the_byte_budget(
    lm: LanguageModel, lm64: LanguageModel, method: Method, tokens: int, formula: Formula
) -> None:
    places = range(tokens - method.mechanism.window)
    expected = table(dense(lm64, tokens), formula, places)
    for block_bytes in (2**29, 40_000, 5000, 1):
        scores = scores_of(lm64, method, context(tokens), block_bytes=block_bytes)
        torch.testing.assert_close(scores[..., : len(places)], expected, **CLOSE)
        assert torch.isfinite(scores).all()
    torch.testing.assert_close(scores_of(lm, method, context(tokens)), scores, rtol=2e-4, atol=2e-5)


def rotation_matrix(position: int, theta: float, size: int = 8) -> Tensor:
    """The model's rotation of a position written out: component i turns with component i + d/2."""
    matrix = torch.zeros(size, size, dtype=torch.float64)
    for i in range(size // 2):
        angle = position / theta ** (2 * i / size)
        matrix[i, i] = matrix[i + size // 2, i + size // 2] = math.cos(angle)
        matrix[i, i + size // 2], matrix[i + size // 2, i] = -math.sin(angle), math.sin(angle)
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
    ("family", "method"),
    [
        ("gemma3", ExpectedAttention()),  # with angles of the layer's own kind
        ("llama", ExpectedAttention()),
        ("llama", ExpectedAttention(epsilon=0.0)),
        *(("llama", ExpectedAttention(**{name: False})) for name in ("covariance", "vnorm")),
        ("llama", ExpectedAttention(covariance=False, vnorm=False, epsilon=0.3)),
        *(("llama", ExpectedAttention(n_future=n_future)) for n_future in (1, 77)),
    ],
    ids=lambda given: None if callable(given) and not isinstance(given, Method) else repr(given),
)
def test_expected_attention_equals_explicit_matrices(family: str, method: ExpectedAttention) -> None:
    lm = tiny(family)
    rope = lm.config.rope_parameters
    theta = rope["full_attention"]["rope_theta"] if family == "gemma3" else rope["rope_theta"]
    assert family != "gemma3" or theta != rope["sliding_attention"]["rope_theta"]
    whole, split = (scores_of(lm, method, context(64), block_bytes=size) for size in (2**29, 5000))
    shown = observations(lm, context(64))
    assert [seen.layer for seen in shown] == list(range(lm.info.layers))
    for seen in shown:
        queries = unturned_queries(lm, seen)
        expected = expected_attention(method, queries, seen.keys, seen.values, theta, seen.scaling)
        for scores in (whole, split):
            torch.testing.assert_close(scores[seen.layer, :, 4:], expected[:, 4:], **CLOSE)


def test_expected_attention_keeps_its_four_sinks_whatever_the_flags(lm: LanguageModel) -> None:
    found, _ = masks_of(lm, context(), "expected_attention", removed=(Decimal("0.8"),), sinks=(0,), window=(0,))
    assert found.keep[1, :, :, :4].all()
    assert (found.keep[1].sum(dim=(1, 2)) == 3 * 20).all()


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        *((kind, {"kernel": kernel}, f"{kind.name} needs an odd kernel") for kind in POOLED for kernel in (0, 4, -3)),
        *((kind, {"pool": "sum"}, f"{kind.name} needs an odd kernel") for kind in POOLED),
        (PyramidKV, {"beta": 0}, "beta >= 1"),
        (ExpectedAttention, {"n_future": 0}, "n_future >= 1 and epsilon >= 0"),
        *((ExpectedAttention, {"epsilon": bad}, "epsilon >= 0") for bad in (-0.1, math.nan, math.inf)),
        *((KVzip, bad, "chunk >= 1 and lead_in >= 0") for bad in ({"chunk": 0}, {"chunk": -1}, {"lead_in": -1})),
    ],
)
def test_senseless_options_are_refused(kind: type[Method], options: dict[str, Any], message: str) -> None:
    with pytest.raises(MethodError, match=message):
        kind(**options)


def test_streaming_llm_ranks_by_age_and_keeps_its_four_sinks_whatever_the_flags(lm: LanguageModel) -> None:
    scores = scores_of(lm, StreamingLLM(), context())
    assert (scores.diff(dim=-1) > 0).all()
    assert torch.equal(scores, scores[:1, :1].expand_as(scores))
    assert StreamingLLM.mechanism.mask(TOKENS, 5).nonzero().flatten().tolist() == [0, 1, 2, 3]


def test_random_is_uniform_and_differs_by_layer_head_context_and_seed(lm: LanguageModel) -> None:
    given = context(64)
    scores = scores_of(lm, Random(), given)
    assert (scores >= 0).all() and (scores < 1).all()
    assert abs(scores.mean().item() - 0.5) < 0.05 and abs(scores.var().item() - 1 / 12) < 0.02
    assert scores.flatten().unique().numel() == scores.numel()
    other = replace(given, ids=(*given.ids[:-1], 0))
    for changed in (scores_of(lm, Random(), given, seed=1), scores_of(lm, Random(), other)):
        assert (changed != scores).float().mean() > 0.99


def test_tova_keeps_the_newest_token_where_it_is_told_to(lm64: LanguageModel) -> None:
    options = ("tova.keep_newest=true", "tova.keep_newest=false")
    found, scores = masks_of(lm64, context(), "tova", keep_tokens=(1,), option=options)
    best = scores["tova"].argmax(dim=-1)
    assert (best != TOKENS - 1).any() and torch.equal(best, best[:, :1].expand_as(best))  # the same for all heads
    forced, free = found.keep[1:].int().argmax(dim=-1)
    assert (forced == TOKENS - 1).all() and torch.equal(free, best)
    assert (found.keep[1:].sum(dim=-1) == 1).all()


def test_h2o_keeps_the_newest_half_and_of_the_others_those_with_the_largest_sums(lm64: LanguageModel) -> None:
    numbers = (1, 2, 7, 30, 99)
    found, _ = masks_of(lm64, context(), "h2o", keep_tokens=numbers)
    sums = table(dense(lm64), received, range(TOKENS))
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


def test_an_observation_shows_what_the_layer_computed(lm64: LanguageModel) -> None:
    ids, prefix, question = some_ids(64), 5, [21, 22, 11, 12, 13]
    given = Context(ids, prefix, (11, 12, 13), lambda text: [21, 22])
    recorder = Recorder((Pass("", (prefix, 64)),))
    assert prefill(lm64, given, [recorder], seed=7).failed == {}
    plain = Plain(lm64.model)
    _, first = plain.forward(ids)
    tokens = [*question, *ids[prefix:]]
    _, second = plain.forward(tokens, 64, plain.gathered(first, torch.ones(3, 3, 64, dtype=torch.bool)))
    shown = [*recorder.shown, *(seen for _, seen in recorder.in_passes)]
    assert [seen.layer for seen in shown] == [0, 1, 2, 0, 1, 2]
    for seen, expected in zip(shown, first + second, strict=True):
        for name in ("hidden", "queries", "keys", "values"):
            wanted = getattr(expected, name)
            wanted = torch.stack(wanted) if isinstance(wanted, list) else wanted
            torch.testing.assert_close(getattr(seen, name), wanted, rtol=0, atol=1e-9)
        weight = lm64.model.model.layers[seen.layer].self_attn.o_proj.weight
        assert torch.equal(seen.output_projection, torch.stack(weight.split(8, dim=1)))
        assert (seen.group, seen.scaling, seen.prefix) == (3, 8**-0.5, prefix)
        assert seen.context_seed == given.seed(7) != given.seed(8)
    for seen, start, stop in ((shown[0], 0, 64), (shown[3], 64, 64 + len(tokens))):
        assert seen.positions.tolist() == list(range(start, stop))
        assert (seen.new, seen.cached) == (stop - start, stop)
    made: list[int] = []
    for _ in range(3):
        shown[0].shared("part", lambda: made.append(1) or len(made))
    assert made == [1]
