"""Compare KV-cache pruning methods: one prefill, many variants.

    from harness import load, plot, run

    results = run(method=["kvzap", "snapkv"], benchmark="needles", limit=3)
    results.cells, results.lines  # pandas DataFrames
    plot(results)

Nothing is imported before it is used, so that ``import harness`` takes no time.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "RunConfig": "harness.config.run_config",
    "HarnessError": "harness.errors",
    "Results": "harness.reporting.frames",
    "load": "harness.reporting.frames",
    "plot": "harness.reporting.frames",
}

__all__ = ["HarnessError", "Results", "RunConfig", "load", "plot", "run"]


def run(config: Any = None, *, progress: bool = False, **settings: Any) -> Any:
    """Run a comparison, as ``kvprune run`` does, and load its results; what is complete already is only loaded.

    config     a :class:`RunConfig`, or None where ``settings`` has its fields (``method``, ``benchmark``, ...)
    progress   show a progress bar on standard error

    Returns :class:`Results`. A user's mistake: :class:`HarnessError`, or an error class of methods or benchmarks.
    """
    from contextlib import nullcontext

    from harness.config.run_config import RunConfig
    from harness.errors import HarnessError
    from harness.evaluation.execute import execute, remarks
    from harness.evaluation.job import resolve
    from harness.reporting import console, frames

    if config is not None and settings:
        raise HarnessError(f"give a RunConfig or {', '.join(settings)}, not both; RunConfig(...) takes them too")
    job = resolve(RunConfig(**settings) if config is None else config)
    outcome = execute(job, console.progress if progress else lambda *_: nullcontext(lambda line: None))
    found = frames.load(outcome.folder.path)
    return frames.Results(found.runs, [*found.notes, *remarks(job, outcome)])


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'harness' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
