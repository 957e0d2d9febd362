"""Many questions on one context: what each query mode prunes by, against prefills and caches made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from benchmarks.multi_question import passages
from harness.config.query_modes import resolve
from harness.config.run_config import QUERY_MODES as MODES
from harness.engine.adapter import LanguageModel
from harness.engine.context import Context
from harness.engine.prefill import prefill
from harness.engine.query_aware import score_in_view
from harness.errors import HarnessError
from harness.evaluation import evaluator as runner
from harness.evaluation import query_aware_masks
from harness.evaluation.evaluator import Evaluator, Item
from harness.models.prompts import Prompts
from harness.results.schema import Line
from methods.base import Method
from methods.expected_attention import ExpectedAttention
from methods.h2o import H2O
from methods.keydiff import KeyDiff
from methods.knorm import Knorm
from methods.observed_attention import ObservedAttention
from methods.pyramidkv import PyramidKV
from methods.random import Random
from methods.snapkv import SnapKV
from methods.tova import TOVA
from tests.harness.driving import HALF, Runs, evaluate, planned
from tests.harness.toys import Toy, toy_sample
from tests.tiny import Plain, some_ids, tiny

SCORERS: list[Method] = [SnapKV(), H2O(), TOVA(), ObservedAttention(), ExpectedAttention(), PyramidKV(), KeyDiff()]
SCORERS += [Knorm(), Random()]
TOKENS, ASKED = 90, 11


class Asker(Toy):
    """Toy contexts with two questions, in all query modes."""

    name = "asker"
    query_modes: ClassVar[tuple[str, ...]] = MODES


def pair(number: int = 0, length: int = 60) -> list[Item]:
    """Two questions on one context."""
    return [Item(Asker(), toy_sample("red", length, index)) for index in (2 * number, 2 * number + 1)]


def of(lines: Sequence[Line], mode: str, place: int | None = None) -> list[Line]:
    chosen = [line for line in lines if line.query_mode == mode and line.level_kind != "none"]
    return [line for line in chosen if place is None or line.question_index == place]


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3", "qwen2_sliding"])
def test_scores_in_view_are_those_of_a_prefill_of_context_and_question(family: str) -> None:
    lm = tiny(family)
    ids, question = some_ids(TOKENS), some_ids(ASKED, seed=1)
    scored = prefill(lm, Context(ids, 4), SCORERS, 7, later=SCORERS)
    before = [keys.clone() for keys in scored.prefix.keys]
    found = score_in_view(lm, scored.prefix, question, SCORERS, 7)
    whole = prefill(lm, Context((*ids, *question), 4), SCORERS, 7)
    assert found.failed == whole.failed == {}
    for method in SCORERS:
        torch.testing.assert_close(found.scores[method], whole.scores[method][:, :, :TOKENS], rtol=1e-5, atol=1e-6)
        if method != Knorm():  # which reads a pair's own key alone
            assert not torch.equal(found.scores[method], scored.scores[method])
    assert all(torch.equal(old, new) for old, new in zip(before, scored.prefix.keys, strict=True))
    again = score_in_view(lm, scored.prefix, question, SCORERS, 7)
    assert all(torch.equal(found.scores[method], again.scores[method]) for method in SCORERS)


def test_a_method_that_reads_hidden_states_sees_those_of_both(kvzap: Method) -> None:
    lm = tiny("llama")
    ids, question = some_ids(TOKENS), some_ids(ASKED, seed=1)
    scored = prefill(lm, Context(ids, 4), [kvzap], later=[kvzap])
    found = score_in_view(lm, scored.prefix, question, [kvzap])
    assert found.failed == {}
    # what the surrogate says of a pair does not depend on what follows it, so aware is agnostic
    torch.testing.assert_close(found.scores[kvzap], scored.scores[kvzap], rtol=1e-5, atol=1e-6)


@pytest.fixture
def kvzap() -> Method:
    """A method of KVzap's kind: a function of each hidden state alone."""

    class Pointwise(Knorm):
        name: ClassVar[str] = "pointwise"
        needs: ClassVar[frozenset[str]] = frozenset({"hidden"})

        def score(self, seen: Any) -> Tensor:
            return seen.hidden.float()[:, :3].T.contiguous()

    return Pointwise()


def test_nothing_is_kept_of_a_prefill_that_no_question_follows() -> None:
    lm = tiny("llama")
    assert prefill(lm, Context(some_ids(20)), SCORERS).prefix.shown == []
    shown = prefill(lm, Context(some_ids(20)), later=[H2O()]).prefix.shown
    assert [len(layer.hidden) for layer in shown] == [0, 0, 0]  # H2O reads no hidden states


def test_an_empty_context_has_no_scores() -> None:
    lm = tiny("llama")
    scored = prefill(lm, Context(()), later=[H2O()])
    assert score_in_view(lm, scored.prefix, (1, 2), [H2O()]).scores[H2O()].shape == (3, 3, 0)


def h2o_by_hand(plain: Plain, ids: Sequence[int], seen: Sequence[int]) -> Tensor:
    """H2O's mask ``[L, H, T]`` at half removed, from attention written out by hand over ``ids`` and ``seen``."""
    cached, kept = len(ids), len(ids) // 2 if len(ids) % 2 == 0 else (len(ids) - 1) // 2
    _, layers = plain.forward([*ids, *seen])
    keep = torch.zeros(3, 3, cached, dtype=torch.bool)
    for index, layer in enumerate(layers):
        for head in range(3):
            sums = sum(layer.weights[3 * head + one].sum(dim=0)[:cached] for one in range(3))
            newest = kept - kept // 2
            best = sums[: cached - newest].topk(kept // 2).indices
            keep[index, head, best] = True
            keep[index, head, cached - newest :] = True
    return keep


def answer_by_hand(plain: Plain, ids: Sequence[int], keep: Tensor, question: Sequence[int], most: int) -> list[int]:
    """Greedy tokens from a cache whose other pairs are gone, the question at T."""
    _, seen = plain.forward(ids)
    past, found = plain.gathered(seen, keep), []
    for _ in range(most):
        found.append(int(plain.logprobs([*question, *found], len(ids), past)[-1].argmax()))
    return found


@pytest.mark.parametrize("number", [0, 1])
def test_answers_of_all_modes_equal_those_of_caches_gathered_by_hand(
    evaluator: Callable[..., Evaluator], toy_lm: LanguageModel, toy_prompts: Prompts, number: int
) -> None:
    items = pair(number)
    lines = evaluate(evaluator("h2o", removed=HALF, query_mode=MODES), items)
    assert [(line.variant, line.status) for line in lines[:4]] == [
        (name, "ok") for name in ("full", "h2o head 0.5", "h2o head 0.5 aware", "h2o head 0.5 aware-reused")
    ]
    plain = Plain(toy_lm.model)
    ids = toy_prompts.context(items[0].sample.context).ids
    asked = [toy_prompts.question(item.sample.question, item.sample.answer_prefix) for item in items]
    kept = {}
    for place, question in enumerate(asked):
        for mode, seen in {"agnostic": (), "aware": question, "aware-reused": asked[0]}.items():
            kept[mode, place] = keep = h2o_by_hand(plain, ids, seen)
            (line,) = of(lines, mode, place)
            assert line.kept_pairs == int(keep.sum()) and line.context_tokens == len(ids)
            assert line.prediction == toy_prompts.decode(answer_by_hand(plain, ids, keep, question, 4))
    assert not torch.equal(kept["agnostic", 1], kept["aware", 1])
    assert not torch.equal(kept["aware", 1], kept["aware-reused", 1])  # or the modes were not told apart


def test_modes_keep_their_answers_whoever_runs_beside_them(evaluator: Callable[..., Evaluator]) -> None:
    items = [*pair(0), *pair(1)]
    names = ("h2o", "tova", "random", "kvzip")
    together = evaluate(evaluator(*names, removed=HALF, query_mode=MODES), items)
    for mode in MODES:
        alone = evaluate(evaluator(*names[:3], removed=HALF, query_mode=(mode,)), items)
        assert of(alone, mode) == [line for line in of(together, mode) if line.method != "kvzip"]
    plain = evaluate(evaluator(*names, removed=HALF), items)
    assert [line for line in plain if line.level_kind != "none"] == of(together, "agnostic")
    assert {line.method for line in of(together, "aware")} == set(names[:3])


def test_the_order_of_questions_changes_the_reused_mask_alone(evaluator: Callable[..., Evaluator]) -> None:
    def run(items: list[Item]) -> dict[tuple[str, str], Any]:
        lines = evaluate(evaluator("h2o", "observed_attention", removed=HALF, query_mode=MODES), items)
        return {(line.variant, line.sample_id): line.prediction for line in lines}

    straight, turned = run(pair()), run(pair()[::-1])
    reused = {key for key in straight if key[0].endswith("reused")}
    assert {key: straight[key] for key in straight.keys() - reused} == {k: turned[k] for k in turned.keys() - reused}
    for variant, sample in reused:  # where a question comes first, its own mask is the one that is reused
        first = straight if sample == pair()[0].sample.sample_id else turned
        assert first[variant, sample] == straight[variant.removesuffix("-reused"), sample]


def test_one_prefill_serves_all_modes_and_a_deployment_pays_by_mode(
    evaluator: Callable[..., Evaluator], monkeypatch: pytest.MonkeyPatch
) -> None:
    count = {"prefill": 0, "in view": 0}
    real_prefill, real_view = runner.prefill, query_aware_masks.score_in_view

    def counting(name: str, real: Any) -> Any:
        def call(*args: Any) -> Any:
            count[name] += 1
            return real(*args)

        return call

    monkeypatch.setattr(runner, "prefill", counting("prefill", real_prefill))
    monkeypatch.setattr(query_aware_masks, "score_in_view", counting("in view", real_view))
    lines = evaluate(evaluator("h2o", "tova", removed=HALF, query_mode=MODES), [*pair(0), *pair(1)])
    assert count == {"prefill": 2, "in view": 4}
    paid = {
        mode: [(ln.question_index, ln.prefills_paid) for ln in of(lines, mode) if ln.method == "tova"] for mode in MODES
    }
    assert paid == {
        "agnostic": [(0, 1), (1, 0)] * 2,
        "aware": [(0, 1), (1, 1)] * 2,
        "aware-reused": [(0, 1), (1, 0)] * 2,
    }
    assert [line.prefills_paid for line in lines if line.variant == "full"] == [1, 0, 1, 0]


def test_a_resumed_run_reuses_the_first_questions_mask(evaluator: Callable[..., Evaluator]) -> None:
    grid: dict[str, Any] = {"removed": HALF, "query_mode": MODES}
    whole = evaluate(evaluator("h2o", **grid), pair())
    done = frozenset(line.key for line in whole[:5])
    assert evaluate(evaluator("h2o", done=done, **grid), pair()) == whole[5:]


def test_a_first_question_that_does_not_fit_makes_no_mask(evaluator: Callable[..., Evaluator]) -> None:
    first, second = pair()
    long = Item(Asker(), replace(first.sample, max_new_tokens=1000))
    lines = evaluate(evaluator("h2o", removed=HALF, query_mode=MODES), [long, second])
    assert {line.status for line in lines if line.question_index == 0} == {"truncated"}
    assert of(lines, "aware-reused", 1)[0].prediction == of(lines, "aware", 1)[0].prediction
    assert of(lines, "aware-reused", 1)[0].status == "ok"


def test_memory_that_runs_out_with_a_question_in_view_fails_those_modes_alone(
    evaluator: Callable[..., Evaluator], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(query_aware_masks, "score_in_view", full)
    lines = evaluate(evaluator("h2o", removed=HALF, query_mode=MODES), pair())
    assert {(line.query_mode, line.status, line.reason) for line in lines} == {
        ("agnostic", "ok", None),
        ("aware", "oom", "no room"),
        ("aware-reused", "oom", "no room"),
    }


def test_what_cannot_see_a_question_is_left_out_with_the_reason() -> None:
    found = planned("kvzip", "h2o", "knorm", removed=HALF, query_mode=MODES)
    assert [p.variant.label for p in found.planned][1:5] == [
        "kvzip global 0.5",
        "h2o head 0.5",
        "h2o head 0.5 aware",
        "h2o head 0.5 aware-reused",
    ]
    assert set(found.skipped) == {"kvzip aware", "kvzip aware-reused"}
    assert "query-agnostic by construction" in found.skipped["kvzip aware"]
    assert found.planned[0].variant.query_mode == "agnostic"
    kvpress = planned("snapkv", "knorm", removed=HALF, query_mode=MODES, option=("snapkv.compat=kvpress",))
    assert "NVIDIA/kvpress prunes the question with the context" in kvpress.skipped["snapkv aware"]
    decoding = planned("h2o", removed=HALF, query_mode=MODES, phase="both")
    assert [p.variant.query_mode for p in decoding.planned] == ["agnostic", "agnostic"]
    with pytest.raises(HarnessError, match="query-agnostic by construction"):
        planned("kvzip", removed=HALF, query_mode=("aware",))


@pytest.mark.parametrize(
    ("asked", "query_aware", "wanted", "message"),
    [
        (("aware",), True, [Asker()], "--query-aware prunes the question together"),
        ((), True, [Asker()], "give --query-mode aware"),
        (("aware",), False, [Toy()], "toy asks one: use --query-aware"),
        ((), False, [Toy(), Asker()], "run them apart, or give --query-mode agnostic"),
    ],
)
def test_flags_that_do_not_go_together(asked: Any, query_aware: bool, wanted: Any, message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        resolve(asked, query_aware, wanted)


def test_modes_of_a_run() -> None:
    assert resolve((), False, [Asker()]) == MODES
    assert resolve(("aware",), False, [Asker()]) == ("aware",)
    assert resolve(("agnostic",), False, [Toy(), Asker()]) == ("agnostic",)
    assert resolve((), True, [Toy()]) == resolve((), False, [Toy()]) == ()


def test_the_command_shows_scores_by_place_and_prefills(runs: Runs, tmp_path: Path) -> None:
    texts = [f"Note {n}: the access code of {key} is: {n}234567. " * 6 for n, key in enumerate(("basket", "river"), 1)]
    rows = [
        {"context": text, "question": f"Which access code{end}?", "answers": [text[:9], "x"], "max_new_tokens": 3}
        for text in texts
        for end in ("", " is it", " do the notes give")
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    passages.read_passages.cache_clear()
    asked = ("--benchmark", "multi-question", "--data", path, "--method", "h2o,kvzip", "--removed", "0.5")
    done = runs(*asked)
    assert done.code == 0, done.err
    head = next(line for line in done.out.splitlines() if "┃ variant" in line)
    assert [name in head for name in ("prefills", "q1", "q2", "q3")] == [True] * 4
    assert " exact " in done.out
    assert "mean of 3 of 5" in head and "not run: kvzip aware: " in done.out
    cells = [cell for cell in runs.json("summary.json")["cells"] if cell["subset"] is None]
    assert [(cell["variant"], cell["prefills_paid"], cell["n"]) for cell in cells] == [
        ("full", 2, 6),
        ("h2o head 0.5", 2, 6),
        ("h2o head 0.5 aware", 6, 6),
        ("h2o head 0.5 aware-reused", 2, 6),
        ("kvzip global 0.5", 2, 6),
    ]
    assert [row["question_index"] for row in runs.rows() if row["variant"] == "full"] == [0, 1, 2, 0, 1, 2]
    assert "was complete already" in runs(*asked).out
    bad = runs(*asked, "--query-mode", "awre")
    assert (bad.code, "--query-mode must be agnostic, aware or aware-reused, got 'awre'" in bad.err) == (2, True)
    assert runs(*asked, "--query-aware").code == 2
