"""The configuration of a run: flags over a YAML file over defaults, or keywords in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, model_validator

from harness.config.flags import (
    Device,
    Dtype,
    FilePath,
    Flags,
    Fractions,
    Lengths,
    Methods,
    Model,
    Names,
    NotNegative,
    NotNegatives,
    Numbers,
    Options,
    Plugins,
    Positive,
    Positives,
    Seed,
    Subsets,
    Switch,
    Text,
    help_text,
    one_of,
    several,
)
from harness.errors import HarnessError
from harness.models.known_models import DEFAULT_MODEL
from methods import yaml_files

PHASES = ("prefill", "decode", "both")
AGNOSTIC, AWARE, REUSED = QUERY_MODES = ("agnostic", "aware", "aware-reused")
QueryMode = Annotated[str, BeforeValidator(one_of(*QUERY_MODES))]


class RunConfig(Flags):
    """What a run is to do. A field is a flag of ``kvprune run`` and a key of ``--config``; empty tuples and None mean
    a default that the resolved run records."""

    method: Methods = ("kvzap",)
    budget: Annotated[Names, help_text("head, layer, global, threshold (default: the method's own)")] = ()
    removed: Annotated[Fractions, help_text("removed fractions (default: 0.25,0.5,0.75)")] = ()
    threshold: Annotated[Numbers, help_text("thresholds tau of the threshold budget, as in --threshold=-6,-4")] = ()
    keep_tokens: Annotated[Positives, help_text("pairs kept in each head, the window included")] = ()
    window: Annotated[
        NotNegatives, help_text("protected most recent pairs, for all methods (default: each method's own)")
    ] = ()
    sinks: Annotated[
        NotNegatives, help_text("protected first pairs, for all methods (default: each method's own)")
    ] = ()
    option: Options = ()
    phase: Annotated[
        str | None,
        BeforeValidator(one_of(*PHASES)),
        help_text("when to prune: prefill, decode or both (default: the benchmark's)"),
    ] = None
    query_aware: Annotated[Switch, help_text("prune with the question in view")] = False
    query_mode: Annotated[
        tuple[QueryMode, ...],
        *several,
        help_text("agnostic, aware, aware-reused; for benchmarks with several questions per context"),
    ] = ()
    compat: Annotated[
        str,
        BeforeValidator(one_of("", "kvpress")),
        help_text("kvpress: protection, rounding and prompts of NVIDIA/kvpress"),
    ] = ""
    benchmark: Annotated[Names, help_text("benchmarks")] = ("needles",)
    length: Lengths = ()
    subset: Subsets = ()
    limit: Annotated[Positive | None, help_text("samples per subset")] = None
    data: Annotated[FilePath | None, help_text("local rows, or a folder of the texts that samples are made from")] = (
        None
    )
    reference: Annotated[Text | None, help_text("what all variants of fidelity read: answer, text, repeat")] = None
    rollouts: Annotated[
        Positive | None, help_text("sampled answers per variant, for benchmarks that sample (default: the benchmark's)")
    ] = None
    max_new_tokens: Annotated[Positive | None, help_text("answer limit in tokens (default: the benchmark's)")] = None
    thinking: Annotated[
        str,
        BeforeValidator(one_of("on", "off", "auto")),
        help_text("thinking in the chat template; auto: on where benchmark and model are made for it"),
    ] = "auto"
    model: Model = DEFAULT_MODEL
    device: Device = "auto"
    dtype: Dtype = "auto"
    seed: Seed = 0
    plugin: Plugins = ()
    out: Annotated[FilePath, help_text("folder for run folders")] = Path("results")
    resume: Annotated[Switch, help_text("continue an incomplete run")] = False
    force: Annotated[Switch, help_text("start over, dropping what is there")] = False
    threads: Annotated[Positive | None, help_text("threads of a model on a CPU (default: one per core)")] = None
    store_masks: Annotated[NotNegative, help_text("samples per subset whose keep masks are stored")] = 0

    @model_validator(mode="after")
    def _one_start(self) -> RunConfig:
        if self.resume and self.force:
            raise ValueError("--resume and --force exclude each other: one continues a run, the other starts it over")
        return self


def read(path: Path | None, flags: dict[str, Any]) -> RunConfig:
    """The configuration of a YAML file whose keys are the flags' names (None: no file), with ``flags`` over it."""
    return RunConfig(**{**(_keys(path) if path is not None else {}), **flags})


def _keys(path: Path) -> dict[str, Any]:
    needed = "keys and values, the keys being flag names such as removed: 0.5"
    try:
        content = yaml_files.read(path)
    except yaml_files.YamlFault as error:
        raise HarnessError(f"--config {path} {error}; it must hold {needed}") from error
    if not isinstance(content, dict | None):
        raise HarnessError(f"--config {path} must hold {needed}")
    values: dict[str, Any] = {}
    for written, value in (content or {}).items():
        key = str(written).replace("-", "_")
        if key in values:
            raise HarnessError(f"--config {path} has the key {key} twice, once with - and once with _; leave one out")
        inner = value if isinstance(value, list) else [value]
        if any(isinstance(one, dict | list) for one in inner):
            raise HarnessError(f"--config {path}: {key} takes a value, or a list of values that hold nothing more")
        values[key] = value
    return values
