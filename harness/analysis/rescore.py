"""``rescore``: scores stored predictions again, with the benchmarks as they are now. No model is loaded."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, NoReturn, cast

import benchmarks.registry
from benchmarks.base import Benchmark, Request, Sample, Text, content_hash
from benchmarks.thinking_tags import after_thought
from harness.analysis.run_reader import Reading, find
from harness.errors import HarnessError
from harness.files import replacing, write_atomically
from harness.results.run_folder import alone
from harness.results.schema import AVERAGED, Item, Line

#: fields of a sample that hold its texts
TEXTS = ("context", "question", "answer_prefix")
#: most changed lines that are listed
MOST_LISTED = 10


class Rescored(NamedTuple):
    """What rescoring a run came to: its lines with an answer, those whose score or metrics changed, and notes."""

    run: str
    scored: int
    changed: list[tuple[Line, Line]]
    notes: list[str]


def rescore(paths: Sequence[Path], data: Path | None = None, check: bool = False) -> tuple[list[Rescored], list[str]]:
    """Every run at ``paths``, and notes on what could not be read there.

    Where a run does not hold what a benchmark's ``score()`` reads, ``data`` (as in ``run --data``) is where its samples
    come from. All runs are scored before any is written, so a mistake leaves every file as it was. ``check`` writes
    nothing.
    """
    found = find(*paths)
    done = [(run, *_scored(run, data)) for run in found.runs]
    if not check:
        for run, lines, outcome in done:
            with alone(run.folder):
                _write(run, lines, bool(outcome.changed))
    return [outcome for *_, outcome in done], found.notes


def score_anew(run: Reading, data: Path | None = None) -> Rescored:
    """What rescoring one run comes to; nothing is written."""
    return _scored(run, data)[1]


def _scored(run: Reading, data: Path | None) -> tuple[list[Line], Rescored]:
    kinds = dict.fromkeys(line.benchmark for line in run.lines)
    known = {name: benchmarks.registry.get(name) for name in kinds}
    forced = {name for name, benchmark in known.items() if benchmark.teacher_forced}  # no text decides their scores
    samples = _samples(run, {name: benchmark for name, benchmark in known.items() if name not in forced}, data)
    lines, changed, scored = [], [], 0
    for line in run.lines:
        anew = line
        if line.status in AVERAGED and line.prediction is not None and line.benchmark not in forced:
            anew = _line(line, known[line.benchmark], samples[line.sample_id])
            scored += 1
            if (anew.score, anew.metrics) != (line.score, line.metrics):
                changed.append((line, anew))
        lines.append(anew)
    then = run.run.benchmark_versions
    notes = [
        f"{name} was version {then[name]}, now {benchmark.version}: its samples would be others today"
        for name, benchmark in known.items()
        if then.get(name) not in (None, benchmark.version)
    ]
    notes += [f"{name} compares distributions: its scores stay as the run made them" for name in forced]
    return lines, Rescored(run.name, scored, changed, notes)


def _line(line: Line, benchmark: Benchmark, sample: Sample) -> Line:
    prediction = line.prediction or ""
    try:
        score = benchmark.score(sample, after_thought(prediction, True) if line.thinking else prediction)
    except AttributeError as error:
        if error.obj is not sample:
            raise
        raise HarnessError(
            f"scoring {line.sample_id} needs its {error.name}, which the run does not hold; give the benchmark's rows "
            "with --data"
        ) from None
    return Line(**{**line.model_dump(), "score": score.score, "metrics": score.metrics})


def _samples(run: Reading, known: dict[str, Benchmark], data: Path | None) -> dict[str, Sample]:
    """The run's samples: from ``data`` for benchmarks whose texts or references the run does not hold, else from
    ``items.jsonl``."""
    if not run.items:
        raise HarnessError(f"{run.folder.path} has no items.jsonl with the samples' references; it cannot be rescored")
    found: dict[str, Sample] = {}
    for name, benchmark in known.items():
        rows = [row for row in run.items.values() if row.benchmark == name]
        whole = all(row.holds("references", "context") for row in rows)
        if data is not None and not whole:
            found |= samples_from_data(run, benchmark, rows, data)
        else:
            found |= {row.sample_id: _from_item(row) for row in rows}
    lacking = [line.sample_id for line in run.lines if line.benchmark in known and line.sample_id not in found]
    if lacking:
        raise HarnessError(f"{run.folder.path / 'items.jsonl'} lacks {lacking[0]}, which samples.jsonl has")
    return found


def _from_item(item: Item) -> Sample:
    """What a run holds of a sample. Reading anything else of it is an ``AttributeError``, see :func:`_line`."""
    names = [field.name for field in fields(Sample) if item.holds(field.name)]
    values = {name: getattr(item, name) for name in names}
    return cast(Sample, SimpleNamespace(**{n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}))


def samples_from_data(run: Reading, benchmark: Benchmark, rows: Sequence[Item], data: Path) -> dict[str, Sample]:
    """The run's samples rebuilt from local rows, each proved to be the same by the hash of its prompt."""
    lengths = dict.fromkeys(row.length for row in rows if row.length is not None)
    request = Request(tuple(lengths), (), None, data, run.seed)
    benchmark.check(request)
    made = {sample.sample_id: sample for sample in benchmark.samples(request, Text(_no_tokens, _no_tokens, ""))}
    for row in rows:
        sample = made.get(row.sample_id)
        if sample is None or content_hash(*(getattr(sample, name) for name in TEXTS)) != row.prompt_hash:
            what = "has no" if sample is None else "has another prompt for"
            raise HarnessError(f"--data {data} {what} {row.sample_id} of {run.name}; give the rows that it was run on")
    return {row.sample_id: made[row.sample_id] for row in rows}


def _no_tokens(*_: Any) -> NoReturn:
    raise HarnessError(
        "this benchmark needs the model's tokenizer to make its samples, and rescoring loads none; only runs that hold "
        "their texts, or benchmarks whose --data rows are whole samples, can be rescored"
    )


def _write(run: Reading, lines: Sequence[Line], changed: bool) -> None:
    """The lines in whole or not at all, in the file that they came from; then the summary."""
    if run.folder.lines() != run.lines:
        raise HarnessError(f"{run.folder.path} has grown since it was read; run the command again")
    if changed:
        text = "".join(json.dumps(line.model_dump(), ensure_ascii=False, allow_nan=False) + "\n" for line in lines)
        packed = run.folder.path / "samples.jsonl.gz"
        if packed.is_file():
            with replacing(packed) as draft:
                draft.write_bytes(gzip.compress(text.encode(), mtime=0))
        else:
            write_atomically(run.folder.path / "samples.jsonl", text)
    run.folder.finish(run.summarised(lines))


def told(outcomes: Sequence[Rescored], check: bool) -> Iterator[str]:
    """The command's output, a line each."""
    for outcome in outcomes:
        changed = len(outcome.changed)
        done = "" if not changed else "; not written (--check)" if check else "; written"
        yield f"{outcome.run}: {outcome.scored:,} answers scored, {changed:,} changed{done}"
        for old, new in outcome.changed[:MOST_LISTED]:
            what = f"{_score(old)} -> {_score(new)}" if old.score != new.score else "metrics alone"
            rollout = f", rollout {old.rollout}" if old.rollout else ""
            yield f"  {old.sample_id}, {old.variant}{rollout}: {what}"
        if changed > MOST_LISTED:
            yield f"  and {changed - MOST_LISTED:,} more"
        yield from (f"  note: {note}" for note in outcome.notes)


def _score(line: Line) -> str:
    return "none" if line.score is None else f"{line.score:g}"
