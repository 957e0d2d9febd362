"""Cards of plugins say what their runs say."""

from __future__ import annotations

from pathlib import Path

from harness.results.method_cards import cards
from leaderboard.data.library import open_library
from leaderboard.data.method_cards import plugin_cards
from tests.harness.made_runs import FULL, KNORM, both, lines_of, write_run


def with_plugin(results: Path, name: str) -> Path:
    more = {"method": name, "variant": f"{name} head 0.5", "options": '{"power": 2}'}
    pruned = [line.model_copy(update=more) for line in lines_of(KNORM, both(50.0))]
    write_run(results / "run", lines_of(FULL, both(90.0)) + pruned)
    return results


def test_a_plugin_in_results_gets_a_card_from_the_run_alone(results: Path) -> None:
    entries = open_library([with_plugin(results, "vnorm")]).entries
    (card,) = plugin_cards(entries, [card.name for card in cards()])
    assert (card.name, card.plugin, card.phases, card.budgets) == ("vnorm", True, ("prefill",), ("head",))
    assert [(option.name, option.default) for option in card.options] == [("power", "2")]
    assert card.cost == card.paper == "" and card.text == ()
