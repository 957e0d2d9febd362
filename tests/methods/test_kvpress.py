"""Numbers, masks and options with ``compat="kvpress"``: published values, and kvpress's rules in plain Python."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.config.grid import plan
from harness.config.run_config import RunConfig
from harness.errors import HarnessError
from methods import registry
from methods.base import MethodError, ModelInfo, Protection
from methods.knorm import Knorm
from methods.kvpress import Kvpress, kvpress_kept, kvpress_left, kvpress_safe, raised
from methods.kvzap.method import KVzapLinear
from methods.kvzap.surrogate import Shape, Surrogate
from methods.pyramidkv import PyramidKV

Places = list[list[list[int]]]
INFO = ModelInfo("no-model", layers=3, query_heads=9, kv_heads=3, head_size=8, hidden_size=54)


KEPT = {0.0: (7, 7), 0.1: (4096, 3686), 0.25: (4096, 3072), 0.5: (4096, 2048), 0.75: (4096, 1024), 0.8: (100, 19)}
SAFE = {1: 1, 4: 1, 5: 1, 9: 1, 10: 2, 99: 19, 100: 20, 512: 102}


@pytest.mark.parametrize(
    ("function", "given", "expected"),
    [
        *((kvpress_kept, (cached, removed), kept) for removed, (cached, kept) in KEPT.items()),
        *((kvpress_kept, (4096, removed), kept) for removed, kept in ((0.8, 819), (0.875, 512), (0.9, 409))),
        *((kvpress_kept, (cached, 0.5), kept) for cached, kept in ((3, 1), (0, 0))),
        (kvpress_kept, (1000, 0.9), 99),  # 1 - 0.9 is a little less than 0.1
        (kvpress_kept, (10, 0.9), 1),  # 0 before the floor of one
        (kvpress_kept, (1, 0.99), 1),
        *((kvpress_safe, (kept,), safe) for kept, safe in SAFE.items()),  # a fifth, and one pair at least
        (kvpress_left, (100, 0.29), 72),  # 100 * 0.29 is a little less than 29, but 28 are removed of 100
        *((kvpress_left, (10**power, removed), left) for power, removed, left in ((1, 0.9, 1), (3, 0.333, 667))),
        *((kvpress_left, (pairs, 0.5), left) for pairs, left in ((7, 4), (3, 2))),
        *((kvpress_left, given, left) for given, left in (((3, 0.9), 1), ((92160, 0.875), 11520))),
    ],
)
def test_numbers_are_rounded_in_binary_floats(function: Any, given: tuple[Any, ...], expected: int) -> None:
    assert function(*given) == expected


@pytest.mark.parametrize(
    ("cached", "removed", "first", "last"),
    [
        (4096, 0.25, 4032, 2112),
        (4096, 0.5, 3994, 102),
        (4096, 0.75, 1024, 1024),
        (4096, 0.875, 512, 512),
        (5, 0.5, 2, 2),  # 2.5 to the even neighbour
        (7, 0.5, 4, 4),
        (3, 0.9, 1, 1),  # 0.3 rounds to 0, but one stays
    ],
)
def test_pyramidkv_rounds_to_the_nearest(cached: int, removed: float, first: int, last: int) -> None:
    numbers = PyramidKV.kvpress.numbers(PyramidKV(), removed, cached, 32)
    assert (len(numbers), numbers[0], numbers[-1]) == (32, first, last)
    assert PyramidKV.kvpress.numbers(PyramidKV(), removed, cached, 1) in ([first], [kvpress_kept(cached, removed)])


def plain(budget: str, scores: list[list[list[float]]], removed: float, pooled: bool) -> Places:
    """kvpress's selections by sorting lists; scores are all different."""
    layers, heads, cached = len(scores), len(scores[0]), len(scores[0][0])
    pairs = [(la, h, t) for la in range(layers) for h in range(heads) for t in range(cached)]
    value = {(la, h, t): scores[la][h][t] for la, h, t in pairs}
    n_kept = max(1, int(cached * (1 - removed)))
    gone: set[tuple[int, int, int]] = set()
    if budget == "global":
        gone = set(sorted(pairs, key=value.__getitem__)[: int(len(pairs) * removed)])
    for la in range(layers):
        own = [p for p in pairs if p[0] == la]
        if budget == "layer" and not pooled:
            for h in range(heads):
                best = sorted((p for p in own if p[1] == h), key=value.__getitem__, reverse=True)
                value |= dict.fromkeys(best[: max(1, int(n_kept * 0.2))], float("inf"))
        if budget == "layer":
            count = int(heads * cached * removed) if pooled else heads * (cached - n_kept)
            gone |= set(sorted(own, key=value.__getitem__)[:count])
        for h in range(heads if budget == "head" else 0):
            worst = sorted((p for p in own if p[1] == h), key=value.__getitem__)
            gone |= set(worst[: cached - n_kept])
    return [[[t for t in range(cached) if (la, h, t) not in gone] for h in range(heads)] for la in range(layers)]


def places(mask: Tensor) -> Places:
    return [[row.nonzero().flatten().tolist() for row in layer] for layer in mask]


@pytest.mark.parametrize(("budget", "pooled"), [("head", False), ("layer", False), ("layer", True), ("global", True)])
def test_masks_equal_kvpress_selections_in_plain_python(budget: str, pooled: bool) -> None:
    chance = random.Random(f"{budget}{pooled}")
    for _ in range(120):
        layers, heads, cached = chance.randint(1, 3), chance.randint(1, 4), chance.randint(1, 25)
        removed = chance.choice([0.0, 0.1, 0.29, 0.5, 0.7, 0.8, 0.9, 0.99])
        scores = torch.randperm(layers * heads * cached).float().view(layers, heads, cached)
        found = places(Kvpress(pooled=pooled).mask(Knorm(), scores, Protection(), 0, budget, removed))
        assert found == plain(budget, scores.tolist(), removed, pooled), (scores, removed)


@pytest.mark.parametrize("budget", ["head", "layer", "global"])
def test_protected_pairs_come_first_but_never_exceed_the_number_kept(budget: str) -> None:
    scores, protection = torch.rand(2, 3, 20), Protection(sinks=4)
    some = Kvpress().mask(Knorm(), scores, protection, 0, budget, 0.5)
    assert some[..., :4].all() and int(some.sum()) == 60
    few = Kvpress().mask(Knorm(), scores, protection, 0, budget, 0.85)
    assert not few[..., 4:].any() and int(few.sum()) == 18


def test_raised_pairs_stand_one_above_the_best_of_the_layer() -> None:
    places = torch.tensor([True, False, False])
    scores = torch.tensor([[[9.0, 1.0, 2.0], [9.0, 3.0, 0.5]], [[0.0, -2.0, -1.0], [0.0, -4.0, -3.0]]])
    assert raised(scores, places).tolist() == [[[4, 1, 2], [4, 3, 0.5]], [[0, -2, -1], [0, -4, -3]]]
    assert torch.equal(raised(scores, ~places & places), scores)


@pytest.mark.parametrize(
    ("name", "budget", "sinks", "window"),
    [
        ("knorm", "head", 0, 0),
        ("knorm", "threshold", 0, 128),
        ("kvzap_mlp", "head", 0, 0),
        ("kvzap_mlp", "layer", 0, 0),
        ("kvzap_linear", "threshold", 0, 128),
        ("kvzip", "global", 4, 0),
        ("kvzip_plus", "layer", 4, 0),
        ("snapkv", "head", 0, 0),
    ],
)
def test_protection_is_that_of_kvpress(name: str, budget: str, sinks: int, window: int) -> None:
    method = registry.build(name, {"compat": "kvpress"})
    assert method.protects_under(budget) == Protection(sinks=sinks, window=window)
    ours = registry.build(name, {})
    assert ours.protects_under(budget) == ours.protects() == type(ours).protection


def test_compat_is_an_option_of_every_method_and_no_record_has_it_unless_it_is_set() -> None:
    for name in registry.names():
        assert "compat" not in registry.build(name, {}).options()
        found = registry.build(name, {"compat": "kvpress"})
        assert found.options() == {**registry.build(name, {}).options(), "compat": "kvpress"}
        assert type(found)(**found.options()) == found != registry.build(name, {})
        with pytest.raises(MethodError, match=rf"{name}.compat must be empty or kvpress, got 'kvpres'"):
            registry.build(name, {"compat": "kvpres"})


@pytest.mark.parametrize(
    ("method", "grid", "reason"),
    [
        ("knorm", {}, ""),
        ("knorm", {"budget": ("layer",)}, ""),
        ("knorm", {"budget": ("threshold",), "threshold": (0.5,), "phase": "both"}, ""),
        ("knorm", {"keep_tokens": (8,)}, "takes removed fractions, no --keep-tokens"),
        ("knorm", {"budget": ("global",)}, "has no budget 'global' for knorm; it has head, layer, threshold"),
        ("knorm", {"phase": "both"}, "the threshold budget only, not 'head' with knorm"),
        ("knorm", {"budget": ("threshold",), "threshold": (0.5,), "phase": "decode"}, "use --phase both"),
        ("tova", {"budget": ("threshold",), "threshold": (0.5,), "phase": "both"}, "not 'threshold' with tova"),
        ("kvzip", {}, ""),
        ("kvzip", {"budget": ("layer",)}, ""),
        ("kvzip", {"budget": ("head",)}, "has no budget 'head' for kvzip; it has layer, global"),
        ("kvzip", {"option": ("kvzip.lead_in=4",)}, "only a lead_in of 8"),
        ("snapkv", {"option": ("snapkv.pool=max",)}, "only by the mean"),
        ("pyramidkv", {"option": ("pyramidkv.pool=max",)}, "only by the mean"),
        ("tova", {"option": ("tova.keep_newest=false",)}, "always keeps TOVA's newest token"),
        ("h2o", {}, "NVIDIA/kvpress has no h2o; leave compat off"),
        ("observed_attention", {"budget": ("layer",)}, "has no budget 'layer'"),
    ],
)
def test_what_kvpress_lacks_is_refused_with_the_reason(method: str, grid: dict[str, Any], reason: str) -> None:
    try:
        plan(RunConfig(method=(method,), compat="kvpress", **grid), INFO)
    except HarnessError as error:
        assert reason and reason in str(error)
    else:
        assert not reason


def test_kvpress_has_no_surrogate_that_reads_keys_and_values() -> None:
    surrogate = Surrogate(Shape(54, 3, None, 3), features="keys-values")
    assert "reads keys-values" in KVzapLinear.kvpress.lacks(KVzapLinear(surrogate=surrogate))
    assert KVzapLinear.kvpress.lacks(KVzapLinear()) == ""
