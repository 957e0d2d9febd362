"""Budgets against hand cases and a second implementation in plain Python."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from methods.base import MethodError, Protection
from methods.budgets import Ranking, number_kept
from tests.delayed import delayed

INFINITY = float("inf")


def ranking(scores: list[list[list[float]]], protected: list[int] | None = None) -> Ranking:
    values = torch.tensor(scores, dtype=torch.float32)
    mask = torch.zeros(values.shape[-1], dtype=torch.bool)
    mask[protected or []] = True
    return Ranking(values, mask)


def kept_of(mask: Tensor) -> list[list[list[int]]]:
    """Kept positions of each head of each layer."""
    return [[row.nonzero().flatten().tolist() for row in layer] for layer in mask]


def plain(budget: str, ranked: Ranking, kept: int, floor: Fraction = Fraction(1, 5)) -> list[list[list[int]]]:
    """The budgets by sorting lists: better score, then later position, then lower layer, then lower head."""
    scores, protected = ranked.scores.tolist(), ranked.protected.nonzero().flatten().tolist()
    layers, heads, cached = ranked.scores.shape
    if len(protected) > kept:
        return [[protected for _ in range(heads)] for _ in range(layers)]
    pairs = [(la, h, t) for la in range(layers) for h in range(heads) for t in range(cached)]

    def best(candidates: list[tuple[int, int, int]], count: int) -> set[tuple[int, int, int]]:
        order = sorted(candidates, key=lambda p: (-scores[p[0]][p[1]][p[2]], -p[2], p[0], p[1]))
        return set(order[:count])

    chosen = {pair for pair in pairs if pair[2] in protected}
    groups: list[tuple[list[tuple[int, int, int]], int]]
    if budget == "head":
        groups = [([p for p in pairs if p[:2] == (la, h)], kept) for la in range(layers) for h in range(heads)]
    elif budget == "layer":
        sure = int(floor * (kept - len(protected)))
        for la in range(layers):
            for h in range(heads):
                chosen |= best([p for p in pairs if p[:2] == (la, h) and p not in chosen], sure)
        groups = [([p for p in pairs if p[0] == la], heads * kept) for la in range(layers)]
    else:
        groups = [(pairs, layers * heads * kept)]
    for group, count in groups:
        chosen |= best([p for p in group if p not in chosen], count - sum(p in chosen for p in group))
    return [[[t for t in range(cached) if (la, h, t) in chosen] for h in range(heads)] for la in range(layers)]


def apply(budget: str, ranked: Ranking, kept: int) -> Tensor:
    return {"head": ranked.head, "layer": ranked.layer, "global": ranked.global_}[budget](kept)


def test_number_kept_is_the_floor_in_exact_decimals_and_at_least_one() -> None:
    for removed in range(1000):
        for cached in (0, 1, 2, 3, 7, 9, 10, 100, 128, 999, 1000, 1018, 1024, 4096, 1_000_000):
            expected = min(cached, max(1, cached * (1000 - removed) // 1000))
            assert number_kept(cached, Decimal(removed) / 1000) == expected


@pytest.mark.parametrize("removed", ["1", "1.5", "-0.1", "NaN"])
def test_removed_outside_0_to_1_is_refused(removed: str) -> None:
    with pytest.raises(MethodError, match="removed must be"):
        number_kept(10, Decimal(removed))


@pytest.mark.parametrize("budget", ["head", "layer", "global"])
def test_masks_equal_plain_sorting_on_random_scores_full_of_ties(budget: str) -> None:
    chance = random.Random(budget)
    for _ in range(150):
        layers, heads, cached = chance.randint(1, 3), chance.randint(1, 4), chance.randint(1, 12)
        values = chance.choice([1, 2, 3, 20])
        generator = torch.Generator().manual_seed(chance.randrange(10**6))
        scores = torch.randint(0, values, (layers, heads, cached), generator=generator).float()
        share = chance.choice([0.0, 0.0, 0.2, 0.9])
        ranked = Ranking(scores, torch.rand(cached, generator=generator) < share)
        kept = chance.randint(1, cached)
        mask = apply(budget, ranked, kept)
        assert mask.dtype == torch.bool and mask.shape == scores.shape
        assert kept_of(mask) == plain(budget, ranked, kept), (ranked, kept)


def test_a_later_position_beats_a_lower_layer_and_a_lower_head() -> None:
    ranked = ranking([[[3.0, 0.0], [0.0, 3.0]], [[3.0, 0.0], [3.0, 0.0]]])
    best = ranked.scores == 3.0
    assert int(best.sum()) == 4 == int(ranked.global_(1).sum())
    assert torch.equal(ranked.global_(1), best)
    # three pairs share the top score and two have room: position 1 first, then layer 0
    contested = ranking([[[3.0, 0.0, -1.0]], [[3.0, 3.0, -1.0]]])
    assert kept_of(contested.global_(1)) == [[[0]], [[1]]]


def test_ties_are_kept_in_order_in_long_contexts_too() -> None:
    scores = (torch.arange(30_000) % 2).float().expand(2, 2, -1).contiguous()
    ranked = Ranking(scores, torch.zeros(30_000, dtype=torch.bool))
    for budget in ("head", "layer", "global"):
        kept = apply(budget, ranked, 15_100)
        assert kept[..., 1::2].all()
        assert kept[..., 29_800::2].all() and not kept[..., :29_800:2].any()


def test_negative_zero_ties_with_zero() -> None:
    for scores in ([0.0, -0.0], [-0.0, 0.0]):
        assert kept_of(ranking([[scores]]).head(1)) == [[[1]]]


def test_the_layer_budget_gives_uneven_counts_on_uneven_heads_and_its_floor_holds() -> None:
    rich = [float(t) for t in range(100, 120)]
    poor = [float(t) for t in range(20)]
    mask = ranking([[rich, poor]]).layer(10)
    assert mask.sum(-1).tolist() == [[18, 2]]  # floor(0.2 * 10) = 2 are sure
    assert kept_of(mask)[0][1] == [18, 19]
    assert ranking([[rich, poor]]).layer(8).sum(-1).tolist() == [[15, 1]]  # floor(0.2 * 8) = 1
    assert ranking([[rich, poor]]).layer(10, floor=Fraction(0)).sum(-1).tolist() == [[20, 0]]


def test_the_layer_budget_is_between_head_and_global_and_global_lets_layers_take_from_each_other() -> None:
    layer = torch.randn(1, 3, 11, generator=torch.Generator().manual_seed(4))
    nothing = torch.zeros(11, dtype=torch.bool)
    equal = Ranking(layer.expand(4, -1, -1).contiguous(), nothing)
    uneven = Ranking(torch.cat([layer + 100, layer]), nothing)
    for kept in range(1, 12):
        assert torch.equal(equal.layer(kept, floor=Fraction(1)), equal.head(kept))
        assert torch.equal(equal.global_(kept), equal.layer(kept, floor=Fraction(0)))
        counts = uneven.global_(kept).sum((1, 2)).tolist()
        assert counts == [min(33, 6 * kept), max(0, 6 * kept - 33)]


@pytest.mark.parametrize("budget", ["head", "layer", "global"])
def test_keeping_all_removes_nothing_and_masks_do_not_share_memory(budget: str) -> None:
    ranked = Ranking(torch.randn(2, 3, 5), torch.ones(5, dtype=torch.bool))
    first = apply(budget, ranked, 5)
    assert first.all()
    bound = apply(budget, ranked, 2)
    bound[...] = False
    assert apply(budget, ranked, 2).all() and ranked.protected.all()


def test_threshold_minus_infinity_removes_nothing_and_plus_infinity_leaves_the_protected_pairs() -> None:
    protected = torch.arange(9) >= 6
    ranked = Ranking(torch.randn(2, 3, 9), protected)
    assert ranked.threshold(-INFINITY).all()
    assert torch.equal(ranked.threshold(INFINITY), protected.expand(2, 3, 9))


def test_a_score_equal_to_the_threshold_stays_and_the_next_smaller_goes() -> None:
    below = math.nextafter(-4.0, -INFINITY)
    single = torch.nextafter(torch.tensor(-4.0), torch.tensor(-INFINITY)).item()
    ranked = ranking([[[-4.0, single, -3.0, -5.0]]], protected=[3])
    assert kept_of(ranked.threshold(-4.0)) == [[[0, 2, 3]]]
    assert kept_of(ranked.threshold(below))[0][0][0] == 0


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        *((torch.tensor([[[0.0, bad]]]), "finite") for bad in (float("nan"), INFINITY, -INFINITY)),
        (torch.zeros(1, 1, 2, dtype=torch.float64), "float32"),
        (torch.zeros(1, 2), "float32"),
    ],
)
def test_scores_that_are_not_finite_float32_of_layers_and_heads_are_refused(scores: Tensor, message: str) -> None:
    with pytest.raises(MethodError, match=message):
        Ranking(scores, torch.zeros(2, dtype=torch.bool))


@pytest.mark.parametrize("shape", [(2, 3, 0), (0, 3, 5)])
def test_no_pairs_and_no_layers_give_empty_masks(shape: tuple[int, ...]) -> None:
    ranked = Ranking(torch.zeros(shape), torch.zeros(shape[-1], dtype=torch.bool))
    kept = number_kept(shape[-1], Decimal("0.5"))
    for mask in (ranked.threshold(0.0), *(apply(budget, ranked, kept) for budget in ("head", "layer", "global"))):
        assert mask.shape == shape


@pytest.mark.parametrize("sinks", [0, 3])
@pytest.mark.parametrize("window", [0, 1, 7, 39, 40, 41, 500])
@pytest.mark.parametrize("tau", [-INFINITY, -0.5, 0.0, 1.75, INFINITY])
def test_a_threshold_on_a_whole_prefill_equals_delayed_eviction_token_by_token(
    window: int, tau: float, sinks: int
) -> None:
    # in quarters, so that many scores equal the threshold
    scores = torch.randint(-8, 9, (3, 40), generator=torch.Generator().manual_seed(0)).float() / 4
    at_once = Ranking(scores[None], Protection(sinks, window).mask(40, 0)).threshold(tau)[0]
    for sizes in ([40], [1] * 40, [13, 1, 1, 25]):
        assert torch.equal(delayed(scores, tau, window, sizes, sinks), at_once)
