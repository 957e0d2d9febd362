"""Damaged run folders, made out of a good small one: what strangers may send, by accident or not. No torch."""

from __future__ import annotations

import gzip
import json
import math
import os
import shutil
from collections.abc import Callable
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.base import Sample, content_hash
from harness.analysis.run_reader import read
from harness.results.mask_file import About, file_name, write

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
    write_json(draft / SUMMARY, reading.summarised(reading.lines).to_json())
    return draft.rename(out / f"smollm2-135m-needles-{content_hash(configuration)[:8]}")


def _sample(row: dict[str, Any]) -> Sample:
    return Sample(
        **{name: row[name] for name in ("sample_id", "context_id", "subset", "length", *_TEXTS)},
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
    """Other values in one row of a file; of ``drop``, keys with blanks between them, none."""

    def do(run: Path) -> None:
        rows = _rows(run / file)
        rows[index] = {key: value for key, value in {**rows[index], **changes}.items() if key not in drop.split()}
        write_rows(run / file, rows)

    return do


def line(**changes: Any) -> Do:
    """Other values in one line of a run without its summary, so that readers have to look at its lines."""
    return unsummed(row(**changes))


def append_line(file: str, index: int) -> Do:
    return data(file, lambda old: old + old.splitlines(keepends=True)[index])


def field(*path: Any, to: Any = None, file: str = RUN, drop: bool = False) -> Do:
    """Another value at a place of a JSON file."""

    def do(run: Path) -> None:
        value = json.loads((run / file).read_text("utf-8"))
        inner = reduce(getitem, path[:-1], value)
        inner[path[-1]] = to
        if drop:
            del inner[path[-1]]
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


def packed(change: Callable[[bytes], bytes], keep: bool = False) -> Do:
    """``samples.jsonl.gz`` as ``change`` makes it of ``samples.jsonl``, in place of that or beside it."""

    def pack(run: Path) -> None:
        (run / f"{SAMPLES}.gz").write_bytes(change((run / SAMPLES).read_bytes()))

    return pack if keep else both(pack, gone(SAMPLES))


def extra(name: str, what: bytes = b"more\n") -> Do:
    return both(lambda run: (run / name).parent.mkdir(exist_ok=True), content(name, what))


def link(file: str, to: str) -> Do:
    return lambda run: (run / file).symlink_to(to)


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


def grown_masks(run: Path) -> None:
    for file in (run / "masks").iterdir():
        os.truncate(file, 2**25 + 1)


def many_masks(run: Path) -> None:
    (run / "masks").mkdir()
    for name in "abc":
        (run / "masks" / f"{name}.npz").touch()
        os.truncate(run / "masks" / f"{name}.npz", 2**25)


def linked_masks(run: Path) -> None:
    (file,) = (run / "masks").iterdir()
    (run / "masks" / "b.npz").symlink_to(file)


def renamed(name: str) -> Do:
    return lambda run: run.rename(run.with_name(name)) and None


def resummed(run: Path) -> None:
    """The summary of the lines that are there."""
    (run / SUMMARY).unlink()
    reading = read(run)
    write_json(run / SUMMARY, reading.summarised(reading.lines).to_json())


IN, OUT = False, True


class Damage(NamedTuple):
    """The code of the finding that it must lead to; whether readers leave the run out (``OUT``) or show it as it is
    (``IN``: the damage is in nothing that they rely on); what is done to the folder."""

    code: str
    left_out: bool
    do: Do


_DEEP = "[" * 100_000 + "]" * 100_000
_MARK = b"\xef\xbb\xbf"
_VARIANTS = ("configuration", "variants")
_ALARM = {"kind": "partial", "benchmark": "needles", "length": 1024, "variant": None, "text": SCRIPT}
_TEXTS = ("context", "question", "answer_prefix")
_TOKEN = "abcdEFGH1234" * 3

DAMAGES: dict[str, Damage] = {
    # cut, empty, missing
    "last line cut": Damage("torn-line", IN, unsummed(data(SAMPLES, lambda old: old[:-40]))),
    "a line cut in the middle": Damage("not-json", OUT, unsummed(text(SAMPLES, '"score": ', '"sco\n'))),
    "the last newline lost": Damage("no-newline", IN, data(SAMPLES, lambda old: old[:-1])),
    "lines lost": Damage("missing-lines", OUT, cut(SAMPLES, 11)),
    "lines lost, and it says so": Damage("incomplete", IN, both(cut(SAMPLES, 11), resummed)),
    "samples empty": Damage("empty", OUT, unsummed(content(SAMPLES, b""))),
    "run.json empty": Damage("empty", OUT, content(RUN, b"")),
    "items empty": Damage("empty", IN, content(ITEMS, b"")),
    "summary empty": Damage("empty", IN, content(SUMMARY, b"")),
    "no run.json": Damage("missing-file", OUT, gone(RUN)),
    "no samples": Damage("missing-file", OUT, unsummed(gone(SAMPLES))),
    "no items": Damage("missing-file", IN, gone(ITEMS)),
    "no summary": Damage("no-summary", IN, gone(SUMMARY)),
    "interrupted": Damage("unfinished", IN, unsummed(cut(SAMPLES, 3))),
    "a blank line": Damage("not-json", OUT, unsummed(text(SAMPLES, "\n", "\n\n"))),
    # kinds of files
    "run.json a folder": Damage("not-a-file", OUT, folder_in_place(RUN)),
    "samples a folder": Damage("not-a-file", OUT, unsummed(folder_in_place(SAMPLES))),
    "summary a folder": Damage("not-a-file", IN, folder_in_place(SUMMARY)),
    "samples a pipe": Damage("not-a-file", OUT, unsummed(pipe_in_place(SAMPLES))),
    "run.json a pipe": Damage("not-a-file", OUT, pipe_in_place(RUN)),
    "run.json a link out": Damage("link", OUT, outside(RUN)),
    "items a link out": Damage("link", OUT, outside(ITEMS)),
    "samples a link out": Damage("link", OUT, unsummed(outside(SAMPLES))),
    "summary a link out": Damage("link", IN, outside(SUMMARY)),
    "a link to nothing": Damage("link", IN, both(gone(BINS), link(BINS, "nowhere"))),
    "a link to itself": Damage("link", OUT, unsummed(both(gone(SAMPLES), link(SAMPLES, SAMPLES)))),
    "a linked folder of masks": Damage("link", IN, link("masks", "/")),
    "another file": Damage("unknown-file", IN, extra("notes.txt")),
    "another folder": Damage("unknown-file", IN, extra("more/words.txt")),
    "a hidden file": Damage("hidden-file", IN, extra(".env", b"TOKEN=1")),
    "a file name that is no text": Damage("unknown-file", IN, extra(os.fsdecode(b"\xff\n\x1b[31m"))),
    "an executable": Damage("executable", IN, lambda run: (run / ITEMS).chmod(0o755)),
    "samples twice": Damage("two-samples", IN, packed(gzip.compress, keep=True)),
    "a huge file": Damage("too-large", OUT, lambda run: os.truncate(run / RUN, 2**23 + 1)),
    # bytes
    "binary samples": Damage("encoding", OUT, unsummed(content(SAMPLES, bytes(range(256)) * 9 + b"\n"))),
    "binary run.json": Damage("encoding", OUT, content(RUN, b"\xfe\xed\xfa\xce" * 99)),
    "null bytes": Damage("not-json", OUT, unsummed(text(SAMPLES, " ", "\x00"))),
    "latin-1": Damage("encoding", OUT, data(RUN, lambda old: old.replace(b"smollm2", b"smoll\xe9", 1))),
    "utf-16": Damage("encoding", OUT, data(RUN, lambda old: old.decode().encode("utf-16"))),
    "a byte order mark": Damage("encoding", OUT, data(RUN, lambda old: _MARK + old)),
    "a byte order mark before the lines": Damage("encoding", OUT, unsummed(data(SAMPLES, lambda old: _MARK + old))),
    "a gzip bomb": Damage("bomb", OUT, unsummed(packed(lambda old: gzip.compress(bytes(2**27), 9)))),
    "a gzip bomb of good lines": Damage("bomb", OUT, unsummed(packed(lambda old: gzip.compress(old * 3_000, 9)))),
    "gzip of a thousand parts": Damage(
        "gzip", IN, unsummed(packed(lambda old: gzip.compress(b"") * 1_000 + gzip.compress(old)))
    ),
    "rows of nothing": Damage("too-large", OUT, unsummed(packed(lambda old: gzip.compress(b"{}\n" * 20_000)))),
    "blank rows": Damage("too-large", OUT, unsummed(content(SAMPLES, b"\n" * 20_000))),
    "gzip cut": Damage("gzip", OUT, unsummed(packed(lambda old: gzip.compress(old)[:-20]))),
    "gzip of gzip": Damage("packed", OUT, unsummed(packed(lambda old: gzip.compress(gzip.compress(old))))),
    "gzip under a plain name": Damage("packed", OUT, unsummed(data(SAMPLES, gzip.compress))),
    "no gzip": Damage("gzip", OUT, unsummed(packed(lambda old: old))),
    "gzip of nothing": Damage("empty", OUT, unsummed(packed(lambda old: gzip.compress(b"")))),
    # JSON
    "NaN score": Damage("not-finite", OUT, unsummed(text(SAMPLES, '"score": 100.0', '"score": NaN'))),
    "infinite metric": Damage("not-finite", OUT, unsummed(text(SAMPLES, '"metrics": {}', '"metrics": {"": Infinity}'))),
    "NaN in the summary": Damage("not-finite", IN, text(SUMMARY, '"removed_mean": 0.0', '"removed_mean": NaN')),
    "a number beyond doubles": Damage("huge-number", OUT, unsummed(text(SAMPLES, '"score": 100.0', '"score": 1e999'))),
    "a number of 5,000 digits": Damage("huge-number", OUT, text(RUN, '"seed": 0', f'"seed": {"9" * 5_000}')),
    "a number beyond 2**53": Damage("huge-number", OUT, line(context_tokens=2**60)),
    "the same key twice": Damage("duplicate-key", IN, text(SAMPLES, '"score": 100.0', '"score": 1.0, "score": 100.0')),
    "deep nesting": Damage("nesting", OUT, text(RUN, '"unsupported": []', f'"unsupported": {_DEEP}')),
    "deep nesting in a line": Damage("nesting", OUT, unsummed(text(SAMPLES, '"metrics": {}', f'"metrics": {_DEEP}'))),
    "deep nesting in the summary": Damage("nesting", IN, text(SUMMARY, '"complete": true', f'"complete": {_DEEP}')),
    "nesting that can be read": Damage("nesting", OUT, text(RUN, '"dirty": false', '"dirty": ' + "[" * 99 + "]" * 99)),
    "half a character": Damage("surrogate", OUT, line(prediction="\ud800")),
    "half a character in run.json": Damage("surrogate", OUT, field("configuration", "model", to="\udfff")),
    "a line of five megabytes": Damage("long-line", OUT, row(prediction="long " * 2**20)),
    "run.json a list": Damage("schema", OUT, content(RUN, b"[1, 2]")),
    "run.json null": Damage("schema", OUT, content(RUN, b"null")),
    "summary a list": Damage("schema", IN, content(SUMMARY, b"[1, 2]")),
    "a line that is a number": Damage("schema", OUT, unsummed(data(SAMPLES, lambda old: b"3\n" + old))),
    "an item that is a list": Damage("schema", OUT, data(ITEMS, lambda old: b"[]\n" + old)),
    # fields
    "another schema version": Damage("schema-version", OUT, field("schema_version", to=2)),
    "a schema version of true": Damage("schema-version", OUT, field("schema_version", to=True)),
    "no schema version": Damage("schema-version", OUT, field("schema_version", drop=True)),
    "an unknown key": Damage("schema", IN, field("more", to="hidden load")),
    "an unknown key in a line": Damage("schema", IN, line(more=1)),
    "an unknown key in an item": Damage("schema", IN, row(ITEMS, more=1)),
    "a key missing in a line": Damage("schema", OUT, line(drop="status")),
    "a key missing in an item": Damage("schema", OUT, row(ITEMS, drop="prompt_hash")),
    "a key missing in run.json": Damage("schema", OUT, field("versions", drop=True)),
    "a number as a text": Damage("schema", IN, row(context_tokens="988")),
    "a text as a number": Damage("schema", OUT, line(sample_id=7)),
    "a list as a name": Damage("schema", OUT, row(ITEMS, sample_id=["a"])),
    "an unknown status": Damage("schema", OUT, line(status="great")),
    "configuration a list": Damage("schema", OUT, field("configuration", to=[1])),
    "variants of nothing": Damage("schema", OUT, field(*_VARIANTS, to=[{}, {}])),
    "a million rollouts": Damage("missing-lines", IN, field("answers", "needles", "rollouts", to=[10**6])),
    "negative rollouts": Damage("range", OUT, field("answers", "needles", "rollouts", to=[-3])),
    "facts of texts": Damage("schema", OUT, field("facts", "needles", "subsets", to="four")),
    "a negative seed": Damage("range", OUT, both(field("seeds", "run", to=-1), field("configuration", "seed", to=-1))),
    "a negative count": Damage("range", OUT, line(generated_tokens=-1)),
    "a negative histogram": Damage("range", IN, row(BINS, 0, counts=[-1, 2])),
    "score above 100": Damage("range", OUT, line(score=101.0)),
    "removed above 1": Damage("range", OUT, line(removed_context=1.5)),
    "a negative requested fraction": Damage("range", OUT, line(requested_removed=-7.5)),
    "a metric that no sum can hold": Damage("range", OUT, line(metrics={"x": 1e308})),
    "an answer without its text": Damage("range", IN, row(index=1, prediction=None, score=100.0)),
    "another requested fraction in one line": Damage("removed", IN, row(index=4, requested_removed=0.25)),
    "a requested fraction without a threshold": Damage("removed", IN, row(index=1, requested_removed=0.5)),
    "another mean over time": Damage("removed", IN, row(removed_time_mean=0.99)),
    "bytes that the masked engine saves": Damage("removed", IN, row(physical_bytes=1)),
    "more scores than pairs": Damage("schema", IN, row(BINS, 0, cached=10)),
    "bins from high to low": Damage("schema", IN, row(BINS, 0, low=9.0, high=-9.0)),
    "scores of other pairs": Damage("removed", IN, row(BINS, 0, cached=10**6)),
    "scores that tell of another removed": Damage("removed", IN, row(BINS, 1, counts=[88_000, 0])),
    "scores of a method that was not run": Damage("foreign-line", IN, row(BINS, 0, method="tova")),
    "scores of a sample that was not run": Damage("foreign-line", IN, row(BINS, 0, sample_id="needles/x/0")),
    "scores twice": Damage("doubled-line", IN, append_line(BINS, 0)),
    "a score without an answer": Damage("range", IN, row(status="oom")),
    "an answer without a score": Damage("range", IN, row(score=None)),
    "an impossible level": Damage("range", IN, line(level=2.0)),
    "more kept than cached": Damage("removed", IN, row(kept_pairs=10**9)),
    "another removed than measured": Damage("removed", IN, row(removed_context=0.9)),
    "an answer that lacks a figure": Damage("removed", IN, row(kept_pairs_total=None)),
    "an answer that lacks its mean": Damage("removed", IN, row(removed_time_mean=None)),
    "a control that removes over time": Damage("removed", IN, row(index=0, removed_time_mean=0.5)),
    "pairs of broken tokens": Damage("removed", IN, row(context_tokens=7)),
    "more tokens than the limit": Damage("range", IN, row(generated_tokens=25)),
    "a control with a level": Damage("schema", OUT, line(index=0, level=0.5)),
    "a control that prunes": Damage("removed", IN, row(index=0, kept_pairs=9, removed_context=1 - 9 / 88920)),
    "pairs of another context": Damage("removed", IN, row(cached_pairs=90 * 999, context_tokens=999)),
    # which lines there are
    "a line twice": Damage("doubled-line", OUT, unsummed(append_line(SAMPLES, 3))),
    "an item twice": Damage("doubled-line", IN, append_line(ITEMS, 0)),
    "a line of another sample": Damage("foreign-line", IN, row(sample_id="needles/keys_1/1024/0/99")),
    "a line of another variant": Damage("foreign-line", IN, row(variant="kvzip global 0.5")),
    "a line of another method": Damage("foreign-line", IN, row(method="kvzip")),
    "a line of another subset": Damage("foreign-line", IN, row(subset="keys_8")),
    "a line of another rollout": Damage("foreign-line", IN, row(rollout=3)),
    "a line of another limit": Damage("foreign-line", IN, row(max_new_tokens=99)),
    "a variant that is not what it is called": Damage("label", IN, field(*_VARIANTS, 1, "level", to=0.9)),
    "a variant twice": Damage("label", IN, field(*_VARIANTS, 1, "variant", to="knorm head 0.25")),
    "two controls": Damage("label", IN, field(*_VARIANTS, 1, "level_kind", to="none")),
    "options that are no JSON": Damage("folder-name", IN, field(*_VARIANTS, 1, "options", to="{")),
    "a label that says more": Damage("label", IN, field(*_VARIANTS, 2, "variant", to="knorm head 0.25 BEST METHOD")),
    "a label of other settings": Damage("label", IN, field(*_VARIANTS, 2, "variant", to="knorm head 0.25 window=7")),
    "other benchmarks than it has": Damage("record", IN, field("configuration", "benchmarks", to=["ruler"])),
    "fewer subsets than the benchmark": Damage("record", IN, field("facts", "needles", "subsets", to=1)),
    "a limit that no line has": Damage("record", IN, field("answers", "needles", "max_new_tokens", to=[24, 25])),
    "rollouts that no line has": Damage("record", IN, field("answers", "needles", "rollouts", to=[1, 2])),
    "lines lost between rollouts": Damage(
        "missing-lines", IN, both(field("answers", "needles", "rollouts", to=[1, 2]), cut(SAMPLES, 11), resummed)
    ),
    # figures
    "a better score": Damage("score-differs", IN, row(index=1, score=100.0)),
    **{
        f"a better score, and a carriage return in {file}": Damage(
            "score-differs", IN, both(row(index=1, score=100.0), text(file, ": ", ":\r"))
        )
        for file in (SAMPLES, ITEMS)
    },
    "a better mean": Damage("summary-differs", IN, field("cells", 5, "score", to=99.0, file=SUMMARY)),
    "a million cells": Damage("summary-differs", IN, field("cells", to=[{}] * 10**6, file=SUMMARY)),
    "a summary without ranks": Damage("summary-differs", IN, field("ranks", drop=True, file=SUMMARY)),
    "texts in place of figures": Damage("summary-differs", IN, field("cells", 0, "score", to="100", file=SUMMARY)),
    "pairs of nothing in the summary": Damage("summary-differs", IN, field("pairs", to=[{"a": 1}], file=SUMMARY)),
    "more in the summary": Damage("summary-differs", IN, field("more", to=1, file=SUMMARY)),
    # where it comes from
    "another name": Damage("folder-name", IN, renamed("smollm2-135m-needles-00000000")),
    "another dtype": Damage("folder-name", IN, field("configuration", "dtype", to="bfloat16")),
    "another data hash": Damage("data-hash", IN, field("configuration", "data_hash", to="0" * 16)),
    "another context": Damage("prompt-hash", IN, row(ITEMS, 0, context="The access code is 9580433.")),
    "a sample without its context": Damage("missing-texts", IN, row(ITEMS, 0, drop="context")),
    "two contexts of one id": Damage("context-id", IN, row(ITEMS, 1, context_id="43b7f6bb84665ee3")),
    "other code": Damage("stale", IN, field("method_hashes", "knorm", to="0" * 16)),
    "another benchmark version": Damage("other-version", IN, field("benchmark_versions", "needles", to="0")),
    "code that no commit has": Damage("dirty", IN, field("dirty", to=True)),
    # masks
    "masks that are gone": Damage("missing-masks", IN, field("store_masks", to=1)),
    "masks that are none": Damage("masks", IN, extra("masks/a.npz", b"PK\x03\x04 nothing")),
    "masks of another name": Damage("masks", IN, masks("other.npz")),
    "masks of other pairs": Damage("masks", IN, masks(kept=1)),
    "masks of another context": Damage("masks", IN, masks(text="words of somebody else")),
    "masks of another subset": Damage("masks", IN, masks(subset="keys_8")),
    "masks of another sample": Damage("masks", IN, masks(sample_id="needles/x/0")),
    "masks of a variant that was not run": Damage("masks", IN, masks(variants=("full", "a", "b", "c", "d"))),
    "masks behind something else": Damage("masks", IN, masks(after=mask_file(lambda old: b"words " * 9 + old))),
    "masks before something else": Damage("masks", IN, masks(after=mask_file(lambda old: old + b"words"))),
    "masks that are pickled": Damage("masks", IN, masks(after=pickled)),
    "masks that are links": Damage("link", IN, masks(after=linked_masks)),
    "masks that are hidden": Damage("hidden-file", IN, extra("masks/.a.npz")),
    "words beside masks": Damage("unknown-file", IN, extra("masks/notes.txt")),
    "masks of too many megabytes together": Damage("too-large", IN, many_masks),
    "masks of many megabytes": Damage("too-large", IN, masks(after=grown_masks)),
    # private
    "a token in the masks": Damage("secret", IN, masks(text="hf_" + _TOKEN)),
    "texts that may not be shipped": Damage("not-shareable", IN, row(ITEMS, 0, benchmark="longbench", subset="qasper")),
    "references that may not be shipped": Damage(
        "not-shareable", IN, row(ITEMS, 0, benchmark="ruler", subset="qa_1", drop=" ".join(_TEXTS))
    ),
    "masks with texts that may not be shipped": Damage(
        "not-shareable", IN, masks(after=row(ITEMS, 0, benchmark="longbench", subset="qasper"))
    ),
    "a path in a message": Damage("path", IN, row(status="error", score=None, reason="no /home/someone/models/x")),
    "a path of Windows": Damage("path", IN, field("skipped", to={"kvzap": r"C:\Users\someone\model"})),
    "a path in an option": Damage("path", IN, field(*_VARIANTS, 4, "options", to='{"w": "/home/me/x"}')),
    "a path in a key": Damage("path", IN, field("skipped", to={"/home/someone/file": "x"})),
    "a token": Damage("secret", IN, field("hardware", to="hf_" + _TOKEN)),
    "a token in an answer": Damage("secret", IN, row(prediction="sk-" + _TOKEN)),
    "a key of a cloud": Damage("secret", IN, field("versions", "torch", to="AKIA" + "ABCD1234EFGH5678")),
    "a header": Damage("secret", IN, row(status="error", score=None, reason="Authorization: Bearer abcdefgh")),
    "an address": Damage("e-mail", IN, field("hardware", to="GPU of someone@example.org")),
    "an address in an answer": Damage("text-e-mail", IN, row(prediction=" write to someone@example.org")),
    # markup and tricks in names
    **{
        f"a script in {name}": Damage("markup", IN, field("configuration", name, to=SCRIPT))
        for name in ("model", "dtype", "device")
    },
    **{
        f"a script in {name}": Damage("markup", IN, field(name, to=SCRIPT))
        for name in ("hardware", "attention_kernel", "data")
    },
    **{
        f"a script in the {name} of a line": Damage("markup", IN, line(**{name: SCRIPT}))
        for name in ("sample_id", "context_id", "benchmark", "subset", "variant", "method", "budget", "options")
    },
    "a script in a reason": Damage("markup", IN, line(status="error", score=None, reason=f"no {SCRIPT}")),
    "a script in a metric": Damage("markup", IN, line(metrics={SCRIPT: 1.0})),
    "a script in an item": Damage("markup", IN, row(ITEMS, 0, sample_id=f"needles/{SCRIPT}")),
    "a script in a variant": Damage("markup", IN, field(*_VARIANTS, 1, "variant", to=SCRIPT)),
    "a script in an alarm": Damage("markup", IN, field("alarms", to=[_ALARM], file=SUMMARY)),
    "an image in a note": Damage("markup", IN, field("skipped", to={"kvzap": "<img src=x onerror=alert(1)>"})),
    "a link that runs": Damage("markup", IN, field("hardware", to="[GPU](javascript:alert(1))")),
    "a path trick in a sample": Damage("bad-name", IN, line(sample_id="../../outside/items")),
    "a path trick in an item": Damage("bad-name", IN, row(ITEMS, 0, sample_id="/etc/passwd")),
    "a path trick in a variant": Damage("bad-name", IN, field(*_VARIANTS, 1, "variant", to="..\\x")),
    "a path trick in a model": Damage("bad-name", IN, field("configuration", "model", to="../../outside/model")),
    "control characters in a name": Damage("bad-name", OUT, line(variant="\x1b[31mred")),
    "a newline in a model": Damage("bad-name", OUT, field("configuration", "model", to="a\nb")),
    "a name of ten thousand characters": Damage("bad-name", OUT, line(subset="x" * 10_000)),
    "a name written backwards": Damage("bad-name", IN, field("configuration", "model", to="smol\u202elm")),
}


def damaged(good: Path, out: Path, name: str) -> Path:
    """A copy of the good run in ``out`` with one damage; its folder."""
    run = out / good.name
    shutil.copytree(good, run)
    DAMAGES[name].do(run)
    (made,) = out.iterdir()
    return made
