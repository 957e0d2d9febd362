"""``validate``: checks a run folder that someone wants to submit, and says what to fix. No model, no torch.

What it reads was written by strangers: nothing of it is trusted, and nothing of it may end a check with a traceback.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from harness.errors import HarnessError
from harness.results.discovery import run_folders, subfolders
from harness.safe_text import printable, quoted_name
from harness.validation import completeness, file_tree, hashes, privacy, recomputed, schema, stored_masks
from harness.validation.findings import Finding, finding
from harness.validation.submission import Submission

#: findings of one code that are listed of a file
MOST_LISTED = 5

Check = Callable[[Submission], Iterable[Finding]]


class Checked(NamedTuple):
    """A run folder's findings, errors first, how many more there are of a code and file, and what was not checked."""

    path: Path
    name: str
    findings: list[Finding]
    more: dict[tuple[str, str], int]
    notes: list[str]

    @property
    def fine(self) -> bool:
        return not any(one.severity == "error" for one in self.findings)


def validate(path: Path) -> list[Checked]:
    """The run folder at ``path``, or every folder in it. A path that is none: :class:`HarnessError`."""
    if not path.is_dir():
        raise HarnessError(f"{path} is not a folder; give a run folder or a folder of run folders")
    try:
        return [validate_run(folder) for folder in _folders(path)]
    except OSError as error:
        raise HarnessError(f"{path} cannot be read ({error.strerror}); make it readable") from error


def _folders(path: Path) -> list[Path]:
    """The runs in ``path``, and the folders in it that neither are runs nor hold any."""
    runs = run_folders(path)
    if runs == [path]:
        return runs
    holders = {run.parent for run in runs}.union(runs)
    return sorted({*runs, *subfolders(path)} - (holders - set(runs))) or [path]


def validate_run(path: Path) -> Checked:
    """All checks of one folder. Each runs whatever the others find; one that fails itself is a finding."""
    name = quoted_name(path.resolve().name)
    if path.is_symlink():
        return Checked(path, name, [finding("link", "", None, "is a link")], {}, [])
    try:
        folder = Submission(path)
        if not any((path / one).exists() or (path / one).is_symlink() for one in file_tree.FILES):
            return Checked(path, name, [finding("not-a-run", "", None, "has no file of a run")], {}, [])
    except OSError as error:
        return Checked(path, name, [finding("unreadable", "", None, f"cannot be read ({error.strerror})")], {}, [])
    kept: list[Finding] = []
    counts: Counter[tuple[str, str]] = Counter()
    for check in CHECKS:
        for one in _guarded(check, folder):
            counts[one.code, one.file] += 1
            if counts[one.code, one.file] <= MOST_LISTED:
                kept.append(one)
    kept.sort(key=lambda one: one.severity)  # the sort is stable
    more = {key: count - MOST_LISTED for key, count in counts.items() if count > MOST_LISTED}
    return Checked(path, name, kept, more, list(dict.fromkeys(folder.notes)))


def _guarded(check: Check, folder: Submission) -> Iterator[Finding]:
    try:
        yield from check(folder)
    except Exception as error:  # whatever a stranger's file leads to is theirs to know and ours to mend
        told = f"{check.__name__} did not come to an end ({type(error).__name__}: {printable(error, 200)})"
        yield finding("check-failed", "", None, told)


def _files(folder: Submission) -> Iterator[Finding]:
    yield from file_tree.check_tree(folder.path)


def _json(folder: Submission) -> Iterator[Finding]:
    yield from folder.text_findings()


def _record(folder: Submission) -> Iterator[Finding]:
    if folder.loaded["run.json"].value is not None:
        for code, what in schema.sound_run(folder.raw_run):
            yield finding(code, "run.json", None, what)


def _items(folder: Submission) -> Iterator[Finding]:
    yield from folder.sound_items.findings


def _histograms(folder: Submission) -> Iterator[Finding]:
    yield from folder.histograms.findings


def _samples(folder: Submission) -> Iterator[Finding]:
    yield from folder.sound_lines.findings


#: all checks, in the order in which their findings are told
CHECKS: tuple[Check, ...] = (
    _files,
    _json,
    _record,
    _items,
    _samples,
    _histograms,
    completeness.check_items,
    completeness.check_labels,
    completeness.check_record,
    completeness.check_lines,
    completeness.check_complete,
    completeness.check_summary,
    completeness.check_requested,
    completeness.check_histograms,
    recomputed.check_removed,
    recomputed.check_readable,
    recomputed.check_scores,
    recomputed.check_summary,
    hashes.check_whole,
    hashes.check_prompts,
    hashes.check_data,
    hashes.check_name,
    hashes.check_code,
    hashes.check_commit,
    privacy.check_shareable,
    stored_masks.check_masks,
    stored_masks.check_all_there,
    privacy.check_texts,
)


def told(checked: Sequence[Checked]) -> Iterator[str]:
    """The command's output, a line each. Folders of one name are told apart by their paths."""
    names = Counter(one.name for one in checked)
    for one in checked:
        name = one.name if names[one.name] == 1 else printable(one.path)
        errors = sum(found.severity == "error" for found in one.findings)
        hidden = sum(one.more.values())
        counts = f"{errors} to fix, {len(one.findings) - errors} to look at" if one.findings else "fine"
        yield f"{name}: {counts}" + (f", and {hidden:,} more" if hidden else "")
        for found in one.findings:
            yield f"  {found}"
        for (code, file), count in one.more.items():
            yield f"  and {count:,} more of [{code}] in {quoted_name(file) or 'the folder'}"
        for note in one.notes:
            yield f"  note: {note}"
