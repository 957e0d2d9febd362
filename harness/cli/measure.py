"""Commands that measure."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.cli.app import profile
from harness.cli.flags import Device, Dtype, Json, Model, Texts, flag, quiet
from harness.defaults import DEFAULT_MODEL

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
    from harness import places, report, request
    from harness import profile as timing

    places.check_file(json)
    lengths = request.counts("length", length or "1024,4096")
    counts = request.counts("new-tokens", new_tokens or "24,128")
    names = request.parts(method) or ["all"]
    result = timing.sweep(model, names, lengths, question_tokens, counts, repeat, device, dtype)
    report.print_sweep(result)
    if json:
        places.write(result, json)


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
    from harness import places, report, request
    from harness import profile as timing

    places.check_file(json)
    names = request.parts(method) or COMPARED
    asked = Request((length,), tuple(request.parts(subset)), limit)
    result = timing.on_samples(model, names, benchmark, asked, device, dtype)
    report.print_samples_timing(result)
    if json:
        places.write(result, json)
