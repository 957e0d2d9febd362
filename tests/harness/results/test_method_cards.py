"""Cards say what the classes declare today."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from harness.errors import HarnessError
from harness.results.method_cards import cards
from methods import registry
from scripts import method_cards


def test_the_file_is_what_the_classes_declare() -> None:
    same = method_cards.FILE.read_text(encoding="utf-8") == method_cards.text()
    assert same, "cards.yaml is old: run python scripts/method_cards.py"


def test_cards_agree_with_the_registry() -> None:
    """Read back by the board's own reader, against the classes themselves."""
    found = {card.name: card for card in cards()}
    assert list(found) == list(registry.BUILT_IN)
    for name, card in found.items():
        cls = registry.get(name)
        assert (card.summary, card.paper, card.phases, card.cost) == (cls.summary, cls.paper, cls.phases, cls.cost)
        assert (set(card.needs), card.budget, card.budgets) == (cls.needs, cls.default_budget, cls.budgets)
        assert {option.name: option.default for option in card.options} == cls().options()
        assert card.text and not any("`" in paragraph for paragraph in card.text)
    assert not {(card.name, option.name) for card in cards() for option in card.options if not option.about}


def test_who_sees_attention_weights_is_what_the_code_calls() -> None:
    """The cards go by what classes declare; here their source is asked."""
    calls = ("weight_blocks(", "window_weights(", "column_sums(", "peaks(")
    for card in cards():
        own = [one for one in registry.get(card.name).__mro__ if one.__module__ in registry.BUILT_IN.values()]
        sources = "".join(map(inspect.getsource, own))
        assert ("prefill" in card.attention_weights) == any(call in sources for call in calls), card.name
        steps = "step.weight_sums" in sources or "step.last_weights" in sources
        assert ("decode" in card.attention_weights) == steps, card.name


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "cards.yaml"
    path.write_text("- name: x\n", encoding="utf-8")
    with pytest.raises(HarnessError, match="method_cards"):
        cards(path)
