"""The tables of ``kvprune methods``, ``benchmarks`` and ``models``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape
from rich.table import Table

import benchmarks.registry
from harness.models.embedded import EMBEDDED
from harness.models.known_shapes import SHAPES
from harness.reporting.console import console
from methods import registry

#: tokens at which the models table states the size of a full cache
LONG = 128_000


def print_methods(plugins: Sequence[str]) -> None:
    """Every registered method, then the aliases."""
    for plugin in plugins:
        registry.load_plugin(Path(plugin))
    table = Table(
        "method", "what it is", "paper", "phases", "default budget", "published protection", "cost", "options"
    )
    for name in registry.names():
        cls = registry.get(name)
        method = cls()
        options = ", ".join(f"{key}={value}" for key, value in method.options().items() if value != "")
        row = (
            name,
            cls.summary,
            cls.paper,
            ", ".join(cls.phases),
            cls.default_budget,
            _protection(method.protects() | method.mechanism_for(0)),
            cls.cost,
            options,
        )
        table.add_row(*map(escape, row))
    for name, alias in registry.aliases().items():
        table.add_row(name, escape(alias.summary), "", "", "", "", "", "")
    console().print(table)


def _protection(protection: object) -> str:
    sinks, window, prefix = (getattr(protection, name) for name in ("sinks", "window", "prefix"))
    parts = [f"first {sinks}"] if sinks else []
    parts += [f"last {window}"] if window else []
    parts += ["template prefix"] if prefix else []
    return ", ".join(parts) or "none"


def print_benchmarks() -> None:
    """Every registered benchmark."""
    table = Table("benchmark", "what it is", "subsets", "from --data or the hub", "default length", "paper", "licence")
    for name in benchmarks.registry.names():
        benchmark = benchmarks.registry.get(name)
        row = (
            name,
            benchmark.summary,
            ", ".join(s for s in benchmark.subsets if s not in benchmark.needs_data),
            ", ".join(benchmark.needs_data),
            ", ".join(map(str, benchmark.default_lengths)),
            benchmark.paper,
            benchmark.licence,
        )
        table.add_row(*map(escape, row))
    console().print(table)


def print_models() -> None:
    """The embedded model and well-known ones: size of a full cache, overhead of a KVzap surrogate."""
    from methods.kvzap.overhead import overhead

    table = Table(
        "model",
        "layers",
        "KV heads",
        "KV bytes a token",
        f"at {LONG:,} tokens",
        "KVzap linear",
        "KVzap MLP",
        "note",
        caption="KVzap: FLOPs of the surrogate over those of the layer's linear projections (arXiv 2601.07891, "
        "appendix B). Any Hugging Face name or local folder of a supported family works as --model.",
        caption_justify="left",
    )
    for shape in SHAPES:
        dims = (shape.hidden, shape.intermediate, shape.query_heads, shape.kv_heads, shape.head_size)
        table.add_row(
            shape.name,
            str(shape.layers),
            str(shape.kv_heads),
            f"{shape.kv_bytes:,} ({shape.bits} bit)",
            f"{shape.kv_bytes * LONG / 1e9:.1f} GB",
            f"{overhead(*dims, surrogate=None):.2%}",
            f"{overhead(*dims, surrogate=shape.hidden // 8):.2%}",
            EMBEDDED[shape.name].summary if shape.name in EMBEDDED else "",
        )
    console().print(table)
