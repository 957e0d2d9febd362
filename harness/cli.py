"""The command line. Heavy imports wait until a command runs, so that help and mistakes are quick."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.defaults import DEFAULT_MODEL
from harness.errors import user_errors

app = typer.Typer(
    help="Compare KV-cache pruning methods: score once, mask many.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Texts = list[str] | None


def _flag(text: str, *names: str) -> Any:
    return typer.Option(*names, help=text, show_default=False)


@app.command()
def run(
    method: Annotated[Texts, _flag("methods, or all (default: kvzap)")] = None,
    budget: Annotated[Texts, _flag("head, layer, global, threshold (default: the method's own)")] = None,
    removed: Annotated[Texts, _flag("removed fractions (default: 0.25,0.5,0.75)")] = None,
    threshold: Annotated[Texts, _flag("thresholds tau of the threshold budget, as in --threshold=-6,-4")] = None,
    keep_tokens: Annotated[Texts, _flag("pairs kept in each head, the window included", "--keep-tokens")] = None,
    window: Annotated[Texts, _flag("protected recent pairs, for all methods (default: each one's own)")] = None,
    sinks: Annotated[Texts, _flag("protected first pairs, for all methods (default: each one's own)")] = None,
    option: Annotated[Texts, _flag("METHOD.NAME=VALUE; several values are several variants")] = None,
    phase: Annotated[str | None, _flag("when to prune: prefill, decode or both (default: the benchmark's)")] = None,
    query_aware: Annotated[bool | None, _flag("prune with the question in view", "--query-aware")] = None,
    query_mode: Annotated[
        Texts,
        _flag("agnostic, aware, aware-reused; for benchmarks with several questions on a context", "--query-mode"),
    ] = None,
    compat: Annotated[str | None, _flag("kvpress: protection, rounding and prompts of NVIDIA/kvpress")] = None,
    benchmark: Annotated[Texts, _flag("benchmarks (default: needles)")] = None,
    length: Annotated[Texts, _flag("context lengths in tokens (default: the benchmark's)")] = None,
    subset: Annotated[Texts, _flag("subsets (default: all that can be run)")] = None,
    limit: Annotated[str | None, _flag("samples of each subset")] = None,
    data: Annotated[str | None, _flag("local rows, or a folder of the texts that samples are made from")] = None,
    reference: Annotated[str | None, _flag("what fidelity has all variants read: answer, text, repeat")] = None,
    rollouts: Annotated[str | None, _flag("drawn answers of each variant, of benchmarks that sample")] = None,
    max_new_tokens: Annotated[str | None, _flag("answer limit in tokens (default: the benchmark's)")] = None,
    thinking: Annotated[str | None, _flag("on, off, or auto: where benchmark and model are made for it")] = None,
    model: Annotated[str | None, _flag("embedded name, folder, or Hugging Face name (default: smollm2-135m)")] = None,
    device: Annotated[str | None, _flag("auto, cpu, cuda, cuda:N")] = None,
    dtype: Annotated[str | None, _flag("auto, float32, bfloat16, float16, float64")] = None,
    seed: Annotated[str | None, _flag("seed of samples and random scores (default: 0)")] = None,
    plugin: Annotated[Texts, _flag("Python files that register methods")] = None,
    config: Annotated[Path | None, _flag("YAML file whose keys are these flags; flags win")] = None,
    out: Annotated[str | None, _flag("folder that run folders go into (default: results)")] = None,
    resume: Annotated[bool | None, _flag("go on with an incomplete run", "--resume")] = None,
    force: Annotated[bool | None, _flag("start over, dropping what is there", "--force")] = None,
    store_masks: Annotated[
        str | None, _flag("samples of each subset whose keep masks are stored (default: 0)", "--store-masks")
    ] = None,
) -> None:
    """Evaluate pruning methods on benchmarks; the full cache always runs beside them as the control."""
    flags = {name: value for name, value in locals().items() if name != "config" and value not in (None, [])}
    _quiet()
    from harness import job, report, request
    from harness.execute import execute

    resolved = job.resolve(request.build(flags, config))
    try:
        outcome = execute(resolved, report.progress)
    except KeyboardInterrupt:
        print("stopped; the same command with --resume (without --force) goes on", file=sys.stderr)
        raise typer.Exit(130) from None
    report.print_outcome(resolved, outcome)


def _quiet() -> None:
    """No progress bars and chatter of libraries between the lines of ours."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


@app.command()
def methods(plugin: Annotated[Texts, _flag("Python files that register methods")] = None) -> None:
    """List the pruning methods: what each is, its paper, phases, default budget, cost and options."""
    from harness import listings

    listings.print_methods(plugin or [])


@app.command("check-method")
def check_method(
    name: Annotated[str, typer.Argument(help="a method's name")],
    plugin: Annotated[Path | None, _flag("Python file that registers the method")] = None,
    option: Annotated[Texts, _flag("NAME.OPTION=VALUE, one value each")] = None,
    model: Annotated[str, _flag("take this model's shape; for methods that need weights for a model")] = "",
) -> None:
    """Check that a method does what every method must: scores, masks, decoding, state. Small random models, no
    download. Exit code 1 where a check fails."""
    _quiet()
    from harness import conformance

    suite = conformance.prepare(name, plugin, option or [], model)
    outcomes = list(suite.outcomes())
    conformance.print_outcomes(suite.title, outcomes)
    raise typer.Exit(int(any(found.status == conformance.FAILED for found in outcomes)))


@app.command()
def benchmarks() -> None:
    """List the benchmarks with their subsets."""
    from harness import listings

    listings.print_benchmarks()


@app.command()
def models(
    fetch: Annotated[str | None, _flag("only fetch and convert this embedded model, unless it is there")] = None,
) -> None:
    """List the embedded model and well-known ones: KV bytes a token and at 128,000 tokens, surrogate overhead."""
    _quiet()
    from harness import listings
    from harness import models as known

    if fetch is None:
        listings.print_models()
    else:
        print(f"{fetch} lies in {known.fetch(fetch)}")


@app.command("lm-eval")
def lm_eval(
    tasks: Annotated[Texts, _flag("tasks of lm-eval, or of --include-path")] = None,
    method: Annotated[Texts, _flag("methods, or all (default: kvzap)")] = None,
    budget: Annotated[Texts, _flag("head, layer, global, threshold (default: the method's own)")] = None,
    removed: Annotated[Texts, _flag("removed fractions (default: 0.25,0.5,0.75)")] = None,
    threshold: Annotated[Texts, _flag("thresholds tau of the threshold budget, as in --threshold=-6,-4")] = None,
    keep_tokens: Annotated[Texts, _flag("pairs kept in each head, the window included", "--keep-tokens")] = None,
    window: Annotated[Texts, _flag("protected recent pairs, for all methods (default: each one's own)")] = None,
    sinks: Annotated[Texts, _flag("protected first pairs, for all methods (default: each one's own)")] = None,
    option: Annotated[Texts, _flag("METHOD.NAME=VALUE; several values are several variants")] = None,
    limit: Annotated[str | None, _flag("documents of each task")] = None,
    include_path: Annotated[Path | None, _flag("folder with task files of your own", "--include-path")] = None,
    num_fewshot: Annotated[int | None, _flag("examples in each prompt (default: the task's)", "--num-fewshot")] = None,
    chat: Annotated[bool, typer.Option("--apply-chat-template", help="put prompts in the chat template")] = False,
    model: Annotated[str | None, _flag("embedded name, folder, or Hugging Face name (default: smollm2-135m)")] = None,
    device: Annotated[str | None, _flag("auto, cpu, cuda, cuda:N")] = None,
    dtype: Annotated[str | None, _flag("auto, float32, bfloat16, float16, float64")] = None,
    seed: Annotated[str | None, _flag("seed of examples and random scores (default: 0)")] = None,
    plugin: Annotated[Texts, _flag("Python files that register methods")] = None,
    json: Annotated[Path | None, _flag("write the figures here", "--json")] = None,
) -> None:
    """Run tasks of lm-eval on pruned caches: a column for the full cache and for each variant."""
    own = ("tasks", "include_path", "num_fewshot", "chat", "json")
    flags = {name: value for name, value in locals().items() if name not in ("own", *own) and value not in (None, [])}
    _quiet()
    from harness import lmeval, request
    from harness import profile as timing

    timing.check_writable(json)
    names = request.texts("tasks", tasks)
    result = lmeval.run(request.build(flags), names, include_path, num_fewshot, chat)
    lmeval.show(result)
    if json:
        lmeval.write(result, json)


profile = typer.Typer(help="Measure how long things take on this machine.", no_args_is_help=True)
app.add_typer(profile, name="profile")
#: what profile samples runs: the methods that scripts/kvpress_sweep.py knows too
COMPARED = ["random", "knorm", "streaming_llm", "kvzip", "kvzip_plus"]

Model = Annotated[str, typer.Option(help="embedded name, folder, or Hugging Face name")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N")]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16, float16, float64")]
Json = Annotated[Path | None, typer.Option("--json", help="write the figures here")]


@profile.command("sweep")
def profile_sweep(
    method: Annotated[Texts, _flag("methods (default: all)")] = None,
    length: Annotated[Texts, _flag("cached tokens (default: 1024,4096)")] = None,
    question_tokens: Annotated[int, typer.Option(min=1)] = 32,
    new_tokens: Annotated[Texts, _flag("answer tokens, no early stop (default: 24,128)", "--new-tokens")] = None,
    repeat: Annotated[int, typer.Option(min=1, help="runs of which the median is taken")] = 1,
    model: Model = DEFAULT_MODEL,
    device: Device = "auto",
    dtype: Dtype = "auto",
    json: Json = None,
) -> None:
    """Time the grid of methods x removed 0.25, 0.5, 0.75, 0.875: shared against one variant at a time."""
    _quiet()
    from harness import profile as timing
    from harness import report, request

    timing.check_writable(json)
    lengths = request.counts("length", length or "1024,4096")
    counts = request.counts("new-tokens", new_tokens or "24,128")
    names = request.parts(method) or ["all"]
    result = timing.sweep(model, names, lengths, question_tokens, counts, repeat, device, dtype)
    report.print_sweep(result)
    if json:
        timing.write(result, json)


@profile.command("samples")
def profile_samples(
    method: Annotated[Texts, _flag("methods (default: those that need no surrogate)")] = None,
    benchmark: Annotated[str, typer.Option(help="where the samples come from")] = "needles",
    length: Annotated[int, typer.Option(min=1)] = 1024,
    subset: Annotated[Texts, _flag("subsets (default: all)")] = None,
    limit: Annotated[int, typer.Option(min=1, help="samples of each subset")] = 1,
    model: Model = DEFAULT_MODEL,
    device: Device = "auto",
    dtype: Dtype = "auto",
    json: Json = None,
) -> None:
    """Time the shared grid on real samples; scripts/kvpress_sweep.py runs kvpress on the same ones."""
    _quiet()
    from benchmarks.base import Request
    from harness import profile as timing
    from harness import report, request

    timing.check_writable(json)
    names = request.parts(method) or COMPARED
    asked = Request((length,), tuple(request.parts(subset)), limit)
    result = timing.on_samples(model, names, benchmark, asked, device, dtype)
    report.print_samples_timing(result)
    if json:
        timing.write(result, json)


@app.command()
def agreement(
    method: Annotated[Texts, _flag("methods (default: all); kvzip, the repeat pass, is always there")] = None,
    benchmark: Annotated[str, typer.Option(help="where contexts and questions come from (default: needles)")] = "",
    length: Annotated[Texts, _flag("context lengths in tokens (default: the benchmark's)")] = None,
    subset: Annotated[Texts, _flag("subsets (default: all)")] = None,
    limit: Annotated[int, typer.Option(min=1, help="samples of each subset")] = 2,
    data: Annotated[Path | None, _flag("any text in place of a benchmark, or the benchmark's local rows")] = None,
    removed: Annotated[str, typer.Option(help="fraction that the kept sets lack, in each head")] = "0.5",
    option: Annotated[Texts, _flag("METHOD.NAME=VALUE; several values are several methods")] = None,
    model: Model = DEFAULT_MODEL,
    device: Device = "auto",
    dtype: Dtype = "auto",
    seed: Annotated[int, typer.Option(min=0)] = 0,
    plugin: Annotated[Texts, _flag("Python files that register methods")] = None,
    json: Json = None,
) -> None:
    """How alike methods' scores and kept sets are, and how much of what a question uses each of them keeps."""
    _quiet()
    from benchmarks.base import Request
    from harness import agreement as compared
    from harness import profile as timing
    from harness import request
    from harness.agreement_report import print_agreement
    from harness.grid import parse_removed
    from methods.registry import load_plugin

    timing.check_writable(json)
    for path in request.parts(plugin):
        load_plugin(Path(path))
    lengths = request.counts("length", length) if length else ()
    rows = Request(lengths, tuple(request.parts(subset)), limit, data, seed)
    names = tuple(request.parts(method)) or ("all",)
    asked = compared.Asked(
        names, parse_removed(removed), benchmark, rows, model, device, dtype, request.options(option or [])
    )
    result = compared.agreement(asked)
    print_agreement(result)
    if json:
        timing.write(result, json)


@app.command("train-kvzap")
def train_kvzap(
    kind: Annotated[str, typer.Option(help="linear or mlp")],
    out: Annotated[Path, typer.Option(help="folder for the weights and their card")],
    data: Annotated[str, typer.Option(help="folder of .jsonl files with a text column, or a hub data set")],
    model: Model = DEFAULT_MODEL,
    features: Annotated[str, typer.Option(help="hidden or keys-values")] = "hidden",
    documents: Annotated[int | None, typer.Option(min=1, help="most training documents (default: all)")] = None,
    tokens_per_doc: Annotated[int, typer.Option(min=1, help="random tokens taken of a document")] = 500,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Train a KVzap surrogate: targets from one repeat prompt a document, then a fit layer by layer. Resumable."""
    _quiet()
    from harness import training

    training.train(model, kind, out, data, features, documents, tokens_per_doc, seed, device, dtype)


@app.command()
def score(
    benchmark: Annotated[str, typer.Option(help="whose metrics: longbench or longbench_e")],
    predictions: Annotated[Path, typer.Option(help="folder of SUBSET.jsonl: pred, answers, all_classes, length")],
    json: Json = None,
) -> None:
    """Score the predictions of another program with a benchmark's own metrics. Needs no model."""
    from harness import profile, scoring

    profile.check_writable(json)
    result = scoring.score(benchmark, predictions)
    scoring.print_scores(result)
    if json:
        profile.write(result, json)


@app.command()
def report(
    results: Annotated[Path, typer.Argument(help="a run folder, or a folder of them")],
    form: Annotated[str, typer.Option("--format", help="table, markdown, csv or html")] = "table",
    out: Annotated[Path | None, _flag("write it here instead of printing it")] = None,
) -> None:
    """Print results: scores with intervals, paired differences from the control, ranks, areas, alarms. Runs that may be
    compared share a table."""
    from harness import reporting

    reporting.report(results, form, out)


@app.command()
def compare(
    what: Annotated[list[str], typer.Argument(help="RUN | RUN_A RUN_B | RUN VARIANT_A VARIANT_B | RUN A RUN_B B")],
    samples: Annotated[int, typer.Option(min=0, help="most samples listed that differ")] = 20,
) -> None:
    """Paired differences, and the samples on which two variants or two runs differ. A variant is named as tables name
    it, in quotes; two runs are compared on each variant that both have; one run alone gives all its pairs."""
    from harness import comparing, reporting

    reporting.show(comparing.compared(what, samples))


@app.command()
def rescore(
    results: Annotated[Path, typer.Argument(help="a run folder, or a folder of them")],
    data: Annotated[Path | None, _flag("the benchmark's rows, for runs that do not hold their texts")] = None,
    check: Annotated[bool, typer.Option("--check", help="write nothing; exit code 1 where a score changes")] = False,
) -> None:
    """Score stored predictions anew, without a model, and rebuild the summaries."""
    from harness import rescoring

    outcomes, notes = rescoring.rescore(results, data, check)
    for text in (*rescoring.told(outcomes, check), *(f"note: {note}" for note in notes)):
        print(text)
    raise typer.Exit(int(check and any(outcome.changed for outcome in outcomes)))


@app.command()
def leaderboard(
    results: Annotated[list[Path] | None, typer.Argument(help="run folders, or folders of them")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="default: 8501 or the next free one")] = None,
    address: Annotated[str, typer.Option(help="where to listen; 0.0.0.0 lets others in")] = "localhost",
    browser: Annotated[bool, typer.Option(help="open a browser")] = True,
) -> None:
    """Look at results in a browser: curves, tables, samples, published figures. Reads files only."""
    from harness import board

    raise typer.Exit(board.serve(results or [Path("results")], port, address, browser))


def main() -> None:
    """Entry point: a user's mistake is one message on standard error and exit code 2, without a traceback."""
    try:
        app()
    except Exception as error:
        if not isinstance(error, user_errors()):
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
