"""What the checks of one method work with: its instances, small models, and what these show of a context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from harness.config.grid import plan
from harness.config.run_config import RunConfig
from harness.config.variants import Planned
from harness.conformance import models
from harness.engine.adapter import LanguageModel
from harness.engine.batch import Batch
from harness.engine.context import Context, Scored
from harness.engine.eviction import Policy
from harness.engine.masked_decode import MaskedRun
from harness.engine.prefill import prefill
from harness.errors import HarnessError
from harness.evaluation.pruned_context import PrunedContext, prune
from harness.models.known_models import DEFAULT_MODEL
from methods import registry
from methods.base import Method, MethodError, ModelInfo, Observation, Pass, Protection, Step

#: tokens of the template before the context
PREFIX = 3
#: most tokens of a context; a method that protects more than about half of it cannot be pruned here
LONGEST = 2048
TINY, SLIDING = "tiny-llama", "tiny-gemma3"


def some_ids(count: int, seed: int = 0) -> tuple[int, ...]:
    """Random token ids."""
    generator = torch.Generator().manual_seed(1000 + seed)
    return tuple(torch.randint(0, models.VOCABULARY, (count,), generator=generator).tolist())


def context_of(tokens: int, seed: int = 0, prefix: int = PREFIX) -> Context:
    """A context of ``tokens`` random ids after a template of ``prefix``; texts become ids by their bytes."""
    ids = some_ids(prefix) + some_ids(tokens, seed + 1)
    return Context(ids, prefix, (5, 9), lambda text: [byte % models.VOCABULARY for byte in text.encode()[-12:]])


def named(one: Planned) -> str:
    """A variant in messages, which are about several phases at once."""
    return f"{one.variant.label}, phase {one.variant.phase}"


@dataclass(frozen=True, eq=False)
class Recorder(Method):
    """Remembers what it is shown, in extra passes too, and prunes nothing."""

    extra: tuple[Pass, ...] = ()
    shown: list[Observation] = field(default_factory=list)
    in_passes: list[tuple[Pass, Observation]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    name: ClassVar[str] = "recorder"
    needs: ClassVar[frozenset[str]] = frozenset({"hidden", "queries", "weights"})

    def score(self, seen: Observation) -> Tensor:
        self.shown.append(seen)
        return torch.zeros(seen.keys.shape[:2])

    def passes(self, cached: int, prefix: int) -> list[Pass]:
        return list(self.extra)

    def score_pass(self, seen: Observation, run: Pass) -> Tensor:
        self.in_passes.append((run, seen))
        start, stop = run.columns
        return torch.zeros(seen.keys.shape[0], stop - start)

    def score_step(self, step: Step, scores: Tensor) -> Tensor:
        self.steps.append(step)
        return torch.nn.functional.pad(scores, (0, step.new))


class Bench:
    """The bench of one method.

    Models are small, random and the bench's own. By default a Llama with 9 query and 3 KV heads, and a Gemma 3 with
    sliding windows; ``model`` is a name whose shape is taken instead. A method that needs weights for its model and has
    none for these gets the shape of the embedded model, for which the built-in surrogates exist.
    """

    def __init__(self, name: str, options: dict[str, str] | None = None, model: str = "") -> None:
        """Unknown names and options, and a method without weights for the model: :class:`MethodError` or
        :class:`HarnessError`."""
        if name in registry.aliases():
            shape = model or DEFAULT_MODEL
            name = registry.resolve(name, models.info(models.like(shape), shape))
        self.cls = registry.get(name)
        self.name = name
        self.given = dict(options or {})
        registry.build(name, self.given)
        self.untouched = _state_of_torch()
        self.shape, self.config = self._shape(model)
        self._models: dict[tuple[str, torch.dtype], LanguageModel] = {}

    def _shape(self, model: str) -> tuple[str, Any]:
        if model:
            config = models.like(model)
            self._binds(model, config, raises=True)
            return model, config
        if self._binds(TINY, models.tiny()):
            return TINY, models.tiny()
        config = models.like(DEFAULT_MODEL)
        self._binds(DEFAULT_MODEL, config, raises=True)
        return DEFAULT_MODEL, config

    def _binds(self, name: str, config: Any, raises: bool = False) -> bool:
        """Whether the method has what it needs for a model. Only its own refusal counts; a method that breaks is a
        finding of the checks."""
        try:
            self.fresh(models.info(config, name))
        except MethodError as error:
            if not raises:
                return False
            raise HarnessError(
                f"{self.name} refuses a model of the shape of {name!r}: {error}\n"
                "Give --model NAME of a model that it has weights for (its shape is used, with random weights)"
            ) from error
        except Exception:
            return True
        return True

    def fresh(self, info: ModelInfo | None = None) -> Method:
        """A new instance, bound to the bench's model unless another is given."""
        return registry.build(self.name, self.given).bind(info or self.info)

    @cached_property
    def method(self) -> Method:
        """The instance that most checks share."""
        return self.fresh()

    @cached_property
    def info(self) -> ModelInfo:
        return models.info(self.config, self.shape)

    @cached_property
    def double(self) -> torch.dtype:
        """float64, or float32 where the model would be too large in it."""
        small = models.parameters(self.config) <= models.MOST_IN_DOUBLE
        return torch.float64 if small else torch.float32

    @property
    def tolerance(self) -> float:
        """How far two log-probabilities of the same thing may lie apart in :attr:`double`."""
        return 1e-9 if self.double == torch.float64 else 1e-3

    def lm(self, dtype: torch.dtype = torch.float32) -> LanguageModel:
        """The bench's model."""
        return self._model(self.shape, self.config, dtype)

    def sliding(self) -> LanguageModel | None:
        """A model with sliding windows in some layers; None where the method refuses it."""
        config = models.tiny_sliding()
        return self._model(SLIDING, config, torch.float32) if self._binds(SLIDING, config) else None

    def _model(self, name: str, config: Any, dtype: torch.dtype) -> LanguageModel:
        if (name, dtype) not in self._models:
            self._models[name, dtype] = models.build(config, name, dtype)
        return self._models[name, dtype]

    @property
    def models(self) -> list[LanguageModel]:
        """Every model that was made so far."""
        return list(self._models.values())

    @cached_property
    def protection(self) -> Protection:
        """What no flag and no budget takes away: the published protection and the mechanism."""
        return self.method.protects() | self.method.mechanism_for(0)

    def length(self, protection: Protection) -> int:
        """Cached tokens of a context of which a quarter and a half can be removed under ``protection``; at most
        :data:`LONGEST`."""
        protected = int(protection.mask(LONGEST, PREFIX).sum())
        return min(LONGEST, 2 * protected + 48)

    @cached_property
    def context(self) -> Context:
        """A context that is long enough for what the method itself always keeps, with small flags for the rest."""
        return context_of(self.length(self.method.mechanism_for(0) | Protection(2, 8)) - PREFIX)

    def grid(self, budget: str, phase: str = "prefill", own: bool = False, **levels: Any) -> RunConfig:
        """A grid of this method alone; ``own`` leaves it its published protection, else a small one is requested."""
        given = tuple(f"{self.name}.{key}={value}" for key, value in self.given.items())
        flags: dict[str, Any] = {} if own else {"window": (8,), "sinks": (2,)}
        return RunConfig(method=(self.name,), budget=(budget,), option=given, phase=phase, **flags, **levels)

    def plan(self, grids: Sequence[RunConfig], lm: LanguageModel) -> list[Planned]:
        """The variants of some grids without the control; with new instances of the method for each grid."""
        return [one for grid in grids for one in plan(grid, lm.info).planned if not one.method.is_control]

    def run(self, planned: Sequence[Planned], lm: LanguageModel, context: Context) -> PrunedContext:
        """Score and mask, as a run does it. A method that fails there raises."""
        pruned = prune(lm, planned, context)
        for method, failure in pruned.scored.failed.items():
            raise RuntimeError(f"{method.name} failed on a context of {len(context.ids)} pairs: {failure.reason}")
        return pruned

    def fails(self, ran: PrunedContext) -> str:
        """Why variants could not be masked, empty where all could."""
        return "; ".join(f"{ran.planned[i].variant.label}: {why.reason}" for i, why in ran.masks.failed.items())

    @property
    def decoding(self) -> list[str]:
        """The phases beside ``prefill`` that the method declares."""
        return [phase for phase in self.cls.phases if phase != "prefill"]

    def variants(self, lm: LanguageModel) -> list[Planned]:
        """In each declared phase a variant of each budget that goes with it, at a level that prunes; new instances."""
        grids = []
        for phase in self.cls.phases:
            for budget in self.cls.budgets:
                if budget == "threshold":
                    grids.append(self.grid(budget, phase, threshold=(self.tau,)))
                elif phase == "prefill" or budget == "head":
                    grids.append(self.grid(budget, phase, keep_tokens=(len(self.context.ids) // 2,)))
        return self.plan(grids, lm)

    @cached_property
    def tau(self) -> float:
        """A threshold in the middle of the method's scores that some fail: of scores of two values, the larger."""
        scores = torch.stack(self.scores(self.method, self.context))
        above = scores[scores > scores.min()]
        return max(float(scores.median()), float(above.min())) if len(above) else float(scores.min())

    def shown(self, lm: LanguageModel, context: Context, asker: Method | None = None) -> Recorder:
        """What the layers of a model show of a context, and of the passes that ``asker`` asks for."""
        extra = asker.passes(len(context.ids), context.prefix) if asker is not None else ()
        recorder = Recorder(tuple(extra))
        scored = prefill(lm, context, [recorder])
        for failure in scored.failed.values():
            raise RuntimeError(f"the passes of {self.name} cannot be run: {failure.reason}")
        return recorder

    @torch.inference_mode()
    def scores(self, method: Method, context: Context, lm: LanguageModel | None = None) -> list[Tensor]:
        """Scores of each layer as the method returns them, passes written over their columns. Calls the method itself,
        so that whatever it raises comes out."""
        recorder = self.shown(lm or self.lm(), context, method)
        found = [method.score(unshared(seen)) for seen in recorder.shown]
        for run, seen in recorder.in_passes:
            found[seen.layer] = found[seen.layer].clone()
            found[seen.layer][:, slice(*run.columns)] = method.score_pass(unshared(seen), run)
        return found

    @cached_property
    def steps(self) -> list[Step]:
        """What three variants with masks of their own show in a question and two answer tokens; attention weights and
        hidden states only where the method says that it needs them."""
        lm, context = self.lm(), self.context
        recorder = Recorder()
        generator = torch.Generator().manual_seed(1)
        keep = torch.rand(3, lm.info.layers, lm.info.kv_heads, len(context.ids), generator=generator) < 0.6
        policies = [Policy(recorder, Protection(), keep_tokens=10**6)] * 3
        scored = Scored(prefill(lm, context).prefix, {recorder: torch.zeros(keep.shape[1:])})
        run = MaskedRun(Batch(lm, scored, keep, policies), 9)
        with run.engaged():
            for count, seed in ((5, 7), (1, 8), (1, 9)):
                run.advance(torch.tensor([some_ids(count, seed + variant) for variant in range(3)]))
        return [self._as_needed(step) for step in recorder.steps]

    def _as_needed(self, step: Step) -> Step:
        """The step as a run shows it to this method: without what it does not say that it needs."""
        none = torch.empty(0)
        if "hidden" not in self.method.needs:
            step = replace(step, hidden=none)
        return step if "weights" in self.method.needs else replace(step, weight_sums=none, last_weights=none)


def unshared(seen: Observation) -> Observation:
    """An observation whose shared parts are computed again."""
    return replace(seen, _shared={})


def _state_of_torch() -> dict[str, Any]:
    """What a method could leave behind in torch and transformers for everything that runs after it."""
    from torch.nn.modules import module
    from transformers import AttentionInterface

    hooks = {name: len(value) for name, value in vars(module).items() if name.startswith("_global") and _sized(value)}
    kernels = {key: id(value) for key, value in AttentionInterface._global_mapping.items() if key != "kvprune"}
    return {
        "global module hooks": hooks,
        "transformers' attention functions": kernels,
        "scaled_dot_product_attention": id(torch.nn.functional.scaled_dot_product_attention),
        "softmax": (id(torch.nn.functional.softmax), id(torch.softmax)),
        "the default dtype": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "the number of threads": torch.get_num_threads(),
    }


def _sized(value: Any) -> bool:
    return hasattr(value, "__len__")


def left_behind(bench: Bench) -> list[str]:
    """Names of what has changed in torch and transformers since the bench was made."""
    now = _state_of_torch()
    return [name for name, value in bench.untouched.items() if now[name] != value]
