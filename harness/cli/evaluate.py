"""Commands that run a model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.app import app
from harness.cli.flags import Given, Json, flag, quiet, takes
from harness.config import run_config
from harness.config.run_config import RunConfig
from harness.config.tool_configs import AgreementConfig, LmEvalConfig, TrainConfig

#: flags of a run that lm-eval has too
SHARED = (
    *("method", "budget", "removed", "threshold", "keep_tokens", "window", "sinks", "option"),
    *("limit", "model", "device", "dtype", "seed", "plugin"),
)


@app.command()
@takes(RunConfig.model_fields)
def run(
    given: Given,
    config: Annotated[Path | None, flag("YAML file whose keys are these flags; flags override it")] = None,
) -> None:
    """Evaluate pruning methods on benchmarks; the full cache always runs beside them as the control."""
    asked = run_config.read(config, given)
    quiet()
    from harness.evaluation import job
    from harness.evaluation.execute import execute, remarks
    from harness.reporting.console import progress
    from harness.reporting.run_table import print_run

    resolved = job.resolve(asked)
    try:
        outcome = execute(resolved, progress)
    except KeyboardInterrupt:
        print("stopped; continue with the same command and --resume (without --force)", file=sys.stderr)
        raise typer.Exit(130) from None
    print_run(outcome.folder, remarks(resolved, outcome))


@app.command("lm-eval")
@takes({**LmEvalConfig.model_fields, **{name: RunConfig.model_fields[name] for name in SHARED}})
def lm_eval(given: Given, json: Json = None) -> None:
    """Run tasks of lm-eval on pruned caches: one column for the full cache and one per variant."""
    from harness import files

    files.check_file(json)
    own = LmEvalConfig(**{name: value for name, value in given.items() if name in LmEvalConfig.model_fields})
    asked = RunConfig(**{name: value for name, value in given.items() if name in SHARED})
    quiet()
    from harness.lmeval import run as lmeval

    result = lmeval.run(asked, own)
    lmeval.show(result)
    if json:
        files.write(result.model_dump(), json)


@app.command()
@takes(AgreementConfig.model_fields)
def agreement(given: Given, json: Json = None) -> None:
    """How similar the methods' scores and kept sets are, and how much of what a question uses each of them keeps."""
    from harness import files

    files.check_file(json)
    config = AgreementConfig(**given)
    quiet()
    from harness.measure import agreement as compared
    from harness.measure.agreement_tables import print_agreement

    result = compared.agreement(config)
    print_agreement(result)
    if json:
        files.write(result.model_dump(), json)


@app.command("train-kvzap")
@takes(TrainConfig.model_fields)
def train_kvzap(given: Given) -> None:
    """Train a KVzap surrogate: targets from one repeat prompt per document, then a fit layer by layer. Resumable."""
    config = TrainConfig(**given)
    quiet()
    from harness.training.train import train

    train(**config.model_dump())
