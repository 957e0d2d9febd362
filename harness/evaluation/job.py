"""A run before its model is loaded: everything resolved and checked."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import benchmarks.registry
from benchmarks.base import Benchmark, Request, Sample, check_reachable, content_hash
from benchmarks.fidelity.benchmark import resolve_fidelity
from harness.analysis.summary import facts_of
from harness.config import query_modes
from harness.config.grid import plan
from harness.config.run_config import RunConfig
from harness.config.variants import Plan
from harness.engine.adapter import describe, max_positions
from harness.errors import HarnessError
from harness.evaluation import provenance
from harness.evaluation.evaluator import Item, sampling_of
from harness.files import check_folder
from harness.models import loading, thinking, truncation
from harness.models.identity import commit_of
from harness.models.known_models import EMBEDDED
from harness.models.prompts import Prompts, prints_date
from harness.results.run_folder import RunFolder
from harness.results.schema import Facts
from methods.registry import load_plugin, unknown

#: what changes every sample's answers; in a run's configuration where given
ANSWER_FLAGS = ("rollouts", "max_new_tokens")
#: samples this many times as long as a model's positions are not made, not even to be marked as too long
ABSURD = 16
#: samples per subset with the embedded model, which is there to try things out
EMBEDDED_LIMIT = 3


@dataclass
class Job:
    """A resolved configuration: everything that is needed before the model is loaded, all of it checked."""

    config: RunConfig
    plan: Plan
    prompts: Prompts
    items: list[Item]
    limits: dict[str, int | None]
    device: str
    dtype: str
    max_positions: int
    #: what the benchmarks say of what is requested
    notes: tuple[str, ...] = ()
    #: of a hub model: the commit that configuration, tokenizer and weights are of
    commit: str | None = None

    @property
    def configuration(self) -> dict[str, Any]:
        """What makes two runs the same; the folder's name comes from it."""
        return {
            "model": loading.short_name(self.config.model),
            "model_files": loading.local_hash(self.config.model),
            **({"model_commit": self.commit} if self.commit else {}),
            **({"template_date": self.prompts.today.isoformat()} if prints_date(self.prompts.tokenizer) else {}),
            "variants": [p.variant.fields() for p in self.plan.planned],
            "benchmarks": sorted({item.benchmark.name for item in self.items}),
            "lengths": list(dict.fromkeys(item.sample.length for item in self.items)),
            "subsets": list(dict.fromkeys(item.sample.subset for item in self.items)),
            "limits": self.limits,
            "data_hash": provenance.data_hash(item.sample for item in self.items),
            "seed": self.config.seed,
            "device": self.device.split(":")[0],
            "dtype": self.dtype,
            **{name: given for name in ANSWER_FLAGS if (given := getattr(self.config, name)) is not None},
        }

    @property
    def folder(self) -> RunFolder:
        name = loading.short_name(self.config.model).rpartition("/")[2].lower()
        kinds = "-".join(dict.fromkeys(item.benchmark.name for item in self.items)).replace(":", "-")
        return RunFolder(self.config.out / f"{name}-{kinds}-{content_hash(self.configuration)[:8]}")

    @property
    def facts(self) -> dict[str, Facts]:
        return {item.benchmark.name: facts_of(item.benchmark) for item in self.items}

    @property
    def expected(self) -> int:
        """How many lines a complete run has."""
        return sum(item.sample.rollouts for item in self.items) * len(self.plan.planned)


def resolve(config: RunConfig) -> Job:
    """Check everything that can be checked without the model's weights; raises a user error on the first fault."""
    check_folder(config.out)
    check_reachable(config.data)
    for path in config.plugin:
        load_plugin(path)
    named = [benchmarks.registry.get(name) for name in config.benchmark]
    wanted = resolve_fidelity(named, config.reference, config.data)
    phase = _phase(config, wanted)
    modes = query_modes.resolve(config.query_mode, config.query_aware, wanted)
    requests = {benchmark.name: _request_for(benchmark, config, wanted) for benchmark in wanted}
    for benchmark in wanted:
        benchmark.check(requests[benchmark.name])
    model = loading.config_of(config.model)
    most = max_positions(model)
    _check_lengths(config, most)
    device = loading.pick_device(config.device)
    dtype = str(loading.pick_dtype(config.dtype, device)).removeprefix("torch.")
    commit = None if config.model in EMBEDDED else commit_of(config.model)
    tokenizer = loading.load_tokenizer(config.model, commit)
    thinks = thinking.resolve(config.thinking, wanted, tokenizer, config.model)
    settled = {"phase": phase, "thinking": "on" if thinks else "off", "query_mode": modes}
    planned = plan(config.model_copy(update=settled), describe(model, config.model))
    prompts = Prompts(tokenizer, config.compat, thinks)
    items = [
        Item(benchmark, _answered(benchmark, sample, config))
        for benchmark in wanted
        for sample in _samples(benchmark, requests[benchmark.name], prompts)
    ]
    if not items:
        raise HarnessError("the benchmarks gave no sample; see `kvprune benchmarks` and --subset, --length")
    thinking.check_samples(thinks, items)
    _check_fits(items, prompts, most, config.model)
    _check_one_prompt(planned, items, prompts, config.query_aware)
    limits = {name: asked.limit for name, asked in requests.items()}
    notes = tuple(note for benchmark in wanted for note in benchmark.notes(requests[benchmark.name]))
    return Job(config, planned, prompts, items, limits, device, dtype, most, notes, commit)


def _request_for(benchmark: Benchmark, config: RunConfig, wanted: list[Benchmark]) -> Request:
    for name in config.subset:
        if not any(other.subsets_named(name) for other in wanted):
            known = {subset for other in wanted for subset in (*other.subsets, *other.groups)}
            raise HarnessError(unknown("subset", name, sorted(known)))
    own = tuple(dict.fromkeys(subset for name in config.subset for subset in benchmark.subsets_named(name)))
    if config.subset and not own:
        raise HarnessError(f"--subset names none of {benchmark.name}'s subsets: {', '.join(benchmark.subsets)}")
    limit = config.limit
    if limit is None and config.model in EMBEDDED and not _rows_given(config):
        limit = EMBEDDED_LIMIT
    data = config.data if len(wanted) == 1 or benchmark.needs_data else None
    return Request(config.length, own, limit, data, config.seed, frozenset(own) - {*config.subset})


def _samples(benchmark: Benchmark, request: Request, prompts: Prompts) -> list[Sample]:
    found = benchmark.samples(request, prompts.text)
    benchmark.check_samples(request, found, prompts.text)
    return found


def _phase(config: RunConfig, wanted: Sequence[Benchmark]) -> str:
    """The phase of the whole run: the one given, or the default that all its benchmarks share."""
    if config.phase is not None:
        return config.phase
    defaults = {benchmark.name: benchmark.default_phase for benchmark in wanted}
    if len(set(defaults.values())) > 1:
        told = ", ".join(f"{name}: {phase}" for name, phase in defaults.items())
        raise HarnessError(f"a run has one phase, but these benchmarks have different defaults ({told}); give --phase")
    return next(iter(defaults.values()))


def _answered(benchmark: Benchmark, sample: Sample, config: RunConfig) -> Sample:
    """A sample with the run's number of rollouts and answer limit in place of the benchmark's."""
    sampling_of(sample, config.seed)  # refuses settings that mean nothing
    if config.rollouts is not None and sample.sampling is None:
        raise HarnessError(
            f"--rollouts {config.rollouts}: {benchmark.name} answers greedily, so all rollouts would be the same; "
            "leave --rollouts out, or use a benchmark that samples, such as aime25"
        )
    return replace(
        sample,
        rollouts=config.rollouts or sample.rollouts,
        max_new_tokens=config.max_new_tokens or sample.max_new_tokens,
    )


def _rows_given(config: RunConfig) -> bool:
    """Whether ``--data`` is a file of finished rows; a folder may be the texts that samples are made from."""
    return config.data is not None and not config.data.is_dir()


def _check_lengths(config: RunConfig, most: int) -> None:
    """Far too long samples are not even generated; a sample may be somewhat shorter than its length."""
    if config.length and not _rows_given(config):
        check_lengths(config.length, most, config.model)


def check_lengths(lengths: Sequence[int], most: int, model: str) -> None:
    """:class:`HarnessError` where all lengths are far too long for a model's positions, or one is absurdly so."""
    for length, times in ((min(lengths), 2), (max(lengths), ABSURD)):
        if length > times * most:
            raise HarnessError(
                f"no sample fits model {model!r}: it has {most} positions, --length asks for {length}; give a smaller "
                "--length or another --model"
            )


def _check_fits(items: list[Item], prompts: Prompts, most: int, model: str) -> None:
    """At least one sample must fit; single ones that do not are marked ``truncated`` in the results."""
    least = sys.maxsize
    for _, sample in items:
        used = _tokens(prompts, sample, most)
        if used <= most:
            return
        least = min(least, used)
    raise HarnessError(
        f"no sample fits model {model!r}: the shortest needs {least} positions, the model has {most}; "
        "give a smaller --length or --max-new-tokens, or another --model"
    )


def _check_one_prompt(planned: Plan, items: list[Item], prompts: Prompts, query_aware: bool) -> None:
    """All variants of a run read the same ids, so those with and without kvpress's prompts only go together where
    the two are the same."""
    if all(p.method.compat == prompts.compat for p in planned.planned):
        return
    other = Prompts(prompts.tokenizer, "" if prompts.compat else "kvpress", prompts.thinking)
    for _, sample in items:
        if _ids(prompts, sample, query_aware) != _ids(other, sample, query_aware):
            raise HarnessError(
                f"sample {sample.sample_id} reads otherwise with compat=kvpress, so variants with and without it "
                "cannot share a run; give --compat kvpress for all methods, or run them apart"
            )


def _ids(prompts: Prompts, sample: Sample, query_aware: bool) -> tuple[tuple[int, ...], ...]:
    context, question, *_ = prompts.of(sample, query_aware=query_aware)
    return context.ids, (context.prefix,), context.suffix, question


def _tokens(prompts: Prompts, sample: Sample, most: int) -> int:
    context, question, *_ = truncation.fitted(prompts, sample, most)
    return len(context.ids) + len(question) + sample.max_new_tokens
