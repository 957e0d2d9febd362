"""Pruning while decoding: which pairs go, when, and that nothing else changes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from decimal import Decimal
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from harness.engine.context import Context, Scored
from harness.engine.decode import Question, decode
from harness.engine.eviction import Policy
from harness.engine.masked_decode import MaskedRun
from harness.engine.prefill import prefill
from methods.base import Method, Observation, Protection, Step
from methods.budgets import Ranking
from methods.h2o import H2O
from methods.knorm import Knorm
from methods.random import Random
from methods.streaming_llm import StreamingLLM
from methods.tova import TOVA
from tests.delayed import delayed
from tests.tiny import Plain, batch, everything, some_ids, tiny

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


def final_masks(policy: Policy, new_tokens: int, keep: Tensor | None = None) -> list[Tensor]:
    """Keep masks ``[H, C]`` of each layer after a question and ``new_tokens`` fixed tokens."""
    one = batch(LM, scored(policy.method), everything(1, len(CONTEXT)) if keep is None else keep, policies=[policy])
    run = MaskedRun(one, len(ASKED) + new_tokens)
    with run.engaged():
        run.advance(torch.tensor([ASKED]))
        for token in some_ids(new_tokens, seed=2):
            run.advance(torch.tensor([[token]]))
    return [layer[0] for layer in run.evictors[0].keep]


@pytest.mark.parametrize(
    ("phase", "window", "sinks"), [("both", 0, 0), ("both", 6, 3), ("both", 60, 0), ("decode", 7, 0)]
)
def test_a_threshold_is_delayed_eviction_token_by_token(phase: str, window: int, sinks: int) -> None:
    steps, tau, context = 40, 50.0, len(CONTEXT)
    protection = Protection(sinks=sinks, window=window)
    before = Ranking(scored(Scripted()).scores[Scripted()], protection.mask(context, 0)).threshold(tau).unsqueeze(0)
    keep = before if phase == "both" else torch.ones_like(before)
    right = delayed(script(torch.arange(context + 5 + steps), 3), tau, window, [1] * (context + 5 + steps), sinks)
    if phase == "decode" and window < context:  # pairs that have left the window before decoding begins are not judged
        right[:, : context - window] = True
    found = final_masks(Policy(Scripted(), protection, threshold=tau), steps, keep)
    assert all(torch.equal(layer, right) for layer in found)


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


@pytest.mark.parametrize("method", CAPABLE, ids=lambda method: method.name)
@pytest.mark.parametrize("context", [CONTEXT, ()], ids=len)
def test_pairs_kept_are_counted_after_each_forward(method: Method, context: tuple[int, ...]) -> None:
    half = Policy(method, Protection(), removed=Decimal("0.5"))
    policies = [Policy(method, Protection(), keep_tokens=10), half, None]
    found = prefill(LM, Context(context), [method])
    rows = decode(batch(LM, found, everything(3, len(context)), policies=policies), Question(ASKED, 8))
    for step, (ten, halved, all_) in enumerate(zip(*(row.kept for row in rows), strict=True)):
        cached = len(context) + len(ASKED) + step
        least = 4 if isinstance(method, StreamingLLM) else 0  # its sinks
        assert (ten, halved, all_) == (9 * min(cached, 10), 9 * max(cached // 2, least), 9 * cached)
