"""``compare``: two variants of a run, two runs, or all pairs of one run; and the samples on which they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from benchmarks.base import nearest_first
from harness.analysis.grouping import Place, by_place, grouped
from harness.analysis.paired_tests import compare, contexts_of, scores_of
from harness.analysis.run_reader import Reading, read
from harness.errors import HarnessError
from harness.reporting.report_tables import pair_table, pair_tables
from harness.reporting.table import Sheet, Table
from harness.results.method_sources import as_hashed_now
from harness.results.schema import Line

#: what of a prediction is shown
SHOWN = 60
#: parts of ``run.json`` that can make two runs differ
SETTINGS = ("model", "model_files", "device", "dtype", "seed", "limits", "rollouts", "max_new_tokens")
RECORDED = ("hardware", "attention_kernel", "commit", "dirty", "versions", "benchmark_versions", "method_hashes")
USAGE = "give RUN, RUN_A RUN_B, RUN 'VARIANT_A' 'VARIANT_B', or RUN_A 'VARIANT_A' RUN_B 'VARIANT_B'"


class Side(NamedTuple):
    """What stands on one side of a difference: a run, and of it one variant or (None) each."""

    run: Reading
    variant: str | None


def compared(what: Sequence[str], samples: int = 20) -> list[Sheet]:
    """The sheets of ``compare``; ``samples`` is the most differing ones that are listed, by benchmark and length."""
    if len(what) == 1:
        return _all_of(read(Path(what[0])))
    if len(what) == 2:
        if not Path(what[1]).is_dir():
            raise HarnessError(f"{what[1]!r} is not a run folder; {USAGE}")
        a, b = (Side(read(Path(path)), None) for path in what)
    elif len(what) in (3, 4):
        first = read(Path(what[0]))
        second = first if len(what) == 3 else read(Path(what[2]))
        a, b = _side(first, what[1]), _side(second, what[-1])
    else:
        raise HarnessError(f"compare takes one to four arguments, got {len(what)}; {USAGE}")
    return _sheets(a, b, samples)


def _all_of(run: Reading) -> list[Sheet]:
    pairs = run.summary.pairs
    if not pairs:
        raise HarnessError(f"{run.name} has no two variants with answers to compare")
    sheets = []
    for place, own in by_place(pairs).items():
        sheets.append(Sheet(f"{run.name}: {_place(*place)}", [], pair_tables(own), [], []))
    return sheets


def _side(run: Reading, variant: str) -> Side:
    labels = list(dict.fromkeys(line.variant for line in run.lines))
    if variant not in labels:
        near = ", ".join(repr(label) for label in nearest_first(variant, labels))
        raise HarnessError(f"{run.name} has no variant {variant!r}; it has, nearest first: {near}")
    return Side(run, variant)


#: of each benchmark and length the lines of each variant
Grouped = dict[Place, dict[str, list[Line]]]


def _sheets(a: Side, b: Side, samples: int) -> list[Sheet]:
    ours, theirs = _grouped(a), _grouped(b)
    shared = {place: names for place in ours if place in theirs and (names := _names(a, b, ours[place], theirs[place]))}
    if not shared:
        told = "; ".join(f"{side.run.name}: {_held(some)}" for side, some in ((a, ours), (b, theirs)))
        raise HarnessError(f"nothing to compare: no benchmark and length with a variant in common ({told})")
    heads = [f"a: {_called(a)}", f"b: {_called(b)}", *_other_settings(a.run, b.run)]
    return [_sheet(place, names, ours[place], theirs[place], a, b, heads, samples) for place, names in shared.items()]


def _grouped(side: Side) -> Grouped:
    lines = (line for line in side.run.lines if side.variant in (None, line.variant))
    return {place: own.variants for place, own in grouped(lines).items()}


def _names(a: Side, b: Side, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[tuple[str, str]]:
    if a.variant is not None and b.variant is not None:
        return [(a.variant, b.variant)]
    return [(variant, variant) for variant in ours if variant in theirs]


def _held(some: Grouped) -> str:
    return ", ".join(f"{_place(*place)} with {', '.join(variants)}" for place, variants in some.items()) or "no answers"


def _place(benchmark: str, length: int | None) -> str:
    return benchmark + (f" at {length:,} tokens" if length else "")


def _called(side: Side) -> str:
    return side.run.name + (f", {side.variant}" if side.variant else "")


def _other_settings(a: Reading, b: Reading) -> list[str]:
    """What the two runs did not have in common, so that a difference is not taken for a method's."""
    if a.folder.path.resolve() == b.folder.path.resolve():
        return []
    pairs = [(name, getattr(a.configuration, name), getattr(b.configuration, name)) for name in SETTINGS]
    for name in RECORDED:
        one, other = getattr(a.run, name), getattr(b.run, name)
        if name == "method_hashes":
            one, other = _as_hashed_now(one), _as_hashed_now(other)
        if isinstance(one, dict) and isinstance(other, dict):  # what only one of them has is no difference
            pairs += [(f"{name} {key}", one[key], other[key]) for key in one if key in other]
        else:
            pairs.append((name, one, other))
    return [f"{name}: a {one}, b {other}" for name, one, other in pairs if one != other]


def _as_hashed_now(hashes: Any) -> Any:
    return {name: as_hashed_now(name, one) for name, one in hashes.items()} if isinstance(hashes, dict) else hashes


def _sheet(
    place: tuple[str, int | None],
    names: Sequence[tuple[str, str]],
    ours: Mapping[str, list[Line]],
    theirs: Mapping[str, list[Line]],
    a: Side,
    b: Side,
    heads: list[str],
    samples: int,
) -> Sheet:
    changed = {
        sample for sample, row in a.run.items.items() if row.prompt_hash != _hash_of(b.run, sample, row.prompt_hash)
    }
    kept = [
        (
            [ln for ln in ours[one] if ln.sample_id not in changed],
            [ln for ln in theirs[two] if ln.sample_id not in changed],
        )
        for one, two in names
    ]
    contexts = contexts_of(line for both in kept for side in both for line in side)
    rows = compare([(scores_of(one), scores_of(two)) for one, two in kept], a.run.seed, contexts=contexts)
    pairs = [(one, two, row) for (one, two), row in zip(names, rows, strict=True)]
    notes = []
    if changed:
        notes.append(f"{len(changed)} samples have the same name but another prompt in b, and are left out")
    tables = [pair_table("Paired differences", pairs)]
    if len(names) == 1:
        tables.append(_by_subset(*kept[0]))
    differing, same_score = [], 0
    for (one, two), (first, second) in zip(names, kept, strict=True):
        found, others = _differing(one if one == two else f"{one} | {two}", first, second, a.run)
        differing += found
        same_score += others
    title = f"Samples with different scores: {len(differing)}"
    if len(differing) > samples:
        title += f", the first {samples}"
    if differing:
        header = ["sample", "variant", "a", "b", "references", "answer a", "answer b"]
        named = range(7) if len(names) > 1 else (0, *range(2, 7))  # one pair needs no name a row
        shown = [[row[index] for index in named] for row in [header, *differing[:samples]]]
        left = [place for place, index in enumerate(named) if index not in (2, 3)]
        tables.append(Table(title, shown[0], shown[1:], tuple(left)))
    else:
        notes.append("no sample has different scores")
    if same_score:
        notes.append(f"{same_score} more answers differ in their text alone")
    return Sheet(_place(*place), heads, tables, [], notes)


def _hash_of(run: Reading, sample: str, default: str) -> str:
    """A sample's prompt hash in a run; ``default`` where the run does not tell."""
    return str(run.items[sample].prompt_hash) if sample in run.items else default


def _by_subset(ours: Sequence[Line], theirs: Sequence[Line]) -> Table:
    one, two = scores_of(ours), scores_of(theirs)
    both = [sample for sample in one if sample in two]
    rows = []
    for subset in dict.fromkeys(one[sample].subset for sample in both):
        own = [sample for sample in both if one[sample].subset == subset]
        first, second = fmean(one[s].score for s in own), fmean(two[s].score for s in own)
        rows.append([subset, f"{first:.1f}", f"{second:.1f}", f"{first - second:+.1f}", str(len(own))])
    return Table("By subset", ["subset", "a", "b", "a - b", "n"], rows)


def _differing(name: str, ours: Sequence[Line], theirs: Sequence[Line], run: Reading) -> tuple[list[list[str]], int]:
    """Rows of the samples whose scores differ, and how many other answers have another text. Of several rollouts the
    first that differs is shown."""
    one, two = scores_of(ours), scores_of(theirs)
    first = {(line.sample_id, line.rollout): line for line in ours}
    second = {(line.sample_id, line.rollout): line for line in theirs}
    rows, texts = [], 0
    for sample in (sample for sample in one if sample in two):
        both = [key for key in first if key[0] == sample and key in second]
        if one[sample].score == two[sample].score:
            texts += sum(first[key].prediction != second[key].prediction for key in both)
            continue
        key = next((key for key in both if first[key].score != second[key].score), None)
        answers = [_short(first[key].prediction), _short(second[key].prediction)] if key else ["", ""]
        references = ", ".join(run.items[sample].references if sample in run.items else [])
        scores = [f"{one[sample].score:g}", f"{two[sample].score:g}"]
        rows.append([sample, name, *scores, _short(references), *answers])
    return rows, texts


def _short(text: str | None) -> str:
    flat = " ".join((text or "").split())
    return flat if len(flat) <= SHOWN else flat[: SHOWN - 3] + "..."
