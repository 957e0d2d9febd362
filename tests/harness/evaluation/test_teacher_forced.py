"""Fidelity as a run gives it: what all variants read, the figures of their lines, files, tables, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.base import Request
from benchmarks.fidelity.benchmark import Fidelity
from harness.engine.adapter import LanguageModel
from harness.engine.prefill import prefill
from harness.engine.teacher_forcing import Reading
from harness.evaluation import teacher_forced
from harness.evaluation.evaluator import Evaluator, Item
from harness.evaluation.keep_masks import masks
from harness.models.prompts import Prompts
from harness.results.schema import MOST_FIGURE
from methods.kvzip import REPEAT_ALL, REPEAT_FROM
from tests.harness.driving import HALF, Ran, Runs, contents, evaluate, shorten
from tests.harness.toys import Toy, toy_sample
from tests.tiny import greedy, unpatched_logits

FIGURES = {"kl_mean", "kl_p95", "top1", "ppl_ratio", "nll", "nll_full"}
TOY = ("--benchmark", "fidelity:toy", "--subset", "red", "--limit", "2")


def forced(prompts: Prompts, kind: str = "", count: int = 1, source: str = "toy") -> list[Item]:
    """Samples of fidelity on the toy benchmark."""
    benchmark = Fidelity(source, kind)
    return [Item(benchmark, sample) for sample in benchmark.samples(Request((40,), ("red",), count), prompts.text)]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The question and the target of each batch that read one."""
    seen = []
    real = teacher_forced.read_all

    def noting(batch: Any, question: Any, target: Any) -> Any:
        seen.append((tuple(question), tuple(target)))
        return real(batch, question, target)

    monkeypatch.setattr(teacher_forced, "read_all", noting)
    return seen


def test_lines_say_how_far_each_variant_is_from_the_unpatched_model(
    evaluator: Callable[..., Evaluator], toy_lm: LanguageModel, toy_prompts: Prompts
) -> None:
    made = evaluator("knorm", "streaming_llm", removed=HALF)
    (item,) = forced(toy_prompts)
    lines = evaluate(made, [item])
    sample = toy_sample("red", 40, 0)
    context = toy_prompts.context(sample.context)
    question = toy_prompts.question(sample.question, sample.answer_prefix)
    answer = greedy(toy_lm.model, (*context.ids, *question), sample.max_new_tokens)
    scored = prefill(toy_lm, context, [one.method for one in made.planned])
    keep = masks(made.planned, scored, (3, 3, len(context.ids)), context.prefix).keep
    ids = (*context.ids, *question, *answer[:-1])
    logs = [
        unpatched_logits(toy_lm, ids, len(context.ids), mask)[len(question) - 1 :].log_softmax(-1).numpy()
        for mask in keep
    ]
    assert [line.variant for line in lines] == ["full", "knorm head 0.5", "streaming_llm head 0.5"]
    for line, own in zip(lines, logs, strict=True):
        kl = (np.exp(logs[0]) * (logs[0] - own)).sum(-1)
        nll = -own[range(len(answer)), answer]
        nll_full = -logs[0][range(len(answer)), answer]
        top1 = (own.argmax(-1) == logs[0].argmax(-1)).mean()
        wanted = {
            "kl_mean": kl.mean(),
            "kl_p95": np.percentile(kl, 95),
            "top1": top1,
            "nll": nll.mean(),
            "nll_full": nll_full.mean(),
            "ppl_ratio": np.exp(nll.mean()) / np.exp(nll_full.mean()),
        }
        assert line.metrics == pytest.approx(wanted, abs=1e-9)
        assert line.score == pytest.approx(100 * top1)
        assert line.prediction == toy_prompts.decode(answer)
        assert (line.generated_tokens, line.status, line.finish_reason) == (len(answer), "ok", "length")
    assert len({line.score for line in lines}) > 1 or lines[1].metrics["kl_mean"] > 0
    assert lines[1].removed_context == pytest.approx(0.5, abs=0.02)


def test_the_control_agrees_with_itself_exactly(evaluator: Callable[..., Evaluator], toy_prompts: Prompts) -> None:
    for kind in ("answer", "repeat"):
        control, *others = evaluate(evaluator("random", removed=HALF), forced(toy_prompts, kind))
        assert (control.score, control.metrics["kl_mean"], control.metrics["kl_p95"]) == (100.0, 0.0, 0.0)
        assert (control.metrics["top1"], control.metrics["ppl_ratio"]) == (1.0, 1.0)
        assert all(line.metrics["kl_mean"] > 0 for line in others)


def test_pairs_are_counted_as_in_the_answer_itself(evaluator: Callable[..., Evaluator], toy_prompts: Prompts) -> None:
    for phase in ("prefill", "both"):
        made = evaluator("streaming_llm", removed=HALF, phase=phase)
        (item,) = forced(toy_prompts)
        found = evaluate(made, [item])
        answered = evaluate(made, [Item(Toy(), toy_sample("red", 40, 0))])
        counted = ("cached_pairs", "kept_pairs", "cached_pairs_total", "removed_context")
        for own, other in zip(found, answered, strict=True):
            assert [getattr(own, name) for name in counted] == [getattr(other, name) for name in counted]
        assert found[1].removed_time_mean == pytest.approx(answered[1].removed_time_mean)
        assert found[1].removed_total == pytest.approx(answered[1].removed_total)


def test_a_variant_is_the_same_alone_and_among_others(
    evaluator: Callable[..., Evaluator], toy_prompts: Prompts
) -> None:
    names = ("knorm", "kvzip", "streaming_llm", "carded")
    together = {line.key: line for line in evaluate(evaluator(*names), forced(toy_prompts, count=2))}
    for name in names:
        for line in evaluate(evaluator(name), forced(toy_prompts, count=2)):
            other = together[line.key]
            assert line.metrics == pytest.approx(other.metrics, abs=1e-9)
            assert line.model_copy(update={"metrics": {}}) == other.model_copy(update={"metrics": {}})


def test_the_stop_token_of_the_answer_is_read_too(
    evaluator: Callable[..., Evaluator], toy_lm: LanguageModel, toy_prompts: Prompts, read: list[Any]
) -> None:
    made = evaluator("knorm", removed=HALF)
    evaluate(made, forced(toy_prompts))
    (question, whole), *_ = read
    made.stop_ids = frozenset([whole[2]])
    lines = evaluate(made, forced(toy_prompts))
    cut = whole.index(whole[2]) + 1
    assert read[1:] == [(question, whole[:cut])]
    assert {(line.finish_reason, line.generated_tokens) for line in lines} == {("stop", cut)}
    assert lines[0].prediction == toy_prompts.decode(whole[: cut - 1])
    made.stop_ids = frozenset([whole[0]])  # an empty answer is an answer
    assert evaluate(made, forced(toy_prompts))[1].generated_tokens == 1
    assert read[-1] == (question, whole[:1])


def test_repeat_reads_the_context_as_kvzip_has_it_repeated(
    evaluator: Callable[..., Evaluator], toy_prompts: Prompts, read: list[Any]
) -> None:
    (item,) = forced(toy_prompts, "repeat")
    context = toy_prompts.context(item.sample.context)
    lines = evaluate(evaluator("knorm", removed=HALF), [item])
    assert read == [((*toy_prompts.encode(REPEAT_ALL), *context.suffix), context.ids[context.prefix :])]
    assert {line.prediction for line in lines} == {None}  # the context may not be written down
    assert {line.generated_tokens for line in lines} == {len(context.ids) - context.prefix}
    read.clear()
    short = Item(item.benchmark, replace(item.sample, max_new_tokens=9))
    chunked = evaluate(evaluator("knorm", removed=HALF), [short])
    assert sum((target for _, target in read), ()) == context.ids[context.prefix :]
    starts = range(context.prefix, len(context.ids), 9)
    assert [question for question, _ in read[1:]] == [
        (*toy_prompts.encode(REPEAT_FROM), *context.ids[max(context.prefix, start - 8) : start], *context.suffix)
        for start in starts[1:]
    ]
    assert chunked[0].metrics["kl_mean"] == 0
    assert chunked[1].removed_context == lines[1].removed_context
    assert chunked[1].generated_tokens == lines[1].generated_tokens


def test_a_text_is_read_up_to_the_limit(runs: Runs, toys: None, tmp_path: Path, read: list[Any]) -> None:
    path = tmp_path / "text.txt"
    path.write_text("The rain has stopped. A dog barks in the yard. " * 60, encoding="utf-8")
    command = ("--benchmark", "fidelity", "--data", path, "--length", 40, "--limit", 2, "--method", "knorm")
    assert runs(*command, "--removed", "0.5", "--max-new-tokens", "20").code == 0
    rows = runs.rows()
    assert [len(target) for _, target in read] == [20, 20]
    assert {(row["benchmark"], row["subset"], row["generated_tokens"]) for row in rows} == {
        ("fidelity:text", "text", 20)
    }
    assert {row["prediction"] for row in rows} == {None}
    everything = b"".join(contents(runs.folder).values())
    assert b"dog barks" not in everything and str(tmp_path).encode() not in everything


def test_files_table_and_resuming(runs: Runs, toys: None) -> None:
    command = (*TOY, "--method", "knorm,kvzip", "--removed", "0.5")
    done = runs(*command)
    assert done.code == 0
    whole = contents(runs.folder)
    shorten(runs, 3)
    assert runs(*command, "--resume").code == 0
    assert contents(runs.folder) == whole
    assert runs.folder.name.startswith("tiny-llama-fidelity-toy-")
    for text in ("fidelity:toy", "KL 95th", "perplexity x", "100.0"):
        assert text in done.out
    cells = {cell["variant"]: cell for cell in runs.json("summary.json")["cells"] if cell["subset"] is None}
    rows = [row for row in runs.rows() if row["method"] == "knorm"]
    for name in FIGURES:
        mean = sum(row["metrics"][name] for row in rows) / 2
        assert cells["knorm head 0.5"]["metrics"][name] == pytest.approx(mean)
    assert cells["full"]["score"] == 100 and cells["full"]["metrics"]["kl_mean"] == 0
    assert not cells["full"]["floor"]
    assert all(row["references"] == [] for row in runs.rows("items.jsonl"))


def test_accuracy_and_fidelity_of_the_same_prompts_go_into_one_run(runs: Runs, toys: None) -> None:
    command = ("--benchmark", "toy,fidelity:toy,fidelity:toy:repeat", "--subset", "red", "--limit", "2")
    assert runs(*command, "--method", "broken,knorm", "--removed", "0.5").code == 0
    found = [(c["benchmark"], c["variant"], c["n"]) for c in runs.json("summary.json")["cells"] if c["subset"] is None]
    counts = (("toy", 2), ("fidelity:toy", 2), ("fidelity:toy:repeat", 1))  # two questions, one context
    assert found == [
        (benchmark, variant, 0 if "broken" in variant else count)
        for benchmark, count in counts
        for variant in ("full", "broken head 0.5", "knorm head 0.5")
    ]


def test_a_nan_is_a_status(
    evaluator: Callable[..., Evaluator], toy_prompts: Prompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = evaluator("knorm", removed=HALF)
    real = made.lm.logits
    broken = {"rows": lambda hidden: hidden.shape[:-1].numel() > 1}

    def spoiled(hidden: torch.Tensor) -> torch.Tensor:
        logits = real(hidden)
        return logits * float("nan") if broken["rows"](hidden) else logits

    monkeypatch.setattr(made.lm, "logits", spoiled)
    assert {line.status for line in evaluate(made, forced(toy_prompts))} == {"nan"}  # reading
    broken["rows"] = lambda hidden: True
    lines = evaluate(made, forced(toy_prompts))  # writing the reference
    assert {(line.status, line.score) for line in lines} == {("nan", None)}


def test_a_reading_far_from_the_full_caches_is_a_figure_that_lines_may_have() -> None:
    near, far = (
        Reading(torch.tensor([0.0]), torch.tensor([True]), torch.tensor([nll]), (1,)) for nll in (0.0, 10_000.0)
    )
    metrics = teacher_forced.outcome([near], [far])["metrics"]
    assert metrics["ppl_ratio"] == MOST_FIGURE
    assert np.isfinite(np.square(metrics["ppl_ratio"]))


def test_a_context_too_long_to_be_read_is_truncated(evaluator: Callable[..., Evaluator], toy_prompts: Prompts) -> None:
    (item,) = forced(toy_prompts, "repeat")
    long = Item(item.benchmark, replace(item.sample, context="xyz " * 160))
    lines = evaluate(evaluator("knorm", removed=HALF), [long])
    assert {line.status for line in lines} == {"truncated"}
    assert "the model has 512" in (lines[0].reason or "")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--benchmark", "toy", "--reference", "repeat"), "--reference repeat is for fidelity"),
        (("--benchmark", "fidelity:toy", "--reference", "again"), "unknown reference 'again'"),
        (("--benchmark", "fidelity:toy", "--reference", "text"), "toy has no reference text"),
        (("--benchmark", "fidelity:text"), "needs --data"),
        (("--benchmark", "fidelity:toys"), "unknown benchmark 'toys'"),
        (("--benchmark", "fidelity:toy", "--rollouts", "2"), "answers greedily"),
        (("--benchmark", "fidelity", "--data", "/gone/text.txt"), "cannot be read"),
    ],
)
def test_mistakes_are_told_before_the_model_loads(
    runs: Runs, toys: None, unloaded: Callable[[], None], flags: tuple[str, ...], message: str
) -> None:
    unloaded()
    done: Ran = runs(*flags, "--method", "knorm")
    assert (done.code, done.out, "Traceback" in done.err) == (2, "", False)
    assert message in done.err
    assert runs.folders == []
