"""Time NVIDIA/kvpress on the samples that `kvprune profile samples --json FILE` ran, and compare.

kvpress 0.5.5 needs transformers below 5.3, so this runs in an environment of its own and imports nothing of ours:

    python -m venv kvpress-env
    kvpress-env/bin/pip install torch==2.13.0 'transformers<5.3' kvpress==0.5.5 gguf protobuf sentencepiece
    kvprune profile samples --limit 1 --json ours.json
    kvpress-env/bin/python scripts/kvpress_sweep.py ours.json MODEL.gguf

The model is loaded once; each point of the grid is one call of kvpress's own pipeline, as its users would make it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kvpress
import torch
from kvpress.presses import kvzip_press
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

PRESSES: dict[str, Callable[[float], Any]] = {
    "random": lambda r: kvpress.RandomPress(compression_ratio=r, seed=0),
    "knorm": lambda r: kvpress.KnormPress(compression_ratio=r),
    "streaming_llm": lambda r: kvpress.StreamingLLMPress(compression_ratio=r),
    "kvzip": lambda r: kvpress.KVzipPress(compression_ratio=r),
    "kvzip_plus": lambda r: kvpress.KVzipPress(compression_ratio=r, kvzip_plus_normalization=True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ours", type=Path, help="JSON written by `kvprune profile samples`")
    parser.add_argument(
        "gguf", type=Path, help="the model as GGUF; a converted tokenizer does not work across releases"
    )
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    ours = json.loads(arguments.ours.read_text(encoding="utf-8"))
    where = {"pretrained_model_name_or_path": str(arguments.gguf.parent), "gguf_file": arguments.gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    assert len(tokenizer.encode("The grass is green.", add_special_tokens=False)) == 5, "the tokenizer splits wrongly"
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=getattr(torch, ours["dtype"]))
    # KVzipPress loads the tokenizer again by the model's path; one read from a GGUF splits wrongly once it is saved
    kvzip_press.AutoTokenizer = SimpleNamespace(from_pretrained=lambda *_: tokenizer)
    generate = pipeline("kv-press-text-generation", model=model, tokenizer=tokenizer)
    theirs = [[_point(generate, row, label) for label in ours["labels"]] for row in ours["rows"]]
    seconds = [round(sum(point[0] for point in row), 3) for row in theirs]
    same = sum(
        point[1].strip() == text.strip()
        for row, texts in zip(theirs, ours["predictions"], strict=True)
        for point, text in zip(row, texts, strict=True)
    )
    result = {
        "kind": "kvpress",
        "labels": ours["labels"],
        "kvpress_seconds": seconds,
        "our_seconds": ours["seconds"],
        "ratio": round(sum(seconds) / sum(ours["seconds"]), 2),
        "same_answers": same,
        "answers": sum(map(len, theirs)),
        "predictions": [[point[1] for point in row] for row in theirs],
    }
    print(json.dumps({key: value for key, value in result.items() if key != "predictions"}, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _point(generate: Any, row: dict[str, Any], label: str) -> tuple[float, str]:
    """Seconds and answer of one call for one variant label such as ``knorm head 0.5``."""
    name, *rest = label.split()
    press = None if name == "full" else PRESSES[name](float(rest[-1]))
    start = time.perf_counter()
    answer = generate(
        row["context"],
        question=row["question"],
        answer_prefix=row["answer_prefix"],
        press=press,
        max_new_tokens=row["max_new_tokens"],
    )
    return time.perf_counter() - start, answer["answer"]


if __name__ == "__main__":
    main()
