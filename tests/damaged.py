"""Damaged run folders, made out of a good small one: what strangers may send, by accident or not. No torch.

:data:`DAMAGES` has, for each, what is done to the folder, the code of the finding that ``validate`` must have, and
whether readers leave the run out (True) or show it as it is (False: the damage is in nothing that they rely on).
"""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.damaging import (
    BINS,
    ITEMS,
    RUN,
    SAMPLES,
    SCRIPT,
    SUMMARY,
    Do,
    both,
    content,
    cut,
    data,
    extra,
    field,
    folder_in_place,
    gone,
    mask_file,
    masks,
    outside,
    packed,
    pickled,
    pipe_in_place,
    renamed,
    resummed,
    row,
    text,
    unsummed,
)


class Damage(NamedTuple):
    """What is done to a run folder, the finding it must lead to, and whether readers leave the run out."""

    do: Do
    code: str
    left_out: bool


DAMAGES: dict[str, Damage] = {}


def _add(name: str, code: str, left_out: bool, do: Do) -> None:
    assert name not in DAMAGES
    DAMAGES[name] = Damage(do, code, left_out)


def _damages() -> Iterator[tuple[str, str, bool, Do]]:
    deep = "[" * 100_000 + "]" * 100_000
    # cut, empty, missing
    yield "last line cut", "torn-line", False, unsummed(data(SAMPLES, lambda old: old[:-40]))
    yield (
        "a line cut in the middle",
        "not-json",
        True,
        unsummed(data(SAMPLES, lambda old: old.replace(b'"score": ', b'"sco\n', 1))),
    )
    yield "the last newline lost", "no-newline", False, data(SAMPLES, lambda old: old[:-1])
    yield "lines lost", "missing-lines", True, cut(SAMPLES, 11)
    yield "lines lost, and it says so", "incomplete", False, both(cut(SAMPLES, 11), resummed)
    yield "samples empty", "empty", True, unsummed(content(SAMPLES, b""))
    yield "run.json empty", "empty", True, content(RUN, b"")
    yield "items empty", "empty", False, content(ITEMS, b"")
    yield "summary empty", "empty", False, content(SUMMARY, b"")
    yield "no run.json", "missing-file", True, gone(RUN)
    yield "no samples", "missing-file", True, unsummed(gone(SAMPLES))
    yield "no items", "missing-file", False, gone(ITEMS)
    yield "no summary", "no-summary", False, gone(SUMMARY)
    yield "interrupted", "unfinished", False, unsummed(cut(SAMPLES, 3))
    yield "a blank line", "not-json", True, unsummed(data(SAMPLES, lambda old: old.replace(b"\n", b"\n\n", 1)))
    # kinds of files
    yield "run.json a folder", "not-a-file", True, folder_in_place(RUN)
    yield "samples a folder", "not-a-file", True, unsummed(folder_in_place(SAMPLES))
    yield "summary a folder", "not-a-file", False, folder_in_place(SUMMARY)
    yield "samples a pipe", "not-a-file", True, unsummed(pipe_in_place(SAMPLES))
    yield "run.json a pipe", "not-a-file", True, pipe_in_place(RUN)
    yield "run.json a link out", "link", True, outside(RUN)
    yield "items a link out", "link", True, outside(ITEMS)
    yield "samples a link out", "link", True, unsummed(outside(SAMPLES))
    yield "summary a link out", "link", False, outside(SUMMARY)
    yield "a link to nothing", "link", False, both(gone(BINS), lambda run: (run / BINS).symlink_to("nowhere"))
    yield (
        "a link to itself",
        "link",
        True,
        unsummed(both(gone(SAMPLES), lambda run: (run / SAMPLES).symlink_to(SAMPLES))),
    )
    yield "a linked folder of masks", "link", False, lambda run: (run / "masks").symlink_to("/")
    yield "another file", "unknown-file", False, extra("notes.txt")
    yield "another folder", "unknown-file", False, extra("more/words.txt")
    yield "a hidden file", "hidden-file", False, extra(".env", b"TOKEN=1")
    yield "a file name that is no text", "unknown-file", False, lambda run: extra(os.fsdecode(b"\xff\n\x1b[31m"))(run)
    yield "an executable", "executable", False, lambda run: (run / ITEMS).chmod(0o755)
    yield (
        "samples twice",
        "two-samples",
        False,
        lambda run: (run / f"{SAMPLES}.gz").write_bytes(gzip.compress((run / SAMPLES).read_bytes())) and None,
    )
    yield "a huge file", "too-large", True, lambda run: os.truncate(run / RUN, 2**23 + 1)
    # bytes
    yield "binary samples", "encoding", True, unsummed(content(SAMPLES, bytes(range(256)) * 9 + b"\n"))
    yield "binary run.json", "encoding", True, content(RUN, b"\xfe\xed\xfa\xce" * 99)
    yield "null bytes", "not-json", True, unsummed(data(SAMPLES, lambda old: old.replace(b" ", b"\x00", 1)))
    yield "latin-1", "encoding", True, data(RUN, lambda old: old.replace(b"smollm2", b"smoll\xe9", 1))
    yield "utf-16", "encoding", True, data(RUN, lambda old: old.decode().encode("utf-16"))
    yield "a byte order mark", "encoding", True, data(RUN, lambda old: b"\xef\xbb\xbf" + old)
    yield (
        "a byte order mark before the lines",
        "encoding",
        True,
        unsummed(data(SAMPLES, lambda old: b"\xef\xbb\xbf" + old)),
    )
    yield "a gzip bomb", "bomb", True, unsummed(packed(lambda old: gzip.compress(bytes(2**27), 9)))
    yield "a gzip bomb of good lines", "bomb", True, unsummed(packed(lambda old: gzip.compress(old * 3_000, 9)))
    yield (
        "gzip of a thousand parts",
        "gzip",
        False,
        unsummed(packed(lambda old: gzip.compress(b"") * 1_000 + gzip.compress(old))),
    )
    yield "rows of nothing", "too-large", True, unsummed(packed(lambda old: gzip.compress(b"{}\n" * 20_000)))
    yield "blank rows", "too-large", True, unsummed(content(SAMPLES, b"\n" * 20_000))
    yield "gzip cut", "gzip", True, unsummed(packed(lambda old: gzip.compress(old)[:-20]))
    yield "gzip of gzip", "packed", True, unsummed(packed(lambda old: gzip.compress(gzip.compress(old))))
    yield "gzip under a plain name", "packed", True, unsummed(data(SAMPLES, gzip.compress))
    yield "no gzip", "gzip", True, unsummed(packed(lambda old: old))
    yield "gzip of nothing", "empty", True, unsummed(packed(lambda old: gzip.compress(b"")))
    # JSON
    yield "NaN score", "not-finite", True, unsummed(text(SAMPLES, '"score": 100.0', '"score": NaN'))
    yield "infinite metric", "not-finite", True, unsummed(text(SAMPLES, '"metrics": {}', '"metrics": {"a": Infinity}'))
    yield "NaN in the summary", "not-finite", False, text(SUMMARY, '"removed_mean": 0.0', '"removed_mean": NaN')
    yield "a number beyond doubles", "huge-number", True, unsummed(text(SAMPLES, '"score": 100.0', '"score": 1e999'))
    yield "a number of 5,000 digits", "huge-number", True, text(RUN, '"seed": 0', f'"seed": {"9" * 5_000}')
    yield "a number beyond 2**53", "huge-number", True, unsummed(row(context_tokens=2**60))
    yield "the same key twice", "duplicate-key", False, text(SAMPLES, '"score": 100.0', '"score": 1.0, "score": 100.0')
    yield "deep nesting", "nesting", True, text(RUN, '"unsupported": []', f'"unsupported": {deep}')
    yield "deep nesting in a line", "nesting", True, unsummed(text(SAMPLES, '"metrics": {}', f'"metrics": {deep}'))
    yield "deep nesting in the summary", "nesting", False, text(SUMMARY, '"complete": true', f'"complete": {deep}')
    yield "nesting that can be read", "nesting", False, text(RUN, '"dirty": false', '"dirty": ' + "[" * 99 + "]" * 99)
    yield "half a character", "surrogate", True, unsummed(row(prediction="\ud800"))
    yield "half a character in run.json", "surrogate", True, field("configuration", "model", to="\udfff")
    yield "a line of five megabytes", "long-line", False, row(prediction="long " * 2**20)
    yield "run.json a list", "schema", True, content(RUN, b"[1, 2]")
    yield "run.json null", "schema", True, content(RUN, b"null")
    yield "summary a list", "schema", False, content(SUMMARY, b"[1, 2]")
    yield "a line that is a number", "schema", True, unsummed(data(SAMPLES, lambda old: b"3\n" + old))
    yield "an item that is a list", "schema", True, data(ITEMS, lambda old: b"[]\n" + old)
    # fields
    yield "another schema version", "schema-version", True, field("schema_version", to=2)
    yield "a schema version of true", "schema-version", False, field("schema_version", to=True)
    yield "no schema version", "schema-version", True, field("schema_version", drop=True)
    yield "an unknown key", "schema", False, field("more", to="hidden load")
    yield "an unknown key in a line", "schema", True, unsummed(row(more=1))
    yield "an unknown key in an item", "schema", False, row(ITEMS, more=1)
    yield "a key missing in a line", "schema", True, unsummed(row(drop="status"))
    yield "a key missing in an item", "schema", True, row(ITEMS, drop="prompt_hash")
    yield "a key missing in run.json", "schema", False, field("versions", drop=True)
    yield "a number as a text", "schema", False, row(context_tokens="988")
    yield "a text as a number", "schema", True, unsummed(row(sample_id=7))
    yield "a list as a name", "schema", True, row(ITEMS, sample_id=["a"])
    yield "an unknown status", "schema", True, unsummed(row(status="great"))
    yield "configuration a list", "schema", True, field("configuration", to=[1])
    yield "variants of nothing", "schema", True, field("configuration", "variants", to=[{}, {}])
    yield "a million rollouts", "missing-lines", False, field("answers", "needles", "rollouts", to=[10**6])
    yield "negative rollouts", "range", True, field("answers", "needles", "rollouts", to=[-3])
    yield "facts of texts", "schema", True, field("facts", "needles", "subsets", to="four")
    yield "a negative seed", "range", True, both(field("seeds", "run", to=-1), field("configuration", "seed", to=-1))
    yield "a negative count", "range", True, unsummed(row(generated_tokens=-1))
    yield "a negative histogram", "range", False, row(BINS, 0, counts=[-1, 2])
    yield "score above 100", "range", True, unsummed(row(score=101.0))
    yield "removed above 1", "range", True, unsummed(row(removed_context=1.5))
    yield "a negative fraction asked for", "range", True, unsummed(row(requested_removed=-7.5))
    yield "a metric that no sum can hold", "range", True, unsummed(row(metrics={"x": 1e308}))
    yield "an answer without its text", "range", False, row(index=1, prediction=None, score=100.0)
    yield "another fraction asked for in one line", "removed", False, row(index=4, requested_removed=0.25)
    yield "a fraction asked for without a threshold", "removed", False, row(index=1, requested_removed=0.5)
    yield "another mean over time", "removed", False, row(removed_time_mean=0.99)
    yield "bytes that the masked engine saves", "removed", False, row(physical_bytes=1)
    yield "more scores than pairs", "schema", False, row(BINS, 0, cached=10)
    yield "bins from high to low", "schema", False, row(BINS, 0, low=9.0, high=-9.0)
    yield "scores of other pairs", "removed", False, row(BINS, 0, cached=10**6)
    yield "scores that tell of another removed", "removed", False, row(BINS, 1, counts=[88_000, 0])
    yield "scores of a method that was not run", "foreign-line", False, row(BINS, 0, method="tova")
    yield "scores of a sample that was not run", "foreign-line", False, row(BINS, 0, sample_id="needles/x/0")
    yield (
        "scores twice",
        "doubled-line",
        False,
        data(BINS, lambda old: old + old.splitlines(keepends=True)[0]),
    )
    yield "a score without an answer", "range", False, row(status="oom")
    yield "an answer without a score", "range", False, row(score=None)
    yield "an impossible level", "range", False, both(row(level=2.0), gone(SUMMARY))
    yield "more kept than cached", "removed", False, row(kept_pairs=10**9)
    yield "another removed than measured", "removed", False, row(removed_context=0.9)
    yield "a control that prunes", "removed", False, row(index=0, kept_pairs=9, removed_context=1 - 9 / 88920)
    yield "pairs of another context", "removed", False, row(cached_pairs=90 * 999, context_tokens=999)
    # which lines there are
    yield (
        "a line twice",
        "doubled-line",
        True,
        unsummed(data(SAMPLES, lambda old: old + old.splitlines(keepends=True)[3])),
    )
    yield "an item twice", "doubled-line", False, data(ITEMS, lambda old: old + old.splitlines(keepends=True)[0])
    yield "a line of another sample", "foreign-line", False, row(sample_id="needles/keys_1/1024/0/99")
    yield "a line of another variant", "foreign-line", False, row(variant="kvzip global 0.5")
    yield "a line of another method", "foreign-line", False, row(method="kvzip")
    yield "a line of another subset", "foreign-line", False, row(subset="keys_8")
    yield "a line of another rollout", "foreign-line", False, row(rollout=3)
    yield (
        "a variant that is not what it is called",
        "label",
        False,
        field("configuration", "variants", 1, "level", to=0.9),
    )
    yield "a variant twice", "label", False, field("configuration", "variants", 1, "variant", to="knorm head 0.25")
    yield "other benchmarks than it has", "record", False, field("configuration", "benchmarks", to=["ruler"])
    yield "fewer subsets than the benchmark", "record", False, field("facts", "needles", "subsets", to=1)
    yield "a limit that no line has", "record", False, field("answers", "needles", "max_new_tokens", to=[24, 25])
    yield "rollouts that no line has", "record", False, field("answers", "needles", "rollouts", to=[1, 2])
    yield (
        "lines lost between rollouts",
        "missing-lines",
        False,
        both(field("answers", "needles", "rollouts", to=[1, 2]), cut(SAMPLES, 11), resummed),
    )
    yield "a line of another limit", "foreign-line", False, row(max_new_tokens=99)
    yield (
        "a label that says more",
        "label",
        False,
        field("configuration", "variants", 2, "variant", to="knorm head 0.25 BEST METHOD"),
    )
    yield (
        "a label that says other settings",
        "label",
        False,
        field("configuration", "variants", 2, "variant", to="knorm head 0.25 window=7"),
    )
    # figures
    yield "a better score", "score-differs", False, row(index=1, score=100.0)
    for file in (SAMPLES, ITEMS):
        yield (
            f"a better score, and a carriage return in {file}",
            "score-differs",
            False,
            both(row(index=1, score=100.0), data(file, lambda old: old.replace(b": ", b":\r", 1))),
        )
    yield "a better mean", "summary-differs", False, field("cells", 5, "score", to=99.0, file=SUMMARY)
    yield "a million cells", "summary-differs", False, field("cells", to=[{}] * 10**6, file=SUMMARY)
    yield "a summary without ranks", "summary-differs", False, field("ranks", drop=True, file=SUMMARY)
    yield (
        "texts for figures in the summary",
        "summary-differs",
        False,
        field("cells", 0, "score", to="100", file=SUMMARY),
    )
    yield "pairs of nothing in the summary", "summary-differs", False, field("pairs", to=[{"a": 1}], file=SUMMARY)
    yield "more in the summary", "summary-differs", False, field("more", to=1, file=SUMMARY)
    # where it comes from
    yield "another name", "folder-name", False, renamed("smollm2-135m-needles-00000000")
    yield "another dtype", "folder-name", False, field("configuration", "dtype", to="bfloat16")
    yield "another data hash", "data-hash", False, field("configuration", "data_hash", to="0" * 16)
    yield "another context", "prompt-hash", False, row(ITEMS, 0, context="The access code is 9580433.")
    yield "a sample without its context", "missing-texts", False, row(ITEMS, 0, drop="context")
    yield "two contexts of one id", "context-id", False, row(ITEMS, 1, context_id="43b7f6bb84665ee3")
    yield "other code", "stale", False, field("method_hashes", "knorm", to="0" * 16)
    yield "another benchmark version", "other-version", False, field("benchmark_versions", "needles", to="0")
    yield "texts that may not be shipped", "not-shareable", False, row(ITEMS, 0, benchmark="longbench", subset="qasper")
    yield "code that no commit has", "dirty", False, field("dirty", to=True)
    yield "masks that are gone", "missing-masks", False, field("store_masks", to=1)
    yield "masks that are none", "masks", False, extra("masks/a.npz", b"PK\x03\x04 nothing")
    yield "masks of another name", "masks", False, masks("other.npz")
    yield "masks of other pairs", "masks", False, masks(kept=1)
    yield "masks of another context", "masks", False, masks(text="words of somebody else")
    yield "masks of another subset", "masks", False, masks(subset="keys_8")
    yield "masks of a variant that was not run", "masks", False, masks(variants=("full", "a", "b", "c", "d"))
    yield "masks behind something else", "masks", False, masks(after=mask_file(lambda old: b"words " * 9 + old))
    yield "masks before something else", "masks", False, masks(after=mask_file(lambda old: old + b"words"))
    yield "masks that are pickled", "masks", False, masks(after=pickled)
    yield "a token in the masks", "secret", False, masks(text="hf_" + "abcdEFGH1234" * 3)
    yield (
        "masks with texts that may not be shipped",
        "not-shareable",
        False,
        masks(after=row(ITEMS, 0, benchmark="longbench", subset="qasper")),
    )
    yield "masks of many megabytes", "too-large", False, masks(after=lambda run: _grown(run / "masks"))
    # private
    yield "a path in a message", "path", False, row(status="error", score=None, reason="no /home/someone/models/x")
    yield "a path of Windows", "path", False, field("skipped", to={"kvzap": r"C:\Users\someone\model"})
    yield (
        "a path in an option",
        "path",
        False,
        field("configuration", "variants", 4, "options", to='{"w": "/home/me/x"}'),
    )
    yield "a path in a key", "path", False, field("skipped", to={"/home/someone/file": "x"})
    yield "a token", "secret", False, field("hardware", to="hf_" + "abcdEFGH1234" * 3)
    yield "a token in an answer", "secret", False, row(prediction="sk-" + "abcdEFGH1234" * 3)
    yield "a key of a cloud", "secret", False, field("versions", "torch", to="AKIA" + "ABCD1234EFGH5678")
    yield "a header", "secret", False, row(status="error", score=None, reason="Authorization: Bearer abcdefgh")
    yield "an address", "e-mail", False, field("hardware", to="GPU of someone@example.org")
    yield "an address in an answer", "text-e-mail", False, row(prediction=" write to someone@example.org")
    # markup and tricks in names
    for name in ("model", "dtype", "device"):
        yield f"a script in {name}", "markup", False, field("configuration", name, to=SCRIPT)
    for name in ("hardware", "attention_kernel", "data"):
        yield f"a script in {name}", "markup", False, field(name, to=SCRIPT)
    for name in ("sample_id", "context_id", "benchmark", "subset", "variant", "method", "budget", "options"):
        yield f"a script in the {name} of a line", "markup", False, unsummed(row(**{name: SCRIPT}))
    yield "a script in a reason", "markup", False, unsummed(row(status="error", score=None, reason=f"no {SCRIPT}"))
    yield "a script in a metric", "markup", False, unsummed(row(metrics={SCRIPT: 1.0}))
    yield "a script in an item", "markup", False, row(ITEMS, 0, sample_id=f"needles/{SCRIPT}")
    yield "a script in a variant", "markup", False, field("configuration", "variants", 1, "variant", to=SCRIPT)
    yield (
        "a script in an alarm",
        "markup",
        False,
        field(
            "alarms",
            to=[{"kind": "partial", "benchmark": "needles", "length": 1024, "variant": None, "text": SCRIPT}],
            file=SUMMARY,
        ),
    )
    yield "an image in a note", "markup", False, field("skipped", to={"kvzap": "<img src=x onerror=alert(1)>"})
    yield "a link that runs", "markup", False, field("hardware", to="[GPU](javascript:alert(1))")
    yield "a path trick in a sample", "bad-name", False, unsummed(row(sample_id="../../outside/items"))
    yield "a path trick in an item", "bad-name", False, row(ITEMS, 0, sample_id="/etc/passwd")
    yield "a path trick in a variant", "bad-name", False, field("configuration", "variants", 1, "variant", to="..\\x")
    yield "a path trick in a model", "bad-name", False, field("configuration", "model", to="../../outside/model")
    yield "control characters in a name", "bad-name", True, unsummed(row(variant="\x1b[31mred"))
    yield "a newline in a model", "bad-name", True, field("configuration", "model", to="a\nb")
    yield "a name of ten thousand characters", "bad-name", True, unsummed(row(subset="x" * 10_000))
    yield "a name written backwards", "bad-name", False, field("configuration", "model", to="smol\u202elm")


def _grown(folder: Path) -> None:
    for file in folder.iterdir():
        os.truncate(file, 2**25 + 1)


for _one in _damages():
    _add(*_one)


def damaged(good: Path, out: Path, name: str) -> Path:
    """A copy of the good run in ``out`` with one damage; its folder."""
    run = out / good.name
    shutil.copytree(good, run)
    DAMAGES[name].do(run)
    (made,) = out.iterdir()
    return made
