"""Cards say what the classes declare today; criteria are read off measured cells alone."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from harness.errors import HarnessError
from harness.results.method_cards import cards
from leaderboard.data.criteria import NOT_MEASURED, curves, fidelity_group, kl, rows, score
from leaderboard.data.library import open_library
from leaderboard.data.method_cards import plugin_cards
from leaderboard.data.standings import read_off
from tests.harness.driving import COMMITTED
from tests.harness.made_runs import FULL, KNORM, both, edit_json, lines_of, write_run

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "leaderboard" / "views" / "methods.py"
HOSTILE = "evil](javascript:alert(1)) <img src=x onerror=alert(1)> $$x$$ :red[x]"


def test_the_file_is_what_the_classes_declare() -> None:
    from scripts import method_cards

    same = method_cards.FILE.read_text(encoding="utf-8") == method_cards.text()
    assert same, "cards.yaml is old: run python scripts/method_cards.py"


def test_cards_agree_with_the_registry() -> None:
    """Read back by the board's own reader, against the classes themselves."""
    from methods import registry

    found = {card.name: card for card in cards()}
    assert list(found) == list(registry.BUILT_IN)
    for name, card in found.items():
        cls = registry.get(name)
        assert (card.summary, card.paper, card.phases, card.cost) == (cls.summary, cls.paper, cls.phases, cls.cost)
        assert (set(card.needs), card.budget, card.budgets) == (cls.needs, cls.default_budget, cls.budgets)
        assert {option.name: option.default for option in card.options} == cls().options()
        assert card.text and not any("`" in paragraph for paragraph in card.text)


def test_who_sees_attention_weights_is_what_the_code_calls() -> None:
    """The cards go by what classes declare; here their source is asked."""
    from methods import registry

    calls = ("weight_blocks(", "window_weights(", "column_sums(", "peaks(")
    for card in cards():
        cls = registry.get(card.name)
        sources = "".join(inspect.getsource(one) for one in cls.__mro__ if one.__module__ in registry.BUILT_IN.values())
        assert ("prefill" in card.attention_weights) == any(call in sources for call in calls), card.name
        steps = "step.weight_sums" in sources or "step.last_weights" in sources
        assert ("decode" in card.attention_weights) == steps, card.name


def test_every_option_is_explained() -> None:
    assert not {(card.name, option.name) for card in cards() for option in card.options if not option.about}


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "cards.yaml"
    path.write_text("- name: x\n", encoding="utf-8")
    with pytest.raises(HarnessError, match="method_cards"):
        cards(path)


def _cell(variant: str, removed: float, value: float | None, **more: Any) -> dict[str, Any]:
    method, budget = (*variant.split(" "), "none")[:2]
    return {
        "variant": variant,
        "method": method,
        "budget": budget,
        "subset": None,
        "level_kind": "removed",
        "score": value,
        "removed_mean": removed,
        "n_failed": 0,
        "floor": False,
        "of_subsets": None,
        "n_subsets": 1,
        "metrics": {},
        **more,
    }


def test_faithfulness_is_interpolated_between_measured_levels_alone() -> None:
    draw = np.random.default_rng(0)
    for _ in range(50):
        levels = np.sort(draw.uniform(0.05, 0.95, 5))
        values = draw.uniform(0, 100, 5)
        cells = [_cell(f"knorm head {r}", r, v) for r, v in zip(levels, values, strict=True)]
        (points,) = curves(cells, score).values()
        for removed in draw.uniform(0, 1, 20):
            found = read_off(points, removed)
            if np.abs(levels - removed).min() <= 0.005:
                assert found is not None and found.measured
            elif levels[0] < removed < levels[-1]:
                assert found is not None and found.score == pytest.approx(np.interp(removed, levels, values))
            else:
                assert found is None


@pytest.mark.parametrize(
    "wrong", [{"n_failed": 1}, {"floor": True}, {"of_subsets": 13}, {"status": "unsupported"}, {"subset": "red"}]
)
def test_a_cell_that_carries_no_claim_is_not_read(wrong: dict[str, Any]) -> None:
    assert curves([_cell("knorm head 0.5", 0.5, 40.0, **wrong)], score) == {}


def test_the_control_is_no_level_to_interpolate_from() -> None:
    cells = [_cell("full", 0.0, 100.0, level_kind="none"), _cell("knorm head 0.75", 0.75, 20.0)]
    (row,) = [row for row in rows(cards(), cells, []) if row["method"] == "knorm head"]
    assert (row["score at 50% removed"], row["score at 75% removed"]) == (NOT_MEASURED, "20.0")


def test_rows_have_declared_facts_and_measured_figures() -> None:
    figures = {"kl_mean": 0.25}
    cells = [
        _cell("full", 0.0, 100.0, level_kind="none", metrics={"ttft_seconds": 2.0, "tokens_per_second": 50.0}),
        _cell("kvzip global 0.5", 0.5, 90.0, metrics={"ttft_seconds": 4.4}),
        _cell("h2o head 0.25", 0.25, 80.0),
        _cell("h2o head 0.75", 0.75, 40.0),
    ]
    found = {row["method"]: row for row in rows(cards(), cells, [_cell("h2o head 0.5", 0.5, 90.0, metrics=figures)])}
    kvzip, h2o, kvzap = found["kvzip global"], found["h2o head"], found["kvzap_mlp"]
    assert kvzip["cost in prefill"] == "time to first token x 2.20"
    assert kvzip["cost in decode"] == "prunes the prefill alone"
    assert kvzip["attention weights"] == "in an extra pass" and kvzip["caches of heads"] == "different by head"
    assert (h2o["prunes in"], h2o["attention weights"]) == ("prefill and decode", "prefill and decode")
    assert (h2o["score at 50% removed"], h2o["KL at 50% removed"]) == ("≈ 60.0", "0.2500")
    assert h2o["KL at 75% removed"] == NOT_MEASURED
    assert kvzap["attention weights"] == "no" and kvzap["score at 50% removed"] == NOT_MEASURED
    assert "full" not in found


def test_kl_is_taken_from_the_same_models_fidelity_run(tmp_path: Path) -> None:
    for name, benchmark, model in (("a", "toy", "tiny"), ("b", "fidelity:toy", "tiny"), ("c", "fidelity:toy", "other")):
        lines = lines_of(FULL, both(90.0, 2), benchmark=benchmark) + lines_of(KNORM, both(50.0, 2), benchmark=benchmark)
        write_run(tmp_path / name, lines, model=model)
    groups = open_library([tmp_path]).groups
    by_name = {(group.part.basis["model"], group.part.benchmark): group for group in groups}
    assert fidelity_group(by_name["tiny", "toy"], groups) is by_name["tiny", "fidelity:toy"]
    alone = [by_name["tiny", "toy"], by_name["other", "fidelity:toy"]]
    assert fidelity_group(by_name["tiny", "toy"], alone) is None
    assert kl(_cell("x head 0.5", 0.5, 1.0)) is None


def test_a_plugin_in_results_gets_a_card_from_the_run_alone(tmp_path: Path) -> None:
    folder = _with_plugin(tmp_path, "vnorm")
    (card,) = plugin_cards(open_library([folder]).entries, [card.name for card in cards()])
    assert (card.name, card.plugin, card.phases, card.budgets) == ("vnorm", True, ("prefill",), ("head",))
    assert [(option.name, option.default) for option in card.options] == [("power", "2")]
    assert card.cost == card.paper == "" and card.text == ()


def _with_plugin(path: Path, name: str) -> Path:
    more = {"method": name, "variant": f"{name} head 0.5", "options": '{"power": 2}'}
    pruned = [line.model_copy(update=more) for line in lines_of(KNORM, both(50.0))]
    folder = write_run(path / "run", lines_of(FULL, both(90.0)) + pruned)
    variants = [FULL.fields(), {**KNORM.fields(), **more}]
    run = {"model": "tiny", "dtype": "float32", "device": "cpu", "seed": 0, "variants": variants}
    edit_json(folder / "run.json", configuration=run)
    return folder


def _criteria(app: AppTest) -> Any:
    return next(frame.value for frame in app.dataframe if "cost in prefill" in frame.value)


def test_the_page_shows_criteria_and_a_card_of_each_method(page: Any) -> None:
    app = page("methods", COMMITTED)
    table = _criteria(app).set_index("method")
    assert table.loc["streaming_llm head", "cost in prefill"] == "none"
    assert table.loc["kvzip global", "KL at 50% removed"] == NOT_MEASURED
    headings = [one.value for one in app.markdown if one.value.startswith("####")]
    assert len(headings) == len(cards())
    assert any("kvprune validate" in block.value for block in app.code)


def test_without_any_run_the_cards_are_there(page: Any, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    app = page("methods", tmp_path / "none")
    assert len([one for one in app.markdown if one.value.startswith("####")]) == len(cards())
    assert (_criteria(app)["score at 50% removed"] == NOT_MEASURED).all()


def test_a_hostile_plugin_name_is_shown_letter_by_letter(page: Any, tmp_path: Path) -> None:
    app = page("methods", _with_plugin(tmp_path, HOSTILE))
    heading = next(one.value for one in app.markdown if one.value.startswith("####") and "evil" in one.value)
    live = re.sub(r"\\.", "", heading)  # what is escaped has no meaning
    assert "](" not in live and "<img" not in live and "$$" not in live and ":red[" not in live
    assert ":violet-badge[plugin]" in heading


def test_the_page_imports_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom streamlit.testing.v1 import AppTest\n"
        f"assert not AppTest.from_file({str(PAGE)!r}, default_timeout=120).run().exception\n"
        "assert not {'torch', 'transformers'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)
