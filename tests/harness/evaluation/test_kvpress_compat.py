"""``--compat kvpress`` from the flag to masks and prompts; no kvpress needed: its rules are written out here."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.config.grid import plan
from harness.config.run_config import RunConfig
from harness.config.variants import Variant, build_from_options
from harness.engine.prefill import Context, Prefix, Scored
from harness.errors import HarnessError
from harness.evaluation import job
from harness.evaluation.keep_masks import Masks, masks
from harness.models.loading import Loaded
from harness.models.prompts import Prompts
from methods.base import MethodError, ModelInfo
from methods.kvpress import kvpress_kept
from tests.harness.driving import HALF, Runs, planned
from tests.harness.models.test_prompts import PLAIN, TRIMMING, letters
from tests.harness.toys import save_model, toy_tokenizer

LAYERS, HEADS = 3, 2
INFO = ModelInfo("any", layers=LAYERS, query_heads=4, kv_heads=HEADS, head_size=8, hidden_size=32)


def made(cached: int, method: str, values: Tensor | None = None, prefix: int = 0, **more: Any) -> Masks:
    found = plan(RunConfig(method=(method,), compat="kvpress", **more), INFO)
    if values is None:
        values = torch.randn(LAYERS, HEADS, cached, generator=torch.Generator().manual_seed(0))
    empty = Prefix(Context(tuple(range(cached)), prefix), [], [], torch.empty(0))
    return masks(found.planned, Scored(empty, dict.fromkeys(found.methods, values)), values.shape, prefix)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cached", "removed", "kept"), [(1000, "0.9", 99), (100, "0.8", 19), (10, "0.9", 1), (1000, "0.75", 250)]
)
def test_heads_keep_what_binary_floats_leave(cached: int, removed: str, kept: int) -> None:
    found = made(cached, "knorm", removed=(Decimal(removed),))
    assert (found.keep[1].sum(dim=-1) == kept).all()


def test_layers_and_all_keep_kvpress_numbers() -> None:
    adakv = made(1000, "knorm", removed=(Decimal("0.9"),), budget=("layer",)).keep[1]
    assert (adakv.sum(dim=(1, 2)) == HEADS * 99).all()
    assert (adakv.sum(dim=-1) >= 19).all()
    share = (Decimal("0.29"),)
    assert int(made(50, "kvzip", removed=share).keep[1].sum()) == 300 - int(300 * 0.29)
    assert (made(50, "kvzip", removed=share, budget=("layer",)).keep[1].sum(dim=(1, 2)) == 100 - 28).all()


def test_layerwise_kvzip_has_no_floor_in_a_head() -> None:
    values = torch.stack([torch.zeros(40), torch.ones(40)]).expand(LAYERS, -1, -1).contiguous()
    found = made(40, "kvzip", values, removed=HALF, budget=("layer",), sinks=(0,)).keep[1]
    assert found.sum(dim=-1).tolist() == [[0, 40]] * LAYERS


@pytest.mark.parametrize(
    ("method", "first", "last"),
    [("streaming_llm", 4, 0), ("expected_attention", 4, 0), ("tova", 0, 1), ("snapkv", 0, 64)],
)
def test_mechanisms_stay_as_far_as_the_number_kept_goes(method: str, first: int, last: int) -> None:
    found = made(200, method, removed=(Decimal("0.5"), Decimal("0.99")), budget=("head",))
    assert found.keep[1, ..., :first].all() and found.keep[1, ..., 200 - last :].all()
    assert (found.keep[1].sum(dim=-1) == 100).all()
    few = found.keep[2]
    assert (few.sum(dim=-1) == kvpress_kept(200, 0.99)).all() and kvpress_kept(200, 0.99) == 2
    own = few[..., :first] if first else few[..., 200 - last :]
    assert (own.sum(dim=-1) == min(2, max(first, last))).all()
    assert found.bound == found.short == [False] * 3


def test_a_threshold_spares_the_last_128_and_judges_a_mechanism_by_its_raised_score() -> None:
    values = torch.full((LAYERS, HEADS, 300), -2.0)
    values[..., 10] = 0.5
    found = made(300, "expected_attention", values, budget=("threshold",), threshold=(0.0, 1.5, 1.6))
    spared = list(range(172, 300))
    kept = [mask[0, 0].nonzero().flatten().tolist() for mask in found.keep[1:]]
    assert kept == [[0, 1, 2, 3, 10, *spared], [0, 1, 2, 3, *spared], spared]


def test_flags_still_replace_the_protection() -> None:
    found = made(40, "kvzip", removed=HALF, sinks=(7,), window=(3,))
    assert found.keep[1, ..., :7].all() and found.keep[1, ..., -3:].all()
    (one,) = planned("kvzip", removed=HALF, compat="kvpress", window=(3,)).planned[1:]
    assert (one.variant.sinks, one.variant.window) == (4, 3)


def test_a_template_alone_is_pruned_like_any_context() -> None:
    assert made(20, "knorm", prefix=20, removed=HALF).short == [False, False]


def test_the_label_and_the_options_say_compat_and_come_back() -> None:
    found = planned("knorm", "kvzip", removed=HALF, compat="kvpress").planned
    assert [p.variant.label for p in found] == [
        "full compat=kvpress",
        "knorm head 0.5 compat=kvpress",
        "kvzip global 0.5 compat=kvpress",
    ]
    for one in found:
        assert one.method.compat == json.loads(one.variant.options)["compat"] == "kvpress"
        assert build_from_options(one.variant.method, one.variant.options) == one.method
    assert [p.variant.options for p in planned("knorm", removed=HALF).planned] == ["{}", "{}"]
    aware = planned("knorm", removed=HALF, compat="kvpress", query_aware=True).planned
    assert [p.variant.label for p in aware] == ["full compat=kvpress aware", "knorm head 0.5 compat=kvpress aware"]


def test_options_written_when_kvzip_alone_had_compat_are_read() -> None:
    old = Variant(
        "kvzip", "global", "removed", 0.5, sinks="prefix", options='{"chunk": 2048, "compat": "", "lead_in": 8}'
    )
    assert old.label == "kvzip global 0.5"


def test_the_option_gives_one_method_what_the_flag_gives_all() -> None:
    by_option = planned("knorm", "random", removed=HALF, option=("knorm.compat=kvpress",)).planned
    assert [p.variant.label for p in by_option] == ["full", "knorm head 0.5 compat=kvpress", "random head 0.5"]
    both = planned("knorm", removed=HALF, option=("knorm.compat=", "knorm.compat=kvpress")).planned[1:]
    assert [p.variant.label for p in both] == ["knorm head 0.5", "knorm head 0.5 compat=kvpress"]
    with pytest.raises(MethodError, match=r"knorm\.compat must be empty or kvpress, got 'other'"):
        planned("knorm", option=("knorm.compat=other",))


def test_all_goes_on_without_what_kvpress_has_not() -> None:
    found = planned("all", removed=HALF, compat="kvpress")
    ran = {p.variant.method for p in found.planned}
    assert {"full", "random", "knorm", "streaming_llm", "tova", "snapkv", "kvzip", "kvzip_plus", "pyramidkv"} <= ran
    assert found.skipped["h2o"] == "NVIDIA/kvpress has no h2o; leave compat off"
    with pytest.raises(HarnessError, match="has no h2o"):
        planned("h2o", compat="kvpress")
    decoding = planned(
        "knorm", "tova", "random", phase="both", budget=("threshold",), threshold=(0.0,), compat="kvpress"
    )
    assert [p.variant.method for p in decoding.planned] == ["full", "knorm", "random"]
    assert [p.variant.window for p in decoding.planned[1:]] == [128, 128]


def kvpress_ids(tokenizer: Any, context: str, question: str, answer_prefix: str) -> tuple[list[int], list[int]]:
    """What kvpress's pipeline makes of the texts: the template around context and a separator, cut at the separator;
    without a template BOS in front, a line break after the question."""
    if tokenizer.chat_template:
        separator = "#" * (len(context) + 10)
        turns = [{"role": "user", "content": context + separator}]
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True, enable_thinking=False)
        left, suffix = text.split(separator)
    else:
        left, suffix = tokenizer.bos_token + context, "\n"
    asked = question + suffix + answer_prefix
    return tokenizer.encode(left, add_special_tokens=False), tokenizer.encode(asked, add_special_tokens=False)


TEXTS = [
    ("The grass is green.", " What colour?", " It is"),
    ("  indented", "ends in spaces \n", ""),
    ("The grass.\n", "\n\nWhat?", "\n"),
    ("only a context", "", ""),
]


@pytest.mark.parametrize("template", [PLAIN, TRIMMING, None])
@pytest.mark.parametrize("chat_template", [True, False])
@pytest.mark.parametrize(("context", "question", "answer_prefix"), TEXTS)
def test_prompts_are_put_together_as_kvpress_does(
    template: str | None, chat_template: bool, context: str, question: str, answer_prefix: str
) -> None:
    tokenizer = letters(template)
    prompts = Prompts(tokenizer, "kvpress")
    for seen, asked in ((context, question), (context + question, "")):  # the question out of view, and in view
        left, right = kvpress_ids(tokenizer, seen, asked, answer_prefix)
        made = prompts.context(seen, chat_template)
        assert list(made.ids) == left
        assert list(prompts.question(asked, answer_prefix, chat_template)) == right
        assert made.prefix == (2 if template else 0)  # BOS and the user's mark
        assert list(made.suffix) == kvpress_ids(tokenizer, "", "", "")[1]


@pytest.mark.real_model
@pytest.mark.parametrize(("context", "question", "answer_prefix"), TEXTS)
def test_the_embedded_models_prompts_are_kvpress_prompts_with_compat(
    smollm2: Loaded, context: str, question: str, answer_prefix: str
) -> None:
    for seen, asked in ((context, question), (context + question, "")):
        prompts = Prompts(smollm2.tokenizer, "kvpress")
        found = list(prompts.context(seen).ids), list(prompts.question(asked, answer_prefix))
        assert found == kvpress_ids(smollm2.tokenizer, seen, asked, answer_prefix)


def test_one_run_has_one_way_to_put_prompts_together(model_folder: Path, tmp_path: Path, toys: None) -> None:
    asked = {"benchmark": "toy", "method": "knorm,random", "removed": "0.9", "limit": "1", "out": str(tmp_path)}
    mixed = {**asked, "option": "knorm.compat=kvpress"}
    resolved = job.resolve(RunConfig(**mixed, model=str(model_folder)))  # the template makes both the same
    assert [p.method.compat for p in resolved.plan.planned] == ["", "kvpress", ""]
    bare = save_model(tmp_path / "bare")
    tokenizer = toy_tokenizer()
    tokenizer.chat_template = None
    for file in bare.glob("*.jinja"):
        file.unlink()
    tokenizer.save_pretrained(bare)
    with pytest.raises(HarnessError, match="cannot share a run; give --compat kvpress for all methods"):
        job.resolve(RunConfig(**mixed, model=str(bare)))
    whole = job.resolve(RunConfig(**asked, compat="kvpress", model=str(bare)))
    sample = whole.items[0].sample
    assert whole.prompts.question(sample.question, "")[-1:] == tuple(whole.prompts.encode("\n"))


def test_a_run_with_compat_writes_it_in_every_line(runs: Runs, toys: None) -> None:
    quick = ("--benchmark", "toy", "--removed", "0.9", "--limit", "1", "--compat", "kvpress")
    done = runs("--method", "knorm,h2o", *quick)
    assert done.code == 0 and "h2o: NVIDIA/kvpress has no h2o" in done.out.replace("\n", " ")
    rows = runs.rows()
    assert {row["variant"] for row in rows} == {"full compat=kvpress", "knorm head 0.9 compat=kvpress"}
    assert {row["options"] for row in rows} == {'{"compat": "kvpress"}'}
    for row in rows[1::2]:
        assert row["kept_pairs"] * row["context_tokens"] == row["cached_pairs"] * kvpress_kept(
            row["context_tokens"], 0.9
        )
