"""Flags that several commands have, and what they are declared with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

Texts = list[str] | None


def flag(text: str, *names: str) -> Any:
    """A flag whose default its help text tells."""
    return typer.Option(*names, help=text, show_default=False)


Methods = Annotated[Texts, flag("methods, or all (default: kvzap)")]
Budgets = Annotated[Texts, flag("head, layer, global, threshold (default: the method's own)")]
Removed = Annotated[Texts, flag("removed fractions (default: 0.25,0.5,0.75)")]
Thresholds = Annotated[Texts, flag("thresholds tau of the threshold budget, as in --threshold=-6,-4")]
KeepTokens = Annotated[Texts, flag("pairs kept in each head, the window included", "--keep-tokens")]
Windows = Annotated[Texts, flag("protected recent pairs, for all methods (default: each one's own)")]
Sinks = Annotated[Texts, flag("protected first pairs, for all methods (default: each one's own)")]
Options = Annotated[Texts, flag("METHOD.NAME=VALUE; several values are several variants")]
Lengths = Annotated[Texts, flag("context lengths in tokens (default: the benchmark's)")]
Plugins = Annotated[Texts, flag("Python files that register methods")]
ModelOrNone = Annotated[
    str | None, flag("embedded name, folder, or Hugging Face name (default: smollm2-135m)", "--model")
]
DeviceOrNone = Annotated[str | None, flag("auto, cpu, cuda, cuda:N", "--device")]
DtypeOrNone = Annotated[str | None, flag("auto, float32, bfloat16, float16, float64", "--dtype")]
Model = Annotated[str, typer.Option(help="embedded name, folder, or Hugging Face name")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N")]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16, float16, float64")]
Seed = Annotated[int, typer.Option(min=0, max=10**12)]
Json = Annotated[Path | None, typer.Option("--json", help="write the figures here")]


def quiet() -> None:
    """No progress bars and chatter of libraries between the lines of ours."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
