"""Commands that list what there is, and check a method."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.app import app
from harness.cli.flags import Texts, flag, quiet
from harness.results.method_cards import Card, cards

#: installed packages offer methods under this group (:data:`methods.registry.ENTRY_POINTS`, which needs torch)
ENTRY_POINTS = "kvprune.methods"


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="show all that is known of this method")] = None,
    plugin: Annotated[Texts, flag("Python files that register methods")] = None,
) -> None:
    """List the pruning methods, or show one: its paper, phases, budgets, protection, cost and options."""
    from harness.reporting import listings

    listings.print_methods(_cards(plugin or []), name)


def _cards(plugins: list[str]) -> list[Card]:
    """The built-in methods as their sources have them; only where there are others is any method imported."""
    built_in = list(cards())
    if not plugins and not entry_points(group=ENTRY_POINTS):
        return built_in
    from methods import registry
    from methods.cards import card

    for path in plugins:
        registry.load_plugin(Path(path))
    others = [name for name in registry.names() if name not in {card.name for card in built_in}]
    return [*built_in, *(Card(**card(registry.get(name)), plugin=True) for name in others)]


@app.command("check-method")
def check_method(
    name: Annotated[str, typer.Argument(help="a method's name")],
    plugin: Annotated[Path | None, flag("Python file that registers the method")] = None,
    option: Annotated[Texts, flag("NAME.OPTION=VALUE, one value each")] = None,
    model: Annotated[str, flag("take this model's shape; for methods that need weights for a model")] = "",
) -> None:
    """Check that a method does what every method must: scores, masks, decoding, state. Small random models, no
    download. Exit code 1 where a check fails."""
    quiet()
    from harness import conformance

    suite = conformance.prepare(name, plugin, option or [], model)
    raise typer.Exit(int(conformance.print_outcomes(suite.title, suite.outcomes()) > 0))


@app.command()
def benchmarks() -> None:
    """List the benchmarks with their subsets."""
    from harness.reporting import listings

    listings.print_benchmarks()


@app.command()
def models(
    fetch: Annotated[str | None, flag("only download and convert this embedded model, if it is not there yet")] = None,
) -> None:
    """List the embedded model and well-known ones: KV bytes per token and at 128,000 tokens, surrogate overhead."""
    from harness.reporting import listings

    if fetch is None:
        listings.print_models()
    else:
        quiet()
        from harness.models import embedded

        print(f"{fetch} is in {embedded.fetch(fetch)}")
