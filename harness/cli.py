"""The command line. Heavy imports wait until a command runs, so that help and mistakes are quick."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

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
    phase: Annotated[str | None, _flag("when to prune: prefill")] = None,
    query_aware: Annotated[bool | None, _flag("prune with the question in view", "--query-aware")] = None,
    compat: Annotated[str | None, _flag("kvpress: its choices where they differ from the papers'")] = None,
    benchmark: Annotated[Texts, _flag("benchmarks (default: needles)")] = None,
    length: Annotated[Texts, _flag("context lengths in tokens (default: the benchmark's)")] = None,
    subset: Annotated[Texts, _flag("subsets (default: all that can be run)")] = None,
    limit: Annotated[str | None, _flag("samples of each subset")] = None,
    data: Annotated[str | None, _flag("local rows for the benchmark")] = None,
    model: Annotated[str | None, _flag("embedded name, folder, or Hugging Face name (default: smollm2-135m)")] = None,
    device: Annotated[str | None, _flag("auto, cpu, cuda, cuda:N")] = None,
    dtype: Annotated[str | None, _flag("auto, float32, bfloat16, float16, float64")] = None,
    seed: Annotated[str | None, _flag("seed of samples and random scores (default: 0)")] = None,
    plugin: Annotated[Texts, _flag("Python files that register methods")] = None,
    config: Annotated[Path | None, _flag("YAML file whose keys are these flags; flags win")] = None,
    out: Annotated[str | None, _flag("folder that run folders go into (default: results)")] = None,
    resume: Annotated[bool | None, _flag("go on with an incomplete run", "--resume")] = None,
    force: Annotated[bool | None, _flag("start over, dropping what is there", "--force")] = None,
) -> None:
    """Evaluate pruning methods on benchmarks; the full cache always runs beside them as the control."""
    flags = {name: value for name, value in locals().items() if name != "config" and value not in (None, [])}
    _quiet()
    from harness import job, report, request

    resolved = job.resolve(request.build(flags, config))
    report.print_outcome(resolved, job.execute(resolved, report.progress))


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


@app.command()
def benchmarks() -> None:
    """List the benchmarks with their subsets."""
    from harness import listings

    listings.print_benchmarks()


@app.command()
def models() -> None:
    """List the embedded model and well-known ones: KV bytes a token and at 128,000 tokens, surrogate overhead."""
    from harness import listings

    listings.print_models()


def main() -> None:
    """Entry point: a user's mistake is one message on standard error and exit code 2, without a traceback."""
    try:
        app()
    except KeyboardInterrupt:
        print("stopped; the same command with --resume goes on", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        from harness.errors import USER_ERRORS  # late: it imports torch

        if not isinstance(error, USER_ERRORS):
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
