"""Pruning while decoding: which pairs go, when, and that nothing else changes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from harness.engine.context import Context, Scored
from harness.engine.decode import Answer, Question, decode
from harness.engine.eviction import Policy
from harness.engine.masked_decode import MaskedRun
from harness.engine.prefill import prefill
from methods.base import Method, Observation, Protection, Step
from methods.budgets import Ranking, number_kept
from methods.h2o import H2O
from methods.knorm import Knorm
from methods.random import Random
from methods.streaming_llm import StreamingLLM
from methods.tova import TOVA
from tests.delayed import delayed
from tests.tiny import Plain, batch, hook_count, some_ids, tiny

CONTEXT = some_ids(30)
ASKED = some_ids(5, seed=1)
CAPABLE = (Knorm(), Random(), StreamingLLM(), H2O(), TOVA())


@dataclass(frozen=True)
class Scripted(Method):
    """Scores that a script gives to each position, the same in all layers, another one for each head."""

    name: ClassVar[str] = "scripted"
    phases: ClassVar[tuple[str, ...]] = ("prefill", "decode", "both")

    def score(self, seen: Observation) -> Tensor:
        return script(torch.arange(seen.cached), seen.keys.shape[0])

    def score_new(self, step: Step) -> Tensor:
        return script(step.positions, step.keys.shape[1]).expand(step.keys.shape[0], -1, -1)


def script(positions: Tensor, heads: int) -> Tensor:
    return ((positions * 37 + 11 * torch.arange(heads).unsqueeze(1)) % 101).float()


LM = tiny(max_position_embeddings=1024)


def scored(*methods: Method) -> Scored:
    return prefill(LM, Context(CONTEXT), methods)


def everything(variants: int = 1) -> Tensor:
    return torch.ones(variants, 3, 3, len(CONTEXT), dtype=torch.bool)


def final_masks(policy: Policy, new_tokens: int, keep: Tensor | None = None) -> list[Tensor]:
    """Keep masks ``[H, C]`` of each layer after a question and ``new_tokens`` fixed tokens."""
    one = batch(LM, scored(policy.method), everything() if keep is None else keep, policies=[policy])
    run = MaskedRun(one, len(ASKED) + new_tokens)
    with run.engaged():
        run.advance(torch.tensor([ASKED]))
        for token in some_ids(new_tokens, seed=2):
            run.advance(torch.tensor([[token]]))
    return [layer[0] for layer in run.evictors[0].keep]


@pytest.mark.parametrize("window", [0, 7, 128])
def test_600_new_tokens_at_a_script_of_scores_lose_exactly_what_the_threshold_says(window: int) -> None:
    cached = len(CONTEXT) + len(ASKED) + 600
    places = torch.arange(cached)
    first = len(CONTEXT) - window  # pairs that had left the window before decoding began are not judged
    judged = (places >= max(0, first)) & (places < cached - window)
    expected = ~judged | (script(places, 3) >= 50)
    for layer in final_masks(Policy(Scripted(), Protection(window=window), threshold=50.0), 600):
        assert torch.equal(layer, expected)


@pytest.mark.parametrize(("window", "sinks"), [(0, 0), (6, 0), (6, 3), (60, 0)])
def test_prefill_and_evictor_together_are_delayed_eviction_token_by_token(window: int, sinks: int) -> None:
    steps, tau = 40, 50.0
    protection = Protection(sinks=sinks, window=window)
    cached = len(CONTEXT) + len(ASKED) + steps
    scores = scored(Scripted()).scores[Scripted()]
    before = Ranking(scores, protection.mask(len(CONTEXT), 0)).threshold(tau)
    found = final_masks(Policy(Scripted(), protection, threshold=tau), steps, before.unsqueeze(0))
    last = delayed(script(torch.arange(cached), 3), tau, window, [1] * cached, sinks)
    assert all(torch.equal(layer, last) for layer in found)


@pytest.mark.parametrize("method", CAPABLE, ids=lambda method: method.name)
@pytest.mark.parametrize("level", [{"removed": Decimal("0.5")}, {"keep_tokens": 12}])
def test_a_head_never_sees_more_than_its_capacity_and_what_is_gone_stays_gone(
    method: Method, level: dict[str, object]
) -> None:
    policy = Policy(method, method.mechanism, **level)  # type: ignore[arg-type]
    earlier = [final_masks(policy, count) for count in (1, 2, 9)]
    for count, layers in zip((1, 2, 9), earlier, strict=True):
        cached = len(CONTEXT) + len(ASKED) + count
        capacity = 12 if "keep_tokens" in level else number_kept(cached, Decimal("0.5"))
        assert all(int(layer.sum(dim=-1).max()) <= capacity for layer in layers)
    for before, after in zip(earlier[0], earlier[2], strict=True):
        assert not (after[:, : before.shape[-1]] & ~before).any()


def test_streaming_llm_rolls_over_its_sinks_and_the_newest() -> None:
    cached = len(CONTEXT) + len(ASKED) + 20
    for layer in final_masks(Policy(StreamingLLM(), StreamingLLM.mechanism, keep_tokens=12), 20):
        for head in layer:
            assert head.nonzero().flatten().tolist() == [0, 1, 2, 3, *range(cached - 8, cached)]


@dataclass
class Dropping:
    """One KV head whose pairs are really dropped: their places and what each is worth, by H2O's or TOVA's rule."""

    method: Method
    capacity: int
    heads: slice  # query heads of this KV head
    places: list[int] = field(default_factory=list)
    worth: list[float] = field(default_factory=list)

    def see(self, weights: Tensor, cached: int) -> None:
        """Attention weights ``[Hq, n, C]`` on the pairs that are left and on n new ones."""
        new = weights.shape[1]
        self.places += range(cached - new, cached)
        self.worth += [0.0] * new
        received = weights[self.heads].sum(dim=(0, 1)) if isinstance(self.method, H2O) else weights[:, -1].mean(dim=0)
        before = self.worth if isinstance(self.method, H2O) else [0.0] * len(self.worth)
        self.worth = [old + gain for old, gain in zip(before, received.tolist(), strict=True)]

    def drop(self) -> list[int]:
        """Which of the pairs stay, as places in the head's own list."""
        newest = (self.capacity + 1) // 2 if isinstance(self.method, H2O) else 1
        count = len(self.places)
        others = sorted(range(count - newest), key=self.worth.__getitem__, reverse=True)[: self.capacity - newest]
        staying = sorted([*others, *range(count - newest, count)])
        self.places, self.worth = [self.places[i] for i in staying], [self.worth[i] for i in staying]
        return staying


def kept_by_dropping(method: Method, capacity: int, chunks: list[tuple[int, ...]]) -> list[Tensor]:
    """What a method keeps over gathered caches; bool ``[H, C]`` of each layer."""
    run = Plain(LM.model).run()
    state = [[Dropping(method, capacity, slice(3 * head, 3 * head + 3)) for head in range(3)] for _ in range(3)]
    for number, chunk in enumerate([CONTEXT, *chunks]):
        run.forward(chunk)
        for layer, head in itertools.product(range(3), range(3)):
            own, heads = state[layer][head], run.caches[layer][0]
            # TOVA's and H2O's heads here have caches of one length, so that a layer's weights stack
            own.see(torch.stack(run.seen[layer][0].weights), run.total)
            if number:
                heads[head] = heads[head].select(torch.tensor(own.drop()))
    return [torch.tensor([[t in own.places for t in range(run.total)] for own in layer]) for layer in state]


@pytest.mark.parametrize("method", [H2O(), TOVA()], ids=["h2o", "tova"])
@pytest.mark.parametrize("capacity", [9, 12])
def test_attention_is_gathered_as_over_caches_whose_pairs_are_really_gone(method: Method, capacity: int) -> None:
    chunks = [ASKED, *((token,) for token in some_ids(20, seed=2))]
    with torch.inference_mode():
        expected = kept_by_dropping(method, capacity, chunks)
    found = final_masks(Policy(method, Protection(), keep_tokens=capacity), 20)
    for layer, right in zip(found, expected, strict=True):
        assert torch.equal(layer, right)
        assert (layer.sum(dim=-1) == capacity).all()


def answers(policies: Sequence[Policy | None], found: Scored, count: int = 12) -> list[Answer]:
    return decode(batch(LM, found, everything(len(policies)), policies=policies), Question(ASKED, count))


def test_variants_that_prune_while_decoding_are_what_they_are_alone() -> None:
    found = scored(*CAPABLE)
    policies: list[Policy | None] = [None]
    policies += [Policy(method, method.mechanism, keep_tokens=n) for method in CAPABLE for n in (10, 20)]
    together = answers(policies, found)
    alone = [answers([policy], found)[0] for policy in policies]
    assert together == alone
    assert [answer.kept for answer in together] == [answer.kept for answer in alone]
    assert together[0] == answers([None], found)[0]


def test_a_second_question_starts_from_the_state_after_the_prefill() -> None:
    found = scored(*CAPABLE)
    policies: list[Policy | None] = [Policy(method, method.mechanism, keep_tokens=10) for method in CAPABLE]
    first = answers(policies, found)
    assert answers(policies, found) == first == answers(policies, scored(*CAPABLE))


def test_pairs_kept_are_counted_after_each_forward() -> None:
    found = scored(Knorm())
    (answer,) = answers([Policy(Knorm(), Protection(), keep_tokens=10)], found, 6)
    assert answer.kept == (9 * 10,) * 6
    (plain,) = answers([None], found, 6)
    assert plain.kept == tuple(9 * (30 + 5 + step) for step in range(6))


@pytest.mark.parametrize("method", CAPABLE, ids=lambda method: method.name)
def test_an_answer_to_nothing_is_pruned_too(method: Method) -> None:
    keep, policies = torch.ones(1, 3, 3, 0, dtype=torch.bool), [Policy(method, Protection(), keep_tokens=6)]
    empty = batch(LM, prefill(LM, Context(()), [method]), keep, policies=policies)
    (answer,) = decode(empty, Question(ASKED, 10))
    assert answer.kept == tuple(9 * min(5 + step, 6) for step in range(10))


def test_no_hook_is_left_behind() -> None:
    before = hook_count(LM.model)
    final_masks(Policy(H2O(), Protection(), keep_tokens=12), 3)
    assert hook_count(LM.model) == before
