"""How fast the board opens on many runs: makes 500 run folders with the harness's own writer, then opens the overview.

    python scripts/board_speed.py [--runs 500] [--keep FOLDER]

Figures are seconds of a page's script in a process of its own, imports left out: as a clock on the wall has them, and
as the process was given a processor, which is what counts on a machine that is busy with other things.

nothing cached    the first page reads every run folder; a filter shows boards that nobody has made yet
warm              every board is made, as `kvprune leaderboard` does beside its server
cached            a new process; nothing has changed since
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

MODELS = (
    *("smollm2-135m", "Qwen/Qwen3-0.6B", "Qwen/Qwen3-1.7B", "Qwen/Qwen3-4B", "Qwen/Qwen3-8B", "Qwen/Qwen3-14B"),
    *("Qwen/Qwen3-32B", "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.2-3B-Instruct", "Qwen/Qwen2.5-7B"),
    *("Qwen/Qwen2.5-14B", "google/gemma-3-4b-it", "mistralai/Mistral-7B-Instruct-v0.3"),
)
LENGTHS = (1024, 2048, 4096, 8192, 16384)
REMOVED = (0.25, 0.5, 0.75, 0.875)
#: run folders of one model, benchmark and length differ in these
METHODS = (
    ("random", "knorm", "keydiff", "tova", "h2o", "kvzip"),
    ("streaming_llm", "observed_attention", "expected_attention", "kvzap_linear", "kvzap_mlp"),
    ("snapkv", "pyramidkv", "expected_attention_plain", "kvzip_plus"),
)
#: by benchmark: subsets, samples a subset
BENCHMARKS = {"needles": (4, 5), "ruler": (13, 2), "longbench": (6, 12)}


class Made(NamedTuple):
    """Lines and summary of a run, for any model and length."""

    benchmark: str
    rows: list[dict[str, Any]]
    summary: dict[str, Any]
    facts: dict[str, Any]


def templates(seed: int) -> Iterator[Made]:
    from harness.analysis.summary import summarise
    from harness.results.schema import Facts, Line

    for benchmark, methods in product(BENCHMARKS, METHODS):
        subsets, count = BENCHMARKS[benchmark]
        samples = [(f"subset_{subset}", index) for subset in range(subsets) for index in range(count)]
        facts = Facts(subsets=subsets, chance=0.0)
        rows = [
            _row(benchmark, subset, index, variant, _score(benchmark, subset, index, variant, seed))
            for subset, index in samples
            for variant in _variants(methods)
        ]
        summary = summarise([Line(**row) for row in rows], {benchmark: facts}, complete=True)
        yield Made(benchmark, rows, summary, facts.to_json())


def _variants(methods: Sequence[str]) -> Iterator[dict[str, Any]]:
    from harness.config.variants import Variant

    yield Variant("full").fields()
    for method, removed in product(methods, REMOVED):
        yield Variant(method, "head", "removed", removed).fields()


def _score(benchmark: str, subset: str, index: int, variant: dict[str, Any], seed: int) -> float:
    """Right or wrong: more is wrong where more is removed, by method. The control does not depend on who else runs."""
    dice = random.Random(f"{seed} {benchmark} {subset} {index} {variant['variant']}")
    skill = random.Random(variant["method"]).uniform(0.2, 1.0)
    return 100.0 if dice.random() < 0.97 - (variant["level"] or 0.0) * (1.2 - skill) else 0.0


def _row(benchmark: str, subset: str, index: int, variant: dict[str, Any], score: float) -> dict[str, Any]:
    from harness.results.schema import Line

    removed = variant["level"] or 0.0
    line = Line(
        **variant,
        sample_id=f"{benchmark}/{subset}/{index}",
        context_id=f"{subset}-{index}",
        benchmark=benchmark,
        subset=subset,
        length=0,
        prediction=f" {random.Random(f'{subset} {index}').getrandbits(40)}",
        score=score,
        status="ok",
        finish_reason="stop",
        context_tokens=1000,
        generated_tokens=8,
        max_new_tokens=24,
        cached_pairs=90_000,
        kept_pairs=int(90_000 * (1 - removed)),
        removed_context=removed,
        removed_total=removed,
        removed_time_mean=removed,
    )
    return line.model_dump()


def write(folder: Path, made: Made, model: str, length: int) -> None:
    """A run folder of a template, by the harness's own writer."""
    from harness.results.run_folder import RunFolder, append_line

    samples = {row["sample_id"]: row for row in made.rows}
    variants = {row["variant"]: {name: row[name] for name in ("variant", "method", "options")} for row in made.rows}
    items = [
        {**{name: row[name] for name in ("sample_id", "context_id", "benchmark", "subset")}, "length": length}
        | {"references": ["x"], "all_classes": [], "prompt_hash": f"{length} {sample}"}
        for sample, row in samples.items()
    ]
    configuration = {"model": model, "dtype": "bfloat16", "device": "cuda", "seed": 0}
    run = {
        "schema_version": 1,
        "configuration": {**configuration, "variants": list(variants.values())},
        "answers": {made.benchmark: {"max_new_tokens": [24], "rollouts": [1], "sampling": [None]}},
        "hardware": "NVIDIA A100-SXM4-80GB",
        "attention_kernel": "kvprune masked (torch)",
        "seeds": {"run": 0},
        "facts": {made.benchmark: made.facts},
        "benchmark_versions": {made.benchmark: "1"},
    }
    written = RunFolder(folder)
    written.start(run, items)
    with written.append("samples.jsonl") as file:
        for row in made.rows:
            append_line(file, {**row, "length": length})
    parts = {
        name: [{**row, "length": length} if isinstance(row, dict) and "length" in row else row for row in rows]
        if isinstance(rows, list)
        else rows
        for name, rows in made.summary.items()
    }
    written.finish(parts)


def make(out: Path, runs: int, seed: int = 0) -> None:
    kinds = list(templates(seed))
    places = product(LENGTHS, MODELS, kinds)
    for number, (length, model, made) in zip(range(runs), places, strict=False):
        write(out / f"{model.rpartition('/')[2].lower()}-{made.benchmark}-{number:04d}", made, model, length)


def measure() -> dict[str, tuple[float, float]]:
    """Opens the overview twice and changes the model, in this process."""
    from streamlit.testing.v1 import AppTest

    from leaderboard.data import library  # noqa: F401  what is imported once is no part of a page

    def timed(step: Any) -> tuple[float, float]:
        start, used = time.perf_counter(), time.process_time()
        app = step()
        seconds = time.perf_counter() - start, time.process_time() - used
        assert not app.exception, app.exception
        return seconds

    app = AppTest.from_file(str(ROOT / "leaderboard" / "app.py"), default_timeout=600)
    found = {"first page": timed(app.run)}
    for name, model in (("filter", MODELS[4]), ("filter back", "all"), ("filter again", MODELS[4])):
        found[name] = timed(lambda model=model: app.selectbox(key="model").set_value(model).run())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=500, help=f"at most {len(LENGTHS) * len(MODELS) * 9}")
    parser.add_argument("--keep", type=Path, help="make the runs in this folder, or measure those that are there")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure()))
        return
    with tempfile.TemporaryDirectory() as scratch:
        results = arguments.keep or Path(scratch) / "results"
        if not results.is_dir():
            start = time.perf_counter()
            make(results, arguments.runs)
            print(f"{arguments.runs} runs made in {time.perf_counter() - start:.0f} s", flush=True)
        environment = {**os.environ, "KVPRUNE_RESULTS": str(results), "XDG_CACHE_HOME": str(Path(scratch) / "cache")}
        for name in ("nothing cached", "cached"):
            if name == "cached":
                start = time.perf_counter()
                line = [sys.executable, "-m", "leaderboard.prebuild", str(results)]
                subprocess.run(line, env=environment, check=True, cwd=ROOT)
                print(f"{'warm':16}{'all boards':14}{time.perf_counter() - start:7.2f} s", flush=True)
            line = [sys.executable, str(Path(__file__).resolve()), "--measure"]
            out = subprocess.run(line, env=environment, check=True, capture_output=True, text=True).stdout
            for what, (wall, used) in json.loads(out.splitlines()[-1]).items():
                print(f"{name:16}{what:14}{wall:7.2f} s, {used:6.2f} s of a processor", flush=True)


if __name__ == "__main__":
    main()
