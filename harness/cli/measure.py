"""Commands that measure."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.cli.app import profile
from harness.cli.flags import Device, Dtype, Json, Model, Texts, flag, quiet
from harness.models.embedded import DEFAULT_MODEL

#: what profile samples runs: the methods that scripts/kvpress_sweep.py knows too
COMPARED = ["random", "knorm", "streaming_llm", "kvzip", "kvzip_plus"]


@profile.command("sweep")
def profile_sweep(
    method: Annotated[Texts, flag("methods (default: all)")] = None,
    length: Annotated[Texts, flag("cached tokens (default: 1024,4096)")] = None,
    question_tokens: Annotated[int, typer.Option(min=1)] = 32,
    new_tokens: Annotated[Texts, flag("answer tokens, no early stop (default: 24,128)", "--new-tokens")] = None,
    repeat: Annotated[int, typer.Option(min=1, help="runs of which the median is taken")] = 1,
    model: Model = DEFAULT_MODEL,
    device: Device = "auto",
    dtype: Dtype = "auto",
    json: Json = None,
) -> None:
    """Time the grid of methods x removed 0.25, 0.5, 0.75, 0.875: shared against one variant at a time."""
    quiet()
    from harness import files
    from harness.config import run_config
    from harness.measure import timing as timing
    from harness.reporting import run_table

    files.check_file(json)
    lengths = run_config.counts("length", length or "1024,4096")
    counts = run_config.counts("new-tokens", new_tokens or "24,128")
    names = run_config.parts(method) or ["all"]
    result = timing.sweep(model, names, lengths, question_tokens, counts, repeat, device, dtype)
    run_table.print_sweep(result)
    if json:
        files.write(result, json)


@profile.command("samples")
def profile_samples(
    method: Annotated[Texts, flag("methods (default: random, knorm, streaming_llm, kvzip, kvzip_plus)")] = None,
    benchmark: Annotated[str, typer.Option(help="where the samples come from")] = "needles",
    length: Annotated[int, typer.Option(min=1)] = 1024,
    subset: Annotated[Texts, flag("subsets (default: all)")] = None,
    limit: Annotated[int, typer.Option(min=1, help="samples of each subset")] = 1,
    model: Model = DEFAULT_MODEL,
    device: Device = "auto",
    dtype: Dtype = "auto",
    json: Json = None,
) -> None:
    """Time the shared grid on real samples; scripts/kvpress_sweep.py runs kvpress on the same ones."""
    quiet()
    from benchmarks.base import Request
    from harness import files
    from harness.config import run_config
    from harness.measure import timing as timing
    from harness.reporting import run_table

    files.check_file(json)
    names = run_config.parts(method) or COMPARED
    asked = Request((length,), tuple(run_config.parts(subset)), limit)
    result = timing.on_samples(model, names, benchmark, asked, device, dtype)
    run_table.print_samples_timing(result)
    if json:
        files.write(result, json)
