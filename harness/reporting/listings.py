"""The tables of ``kvprune methods``, ``benchmarks`` and ``models``."""

from __future__ import annotations

from collections.abc import Iterable

from rich.markup import escape
from rich.table import Table

import benchmarks.registry
from benchmarks.registry import nearest_first
from harness.errors import HarnessError
from harness.models.known_models import EMBEDDED, SHAPES
from harness.reporting.console import print_table
from harness.results.method_cards import Card

#: tokens at which the models table states the size of a full cache
LONG = 128_000


def print_methods(cards: Iterable[Card], name: str | None = None) -> None:
    """A table of all methods and their aliases, or all that is known of one of them."""
    known = {card.name: card for card in cards}
    if name is None:
        _print_cards(known.values())
    elif name in known:
        _print_card(known[name])
    else:
        near = ", ".join(nearest_first(name, known))
        raise HarnessError(f"unknown method {name!r}; known, nearest first: {near}")


def _print_cards(cards: Iterable[Card]) -> None:
    table = Table(caption="`kvprune methods NAME` has the paper, protection, cost and options.", caption_justify="left")
    for column in ("method", "default budget", "phases"):
        table.add_column(column, no_wrap=True)
    table.add_column("what it is", min_width=20)
    aliases: dict[str, str] = {}
    for card in cards:
        table.add_row(*map(escape, (card.name, card.budget, " ".join(card.phases), card.summary)))
        aliases |= card.aliases
    for name, summary in aliases.items():
        table.add_row(name, "", "", escape(summary))
    print_table(table)


def _print_card(card: Card) -> None:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    refused = [f"not {budget}: {reason}" for budget, reason in card.refused.items()]
    options = [f"{one.name}={one.default}  {one.about}".rstrip() for one in card.options]
    rows = {
        "method": card.name,
        "what it is": card.summary,
        "score": "\n".join(card.text),
        "paper": card.paper,
        "phases": ", ".join(card.phases),
        "budgets": "\n".join([", ".join(card.budgets) + f" (default: {card.budget})", *refused]),
        "always kept": card.protection,
        "cost": card.cost,
        "positions": card.positions,
        "options": "\n".join(options) or "none",
    }
    for label, text in rows.items():
        table.add_row(label, escape(text))
    print_table(table)


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
    print_table(table)


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
    print_table(table)
