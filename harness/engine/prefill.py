"""One dense prefill of a context, during which every method scores every cached pair; then the extra passes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from harness.engine.adapter import LanguageModel
from harness.engine.attention import causal_attention
from harness.engine.observe import Captured
from methods.base import Method, MethodError, Observation, Pass

#: default size of the largest temporary, in bytes
BLOCK_BYTES = 512 * 2**20


@dataclass(frozen=True)
class Context:
    """A tokenised context.

    ids       token ids, template prefix first
    prefix    P, how many of them are the template's
    suffix    template ids that close the user's turn and open the assistant's (extra passes need them)
    encode    text -> ids without special tokens (for the instructions of extra passes)
    cut       tokens that were left out of its middle
    """

    ids: tuple[int, ...]
    prefix: int = 0
    suffix: tuple[int, ...] = ()
    encode: Callable[[str], list[int]] = lambda text: []
    cut: int = 0

    def seed(self, run_seed: int) -> int:
        """A seed of the run's seed and the context's tokens; the same on every machine."""
        digest = hashlib.sha256(repr((run_seed, self.ids)).encode()).digest()
        return int.from_bytes(digest[:6], "big")


@dataclass
class Prefix:
    """The full cache of a context: for each layer (all layers) keys and values ``[H, T, d]``, stored once.

    ``last_hidden [T, D]`` are the last hidden states of the prefill.
    """

    context: Context
    keys: list[Tensor]
    values: list[Tensor]
    last_hidden: Tensor

    @property
    def cached(self) -> int:
        """T"""
        return len(self.context.ids)


class Failure(NamedTuple):
    status: str
    reason: str


@dataclass
class Scored:
    """A prefix and the scores of each method on it, float32 ``[L, H, T]`` (none for the control).

    ``failed`` has the methods that could not score this context, with a status (``error``, ``oom``, ``truncated``) and
    the reason; they have no scores, the others are not touched by it.
    """

    prefix: Prefix
    scores: dict[Method, Tensor] = field(default_factory=dict)
    failed: dict[Method, Failure] = field(default_factory=dict)


Result = TypeVar("Result")
Observer = Callable[[Observation], None]


class DenseRun:
    """A dense forward of one sequence that appends to a cache, and shows prunable layers to an observer."""

    def __init__(
        self, lm: LanguageModel, cache: Prefix, first: int, seed: int, block_bytes: int, observer: Observer | None
    ) -> None:
        self.lm = lm
        self.cache = cache
        self.first = first
        self.seed = seed
        self.block_bytes = block_bytes
        self.observer = observer
        self.grown: list[tuple[Tensor, Tensor]] = []
        self.hidden = Captured()

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Tensor:
        old_keys, old_values = self.cache.keys, self.cache.values
        all_keys = torch.cat([old_keys[layer], keys[0]], dim=1) if old_keys else keys[0]
        all_values = torch.cat([old_values[layer], values[0]], dim=1) if old_values else values[0]
        window = self.lm.windows[layer]
        out = causal_attention(queries[0], all_keys, all_values, scaling, window, self.block_bytes)
        if self.first == 0:
            self.grown.append((all_keys.contiguous(), all_values.contiguous()))
        if self.observer is not None and layer in self.lm.place:
            self.observer(self._observation(layer, queries[0], all_keys, all_values, scaling))
        return out.unsqueeze(0)

    def _observation(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Observation:
        return Observation(
            layer=self.lm.place[layer],
            hidden=self.hidden.value[0],
            queries=queries,
            keys=keys,
            values=values,
            positions=torch.arange(self.first, self.first + queries.shape[1], device=queries.device),
            scaling=scaling,
            prefix=self.cache.context.prefix,
            context_seed=self.seed,
            block_bytes=self.block_bytes,
            project=lambda: self.lm.output_projection(layer),
            rotation=lambda positions: self.lm.rotation(layer, positions),
        )

    def engaged(self) -> AbstractContextManager[None]:
        """The model with our attention in place, and its attention inputs captured if someone observes."""
        return self.hidden.engaged(self.lm, self.lm.prunable if self.observer is not None else [])


def prefill(
    lm: LanguageModel, context: Context, methods: Sequence[Method] = (), seed: int = 0, block_bytes: int = BLOCK_BYTES
) -> Scored:
    """Run the context once, dense, and score its pairs with every method; extra passes run once for all who share
    them. The cache is not changed by scoring, nor are the hidden states."""
    book = _ScoreBook(methods)
    prefix = Prefix(context, [], [], torch.empty(0))
    if not context.ids:
        return Scored(_empty(lm, context), {})
    ids = torch.tensor([context.ids], device=lm.device)
    run_seed = context.seed(seed)
    run = DenseRun(lm, prefix, 0, run_seed, block_bytes, book.observe if book.methods else None)
    with run.engaged():
        prefix.last_hidden = lm.forward(ids, 0, run)[0]
        prefix.keys = [keys for keys, _ in run.grown]
        prefix.values = [values for _, values in run.grown]
    for extra, askers in book.passes(context).items():
        tokens = _pass_ids(extra, context)
        obstacle = lm.obstacle(len(context.ids), len(context.ids) + len(tokens))
        if obstacle:
            book.fail(askers, Failure("truncated", f"an extra pass {obstacle}"))
        askers = [method for method in askers if method not in book.failed]
        if not askers:
            continue
        run = DenseRun(lm, prefix, len(context.ids), run_seed, block_bytes, book.observer_of(extra, askers))
        with run.engaged():
            lm.forward(torch.tensor([tokens], device=lm.device), len(context.ids), run)
    return Scored(prefix, book.stacked(lm.info.kv_heads, len(context.ids)), book.failed)


class PositionsExceeded(ValueError):
    """A forward would go past the model's position limit."""


def check_positions(lm: LanguageModel, cached: int, needed: int, what: str) -> None:
    """Raise :class:`PositionsExceeded` where a cache of ``cached`` tokens cannot go on to ``needed`` positions."""
    obstacle = lm.obstacle(cached, needed)
    if obstacle:
        raise PositionsExceeded(f"{what} {obstacle} (model {lm.name!r})")


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out; torch's CPU allocator raises a plain RuntimeError."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and ("allocate memory" in text or "out of memory" in text)


def _pass_ids(extra: Pass, context: Context) -> list[int]:
    lead = context.ids[slice(*extra.lead_in)] if extra.lead_in else ()
    return [*context.encode(extra.instruction), *lead, *context.suffix, *context.ids[slice(*extra.target)]]


def _empty(lm: LanguageModel, context: Context) -> Prefix:
    shape = (lm.info.kv_heads, 0, lm.info.head_size)
    tensors = [torch.empty(shape, dtype=lm.dtype, device=lm.device) for _ in lm.attention]
    hidden = torch.empty(0, lm.info.hidden_size, dtype=lm.dtype, device=lm.device)
    return Prefix(context, tensors, list(tensors), hidden)


class _ScoreBook:
    """Collects scores layer by layer; what a layer showed is dropped before the next layer runs."""

    def __init__(self, methods: Sequence[Method]) -> None:
        self.methods = [method for method in dict.fromkeys(methods) if not method.is_control]
        self.layers: dict[Method, list[Tensor]] = {method: [] for method in self.methods}
        self.failed: dict[Method, Failure] = {}

    def fail(self, methods: Sequence[Method], failure: Failure) -> None:
        self.failed |= {method: failure for method in methods if method not in self.failed}

    def passes(self, context: Context) -> dict[Pass, list[Method]]:
        """The extra passes on the context, each with the methods that score from it."""
        wanted: dict[Pass, list[Method]] = {}
        for method in self.methods:
            for extra in self._try(method, partial(method.passes, len(context.ids), context.prefix)) or ():
                wanted.setdefault(extra, []).append(method)
        return wanted

    def _try(self, method: Method, call: Callable[[], Result]) -> Result | None:
        """What a method answers, or None once it has failed: foreign code must not end the run of the others."""
        if method in self.failed:
            return None
        try:
            return call()
        except Exception as error:
            status = "oom" if out_of_memory(error) else "error"
            self.failed[method] = Failure(status, f"{type(error).__name__}: {error}")
        return None

    def observe(self, seen: Observation) -> None:
        for method in self.methods:
            scores = self._try(method, partial(_scores, method, seen))
            if scores is not None:
                self.layers[method].append(scores)

    def observer_of(self, extra: Pass, askers: list[Method]) -> Observer:
        def observe(seen: Observation) -> None:
            for method in askers:
                scores = self._try(method, partial(_pass_scores, method, seen, extra))
                if scores is not None:
                    self.layers[method][seen.layer][:, slice(*extra.target)] = scores

        return observe

    def stacked(self, heads: int, cached: int) -> dict[Method, Tensor]:
        """``[L, H, T]`` of every method that did not fail; L is 0 where all layers have a sliding window."""
        done = ((method, self.layers[method]) for method in self.methods if method not in self.failed)
        return {method: torch.stack(layers) if layers else torch.empty(0, heads, cached) for method, layers in done}


def _scores(method: Method, seen: Observation) -> Tensor:
    return _checked(method, method.score(seen), (seen.keys.shape[0], seen.cached))


def _pass_scores(method: Method, seen: Observation, extra: Pass) -> Tensor:
    start, stop = extra.target
    return _checked(method, method.score_pass(seen, extra), (seen.keys.shape[0], stop - start))


def _checked(method: Method, scores: Tensor, shape: tuple[int, int]) -> Tensor:
    if scores.dtype != torch.float32 or scores.shape != shape:
        raise MethodError(
            f"method {method.name!r} returned scores {scores.dtype} {list(scores.shape)}; "
            f"expected float32 {list(shape)}, one score for each KV head and cached pair"
        )
    return scores.contiguous()
