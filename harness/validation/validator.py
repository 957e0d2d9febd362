"""``validate``: every check of a run folder, and what it prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from harness.errors import HarnessError
from harness.results.discovery import run_folders, subfolders
from harness.results.safe_text import printable, quoted_name
from harness.validation import completeness, hashes, privacy, recomputed, run_record, stored_masks, submission
from harness.validation.file_tree import FILES
from harness.validation.findings import Finding, finding
from harness.validation.submission import Submission

#: findings of one code and file that are listed
MOST_LISTED = 5

Check = Callable[[Submission], Iterable[Finding]]

#: all checks, in the order of their findings
CHECKS: tuple[Check, ...] = (
    submission.check_form,
    completeness.check_items,
    run_record.check_labels,
    run_record.check_contents,
    run_record.check_facts,
    completeness.check_lines,
    completeness.check_complete,
    completeness.check_requested,
    completeness.check_histograms,
    recomputed.check_lines,
    recomputed.check_readable,
    recomputed.check_scores,
    recomputed.check_summary,
    hashes.check_texts,
    hashes.check_data,
    hashes.check_name,
    hashes.check_code,
    hashes.check_commit,
    privacy.check_shareable,
    stored_masks.check_masks,
    stored_masks.check_all_there,
    privacy.check_texts,
)


class Checked(NamedTuple):
    """A run folder's findings, errors first; how many more there are by code and file; and what was not checked."""

    path: Path
    name: str
    findings: list[Finding]
    more: dict[tuple[str, str], int]
    notes: list[str]

    @property
    def fine(self) -> bool:
        return not any(one.severity == "error" for one in self.findings)


def validate(path: Path) -> list[Checked]:
    """The run at ``path``, or every folder in it. A path that is not a folder: :class:`HarnessError`."""
    if not path.is_dir():
        raise HarnessError(f"{path} is not a folder; give a run folder or a folder of run folders")
    return [validate_run(folder) for folder in _folders(path)]


def _folders(path: Path) -> list[Path]:
    """The runs in ``path``, and the folders in it that neither are runs nor hold any."""
    runs = run_folders(path)
    if runs == [path]:
        return runs
    holders = {run.parent for run in runs}
    return sorted({*runs, *subfolders(path)} - holders) or [path]


def validate_run(path: Path) -> Checked:
    """All checks of one folder. Each runs whatever the others find; one that fails itself is a finding."""
    name = quoted_name(path.resolve().name)
    if path.is_symlink():
        return Checked(path, name, [finding("link", "", None, "is a link")], {}, [])
    try:
        run = Submission(path)
    except OSError as error:
        return Checked(path, name, [finding("unreadable", "", None, f"cannot be read ({error.strerror})")], {}, [])
    if not run.present.intersection(FILES):
        return Checked(path, name, [finding("not-a-run", "", None, "has none of a run's files")], {}, [])
    found = [one for check in CHECKS for one in _guarded(check, run)]
    counts: Counter[tuple[str, str]] = Counter()
    kept = []
    for one in found:
        counts[one.code, one.file] += 1
        if counts[one.code, one.file] <= MOST_LISTED:
            kept.append(one)
    kept.sort(key=lambda one: one.severity)  # the sort is stable
    more = {key: count - MOST_LISTED for key, count in counts.items() if count > MOST_LISTED}
    return Checked(path, name, kept, more, list(dict.fromkeys(run.notes)))


def _guarded(check: Check, run: Submission) -> Iterator[Finding]:
    try:
        yield from check(run)
    except Exception as error:  # whatever a stranger's file leads to is ours to mend
        name = f"{check.__module__.rpartition('.')[2]}.{check.__name__}"
        yield finding("check-failed", "", None, f"{name} failed ({type(error).__name__}: {printable(error, 200)})")


def report(checked: Sequence[Checked]) -> Iterator[str]:
    """The command's output, line by line. Folders of the same name are given by their paths."""
    names = Counter(one.name for one in checked)
    for one in checked:
        name = one.name if names[one.name] == 1 else printable(one.path)
        errors = sum(found.severity == "error" for found in one.findings)
        hidden = sum(one.more.values())
        counts = f"{errors} to fix, {len(one.findings) - errors} to look at" if one.findings else "fine"
        yield f"{name}: {counts}" + (f", and {hidden:,} more" if hidden else "")
        yield from (f"  {found}" for found in one.findings)
        for (code, file), count in one.more.items():
            yield f"  and {count:,} more of [{code}] in {quoted_name(file) or 'the folder'}"
        yield from (f"  note: {note}" for note in one.notes)
