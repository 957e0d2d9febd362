"""Commands that run a model."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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


def use_threads(threads: int | None) -> None:
    """Threads of the model's products. Two runs with a thread per core stall each other, so where more is at work than
    there are cores, the flag that helps is named."""
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
        return
    busy, cores = load_average(), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if cores and busy > cores:
        print(
            f"{busy:.1f} processes are at work on {cores} cores; with a thread per core each they stall each other: "
            "give each its share with --threads",
            file=sys.stderr,
        )


def load_average() -> float:
    """Processes at work over the last minute; 0 where the system does not count them."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


class Stopped(KeyboardInterrupt):
    """The process was asked to end; like Ctrl-C, no method's own ``except Exception`` takes it for an error."""

    def __init__(self, signum: signal.Signals) -> None:
        super().__init__()
        self.signum = signum


@contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM (a scheduler's time limit) and SIGHUP (a closed terminal) end a run as Ctrl-C does."""

    def stop(signum: int, _: object) -> None:
        raise Stopped(signal.Signals(signum))

    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {name: signal.signal(getattr(signal, name), stop) for name in names}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)


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

    use_threads(asked.threads)
    resolved = job.resolve(asked)
    try:
        with stoppable():
            outcome = execute(resolved, progress)
    except KeyboardInterrupt as stop:
        by = stop.signum if isinstance(stop, Stopped) else signal.SIGINT
        told = f"stopped by {by.name}; continue with the same command and --resume (without --force)"
        print(told, file=sys.stderr)
        raise typer.Exit(128 + by) from None
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
