"""lm-eval on pruned caches: the full one against its own ``hf`` model, pruned ones against caches gathered by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lm_eval
import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

from harness.config.grid import plan
from harness.config.run_config import RunConfig
from harness.engine.adapter import LanguageModel
from harness.engine.context import Context
from harness.engine.prefill import prefill
from harness.errors import HarnessError
from harness.evaluation.keep_masks import masks
from harness.lmeval import model
from harness.lmeval.model import KvpruneLM, Shared
from harness.models.loading import Loaded
from harness.models.prompts import Prompts
from tests.harness.driving import HALF, Ran
from tests.tiny import Plain, greedy

CHOICES = [" river", " the old bridge", " a ticket"]
DOCS = [
    {
        "id": number,
        "context": f"The access code of {key} is written in these notes. A dog barks in the yard {number} times.",
        "question": f"Which code do the notes give for {key}?",
        "choices": CHOICES,
        "answer": number % 3,
    }
    for number, key in enumerate(["basket", "river", "garden", "tiger"])
]
CHOICE = """
task: toy_choice
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{context}}}} {{{{question}}}}\\nAnswer:"
doc_to_choice: choices
doc_to_target: answer
target_delimiter: ""
metric_list: [{{metric: acc}}]
"""
WRITTEN = """
task: toy_written
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "Question: {{{{question}}}}\\nAnswer:"
doc_to_target: "{{{{choices[answer]}}}}"
generation_kwargs: {{until: ["."], max_gen_toks: 5, do_sample: false}}
metric_list: [{{metric: exact_match}}]
"""


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    folder = tmp_path / "tasks"
    folder.mkdir()
    data = tmp_path / "docs.jsonl"
    data.write_text("".join(json.dumps(doc) + "\n" for doc in DOCS), "utf-8")
    for name, text in (("choice", CHOICE), ("written", WRITTEN)):
        (folder / f"{name}.yaml").write_text(text.format(data=data), "utf-8")
    return folder


@pytest.fixture
def shared(toy_lm: LanguageModel, toy_prompts: Prompts) -> Shared:
    planned = plan(RunConfig(method=("knorm", "kvzip"), removed=HALF), toy_lm.info)
    return Shared(Loaded(toy_lm, toy_prompts.tokenizer), planned)


def asking(doc: dict[str, Any], text: str | None = None) -> list[Instance]:
    """Requests for the log-likelihood of each choice."""
    text = f"{doc['context']} {doc['question']}\nAnswer:" if text is None else text
    return [Instance("loglikelihood", doc, (text, choice), i, ("toy", 0, 1)) for i, choice in enumerate(CHOICES)]


def writing(doc: dict[str, Any], **settings: Any) -> Instance:
    text = f"{doc['context']} {doc['question']}\nAnswer:"
    return Instance("generate_until", doc, (text, {"max_gen_toks": 6, "until": [], **settings}), 0, ("toy", 0, 1))


TEXTS = [None, "No context here. What is it?", "ends in a space ", "", DOCS[0]["context"]]


@pytest.mark.parametrize("text", TEXTS)
def test_the_full_cache_gives_the_figures_of_lm_evals_own_model(model_folder: Path, text: str | None) -> None:
    own = HFLM(pretrained=str(model_folder), device="cpu", dtype="float32", batch_size=1)
    lm = KvpruneLM(pretrained=str(model_folder), method="knorm", removed="0", device="cpu")
    assert lm.variant.label == "knorm head 0"
    requests = [one for doc in DOCS[:2] for one in asking(doc, text)]
    expected = own.loglikelihood(requests, disable_tqdm=True)
    for found in (lm.loglikelihood(requests), KvpruneLM(shared=lm.shared, index=0).loglikelihood(requests)):
        assert [one[0] for one in found] == pytest.approx([one[0] for one in expected], abs=1e-3)
        assert [one[1] for one in found] == [one[1] for one in expected]


def test_a_greedy_continuation_is_called_so(shared: Shared, toy_lm: LanguageModel) -> None:
    text = f"{DOCS[0]['context']} and"
    best = greedy(toy_lm.model, shared.encode(text), 1)[0]
    jobs = [model.Job(shared.prompt(text, DOCS[0], "toy"), (token,)) for token in (best, (best + 1) % 300)]
    assert [one.greedy for one in shared.answer(jobs, 0)] == [True, False]


def by_hand(lm: LanguageModel, shared: Shared, index: int, cached: Sequence[int]) -> tuple[Plain, Any]:
    """The cache of a variant with its removed pairs really gone."""
    planned = shared.plan.planned
    scored = prefill(lm, Context(tuple(cached), 0, (), shared.prompts.encode), shared.plan.methods)
    keep = masks(planned, scored, (3, 3, len(cached)), 0).keep[index]
    plain = Plain(lm.model)
    return plain, plain.gathered(plain.forward(cached)[1], keep)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_choices_and_answers_are_those_of_gathered_caches(shared: Shared, toy_lm: LanguageModel, index: int) -> None:
    doc = DOCS[1]
    lm = KvpruneLM.all(shared)[index]
    text = f"{doc['context']} {doc['question']}\nAnswer:"
    ids, context = shared.encode(text), shared.encode(doc["context"])
    assert ids[: len(context)] == context  # so the border is known without the code under test
    plain, past = by_hand(toy_lm, shared, index, context)
    asked = ids[len(context) :]
    for choice, (found, best) in zip(CHOICES, lm.loglikelihood(asking(doc)), strict=True):
        more = shared.encode(text + choice)[len(ids) :]
        rows = plain.logprobs([*asked, *more[:-1]], len(context), past)[-len(more) :]
        assert found == pytest.approx(float(rows[range(len(more)), more].sum()), abs=1e-4)
        assert best == (rows.argmax(dim=-1).tolist() == more)
    fed: list[int] = []
    for _ in range(6):
        fed.append(int(plain.logprobs([*asked, *fed], len(context), past)[-1].argmax()))
    expected = shared.tokenizer.decode(fed, skip_special_tokens=True)
    assert lm.generate_until([writing(doc)]) == [expected]
    assert lm.generate_until([writing(doc, until=[expected[1]])]) == [expected.split(expected[1])[0]]
    if index:
        assert model.mean_removed(shared, index) == pytest.approx(0.5, abs=0.05)


def test_what_is_pruned_is_the_context_or_all_but_the_last_token(shared: Shared) -> None:
    doc = DOCS[0]
    before, after = "Read this.\n", f"\n{doc['question']}"
    prompt = shared.prompt(before + doc["context"] + after, doc, "a")
    assert shared.tokenizer.decode(prompt.cached) == before + doc["context"]
    assert shared.tokenizer.decode(prompt.asked) == after
    for text, other in ((before + after, doc), (before + after, {"context": 3}), (before + after, "a text")):
        whole = shared.prompt(text, other, "b")
        assert (*whole.cached, *whole.asked) == tuple(shared.encode(text)) and len(whole.asked) == 1
    assert len(shared.prompt(doc["context"], doc, "c").asked) == 1
    twice = shared.prompt(f"{doc['context']} {doc['context']} end", doc, "d")
    assert shared.tokenizer.decode(twice.asked) == " end"  # examples come before the context itself
    assert {task: (len(a), len(b)) for task, (a, b) in shared.split.items()} == {
        "a": (1, 0),
        "b": (0, 1),
        "c": (1, 0),
        "d": (1, 0),
    }


def test_choices_and_variants_share_one_prefill(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    real = model.prune
    monkeypatch.setattr(model, "prune", lambda *args: seen.append(args[2]) or real(*args))
    requests = [one for doc in DOCS[:2] for one in asking(doc)]
    found = [lm.loglikelihood(requests) for lm in KvpruneLM.all(shared)]
    assert len(seen) == 2 and len(found) == 3
    assert found[0] != found[1] != found[2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda lm: lm.loglikelihood_rolling([]), "perplexity tasks"),
        (lambda lm: lm.generate_until([writing(DOCS[0], do_sample=True, temperature=1.0)]), "samples its answers"),
        (lambda lm: lm.generate_until([writing(DOCS[0], max_gen_toks=10_000)]), "needs .* positions"),
    ],
)
def test_what_cannot_be_run_is_refused(shared: Shared, call: Callable[[KvpruneLM], Any], message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        call(KvpruneLM.all(shared)[1])


def test_a_method_that_fails_ends_the_run_with_its_reason(
    toys: None, toy_lm: LanguageModel, toy_prompts: Prompts
) -> None:
    planned = plan(RunConfig(method=("broken",), removed=HALF), toy_lm.info)
    broken = Shared(Loaded(toy_lm, toy_prompts.tokenizer), planned)
    with pytest.raises(HarnessError, match=r"broken head 0\.5 fails on a prompt of .* the method's own reason"):
        KvpruneLM.all(broken)[0].loglikelihood(asking(DOCS[0]))


def test_lm_evals_own_call_knows_the_model(model_folder: Path, tasks: Path) -> None:
    manager = TaskManager(include_path=tasks, include_defaults=False)
    args = f"pretrained={model_folder},method=knorm,removed=0.5"
    found = lm_eval.simple_evaluate(
        model="kvprune", model_args=args, tasks=["toy_choice"], device="cpu", task_manager=manager, bootstrap_iters=0
    )
    assert found is not None and 0 <= found["results"]["toy_choice"]["acc,none"] <= 1
    with pytest.raises(HarnessError, match=r"make 2 variants \(knorm head 0.25, knorm head 0.5\)"):
        KvpruneLM(pretrained=str(model_folder), method="knorm", removed="0.25,0.5")


def test_the_command_has_a_column_for_each_variant(
    cli: Callable[..., Ran], model_folder: Path, tasks: Path, tmp_path: Path
) -> None:
    asked = ("lm-eval", "--model", model_folder, "--include-path", tasks, "--method", "knorm,kvzip", "--limit", "3")
    out = tmp_path / "out.json"
    done = cli(*asked, "--removed", "0.5", "--tasks", "toy_choice,toy_written", "--json", out)
    assert done.code == 0, done.err
    for shown in ("full", "knorm head 0.5", "kvzip global 0.5", "context of 3", "whole prompt of 3 (aware)", "removed"):
        assert shown in done.out
    result = json.loads(out.read_text("utf-8"))
    assert [one["variant"] for one in result["variants"]] == ["full", "knorm head 0.5", "kvzip global 0.5"]
    own = HFLM(pretrained=str(model_folder), device="cpu", dtype="float32", batch_size=1)
    manager = TaskManager(include_path=tasks, include_defaults=False)
    both = ["toy_choice", "toy_written"]
    expected = lm_eval.simple_evaluate(model=own, tasks=both, limit=3, task_manager=manager, bootstrap_iters=0)
    assert expected is not None
    for task, metric in zip(both, ("acc,none", "exact_match,none"), strict=True):
        assert result["variants"][0]["results"][task][metric] == expected["results"][task][metric]
    assert result["variants"][0]["removed"] == 0 and result["variants"][1]["removed"] == pytest.approx(0.5, abs=0.06)
    bad = cli(*asked, "--tasks", "toy_chioce")
    assert (bad.code, "unknown lm-eval task 'toy_chioce'" in bad.err) == (2, True)
    assert cli(*asked[:3], "--tasks", "x", "--include-path", tasks / "none").code == 2


def test_torch_is_left_as_it_was(shared: Shared, toy_lm: LanguageModel) -> None:
    KvpruneLM.all(shared)[1].loglikelihood(asking(DOCS[2]))
    assert toy_lm.config._attn_implementation == "sdpa" and torch.is_grad_enabled()
