"""Steps that damage a run folder, and a good small one to try them on. No torch."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.base import Sample, content_hash
from harness.analysis.run_reader import read
from harness.results.mask_file import About, file_name, write

ROOT = Path(__file__).parents[1]
SAMPLES, ITEMS, RUN, SUMMARY, BINS = "samples.jsonl", "items.jsonl", "run.json", "summary.json", "histograms.jsonl"
#: of the committed run, the variants and the number of samples a subset that the good run has
VARIANTS = ("full", "random head 0.5", "knorm head 0.25", "kvzip_plus global 0.5", "kvzap_mlp threshold tau=-4.3662")
INDEX = "/0"
#: stands in files outside of the run folder, and must never be read
OUTSIDE = "words from outside"
SCRIPT = "<script>alert(1)</script>"


def good_run(committed: Path, out: Path) -> Path:
    """Four samples with five variants of the committed run, as a run of its own in ``out``."""
    draft = out / "draft"
    draft.mkdir(parents=True)
    items = [row for row in _rows(committed / ITEMS) if row["sample_id"].endswith(INDEX)]
    kept = {row["sample_id"] for row in items}
    lines = [row for row in _rows(committed / SAMPLES) if row["sample_id"] in kept and row["variant"] in VARIANTS]
    run = json.loads((committed / RUN).read_text("utf-8"))
    configuration = run["configuration"]
    configuration["variants"] = [v for v in configuration["variants"] if v["variant"] in VARIANTS]
    configuration["limits"] = {"needles": 1}
    configuration["data_hash"] = content_hash([_sample(row).to_json() for row in items])
    methods = {variant["method"] for variant in configuration["variants"]}
    bins = [row for row in _rows(committed / BINS) if row["sample_id"] in kept and row["method"] in methods]
    run["method_hashes"] = {name: value for name, value in run["method_hashes"].items() if name in methods}
    write_json(draft / RUN, run)
    for name, rows in ((ITEMS, items), (SAMPLES, lines), (BINS, bins)):
        write_rows(draft / name, rows)
    reading = read(draft)
    write_json(draft / SUMMARY, reading.summarised(reading.lines))
    return draft.rename(out / f"smollm2-135m-needles-{content_hash(configuration)[:8]}")


def _sample(row: dict[str, Any]) -> Sample:
    return Sample(
        **{name: row[name] for name in ("sample_id", "context_id", "subset", "length")},
        **{name: row[name] for name in ("context", "question", "answer_prefix")},
        references=tuple(row["references"]),
        max_new_tokens=24,
    )


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(row) for row in path.read_text("utf-8").split("\n") if row]


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


Do = Callable[[Path], None]


def row(file: str = SAMPLES, index: int = 2, drop: str = "", **changes: Any) -> Do:
    """Other values in one row of a file."""

    def do(run: Path) -> None:
        rows = _rows(run / file)
        rows[index] = {key: value for key, value in {**rows[index], **changes}.items() if key != drop}
        write_rows(run / file, rows)

    return do


def field(*path: Any, to: Any = None, file: str = RUN, drop: bool = False) -> Do:
    """Another value at a place of a JSON file."""

    def do(run: Path) -> None:
        value = json.loads((run / file).read_text("utf-8"))
        inner = value
        for key in path[:-1]:
            inner = inner[key]
        if drop:
            del inner[path[-1]]
        else:
            inner[path[-1]] = to
        write_json(run / file, value)

    return do


def text(file: str, old: str, new: str) -> Do:
    """Another text at the first place where ``old`` stands."""

    def do(run: Path) -> None:
        before = (run / file).read_text("utf-8")
        assert old in before
        (run / file).write_text(before.replace(old, new, 1), encoding="utf-8")

    return do


def data(file: str, change: Callable[[bytes], bytes]) -> Do:
    return lambda run: (run / file).write_bytes(change((run / file).read_bytes())) and None


def content(file: str, new: bytes) -> Do:
    return lambda run: (run / file).write_bytes(new) and None


def both(*steps: Do) -> Do:
    def do(run: Path) -> None:
        for step in steps:
            step(run)

    return do


def gone(file: str) -> Do:
    return lambda run: (run / file).unlink()


def unsummed(step: Do) -> Do:
    """A step on a run without its summary, so that readers have to look at its lines."""
    return both(step, gone(SUMMARY))


def cut(file: str, lines: int) -> Do:
    return data(file, lambda old: b"".join(old.splitlines(keepends=True)[:lines]))


def outside(file: str) -> Do:
    """In place of a file, a link to one that lies beside the run folder and says something else."""

    def do(run: Path) -> None:
        other = run.parent.parent / "outside"
        other.mkdir(exist_ok=True)
        old = (run / file).read_text("utf-8") if (run / file).exists() else "{}"
        (other / file).write_text(old.replace("smollm2-135m", OUTSIDE).replace("random head", OUTSIDE), "utf-8")
        (run / file).unlink(missing_ok=True)
        (run / file).symlink_to(other / file)

    return do


def folder_in_place(file: str) -> Do:
    return both(gone(file), lambda run: (run / file).mkdir())


def pipe_in_place(file: str) -> Do:
    return both(gone(file), lambda run: os.mkfifo(run / file))


def packed(change: Callable[[bytes], bytes]) -> Do:
    """The lines packed, and the packed file changed."""

    def do(run: Path) -> None:
        old = (run / SAMPLES).read_bytes()
        (run / SAMPLES).unlink()
        (run / f"{SAMPLES}.gz").write_bytes(change(old))

    return do


def extra(name: str, what: bytes = b"more\n", mode: int = 0o644) -> Do:
    def do(run: Path) -> None:
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_bytes(what)
        (run / name).chmod(mode)

    return do


def masks(name: str = "", after: Do = lambda run: None, **changes: Any) -> Do:
    """Stored masks of the first sample, as its lines say; ``changes`` of what the file says of itself."""

    def do(run: Path) -> None:
        item = _rows(run / ITEMS)[0]
        lines = [one for one in _rows(run / SAMPLES) if one["sample_id"] == item["sample_id"]]
        shape = 30, 3, lines[0]["context_tokens"]
        told = {key: item[key] for key in ("sample_id", "context_id", "benchmark", "subset", "length")}
        told |= {"shape": shape, "prefix": 3, "cut": 0, "variants": tuple(one["variant"] for one in lines), **changes}
        text, extra = told.pop("text", item.get("context", "")), told.pop("kept", 0)
        about, tokens = About(**told), [text, *[""] * (shape[2] - 1)]
        keep = [np.arange(math.prod(shape)).reshape(shape) < one["kept_pairs"] + extra for one in lines]
        write(run / "masks" / (name or file_name(item["sample_id"])), about, keep, tokens)
        after(run)

    return do


def mask_file(change: Callable[[bytes], bytes]) -> Do:
    """Another content of the one file of masks."""

    def do(run: Path) -> None:
        (file,) = (run / "masks").iterdir()
        file.write_bytes(change(file.read_bytes()))

    return do


def pickled(run: Path) -> None:
    (file,) = (run / "masks").iterdir()
    with np.load(file) as arrays:
        parts = dict(arrays)
    np.savez_compressed(file, **{**parts, "index": np.array([{"a": 1}], dtype=object)})


def renamed(name: str) -> Do:
    return lambda run: run.rename(run.with_name(name)) and None


def resummed(run: Path) -> None:
    """The summary of the lines that are there."""
    (run / SUMMARY).unlink()
    reading = read(run)
    write_json(run / SUMMARY, reading.summarised(reading.lines))
