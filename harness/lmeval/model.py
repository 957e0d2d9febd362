"""A pruned cache as a model of lm-eval's own API, under the name ``kvprune``.

    import lm_eval
    import harness.lmeval_model  # registers it

    args = "pretrained=smollm2-135m,method=kvzap,threshold=-4"
    lm_eval.simple_evaluate(model="kvprune", model_args=args, tasks=["arc_easy"])

``pretrained`` is ``--model``; all other arguments are flags of ``kvprune run`` that make one variant. For
several variants :meth:`KvpruneLM.all` gives one model each, which share every prefill and decode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import lm_eval.models  # noqa: F401  first: its own models are only registered while no other is
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import normalize_gen_kwargs

from harness.config.grid import plan
from harness.config.run_config import RunConfig
from harness.config.variants import Plan
from harness.engine.adapter import describe
from harness.engine.batch import Batch
from harness.engine.context import BLOCK_BYTES, Context
from harness.engine.decode import Question, decode
from harness.engine.loglikelihood import likelihoods
from harness.errors import HarnessError
from harness.evaluation.pruned_context import prune
from harness.models import loading
from harness.models.known_models import DEFAULT_MODEL
from harness.models.loading import Loaded
from harness.models.prompts import Prompts, cut, stop_ids
from methods.registry import load_plugin

Ids = tuple[int, ...]


class Prompt(NamedTuple):
    """A prompt's ids: what is cached and pruned, and what is asked of it (at least one token)."""

    cached: Ids
    asked: Ids


class Job(NamedTuple):
    """One thing to do after a prompt: score a continuation, or generate at most ``most`` tokens up to a stop string."""

    prompt: Prompt
    continuation: Ids = ()
    most: int = 0
    stop: tuple[str, ...] = ()


@dataclass
class Shared:
    """A loaded model and the variants of a plan. Each job runs once, for all of them; prompts with the same cached ids
    share a prefill.

    removed    cached ids -> for each variant the removed fraction measured there
    split      task -> (prompts whose context was found in them, prompts that were cached whole)
    """

    loaded: Loaded
    plan: Plan
    seed: int = 0
    block_bytes: int = BLOCK_BYTES
    removed: dict[Ids, list[float]] = field(default_factory=dict)
    split: dict[str, tuple[set[Ids], set[Ids]]] = field(default_factory=dict)
    _done: dict[Job, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tokenizer = self.loaded.tokenizer
        self.prompts = Prompts(self.tokenizer)
        self.stop_ids = stop_ids(self.prompts, self.loaded.lm.model.generation_config)

    @property
    def first_token(self) -> int:
        """What stands before a continuation without a prompt: BOS, else EOS."""
        own = self.tokenizer.bos_token_id
        return int(self.tokenizer.eos_token_id if own is None else own)

    def encode(self, text: str) -> list[int]:
        """Ids as lm-eval's own models have them: with the tokenizer's special tokens, BOS not twice."""
        return list(self._coded(text)["input_ids"])

    def _coded(self, text: str) -> Any:
        mark = self.tokenizer.decode([self.first_token])
        return self.tokenizer(
            text, add_special_tokens=not (mark and text.startswith(mark)), return_offsets_mapping=True
        )

    def prompt(self, text: str, doc: Any, task: str) -> Prompt:
        """A prompt split at the end of ``doc["context"]`` where that is in it, else before its last token."""
        coded = self._coded(text)
        ids = tuple(coded["input_ids"]) or (self.first_token,)
        own = doc.get("context") if isinstance(doc, dict) else None
        context = own.strip() if isinstance(own, str) else ""
        place = text.rfind(context) if context else -1
        cached = len(ids)
        if place >= 0:
            end = place + len(context)
            cached = sum(start < end for start, _ in coded["offset_mapping"])
        cached = min(cached, len(ids) - 1)
        self.split.setdefault(task, (set(), set()))[place < 0].add(ids)
        return Prompt(ids[:cached], ids[cached:])

    def answer(self, jobs: Sequence[Job], index: int) -> list[Any]:
        """What variant ``index`` says to each job: a :class:`~harness.engine.loglikelihood.Likelihood`, or a text."""
        by_context: dict[Ids, list[Job]] = {}
        for job in dict.fromkeys(jobs):
            if job not in self._done:
                by_context.setdefault(job.prompt.cached, []).append(job)
        for cached, own in by_context.items():
            self._run(cached, own)
        return [self._done[job][index] for job in jobs]

    def _run(self, cached: Ids, jobs: Sequence[Job]) -> None:
        lm, planned = self.loaded.lm, self.plan.planned
        for job in jobs:
            needed = len(cached) + len(job.prompt.asked) + max(job.most, len(job.continuation))
            if obstacle := lm.obstacle(len(cached), needed):
                raise HarnessError(f"a prompt of lm-eval {obstacle}; nothing is cut off it. Use another model or task")
        specials = sum(token == self.first_token for token in cached[:1])
        context = Context(cached, specials, (), self.prompts.encode, self.stop_ids)
        _, _, made, batch = prune(lm, planned, context, self.seed, self.block_bytes)
        for index, failure in made.failed.items():
            label = planned[index].variant.label
            raise HarnessError(f"{label} fails on a prompt of {len(cached)} tokens: {failure.reason}; leave it out")
        self.removed[cached] = [1 - float(keep.float().mean()) if keep.numel() else 0.0 for keep in made.keep]
        for job in jobs:
            asked, continuation = job.prompt.asked, job.continuation
            self._done[job] = [*likelihoods(batch, asked, continuation)] if continuation else self._text(job, batch)

    def _text(self, job: Job, batch: Batch) -> list[Any]:
        def text(ids: Sequence[int]) -> str:
            return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

        def stopped(ids: Sequence[int]) -> bool:
            return any(mark in text(ids) for mark in job.stop)

        question = Question(job.prompt.asked, job.most, self.stop_ids, stopped)
        return [cut(text(answer.ids), job.stop) for answer in decode(batch, question)]


@register_model("kvprune")
class KvpruneLM(TemplateLM):
    """One variant as lm-eval sees it.

    The context is ``doc["context"]`` with what stands before it, where the prompt contains it; the rest of the prompt
    is asked of the pruned cache. Otherwise all of the prompt but its last token is pruned, the question with it.
    Choices are scored as continuations of the pruned cache. Ids are those of lm-eval's ``hf`` model, so that the full
    cache gives its figures. Answers are greedy; prompts are never cut.
    """

    def __init__(
        self,
        pretrained: str = DEFAULT_MODEL,
        batch_size: Any = None,
        max_batch_size: Any = None,
        shared: Shared | None = None,
        index: int | None = None,
        **flags: Any,
    ) -> None:
        super().__init__()
        self.shared = shared or share(RunConfig(model=pretrained, **flags))
        planned = self.shared.plan.planned
        if index is None and len(planned) > 2:
            labels = ", ".join(p.variant.label for p in planned[1:])
            raise HarnessError(
                f"model_args make {len(planned) - 1} variants ({labels}), a model of lm-eval is one; give one level, "
                "or use KvpruneLM.all or `kvprune lm-eval`"
            )
        self.index = len(planned) - 1 if index is None else index
        self.variant = planned[self.index].variant
        self.tokenizer = self.shared.tokenizer

    @classmethod
    def all(cls, shared: Shared) -> list[KvpruneLM]:
        """A model for each variant, the full cache first."""
        return [cls(shared=shared, index=index) for index in range(len(shared.plan.planned))]

    @property
    def eot_token_id(self) -> int:
        return int(self.tokenizer.eos_token_id)

    @property
    def prefix_token_id(self) -> int:
        return self.shared.first_token

    @property
    def tokenizer_name(self) -> str:
        return str(self.tokenizer.name_or_path).replace("/", "__")

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """The prompt of a conversation in the model's template."""
        return str(
            self.tokenizer.apply_chat_template(
                chat_history,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
            )
        )

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        if add_special_tokens is None:
            return self.shared.encode(string)
        return list(self.tokenizer.encode(string, add_special_tokens=add_special_tokens))

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        found = self.shared.answer([self._scored(one) for one in requests], self.index)
        return [(one.logprob, one.greedy) for one in found]

    def _scored(self, one: Instance) -> Job:
        text, continuation = one.args
        if not text.strip():
            ids = tuple(self.tok_encode(text + continuation, add_special_tokens=False))
            first, ids = (self.prefix_token_id, ids) if ids[:1] != (self.prefix_token_id,) else (ids[0], ids[1:])
            return Job(Prompt((), (first,)), ids)
        prompt = self.shared.prompt(text.rstrip(), one.doc, str(one.task_name))
        _, ids = self._encode_pair(text, continuation)  # a space at the border goes to the continuation
        return Job(prompt, tuple(ids))

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        return self.shared.answer([self._generated(one) for one in requests], self.index)

    def _generated(self, one: Instance) -> Job:
        text, asked = one.args
        settings: dict[str, Any] = dict(normalize_gen_kwargs(asked))
        if settings.get("do_sample") or settings.get("temperature"):
            raise HarnessError(
                f"the task {one.task_name} samples its answers ({asked}); here they are greedy: leave its do_sample "
                "and temperature out"
            )
        stop = tuple(mark for mark in settings.get("until") or () if mark)
        return Job(self.shared.prompt(text, one.doc, str(one.task_name)), (), int(settings["max_gen_toks"]), stop)

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        raise HarnessError(
            "rolling log-likelihood (perplexity tasks) has no context that could be pruned before a question; "
            "choose tasks with choices or generated answers"
        )

    def _loglikelihood_tokens(self, requests: Any, **_: Any) -> list[tuple[float, bool]]:
        raise NotImplementedError("loglikelihood is answered from the requests themselves, whose documents it needs")


def share(config: RunConfig) -> Shared:
    """Plan the variants of a configuration, then load its model."""
    for path in config.plugin:
        load_plugin(path)
    if config.phase not in (None, "prefill") or config.query_aware or config.query_mode or config.compat:
        raise HarnessError("lm-eval runs prune in the prefill, without --query-aware, --query-mode and --compat")
    planned = plan(config, describe(loading.config_of(config.model), config.model))
    return Shared(loading.load(config.model, config.device, config.dtype), planned, config.seed)


def mean_removed(shared: Shared, index: int) -> float | None:
    """Removed fraction of a variant, mean over the contexts that were run."""
    values = [by_variant[index] for by_variant in shared.removed.values()]
    return sum(values) / len(values) if values else None
