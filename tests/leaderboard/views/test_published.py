"""Published figures: those of the paper, each with a source, and on a page of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.errors import HarnessError
from harness.models.known_models import SHAPES
from leaderboard.data.published import FILE, load, results_table, rollout_points, table
from methods.kvzap.overhead import overhead
from tests.leaderboard.conftest import Page

QWEN8, LLAMA, QWEN32 = "Qwen3-8B", "Llama-3.1-8B-Instruct", "Qwen3-32B"
#: arXiv 2601.07891: full -> pruned
RESULTS = {
    "RULER 4k": {QWEN8: (95.32, 95.09), LLAMA: (95.69, 95.55), QWEN32: (95.65, 95.95)},
    "RULER 16k": {QWEN8: (92.99, 92.78), LLAMA: (93.42, 93.29), QWEN32: (95.19, 94.96)},
    "LongBench": {QWEN8: (46.74, 46.49), LLAMA: (45.25, 44.65), QWEN32: (50.56, 50.40)},
    "AIME25 pass@4": {QWEN8: (0.77, 0.77), LLAMA: (None, None), QWEN32: (0.83, 0.87)},
}
SETTINGS = {QWEN8: "MLP, tau -4", LLAMA: "linear, tau -7", QWEN32: "MLP, tau -4"}


def test_figures_are_the_papers() -> None:
    published = load()
    found: dict[str, dict[str, Any]] = {}
    for one in published.results:
        assert one.setting == SETTINGS[one.model]
        found.setdefault(one.benchmark, {})[one.model] = (one.full, one.pruned)
    assert found == RESULTS
    assert [one.note for one in published.results if one.full is None] == ["not run"]
    assert {one.model: one.mean for one in published.removed} == {QWEN8: 0.72, LLAMA: 0.67, QWEN32: 0.63}
    surrogates = {one.model: (one.parameters, one.r2_linear, one.r2_mlp) for one in published.surrogates}
    assert surrogates == {QWEN8: ("76M", 0.671, 0.711), LLAMA: ("1.1M", 0.743, 0.772), QWEN32: ("210M", 0.629, 0.668)}
    assert {(one.model, one.setting): one.solved for one in published.rollouts} == {
        (QWEN8, "full cache"): (18, 20, 21, 21),
        (QWEN8, "MLP, tau -6"): (18, 20, 20, 21),
        (QWEN8, "MLP, tau -5"): (20, 20, 21, 22),
        (QWEN8, "MLP, tau -4"): (16, 17, 19, 20),
        (QWEN8, "MLP, tau -3"): (7, 9, 11, 11),
        (QWEN8, "linear, tau -3"): (0, 0, 0, 0),
    }
    assert {one.setting: one.removed for one in published.rollouts if one.removed} == {"linear, tau -3": 0.96}
    assert {one.window: one.score for one in published.windows} == {0: 28, 128: 62, 512: 62}
    overheads = {(one.model, one.kind): one.percent for one in published.overheads}
    of_8b = {(QWEN8, "MLP"): 1.09, (QWEN8, "linear"): 0.02, (LLAMA, "MLP"): 0.96}
    assert overheads == {**of_8b, (QWEN32, "MLP"): 0.67, (QWEN32, "linear"): 0.01}


def test_overheads_are_those_that_the_shapes_give() -> None:
    """A second source: the paper's formula on the models' published dimensions."""
    shapes = {shape.name.split("/")[-1]: shape for shape in SHAPES}
    for one in load().overheads:
        shape = shapes[one.model]
        dims = (shape.hidden, shape.intermediate, shape.query_heads, shape.kv_heads, shape.head_size)
        share = overhead(*dims, surrogate=shape.hidden // 8 if one.kind == "MLP" else None)
        assert round(100 * share, 2) == one.percent


def test_every_entry_has_a_source() -> None:
    published = load()
    assert len(published.entries) == 12 + 3 + 3 + 6 + 3 + 5
    for entry in published.entries:
        assert entry.source.place.strip() and published.source(entry).startswith("arXiv 2601.07891, ")
    for entries in (published.results, published.rollouts, published.windows, published.overheads):
        assert table(published, entries)["source"].str.len().min() > len("arXiv 2601.07891, ")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda file: file["windows"][1].pop("source"), "windows.1.source"),
        (lambda file: file["windows"][1]["source"].update(place=""), "windows.1.source.place"),
        (lambda file: file["windows"][1]["source"].update(paper="mine"), "'mine' is not a paper"),
        (lambda file: file["windows"][1].update(score=620), "windows.1.score"),
        (lambda file: file["rollouts"][0].update(solved=[31]), "rollouts.0.solved"),
        (lambda file: file["results"][0].update(full=None), "give full and pruned, or neither and a note"),
        (lambda file: file["papers"]["kvzap"].update(url="javascript:alert(1)"), "papers.kvzap.url"),
        (lambda file: file.update(measured=[]), "measured"),
    ],
)
def test_a_damaged_field_is_named(change: Any, told: str, tmp_path: Path) -> None:
    content = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    change(content)
    path = tmp_path / "published.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    with pytest.raises(HarnessError) as error:
        load(path)
    assert told in str(error.value) and "published.yaml" in str(error.value)


@pytest.mark.parametrize("text", ["", "- 1", "a: [", "!!python/object/apply:os.getcwd []"])
def test_what_is_not_such_a_file_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "published.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(HarnessError, match=r"published\.yaml"):
        load(path)


def test_tables_have_differences_and_a_row_per_answer() -> None:
    published = load()
    results = results_table(published)
    row = results[(results["model"] == QWEN32) & (results["benchmark"] == "RULER 4k")].iloc[0]
    assert row["difference"] == pytest.approx(0.30) and row["mean removed"] == 0.63
    assert len(rollout_points(published)) == 24


def test_the_page_says_that_nothing_of_it_was_measured(page: Page) -> None:
    app = page("published")  # without any run
    assert app.title[0].value == "Published, not measured here"
    assert len(app.dataframe) == 5
    assert all(frame.value["source"].str.startswith("arXiv 2601.07891").all() for frame in app.dataframe)
