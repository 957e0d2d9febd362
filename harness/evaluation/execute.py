"""A job to its files: run what is missing, line by line, and summarise."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from typing import NamedTuple

from harness.analysis.run_reader import Reading
from harness.analysis.summary import summarise
from harness.engine.adapter import LanguageModel
from harness.errors import HarnessError
from harness.evaluation.evaluator import Evaluator
from harness.evaluation.job import Job
from harness.evaluation.mask_recorder import MaskKeeper
from harness.evaluation.provenance import versions
from harness.evaluation.run_record import item_rows, method_hashes, run_record
from harness.models import loading
from harness.models.prompts import stop_ids
from harness.results.method_sources import as_hashed_now
from harness.results.run_folder import RunFolder, alone, append_line
from harness.results.schema import Line, Summary
from harness.results.score_histograms import HistogramWriter


class Outcome(NamedTuple):
    """A finished run: its folder, its summary, and whether it was there already.

    ``stale`` names the methods whose code has changed since the run was made, ``notes`` what else is to be told.
    """

    folder: RunFolder
    summary: Summary
    was_complete: bool
    stale: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def remarks(job: Job, outcome: Outcome) -> list[str]:
    """What the user is told beside the figures: what was not run, notes, stale methods, where the results are."""
    shown = {one.variant.method for one in job.plan.unsupported}  # they have a row in the table
    told = [f"not run: {name}: {reason}" for name, reason in job.plan.skipped.items() if name not in shown]
    told += [*job.notes, *outcome.notes]
    if outcome.stale:
        told.append(f"stale: {', '.join(outcome.stale)} changed since this run was made; --force runs it again")
    if job.config.limit is None and (limits := sorted({limit for limit in job.limits.values() if limit is not None})):
        default = "/".join(map(str, limits))
        told.append(f"{default} samples per subset is the default with the embedded model; --limit N for more")
    state = "complete" if outcome.summary.complete else "incomplete"
    return [*told, f"Results ({'was complete already' if outcome.was_complete else state}): {outcome.folder.path}"]


Progress = Callable[[int, int], AbstractContextManager[Callable[[Line], None]]]


def execute(job: Job, progress: Progress) -> Outcome:
    """Run what is missing of a job and summarise. A complete run is only read; an incomplete one needs ``--resume``
    or ``--force``. Two processes never write the same folder."""
    with alone(job.folder):
        return _execute(job, job.folder, progress)


def _execute(job: Job, folder: RunFolder, progress: Progress) -> Outcome:
    _check_place(job, folder)
    fresh = job.config.force or not folder.exists
    lines = [] if fresh else _present(job, folder)
    if len(lines) == job.expected:
        summary = _complete_summary(folder) or _finish(job, folder, lines)
        stale = _stale(job, folder)
        keeper = MaskKeeper(folder.path, job.prompts, job.items, job.config.store_masks, lines)
        if keeper.lacking:
            _add_masks(job, folder, lines, keeper, stale)
        return Outcome(folder, summary, True, stale, keeper.notes)
    lm = loading.load_model(job.config.model, job.device, job.dtype, job.commit)
    if fresh:  # only now, so that a damaged model leaves no folder, and no old run is dropped for it
        _start(job, folder)
    else:
        folder.restore_items(list(item_rows(job)))
    folder.asked_for_masks(job.config.store_masks)
    keeper = MaskKeeper(folder.path, job.prompts, job.items, job.config.store_masks, lines)
    evaluator = _evaluator(job, lm, lines, keeper)
    histograms = HistogramWriter(folder)
    try:
        with (
            closing(histograms),
            folder.append("samples.jsonl") as samples,
            progress(len(lines), job.expected) as advance,
        ):
            for line in evaluator.run(job.items, histograms.write, keeper.keep):
                append_line(samples, line.model_dump())
                lines.append(line)
                advance(line)
    except OSError as error:  # of closing a file whose last line could not be written, which was told already
        if told := _told(error):
            raise told from None
        raise
    return Outcome(folder, _finish(job, folder, lines), False, notes=keeper.notes)


def _evaluator(job: Job, lm: LanguageModel, lines: Sequence[Line], keeper: MaskKeeper) -> Evaluator:
    return Evaluator(
        lm,
        job.prompts,
        stop_ids(job.prompts, lm.model.generation_config),
        job.plan.planned,
        seed=job.config.seed,
        query_aware=job.config.query_aware,
        done=frozenset(line.key for line in lines),
        masked=keeper.lacking,
    )


def _add_masks(job: Job, folder: RunFolder, lines: Sequence[Line], keeper: MaskKeeper, stale: tuple[str, ...]) -> None:
    """The masks that a complete run lacks: a prefill of each of their contexts, and no answer."""
    if stale:
        raise HarnessError(
            f"{folder.path} was made with other method code ({', '.join(stale)}), so masks made now would not be those "
            "of its answers; leave --store-masks out, or run with --force to start over"
        )
    lm = loading.load_model(job.config.model, job.device, job.dtype, job.commit)
    folder.asked_for_masks(job.config.store_masks)
    made = list(_evaluator(job, lm, lines, keeper).run(job.items, masks=keeper.keep))
    assert not made  # no line was missing


def _told(error: BaseException | None) -> HarnessError | None:
    """The message that an error came after."""
    while error is not None and not isinstance(error, HarnessError):
        error = error.__context__
    return error


def _check_place(job: Job, folder: RunFolder) -> None:
    """What would go wrong after the model is loaded, or drop answers that nobody asked to drop."""
    path = folder.path
    if path.exists() and not (path.is_dir() and os.access(path, os.W_OK | os.X_OK)):
        raise HarnessError(f"{path} is where the run goes, but it is not a writable folder; give another --out")
    left = [name for name in ("samples.jsonl", "samples.jsonl.gz") if (path / name).is_file()]
    if left and not folder.exists and not job.config.force:
        raise HarnessError(
            f"{path} has {left[0]} but no run.json; take it from a copy to continue, or run with --force to start over"
        )


def _start(job: Job, folder: RunFolder) -> None:
    try:
        folder.start(run_record(job), list(item_rows(job)))
    except OSError as error:
        raise HarnessError(f"--out {job.config.out} cannot be written to: {error}") from error


def _present(job: Job, folder: RunFolder) -> list[Line]:
    """The lines of a run that was started before, if it may be read or gone on with."""
    stale = _stale(job, folder)
    if job.config.resume:
        folder.mend()
    lines = folder.lines()
    if len({line.key for line in lines}) < len(lines):
        raise HarnessError(f"{folder.path} has doubled lines; run with --force to start over")
    if len(lines) < job.expected and not job.config.resume:
        raise HarnessError(
            f"{folder.path} holds an incomplete run ({len(lines)} of {job.expected} lines); "
            "add --resume to continue or --force to start over"
        )
    if len(lines) < job.expected:
        _check_same_setup(job, folder)
    if stale and len(lines) < job.expected:  # a run must not be made half by one code and half by another
        raise HarnessError(
            f"{folder.path} was started with other method code ({', '.join(stale)}); run with --force to start over"
        )
    return lines


def _check_same_setup(job: Job, folder: RunFolder) -> None:
    """The lines that are still to be made must be made as those that are there: by the same packages, from the same
    prompts."""
    then, now = folder.run().versions, versions()
    other = [f"{name} {then[name]} (now {now[name]})" for name in now if then.get(name, now[name]) != now[name]]
    if other:
        raise HarnessError(
            f"{folder.path} was started with {', '.join(other)}; install those versions to go on, or run with --force "
            "to start over"
        )
    try:
        before = {item.sample_id: item.rendered_hash for item in Reading(folder, folder.run()).items.values()}
    except HarnessError:  # they are restored, and were of these samples: the folder's name says so
        return
    changed = [row.sample_id for row in item_rows(job) if before.get(row.sample_id) not in (None, row.rendered_hash)]
    if changed:
        raise HarnessError(
            f"{folder.path} was started with other prompts for {len(changed)} of its samples, such as {changed[0]}: "
            "the chat template has changed; run with --force to start over"
        )


def _stale(job: Job, folder: RunFolder) -> tuple[str, ...]:
    """Methods whose code or weights are others than when the run was started."""
    then, now = folder.run().method_hashes, method_hashes(job)
    return tuple(name for name in now if as_hashed_now(name, str(then.get(name))) != now[name])


def _complete_summary(folder: RunFolder) -> Summary | None:
    """The stored summary, if it can be shown; one that cannot is recomputed."""
    try:
        stored = folder.summary()
    except HarnessError:
        return None
    return stored if stored is not None and stored.complete and stored.cells else None


def _finish(job: Job, folder: RunFolder, lines: list[Line]) -> Summary:
    complete = len(lines) == job.expected
    summary = summarise(
        lines, job.facts, complete, job.config.seed, [(one.variant, one.note) for one in job.plan.unsupported]
    )
    folder.finish(summary)
    return summary
