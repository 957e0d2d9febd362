"""Agreement: rank correlations against scipy, shares against sets, the question's attention against a plain forward."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import stats

from harness.engine.context import Context
from harness.engine.prefill import prefill
from harness.measure.agreement import attention_of, rank_correlations, shares
from tests.harness.driving import Ran
from tests.tiny import Plain, some_ids, some_masks, tiny

CONTEXT, ASKED = some_ids(29), some_ids(7, seed=4)
TOY = ("--benchmark", "toy", "--subset", "red", "--limit", "2", "--length", "40")


def test_rank_correlations_are_scipys_with_ties_too() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(4, 2, 3, 50, generator=generator)
    scores[1] = torch.randint(0, 5, scores[1].shape, generator=generator).float()  # many ties
    scores[2] = scores[0].exp() * 1e-9  # the same order
    found = rank_correlations(scores)
    assert found.shape == (4, 4, 2, 3)
    for one in range(4):
        for other in range(4):
            for layer in range(2):
                for head in range(3):
                    wanted = stats.spearmanr(scores[one, layer, head], scores[other, layer, head]).statistic
                    assert float(found[one, other, layer, head]) == pytest.approx(wanted, abs=1e-12)
    assert found[0, 2].allclose(torch.ones(1, dtype=torch.float64), atol=1e-12)


def test_scores_without_an_order_have_no_correlation() -> None:
    scores = torch.randn(3, 1, 2, 20)
    scores[1, :, 0] = 4.0
    scores[2, :, 1, 3] = float("nan")
    found = rank_correlations(scores)
    assert torch.isnan(found[0, 1, :, 0]).all() and torch.isnan(found[1, 1, :, 0]).all()
    assert torch.isnan(found[0, 2, :, 1]).all()
    assert not torch.isnan(found[0, 1, :, 1]).any() and not torch.isnan(found[0, 2, :, 0]).any()


def test_shares_are_those_of_the_sets() -> None:
    keep = some_masks(4, 2, 3, 40)
    keep[3, 1, 2] = False
    found = shares(keep, [False, True, False, False])
    sets = [[[set(head.nonzero().flatten().tolist()) for head in layer] for layer in one] for one in keep]
    for one in range(4):
        for other in range(4):
            for layer in range(2):
                for head in range(3):
                    mine, theirs = sets[one][layer][head], sets[other][layer][head]
                    figure = float(found[one, other, layer, head])
                    if 1 in (one, other) or not mine:
                        assert figure != figure
                    else:
                        assert figure == pytest.approx(len(mine & theirs) / len(mine))


def test_what_a_question_uses_is_its_largest_weight_in_the_group() -> None:
    lm = tiny("llama")
    prefix = prefill(lm, Context(CONTEXT)).prefix
    found = attention_of(lm, prefix, ASKED)
    _, seen = Plain(lm.model).forward((*CONTEXT, *ASKED))
    for layer, one in enumerate(seen):
        for head in range(3):
            weights = torch.stack(one.weights[3 * head : 3 * head + 3])[:, len(CONTEXT) :, : len(CONTEXT)]
            torch.testing.assert_close(found[layer, head].double(), weights.amax(dim=(0, 1)), rtol=1e-4, atol=1e-7)


@pytest.fixture
def compared(cli: Callable[..., Ran], model_folder: Path, toys: None, tmp_path: Path) -> Callable[..., Any]:
    """The command on the tiny model: what it printed and what it wrote."""

    def call(*args: object) -> tuple[Ran, dict[str, Any]]:
        path = tmp_path / "agreement.json"
        done = cli("agreement", "--model", model_folder, "--json", path, *args)
        return done, json.loads(path.read_text("utf-8")) if path.is_file() else {}

    return call


def test_the_command_compares_methods_the_repeat_pass_and_the_question(compared: Callable[..., Any]) -> None:
    done, result = compared(*TOY, "--method", "knorm,streaming_llm,carded", "--removed", "0.75")
    assert done.code == 0, done.err
    assert result["methods"] == ["knorm", "streaming_llm", "carded", "kvzip", "question"]
    assert (result["benchmark"], result["contexts"], result["removed"]) == ("fidelity:toy", 2, 0.75)
    for name in ("rank", "share"):
        for place, row in enumerate(result[name]):
            assert row[place] == pytest.approx(1)
            for other, figure in enumerate(row):
                by_head = [one for layer in result[f"{name}_by_head"][place][other] for one in layer]
                assert len(by_head) == 9
                assert figure == pytest.approx(sum(by_head) / 9, abs=1e-5)
                if name == "rank":
                    assert figure == pytest.approx(result["rank"][other][place])
    assert result["share"][0][1] not in (0, 1)
    for text in ("Spearman", "2 contexts, 0.75 removed", "unrelated: about 0.25", "4 kvzip", "rank, kvzip"):
        assert text in done.out


def test_all_methods_and_options_are_compared(compared: Callable[..., Any]) -> None:
    options = "kvzip.pretext=repeat,kvzip.pretext=summary"
    done, result = compared(*TOY, "--method", "all", "--option", options, "--option", "broken.how=raise")
    assert done.code == 0, done.err
    names = result["methods"]
    assert {"kvzip", "kvzip pretext=summary", "h2o", "snapkv", "question"} <= {*names}
    assert names.count("kvzip") == 1
    assert "the method's own reason" in result["failed"]["broken"]
    assert "broken: RuntimeError" in done.out
    broken = names.index("broken")
    assert {figure for row in result["rank"] for figure in (row[broken],)} == {None}
    assert set(result["share"][broken]) == {None}
    assert any(name.startswith("kvzap") for name in result["skipped"])  # no surrogate for the model


def test_any_text_will_do(compared: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("The rain has stopped. A dog barks in the yard. " * 60, encoding="utf-8")
    done, result = compared("--data", path, "--length", "40", "--method", "knorm", "--limit", "2")
    assert (done.code, result["benchmark"], result["contexts"]) == (0, "fidelity:text", 2)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--benchmark", "toyy"), "unknown benchmark 'toyy'"),
        (("--benchmark", "fidelity:toy:repeat"), "leave :repeat out"),
        (("--benchmark", "toy", "--method", "nkorm"), "nkorm"),
        (("--benchmark", "toy", "--removed", "1.5"), "--removed must be a number, at least 0 and less than 1"),
        (("--benchmark", "toy", "--length", "x"), "--length must be a whole number"),
        (("--benchmark", "text"), "needs --data"),
        (("--benchmark", "toy", "--length", "900"), "the model has 512; give a smaller --length"),
    ],
)
def test_mistakes_are_told(compared: Callable[..., Any], flags: tuple[str, ...], message: str) -> None:
    done, result = compared("--method", "knorm", *flags)
    assert (done.code, done.out, result, "Traceback" in done.err) == (2, "", {}, False)
    assert message in done.err


def test_figures_that_cannot_be_written_are_not_made(cli: Callable[..., Ran], model_folder: Path) -> None:
    done = cli("agreement", "--model", model_folder, "--json", "/gone/a.json")
    assert done.code == 2
    assert "--json /gone/a.json cannot be written" in done.err
