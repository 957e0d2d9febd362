"""Commands that run a model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.app import app
from harness.cli.flags import (
    Budgets,
    Device,
    DeviceOrNone,
    Dtype,
    DtypeOrNone,
    Json,
    KeepTokens,
    Lengths,
    Methods,
    Model,
    ModelOrNone,
    Options,
    Plugins,
    Removed,
    Seed,
    Sinks,
    Texts,
    Thresholds,
    Windows,
    flag,
    quiet,
)
from harness.errors import HarnessError
from harness.models.embedded import DEFAULT_MODEL


@app.command()
def run(
    method: Methods = None,
    budget: Budgets = None,
    removed: Removed = None,
    threshold: Thresholds = None,
    keep_tokens: KeepTokens = None,
    window: Windows = None,
    sinks: Sinks = None,
    option: Options = None,
    phase: Annotated[str | None, flag("when to prune: prefill, decode or both (default: the benchmark's)")] = None,
    query_aware: Annotated[bool | None, flag("prune with the question in view", "--query-aware")] = None,
    query_mode: Annotated[
        Texts,
        flag("agnostic, aware, aware-reused; for benchmarks with several questions on a context", "--query-mode"),
    ] = None,
    compat: Annotated[str | None, flag("kvpress: protection, rounding and prompts of NVIDIA/kvpress")] = None,
    benchmark: Annotated[Texts, flag("benchmarks (default: needles)")] = None,
    length: Lengths = None,
    subset: Annotated[Texts, flag("subsets (default: all that can be run)")] = None,
    limit: Annotated[str | None, flag("samples of each subset")] = None,
    data: Annotated[str | None, flag("local rows, or a folder of the texts that samples are made from")] = None,
    reference: Annotated[str | None, flag("what fidelity has all variants read: answer, text, repeat")] = None,
    rollouts: Annotated[str | None, flag("drawn answers of each variant, of benchmarks that sample")] = None,
    max_new_tokens: Annotated[str | None, flag("answer limit in tokens (default: the benchmark's)")] = None,
    thinking: Annotated[str | None, flag("on, off, or auto: where benchmark and model are made for it")] = None,
    model: ModelOrNone = None,
    device: DeviceOrNone = None,
    dtype: DtypeOrNone = None,
    seed: Annotated[str | None, flag("seed of samples and random scores (default: 0)")] = None,
    plugin: Plugins = None,
    config: Annotated[Path | None, flag("YAML file whose keys are these flags; flags win")] = None,
    out: Annotated[str | None, flag("folder that run folders go into (default: results)")] = None,
    resume: Annotated[bool | None, flag("go on with an incomplete run", "--resume")] = None,
    force: Annotated[bool | None, flag("start over, dropping what is there", "--force")] = None,
    store_masks: Annotated[
        str | None, flag("samples of each subset whose keep masks are stored (default: 0)", "--store-masks")
    ] = None,
) -> None:
    """Evaluate pruning methods on benchmarks; the full cache always runs beside them as the control."""
    flags = {name: value for name, value in locals().items() if name != "config" and value not in (None, [])}
    quiet()
    from harness.config import run_config
    from harness.evaluation import job
    from harness.evaluation.execute import execute
    from harness.reporting import run_table

    resolved = job.resolve(run_config.build(flags, config))
    try:
        outcome = execute(resolved, run_table.progress)
    except KeyboardInterrupt:
        print("stopped; the same command with --resume (without --force) goes on", file=sys.stderr)
        raise typer.Exit(130) from None
    run_table.print_outcome(resolved, outcome)


@app.command("lm-eval")
def lm_eval(
    tasks: Annotated[Texts, flag("tasks of lm-eval, or of --include-path")] = None,
    method: Methods = None,
    budget: Budgets = None,
    removed: Removed = None,
    threshold: Thresholds = None,
    keep_tokens: KeepTokens = None,
    window: Windows = None,
    sinks: Sinks = None,
    option: Options = None,
    limit: Annotated[str | None, flag("documents of each task")] = None,
    include_path: Annotated[Path | None, flag("folder with task files of your own", "--include-path")] = None,
    num_fewshot: Annotated[
        int | None, typer.Option("--num-fewshot", min=0, help="examples in each prompt (default: the task's)")
    ] = None,
    chat: Annotated[bool, typer.Option("--apply-chat-template", help="put prompts in the chat template")] = False,
    model: ModelOrNone = None,
    device: DeviceOrNone = None,
    dtype: DtypeOrNone = None,
    seed: Annotated[str | None, flag("seed of examples and random scores (default: 0)")] = None,
    plugin: Plugins = None,
    json: Annotated[Path | None, flag("write the figures here", "--json")] = None,
) -> None:
    """Run tasks of lm-eval on pruned caches: a column for the full cache and for each variant."""
    own = ("tasks", "include_path", "num_fewshot", "chat", "json")
    flags = {name: value for name, value in locals().items() if name not in ("own", *own) and value not in (None, [])}
    quiet()
    from harness import files
    from harness.config import run_config

    files.check_file(json)
    names = run_config.texts("tasks", tasks)
    if include_path is not None and not include_path.is_dir():
        raise HarnessError(f"--include-path {include_path} is no folder; give one with lm-eval task files (.yaml)")
    from harness.lmeval import run as lmeval  # seconds, for the library's sake

    result = lmeval.run(run_config.build(flags), names, include_path, num_fewshot, chat)
    lmeval.show(result)
    if json:
        lmeval.write(result, json)


@app.command()
def agreement(
    method: Annotated[Texts, flag("methods (default: all); kvzip, the repeat pass, is always there")] = None,
    benchmark: Annotated[str, typer.Option(help="where contexts and questions come from (default: needles)")] = "",
    length: Lengths = None,
    subset: Annotated[Texts, flag("subsets (default: all)")] = None,
    limit: Annotated[int, typer.Option(min=1, help="samples of each subset")] = 2,
    data: Annotated[Path | None, flag("any text in place of a benchmark, or the benchmark's local rows")] = None,
    removed: Annotated[str, typer.Option(help="fraction that the kept sets lack, in each head")] = "0.5",
    option: Annotated[Texts, flag("METHOD.NAME=VALUE; several values are several methods")] = None,
    model: Model = DEFAULT_MODEL,
    device: Device = "auto",
    dtype: Dtype = "auto",
    seed: Seed = 0,
    plugin: Plugins = None,
    json: Json = None,
) -> None:
    """How alike methods' scores and kept sets are, and how much of what a question uses each of them keeps."""
    quiet()
    from benchmarks.base import Request
    from harness import files
    from harness.config import run_config
    from harness.config.grid import parse_removed
    from harness.measure import agreement as compared
    from harness.measure.agreement_tables import print_agreement
    from methods.registry import load_plugin

    files.check_file(json)
    for path in run_config.parts(plugin):
        load_plugin(Path(path))
    fraction = parse_removed(removed)
    lengths = run_config.counts("length", length) if length else ()
    rows = Request(lengths, tuple(run_config.parts(subset)), limit, data, seed)
    names = tuple(run_config.parts(method)) or ("all",)
    asked = compared.Asked(names, fraction, benchmark, rows, model, device, dtype, run_config.options(option or []))
    result = compared.agreement(asked)
    print_agreement(result)
    if json:
        files.write(result, json)


@app.command("train-kvzap")
def train_kvzap(
    kind: Annotated[str, typer.Option(help="linear or mlp")],
    out: Annotated[Path, typer.Option(help="folder for the weights and their card")],
    data: Annotated[str, typer.Option(help="folder of .jsonl files with a text column, or a hub data set")],
    model: Model = DEFAULT_MODEL,
    features: Annotated[str, typer.Option(help="hidden or keys-values")] = "hidden",
    documents: Annotated[int | None, typer.Option(min=1, help="most training documents (default: all)")] = None,
    tokens_per_doc: Annotated[int, typer.Option(min=1, help="random tokens taken of a document")] = 500,
    seed: Seed = 0,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Train a KVzap surrogate: targets from one repeat prompt a document, then a fit layer by layer. Resumable."""
    quiet()
    from harness import training

    training.train(model, kind, out, data, features, documents, tokens_per_doc, seed, device, dtype)
