"""``--store-masks``: what a run stores is what it pruned with; which samples; and what a second start does."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import benchmarks.registry
from benchmarks.multi_question import passages
from harness.analysis.run_reader import read
from harness.config.run_config import QUERY_MODES as MODES
from harness.engine.adapter import LanguageModel
from harness.engine.prefill import prefill
from harness.errors import HarnessError
from harness.evaluation import evaluator as runner
from harness.evaluation import provenance
from harness.evaluation.evaluator import Evaluator, Item
from harness.evaluation.keep_masks import masks
from harness.evaluation.mask_recorder import MaskKeeper, first_of_each
from harness.models.prompts import Prompts
from harness.results import mask_file
from harness.results.mask_file import StoredMasks, path_of
from harness.results.schema import Line
from leaderboard.data.sample_view import sample_view, samples_with_masks
from tests.harness.driving import HALF, QUICK, Runs, evaluate, shorten, some
from tests.harness.evaluation.test_query_modes import answer_by_hand, h2o_by_hand, pair
from tests.harness.toys import Toy, toy_sample
from tests.tiny import Plain

pytestmark = pytest.mark.usefixtures("toys")

STORED = (*QUICK, "--store-masks", "1")


class Reader(Toy):
    """All variants read the full cache's answer."""

    name: ClassVar[str] = "reader"
    teacher_forced: ClassVar[str] = "answer"


def keeping(
    made: Evaluator, items: Sequence[Item], path: Path, lines: Sequence[Line] = (), count: int = 100
) -> tuple[list[Line], dict[str, StoredMasks], MaskKeeper]:
    """Lines of a run with masks, and the stored masks by sample."""
    keeper = MaskKeeper(path, made.prompts, items, count, lines)
    made.masked = keeper.lacking
    found = list(made.run(items, None, keeper.keep))
    paths = {item.sample.sample_id: path_of(path, item.sample.sample_id) for item in items}
    return found, {name: mask_file.read(one) for name, one in paths.items() if one.is_file()}, keeper


def stored_in(folder: Path) -> dict[str, StoredMasks]:
    found = [mask_file.read(path) for path in sorted((folder / "masks").glob("*"))]
    return {one.sample_id: one for one in found}


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("phase", ["prefill", "both", "decode"])
def test_masks_of_all_budgets_are_those_that_were_pruned_with(
    evaluator: Callable[..., Evaluator], toy_lm: LanguageModel, toy_prompts: Prompts, tmp_path: Path, phase: str
) -> None:
    methods = ("knorm", "carded", "kvzip") if phase == "prefill" else ("knorm", "carded")
    grid: dict[str, Any] = {"budget": ("head", "layer", "global", "threshold"), "threshold": (-2.2, -1.0)}
    if phase != "prefill":
        grid["budget"] = ("head", "threshold")
    made = evaluator(*methods, phase=phase, **grid)
    items = some(3)
    lines, stored, _ = keeping(made, items, tmp_path)
    assert lines == evaluate(evaluator(*methods, phase=phase, **grid), items)
    assert set(stored) == {item.sample.sample_id for item in items}
    for item in items:
        own = stored[item.sample.sample_id]
        context = toy_prompts.context(item.sample.context)
        scored = prefill(toy_lm, context, [p.method for p in made.planned], made.seed)
        shape = (3, 3, len(context.ids))
        direct = masks(made.planned, scored, shape, context.prefix).keep
        assert (own.shape, own.prefix) == (shape, context.prefix)
        assert list(own.variants) == [p.variant.label for p in made.planned]
        for label, keep in zip(own.variants, direct, strict=True):
            assert np.array_equal(own.kept(label), keep.numpy())
        for line in (line for line in lines if line.sample_id == own.sample_id):
            assert line.removed_context == own.removed(line.variant) == pytest.approx(1 - own.kept(line.variant).mean())
            assert line.kept_pairs == own.kept(line.variant).sum()
    removed = {round(line.removed_context or 0, 2) for line in lines}
    assert len(removed) > 3 if phase != "decode" else removed == {0.0}


def test_each_question_has_the_masks_made_for_it(
    evaluator: Callable[..., Evaluator], toy_lm: LanguageModel, toy_prompts: Prompts, tmp_path: Path
) -> None:
    items = pair()
    lines, stored, _ = keeping(evaluator("h2o", removed=HALF, query_mode=MODES), items, tmp_path)
    plain = Plain(toy_lm.model)
    ids = toy_prompts.context(items[0].sample.context).ids
    asked = [toy_prompts.question(item.sample.question, item.sample.answer_prefix) for item in items]
    for place, item in enumerate(items):
        own = stored[item.sample.sample_id]
        seen = {"h2o head 0.5": (), "h2o head 0.5 aware": asked[place], "h2o head 0.5 aware-reused": asked[0]}
        assert own.variants == ("full", *seen)
        for variant, question in seen.items():
            keep = h2o_by_hand(plain, ids, question)
            assert np.array_equal(own.kept(variant), keep.numpy())
            (line,) = (x for x in lines if (x.sample_id, x.variant) == (own.sample_id, variant))
            assert line.prediction == toy_prompts.decode(answer_by_hand(plain, ids, keep, asked[place], 4))
    first, second = (stored[item.sample.sample_id] for item in items)
    assert not np.array_equal(first.kept("h2o head 0.5 aware"), second.kept("h2o head 0.5 aware"))
    assert np.array_equal(first.kept("h2o head 0.5 aware-reused"), second.kept("h2o head 0.5 aware-reused"))


def test_a_second_questions_masks_can_be_made_alone(evaluator: Callable[..., Evaluator], tmp_path: Path) -> None:
    grid: dict[str, Any] = {"removed": HALF, "query_mode": MODES}
    lines, whole, _ = keeping(evaluator("h2o", **grid), pair(), tmp_path / "whole")
    done = frozenset(line.key for line in lines)
    made = evaluator("h2o", done=done, **grid)
    made.masked = frozenset({pair()[1].sample.sample_id})
    keeper = MaskKeeper(tmp_path / "one", made.prompts, pair(), 2, lines)
    assert list(made.run(pair(), None, keeper.keep)) == []
    (found,) = stored_in(tmp_path / "one").values()
    for variant in found.variants:
        assert np.array_equal(found.kept(variant), whole[found.sample_id].kept(variant))


def test_a_variant_that_fails_has_no_mask(runs: Runs, toys: None) -> None:
    flags = ("--benchmark", "toy", "--method", "broken,knorm", "--removed", "0.5", "--option", "broken.how=memory")
    assert runs(*flags, "--limit", "1", "--store-masks", "1").code == 0
    assert {row["status"] for row in runs.rows() if row["method"] == "broken"} == {"oom"}
    assert {one.variants for one in stored_in(runs.folder).values()} == {("full", "knorm head 0.5")}


def test_the_question_in_the_context_is_in_the_mask_and_tokens(
    evaluator: Callable[..., Evaluator], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Toy, "shareable", True)
    lines, stored, _ = keeping(evaluator("knorm", removed=HALF, query_aware=True), some(2), tmp_path)
    texts = ["".join(one.tokens or ()) for one in stored.values()]
    assert [text.rsplit(" ", 2)[1:] for text in texts] == [["number", "0?"], ["number", "1?"]]
    assert {line.context_tokens for line in lines} == {one.shape[2] for one in stored.values()}


def test_tokens_read_as_the_prompt_and_only_where_they_may_be_redistributed(
    evaluator: Callable[..., Evaluator], toy_prompts: Prompts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "naïve 日本 \U0001f9ea " * 3
    items = some(1, context=text)
    (own,) = keeping(evaluator("knorm"), items, tmp_path / "1")[1].values()
    assert own.tokens is None
    with np.load(path_of(tmp_path / "1", own.sample_id), allow_pickle=False) as parts:
        assert set(parts.files) == {"about", "masks", "index", "lengths"}
    monkeypatch.setattr(Toy, "shareable", True)
    (shown,) = keeping(evaluator("knorm"), items, tmp_path / "2")[1].values()
    assert shown.tokens is not None and own.lengths is not None
    assert "".join(shown.tokens) == toy_prompts.frame.prefix + text
    assert "".join(shown.tokens[: shown.prefix]) == toy_prompts.frame.prefix
    assert own.lengths.tolist() == [len(piece) for piece in shown.tokens]


def test_the_first_samples_of_each_subset_and_length() -> None:
    items = [Item(Toy(), toy_sample(s, n, i)) for n in (40, 50) for s in ("red", "blue") for i in range(3)]
    found = list(first_of_each(items, 2))
    assert found == [f"toy/{s}/{n}/0/{i}" for n in (40, 50) for s in ("red", "blue") for i in range(2)]
    assert list(first_of_each(items, 0)) == []


def test_a_run_stores_them_under_the_same_name(runs: Runs) -> None:
    assert runs(*QUICK).code == 0
    plain = files_of(runs.folder)
    runs.out = runs.out.with_name("other")
    assert runs(*STORED).code == 0
    stored = files_of(runs.folder)
    assert runs.folder.name in {path.name for path in runs.out.with_name("out").iterdir()}
    names = {f"masks/{mask_file.file_name(f'toy/{subset}/64/0/0')}" for subset in ("red", "blue")}
    assert stored.keys() - plain.keys() == names
    assert {name for name in plain if plain[name] != stored[name]} == {"run.json"}
    then, now = json.loads(plain["run.json"]), json.loads(stored["run.json"])
    assert (then.pop("store_masks"), now.pop("store_masks")) == (0, 1)
    assert then == now


@pytest.mark.parametrize("benchmark", ["toy", "reader"])
@pytest.mark.parametrize("left", ["nothing", "half a file"])
def test_a_complete_run_gets_the_masks_it_lacks_without_an_answer(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, benchmark: str, left: str
) -> None:
    benchmarks.registry.register(Reader)
    flags = ("--benchmark", benchmark, *STORED[2:])
    assert runs(*flags).code == 0
    whole = files_of(runs.folder)
    for row in runs.rows():
        own = stored_in(runs.folder).get(row["sample_id"])
        assert own is None or own.removed(row["variant"]) == row["removed_context"]
    for path in (runs.folder / "masks").iterdir():
        path.write_bytes(path.read_bytes()[:-40])
        if left == "nothing":
            path.unlink()
    (runs.folder / "run.json").write_bytes(whole["run.json"].replace(b'"store_masks": 1', b'"store_masks": 0'))
    monkeypatch.setattr(runner, "decode_all", None)
    again = runs(*flags)
    assert (again.code, again.err, "was complete already" in again.out) == (0, "", True)
    assert files_of(runs.folder) == whole


def test_more_are_added_and_none_is_made_twice(runs: Runs, unloaded: Callable[[], None]) -> None:
    runs(*STORED)
    assert runs(*QUICK, "--store-masks", "2").code == 0
    assert runs.json("run.json")["store_masks"] == 2
    assert set(stored_in(runs.folder)) == {f"toy/{s}/64/0/{i}" for s in ("red", "blue") for i in (0, 1)}
    before = files_of(runs.folder)
    unloaded()
    for count in ("0", "1", "2"):
        assert runs(*QUICK, "--store-masks", count).code == 0
    assert files_of(runs.folder) == before


@pytest.mark.parametrize(("lines", "kept"), [(0, True), (2, True), (6, False), (11, True), (11, False)])
def test_a_resumed_run_equals_an_uninterrupted_one(runs: Runs, lines: int, kept: bool) -> None:
    runs(*STORED)
    whole = files_of(runs.folder)
    shorten(runs, lines)
    shorten(runs, -(-lines // 6), "histograms.jsonl")
    if not kept:
        shutil.rmtree(runs.folder / "masks")
    assert runs(*STORED, "--resume").code == 0
    assert files_of(runs.folder) == whole


def test_force_drops_them(runs: Runs) -> None:
    runs(*STORED)
    assert runs(*QUICK, "--force").code == 0
    assert stored_in(runs.folder) == {}
    assert runs.json("run.json")["store_masks"] == 0


def test_other_code_makes_no_masks_for_a_complete_run(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    runs(*QUICK)
    before = files_of(runs.folder)
    real = provenance.method_hash
    monkeypatch.setattr(provenance, "method_hash", lambda *given: real(*given) + "x")
    refused = runs(*STORED)
    assert (refused.code, "masks made now would not be those of its answers" in refused.err) == (2, True)
    assert files_of(runs.folder) == before


def test_a_mask_that_is_not_the_lines_is_not_stored(runs: Runs) -> None:
    runs(*QUICK)
    rows = runs.rows()
    first = next(row for row in rows if row["variant"] == "knorm head 0.5")
    assert first["sample_id"] == "toy/red/64/0/0"
    first["kept_pairs"] -= 1
    (runs.folder / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    done = runs(*STORED)
    assert done.code == 0
    assert "masks of toy/red/64/0/0 are not stored: knorm head 0.5 kept" in " ".join(done.out.split())
    assert set(stored_in(runs.folder)) == {"toy/blue/64/0/0"}


def test_what_could_not_run_has_no_masks_and_is_not_tried_again(runs: Runs, unloaded: Callable[[], None]) -> None:
    flags = (*STORED, "--length", "64,600")
    first = runs(*flags)
    assert first.code == 0 and "are not stored: its prompt could not be run (2 such samples)" in first.out
    assert {row["status"] for row in runs.rows() if row["length"] == 600} == {"truncated"}
    assert len(stored_in(runs.folder)) == 2
    unloaded()
    assert runs(*flags).code == 0


def test_a_disk_that_is_full_does_not_end_the_run(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez_compressed", full)
    done = runs(*STORED)
    assert (done.code, len(runs.rows()), "no space left" in " ".join(done.out.split())) == (0, 12, True)
    assert list((runs.folder / "masks").iterdir()) == []


def test_a_packed_run_stays_packed(runs: Runs) -> None:
    runs(*QUICK)
    path = runs.folder / "samples.jsonl"
    (runs.folder / "samples.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert runs(*STORED).code == 0
    assert not path.exists() and len(stored_in(runs.folder)) == 2


def test_texts_that_are_not_stored_come_from_the_rows(runs: Runs, tmp_path: Path) -> None:
    named = ((1, "a"), (2, "b"))
    texts = [f"Note {n}: the accéss code of {key} 日本\U0001f9ea is: {n}234567. " * 4 for n, key in named]
    rows = [
        {"context": text, "question": f"Which code{end}?", "answers": [text[:9], "x"], "max_new_tokens": 3}
        for text in texts
        for end in ("", " is it")
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    passages.read_passages.cache_clear()
    flags = ("--benchmark", "multi-question", "--data", path, "--method", "h2o", "--removed", "0.5")
    done = runs(*flags, "--store-masks", "3")
    assert done.code == 0, done.err
    run = read(runs.folder)
    places = samples_with_masks(run)
    assert len(places) == 4  # all: no subset has more than three
    for number, place in enumerate(places):
        closed = sample_view(run, place.sample_id)
        assert closed.tokens is None and "--data" in closed.tokens_note
        view = sample_view(run, place.sample_id, path)
        assert view.tokens is not None and "".join(view.tokens[view.prefix :]) == rows[number]["context"]
        assert set("".join(view.tokens[: view.prefix])) == {"·"}
        assert rows[number]["question"] in (view.question or "") and view.references == tuple(rows[number]["answers"])
        assert all(shown.agrees for shown in view.variants)
    rows[0]["question"] = "Another?"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    passages.read_passages.cache_clear()
    with pytest.raises(HarnessError, match="--data"):
        sample_view(run, places[0].sample_id, path)
