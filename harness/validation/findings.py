"""What ``validate`` can find: one table of codes, each with its severity and what to do about it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from harness.results.safe_text import quoted_name

Severity = Literal["error", "warning"]

COPY = "take the file from a copy, or run the benchmark again with --force"
MAKE = "submit the files as `kvprune run` wrote them"
RESCORE = "run `kvprune rescore` on the folder, which rebuilds summary.json"
PACK = "pack samples.jsonl again with gzip"
REMOVE = "remove it; names and notes are plain text"
TEXT = "look at it: fine where the benchmark's texts or the model's answer contain it by themselves"

#: code -> severity and what to do
CODES: dict[str, tuple[Severity, str]] = {
    # the folder
    "not-a-run": ("error", "give a folder that `kvprune run` made, or a folder of such folders"),
    "missing-file": ("error", MAKE),
    "unknown-file": ("error", "remove it; a run folder holds only the run's own files"),
    "hidden-file": ("error", "remove it"),
    "link": ("error", "put the file itself in its place"),
    "not-a-file": ("error", COPY),
    "executable": ("error", "remove the permission to execute it: chmod a-x"),
    "too-large": ("error", "use fewer samples or variants per run, or pack samples.jsonl with gzip"),
    "unreadable": ("error", "make it readable: chmod u+r"),
    "two-samples": ("error", "keep one of samples.jsonl and samples.jsonl.gz"),
    # JSON
    "empty": ("error", COPY),
    "encoding": ("error", "save it as UTF-8 without a byte order mark"),
    "not-json": ("error", COPY),
    "not-finite": ("error", "JSON has no NaN and no infinity; " + COPY),
    "duplicate-key": ("error", COPY),
    "huge-number": ("error", COPY),
    "nesting": ("error", COPY),
    "surrogate": ("error", COPY),
    "long-line": ("error", COPY),
    "torn-line": ("error", "finish the run: the same command with --resume"),
    "no-newline": ("error", "restore the newline that an editor removed"),
    "packed": ("error", "unpack it once: gunzip"),
    "gzip": ("error", PACK),
    "bomb": ("error", PACK),
    # what it says
    "schema-version": ("error", "repeat the run with this release"),
    "schema": ("error", MAKE),
    "bad-name": ("error", "rename what was run: names are short, without control characters, <, >, \\ and '..'"),
    "range": ("error", COPY),
    "removed": ("error", COPY),
    "label": ("error", MAKE),
    "record": ("error", MAKE),
    "doubled-line": ("error", COPY),
    "foreign-line": ("error", COPY),
    "missing-texts": ("error", MAKE),
    "not-readable": ("error", COPY),
    "unfinished": ("error", "the same command with --resume finishes the run and writes it"),
    "no-summary": ("error", "run `kvprune rescore` on the folder, which writes it"),
    "missing-lines": ("error", "continue the run (--resume); an unfinished run's summary says complete: false"),
    "incomplete": ("warning", "the same command with --resume finishes the run; it is not ranked before"),
    "summary-differs": ("error", RESCORE),
    "score-differs": ("error", RESCORE),
    # where it comes from
    "prompt-hash": ("error", COPY),
    "context-id": ("error", COPY),
    "data-hash": ("error", COPY),
    "folder-name": ("error", "restore the name that the run gave the folder, and change nothing in run.json"),
    "stale": ("warning", "run it again with today's code where the change matters"),
    "other-version": ("warning", "run it again with today's benchmark where the change matters"),
    "dirty": ("warning", "nobody else has this code: commit it, and run again where the change matters"),
    # what must not be published
    "not-shareable": ("error", "leave it out: the benchmark's licence or source does not let a run redistribute it"),
    "path": ("error", "give models, data and weights by relative paths or names, and run again"),
    "secret": ("error", "revoke it now, then remove it from the file"),
    "e-mail": ("error", "remove it"),
    "markup": ("error", REMOVE),
    "text-path": ("warning", TEXT),
    "text-e-mail": ("warning", TEXT),
    "masks": ("error", "write the masks again with --store-masks, or leave the folder masks/ out"),
    "missing-masks": ("warning", "the same command with --store-masks adds them to the run"),
    # ourselves
    "check-failed": ("error", "tell the maintainers; this check cannot handle the file"),
}


class Finding(NamedTuple):
    """One thing to fix. ``file`` is relative to the run folder ("" is the folder itself), ``line`` from 1."""

    code: str
    severity: Severity
    file: str
    line: int | None
    what: str
    do: str

    def __str__(self) -> str:
        where = quoted_name(self.file) if self.file else "the folder"
        where += f", line {self.line}" if self.line is not None else ""
        return f"{self.severity} [{self.code}] {where}: {self.what}; {self.do}"


def finding(code: str, file: str, line: int | None, what: str) -> Finding:
    severity, do = CODES[code]
    return Finding(code, severity, file, line, what, do)
