"""Agreement: how similar the scores of methods are, and how much of what a question uses each of them keeps.

For each layer and KV head, over the pairs after the template prefix:

rank    Spearman's correlation of two methods' scores, ties with their mean rank
share   of what one method keeps, the share that another keeps too: |A and B| / |A|. Each keeps what it would in a run
        with the ``head`` budget and its published protection; unrelated sets of one size share 1 - removed

``question`` is not a method but what the question and its answer use: the largest attention weight that any of their
tokens, in any query head of the group, gives to a pair (Kim et al., arXiv 2505.23416, equation 2, with the question in
place of the repetition). Its row of shares is the coverage: how much of what the question uses each method keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import torch
from torch import Tensor

import benchmarks.registry
from benchmarks.base import Benchmark, Request, Sample
from benchmarks.fidelity.benchmark import Fidelity, resolve_fidelity
from harness.config.grid import plan
from harness.config.run_config import RunConfig
from harness.config.tool_configs import AgreementConfig
from harness.config.variants import Planned
from harness.engine.adapter import LanguageModel, describe, max_positions
from harness.engine.context import BLOCK_BYTES, Prefix
from harness.engine.decode import Question
from harness.engine.dense_forward import DenseRun
from harness.errors import HarnessError
from harness.evaluation import provenance, teacher_forced
from harness.evaluation.job import check_lengths
from harness.evaluation.pruned_context import prune
from harness.measure.figures import AgreementFigures
from harness.models import loading
from harness.models.prompts import Prompts, stop_ids
from methods.base import Observation
from methods.budgets import Ranking, number_kept
from methods.kvzip import KVzip, largest_weights
from methods.registry import load_plugin

QUESTION = "question"
#: the method whose scores are the repeat pass's own; it always takes part
REPEAT = KVzip.name


class Tables(NamedTuple):
    """Float64 ``[M, M, L, H]``, rank correlations and shares; NaN where a method has no scores, or all are the same."""

    rank: Tensor
    share: Tensor


def agreement(config: AgreementConfig) -> AgreementFigures:
    """Means over the contexts for all pairs of methods and the question, as the command's ``--json`` has them. What has
    no figure on a context or in a head (a failed method, a head whose scores are all the same) is left out of the
    means; where there is none at all it is null."""
    for path in config.plugin:
        load_plugin(path)
    benchmark = _benchmark(config)
    subsets = tuple(subset for name in config.subset for subset in benchmark.subsets_named(name) or (name,))
    request = Request(config.length, subsets, config.limit, config.data, config.seed)
    benchmark.check(request)
    names = config.method if {REPEAT, "all"} & {*config.method} else (*config.method, REPEAT)
    asked = RunConfig(method=names, budget=("head",), removed=(config.removed,), option=config.option)
    model = loading.config_of(config.model)
    if config.length:
        check_lengths(config.length, max_positions(model), config.model)
    loading.pick_dtype(config.dtype, loading.pick_device(config.device))
    planned = plan(asked, describe(model, config.model))
    compared = [one for one in planned.planned if not one.method.is_control]
    loaded = loading.load(config.model, config.device, config.dtype)
    prompts = Prompts(loaded.tokenizer)
    samples = benchmark.samples(request, prompts.text)
    benchmark.check_samples(request, samples, prompts.text)
    comparison = _Comparison(loaded.lm, prompts, compared, config, benchmark.teacher_forced)
    tables = [comparison.compare(sample) for sample in samples]
    rank, share = (torch.stack(some).nanmean(dim=0) for some in zip(*tables, strict=True))
    return AgreementFigures(
        model=loading.short_name(config.model),
        benchmark=benchmark.name,
        length=list(dict.fromkeys(sample.length for sample in samples)),
        contexts=len(samples),
        removed=float(config.removed),
        methods=[*map(name_of, compared), QUESTION],
        repeat=REPEAT,
        rank=_listed(rank.nanmean(dim=(2, 3))),
        share=_listed(share.nanmean(dim=(2, 3))),
        rank_by_head=_listed(rank),
        share_by_head=_listed(share),
        skipped=planned.skipped,
        failed=comparison.failed,
        dtype=str(loaded.lm.dtype).removeprefix("torch."),
        seed=config.seed,
        data_hash=provenance.data_hash(samples),
        versions=provenance.versions(),
    )


def _benchmark(config: AgreementConfig) -> Benchmark:
    """The samples' benchmark as fidelity has it: with a text to read, or the full cache's own answer."""
    name = config.benchmark or ""
    is_fidelity = name.partition(":")[0] == Fidelity.name
    named = benchmarks.registry.get(name) if is_fidelity else Fidelity(name)
    (found,) = resolve_fidelity([named], None, config.data)
    if found.teacher_forced == "repeat":
        raise HarnessError(f"--benchmark {name}: the repeat pass is compared already; leave :repeat out")
    return found


def name_of(planned: Planned) -> str:
    """A variant by its method and what differs from that one's defaults; budget and level are the same for all."""
    return planned.variant.method + planned.variant.extras


class _Comparison:
    def __init__(
        self, lm: LanguageModel, prompts: Prompts, compared: Sequence[Planned], config: AgreementConfig, kind: str
    ) -> None:
        self.lm = lm
        self.prompts = prompts
        self.compared = compared
        self.removed = config.removed
        self.seed = config.seed
        self.kind = kind
        self.stop = stop_ids(prompts, lm.model.generation_config)
        self.failed: dict[str, str] = {}

    def compare(self, sample: Sample) -> Tables:
        """The tables of one context."""
        lm, info = self.lm, self.lm.info
        context, ids, *_ = self.prompts.of(sample, self.stop)
        question = Question(ids, sample.max_new_tokens, self.stop)
        needed = len(context.ids) + teacher_forced.longest(self.kind, sample, context, question)
        obstacle = lm.obstacle(len(context.ids), needed)
        if obstacle:
            raise HarnessError(f"{sample.sample_id} {obstacle}; give a smaller --length, or another --model")
        _, scored, made, _ = prune(lm, self.compared, context, self.seed)
        read = teacher_forced.reference(self.kind, sample, question, lm, scored.prefix, BLOCK_BYTES)
        if not read.parts:
            raise HarnessError(f"{sample.sample_id}: {teacher_forced.BROKEN}")
        shape = (info.layers, info.kv_heads, len(context.ids))
        used = attention_of(lm, scored.prefix, (*read.parts[0].question, *read.parts[0].target))
        nothing = torch.full(shape, float("nan"))
        scores = [scored.scores.get(one.method, nothing).cpu() for one in self.compared]
        kept = [*made.keep.unbind(), _best(used, self.removed)]
        for index, failure in made.failed.items():
            scores[index] = nothing
            self.failed[name_of(self.compared[index])] = failure.reason
        own = slice(context.prefix, None)
        return Tables(
            rank_correlations(torch.stack([*scores, used])[..., own]),
            shares(torch.stack(kept)[..., own], [index in made.failed for index in range(len(kept))]),
        )


def _best(scores: Tensor, removed: Decimal) -> Tensor:
    cached = scores.shape[-1]
    return Ranking(scores, torch.zeros(cached, dtype=torch.bool)).head(number_kept(cached, removed))


def attention_of(lm: LanguageModel, prefix: Prefix, ids: Sequence[int], block_bytes: int = BLOCK_BYTES) -> Tensor:
    """The largest weight that any of the tokens ``ids`` after a prefix gives to each of its pairs, over the query heads
    of the KV head: float32 ``[L, H, T]``. The softmax (float32) runs over all that a token sees."""
    layers: list[Tensor] = []

    def observe(seen: Observation) -> None:
        peaks = largest_weights(seen, slice(0, seen.new), seen.keys, slice(0, prefix.cached)).plain
        layers.append(peaks.view(-1, seen.group, prefix.cached).amax(dim=1).exp().cpu())

    run = DenseRun(lm, prefix, prefix.cached, 0, block_bytes, observe)
    with run.engaged():
        lm.forward(torch.tensor([list(ids)], device=lm.device), prefix.cached, run)
    return torch.stack(layers)


def rank_correlations(scores: Tensor) -> Tensor:
    """Spearman's correlation of M score sets with each other, head by head: ``[M, L, H, T]`` -> float64
    ``[M, M, L, H]``."""
    ordered = scores.double().movedim(0, 2).contiguous()  # [L, H, M, T]
    ascending = ordered.sort(dim=-1).values
    below, up_to = (torch.searchsorted(ascending, ordered, right=right) for right in (False, True))
    ranks = (below + up_to).double()  # twice the mean rank; scale and shift do not matter
    ranks[torch.isnan(ordered).any(dim=-1)] = float("nan")
    ranks -= ranks.mean(dim=-1, keepdim=True)
    ranks /= ranks.norm(dim=-1, keepdim=True)  # 0 / 0 where all scores are the same
    return (ranks @ ranks.transpose(-1, -2)).clamp(-1, 1).permute(2, 3, 0, 1)


def shares(keep: Tensor, failed: Sequence[bool]) -> Tensor:
    """``[a, b]``: of what a keeps in a head, the share that b keeps too. ``keep [M, L, H, T]`` -> float64
    ``[M, M, L, H]``; NaN where a keeps nothing or one has failed."""
    sets = keep.double().movedim(0, 2)  # [L, H, M, T]
    common = (sets @ sets.transpose(-1, -2)).permute(2, 3, 0, 1)
    found = common / keep.sum(dim=-1).unsqueeze(1)
    gone = torch.tensor(list(failed))
    return found.masked_fill((gone.unsqueeze(0) | gone.unsqueeze(1))[..., None, None], float("nan"))


def _listed(values: Tensor) -> Any:
    """Nested lists; NaN is null."""

    def plain(value: Any) -> Any:
        return [plain(one) for one in value] if isinstance(value, list) else None if value != value else round(value, 6)

    return plain(values.tolist())
