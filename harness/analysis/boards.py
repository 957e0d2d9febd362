"""Several runs as one: those of one model, benchmark and length whose answers may be compared share a board."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.analysis.grouping import by_place
from harness.analysis.paired_tests import Scored, scores_of
from harness.analysis.run_reader import Reading
from harness.analysis.summary import summarise
from harness.errors import HarnessError
from harness.results.schema import UNDECLARED, Alarm, Cell, Curve, Line, Metric, Pair, Rank

#: what the runs of a board share, by its name
Basis = dict[str, Any]
PARTS = ("cells", "ranks", "curves", "pairs", "alarms")


@dataclass
class Board:
    """Cells that may be put beside each other, and what is derived from them.

    runs    the runs that they are from
    basis   what all of them share, by name
    notes   what does not fit
    """

    model: str
    benchmark: str
    length: int | None
    runs: list[Reading]
    basis: Basis
    cells: list[Cell]
    ranks: list[Rank]
    curves: list[Curve]
    pairs: list[Pair]
    alarms: list[Alarm]
    notes: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        return f"{self.model}, {self.benchmark}" + (f" at {self.length:,} tokens" if self.length else "")

    @property
    def metrics(self) -> list[Metric]:
        """What the benchmark declares that is shown beside its scores."""
        facts = self.runs[0].facts.get(self.benchmark)
        return UNDECLARED if facts is None else facts.metrics


def boards(runs: Sequence[Reading]) -> list[Board]:
    """The boards of all runs, ordered by model, benchmark and length.

    Runs share a board where model, samples (by the hash of their prompts), number type, device, attention kernel, seed,
    phase, query mode, thinking, sampling and limits are the same, and the control got the same scores. Of a variant
    that is in two of them the first run's lines are taken, and it is said where the scores differ.
    """
    groups: dict[str, list[tuple[Reading, Basis]]] = {}
    for run in runs:
        for where in by_place(run.summary.cells):
            basis = basis_of(run, *where)
            groups.setdefault(json.dumps(basis, sort_keys=True, default=str), []).append((run, basis))
    found = []
    for some in groups.values():
        basis = some[0][1]
        for alike in _same_control([run for run, _ in some], basis):
            found.append(_board(alike, basis))
    for board in found:
        others = [other for other in found if other is not board and other.title == board.title]
        if others:
            board.notes.append(f"apart from {_named(other_runs(others))}: {_difference(board, others)}")
    return sorted(found, key=lambda board: (board.model, board.benchmark, board.length or 0))


def board_of(runs: Sequence[Reading], benchmark: str, length: int | None) -> Board:
    """The board of runs that are known to share it."""
    return _board(runs, basis_of(runs[0], benchmark, length))


def other_runs(found: Iterable[Board]) -> list[Reading]:
    return [run for board in found for run in board.runs]


def _named(runs: Iterable[Reading]) -> str:
    return ", ".join(run.name for run in runs)


def _difference(board: Board, others: Sequence[Board]) -> str:
    names = [name for name in board.basis if any(other.basis[name] != board.basis[name] for other in others)]
    if names:
        return "other " + ", ".join(names)
    unread = [fault for run in other_runs([board, *others]) if (fault := unreadable(run))]
    if unread:
        return f"lines cannot be read: {unread[0]}"
    prompts = any(_other_prompts(other.runs, run) for other in others for run in board.runs)
    return "the rendered prompts differ" if prompts else "the control's scores differ"


def basis_of(run: Reading, benchmark: str, length: int | None) -> Basis:
    """What must be the same for two runs' cells to be compared."""
    configuration = run.configuration
    cells = by_place(run.summary.cells)[benchmark, length]
    cells = [cell for cell in cells if cell.status != "unsupported"] or cells
    first = next((cell for cell in cells if cell.level_kind == "none"), cells[0])
    items = by_place(run.items.values()).get((benchmark, length), [])
    samples = sorted([row.sample_id, row.prompt_hash] for row in items)
    return {
        "model": configuration.model,
        "model files": configuration.model_files,
        "model commit": configuration.model_commit,
        "template date": configuration.template_date,
        "benchmark": benchmark,
        "length": length,
        "samples": samples or configuration.data_hash,
        "dtype": configuration.dtype,
        "device": configuration.device,
        "attention kernel": run.run.attention_kernel,
        "seed": run.seed,
        "control": first.variant,
        "phase": first.phase,
        "query mode": first.query_mode,
        "thinking": first.thinking,
        "sampling": first.sampling,
        "rollouts": first.rollouts,
        "answer limit": first.max_new_tokens,
    }


def _same_control(runs: Sequence[Reading], basis: Basis) -> list[list[Reading]]:
    """Runs whose control has the same score on every sample, and whose chat templates made the same of every prompt, as
    far as runs say what; the lines of a single run need not be read."""
    if len(runs) == 1:
        return [list(runs)]
    groups: list[tuple[dict[str, Scored] | None, list[Reading]]] = []
    for run in runs:
        if unreadable(run):  # its summary can be shown, but nothing can be made of it and another
            groups.append((None, [run]))
            continue
        control = scores_of(line for line in _lines(run, basis) if line.level_kind == "none")
        known = next((some for scores, some in groups if scores == control and not _other_prompts(some, run)), None)
        if known is None:
            groups.append((control, [run]))
        else:
            known.append(run)
    return [some for _, some in groups]


def _other_prompts(runs: Iterable[Reading], run: Reading) -> bool:
    """Whether any of the runs was given another rendered prompt for one of this run's samples."""
    own = {sample: item.rendered_hash for sample, item in run.items.items()}
    rendered = ((sample, item.rendered_hash) for other in runs for sample, item in other.items.items())
    return any(None not in (made, own.get(sample)) and made != own[sample] for sample, made in rendered)


def unreadable(run: Reading) -> str:
    """Why the lines of a run cannot be read; empty where they can."""
    try:
        _ = run.lines
    except HarnessError as error:
        return str(error)
    return ""


def _lines(run: Reading, basis: Basis) -> list[Line]:
    return by_place(run.lines).get((basis["benchmark"], basis["length"]), [])


def _board(runs: Sequence[Reading], basis: Basis) -> Board:
    where = (basis["benchmark"], basis["length"])
    notes: list[str] = []
    if len(runs) == 1:
        summary = runs[0].summary
    else:
        lines, notes = _merged(runs, basis)
        unsupported = {one.variant: (one, note) for run in runs for one, note in run.unsupported}
        complete = all(run.summary.complete for run in runs)
        summary = summarise(lines, runs[0].facts, complete, runs[0].seed, list(unsupported.values()))
    parts = {name: by_place(getattr(summary, name)).get(where, []) for name in PARTS}
    for run in runs:
        if not run.summary.complete:
            of = f" of {run.expected:,}" if run.expected else ""
            notes.append(f"{run.name} is incomplete ({len(run.lines):,}{of} lines)")
    return Board(str(basis["model"]), where[0], where[1], list(runs), basis, notes=notes, **parts)


def _merged(runs: Sequence[Reading], basis: Basis) -> tuple[list[Line], list[str]]:
    """All lines, each variant from the first run that has it."""
    owner: dict[str, tuple[Reading, list[Line]]] = {}
    notes = []
    for run in runs:
        own: dict[str, list[Line]] = {}
        for line in _lines(run, basis):
            own.setdefault(line.variant, []).append(line)
        for variant, lines in own.items():
            if variant not in owner:
                owner[variant] = run, lines
                continue
            first, known = owner[variant]
            one, other = scores_of(known), scores_of(lines)
            count = sum(one.get(sample) != other.get(sample) for sample in one.keys() | other.keys())
            if count:
                notes.append(
                    f"{variant} is in {first.name} and {run.name}, with other scores on {count} samples: the first is "
                    f"shown; `compare` lists them"
                )
    return [line for _, lines in owner.values() for line in lines], notes
