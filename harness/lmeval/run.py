"""``kvprune lm-eval``: tasks of lm-eval, answered by every variant of a run, one column each."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lm_eval
from lm_eval.tasks import TaskManager
from pydantic import BaseModel
from rich.markup import escape
from rich.table import Table

from harness.config.run_config import RunConfig
from harness.config.tool_configs import LmEvalConfig
from harness.errors import HarnessError
from harness.evaluation import provenance
from harness.lmeval.model import KvpruneLM, Shared, mean_removed, share
from harness.models import loading
from harness.reporting.console import console, print_table
from harness.results.schema import VariantFields
from methods.registry import unknown


class Split(BaseModel):
    """A task's prompts of which only the context was pruned, and those that were pruned whole."""

    context: int
    whole: int


class Column(VariantFields):
    """A variant, the removed fraction measured (mean over contexts), and its metrics and errors by task."""

    removed: float | None
    results: dict[str, dict[str, float]]


class LmEvalFigures(BaseModel):
    """What ``kvprune lm-eval --json`` writes."""

    model: str
    tasks: list[str]
    limit: int | None
    num_fewshot: int | None
    chat_template: bool
    seed: int
    versions: dict[str, str]
    skipped: dict[str, str]
    split: dict[str, Split]
    variants: list[Column]


def run(config: RunConfig, asked: LmEvalConfig, bootstrap: int = 1000) -> LmEvalFigures:
    """The results of all variants. ``bootstrap`` is the resamples behind lm-eval's errors.

    Unknown tasks, and tasks that cannot be run on a pruned cache: :class:`HarnessError`.
    """
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    manager = _manager(asked.tasks, asked.include_path)
    shared = share(config)
    shown = [_column(shared, lm, manager, config, asked, bootstrap) for lm in KvpruneLM.all(shared)]
    return LmEvalFigures(
        model=loading.short_name(config.model),
        tasks=list(asked.tasks),
        limit=config.limit,
        num_fewshot=asked.num_fewshot,
        chat_template=asked.apply_chat_template,
        seed=config.seed,
        versions=provenance.versions(),
        skipped=shared.plan.skipped,
        split={task: Split(context=len(found), whole=len(whole)) for task, (found, whole) in shared.split.items()},
        variants=shown,
    )


def _manager(tasks: Sequence[str], include_path: Path | None) -> TaskManager:
    """lm-eval's tasks, and those of a folder; its own thousands are only read where the folder lacks one."""
    if include_path is not None and not include_path.is_dir():
        raise HarnessError(f"--include-path {include_path} is not a folder; give one with lm-eval task files (.yaml)")
    manager = TaskManager(include_path=include_path, include_defaults=False) if include_path else None
    if manager is None or not set(tasks) <= set(manager.all_tasks):
        manager = TaskManager(include_path=include_path)
    for task in tasks:
        if task not in manager.all_tasks:
            raise HarnessError(f"--tasks: {unknown('lm-eval task', task, list(manager.all_tasks))[:400]}")
    return manager


def _column(
    shared: Shared, lm: KvpruneLM, manager: TaskManager, config: RunConfig, asked: LmEvalConfig, bootstrap: int
) -> Column:
    try:
        found = lm_eval.simple_evaluate(
            model=lm,
            tasks=list(asked.tasks),
            num_fewshot=asked.num_fewshot,
            limit=config.limit,
            log_samples=False,
            bootstrap_iters=bootstrap,
            apply_chat_template=asked.apply_chat_template,
            task_manager=manager,
            random_seed=config.seed,
        )
    except (FileNotFoundError, ConnectionError) as error:  # neither on this machine nor to be downloaded
        raise HarnessError(f"the data of --tasks {','.join(asked.tasks)} cannot be loaded: {error}") from error
    assert found is not None
    results = {task: _figures(own) for task, own in found["results"].items()}
    return Column(**lm.variant.fields(), removed=mean_removed(shared, lm.index), results=results)


def _figures(own: Mapping[str, Any]) -> dict[str, float]:
    """Metrics and errors of one task; lm-eval writes "N/A" for an error that it does not have."""
    return {name: float(value) for name, value in own.items() if isinstance(value, int | float)}


def show(result: LmEvalFigures) -> None:
    """One row per task and metric, one column per variant, the measured removed fraction below."""
    few = "" if result.num_fewshot is None else f", {result.num_fewshot}-shot"
    limit = "" if result.limit is None else f", {result.limit} documents per task"
    table = Table(title=escape(f"{result.model}, lm-eval{few}{limit}"), title_justify="left")
    table.add_column("task")
    table.add_column("metric")
    table.add_column("pruned")
    for one in result.variants:
        table.add_column(escape(one.variant), justify="right")
    for task, own in result.variants[0].results.items():
        for name in (name for name in own if "," in name and "_stderr" not in name):
            error = name.replace(",", "_stderr,")
            cells = [_cell(one.results[task], name, error) for one in result.variants]
            table.add_row(escape(task), name.partition(",")[0], _pruned(result.split.get(task)), *cells)
    removed = ["" if one.removed is None else f"{one.removed:.3f}" for one in result.variants]
    table.add_section()
    table.add_row("removed, mean over contexts", "", "", *removed)
    out = console()
    print_table(table)
    for name, reason in result.skipped.items():
        out.print(f"not run: {name}: {reason}", markup=False, highlight=False)


def _cell(own: dict[str, float], name: str, error: str) -> str:
    return f"{own[name]:.4f}" + (f" ± {own[error]:.4f}" if error in own else "")


def _pruned(split: Split | None) -> str:
    """What was pruned of a task's prompts."""
    if split is None:
        return ""
    parts = [f"context of {split.context}"] if split.context else []
    return ", ".join(parts + ([f"whole prompt of {split.whole} (aware)"] if split.whole else []))
