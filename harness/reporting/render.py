"""``report``: boards in one of its formats, printed or written. Sheets become a terminal's tables, Markdown or one HTML
page; CSV has one row per cell with all its fields."""

from __future__ import annotations

import csv
import html
import io
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table as RichTable

from benchmarks.base import nearest_first
from harness.analysis.boards import Board, boards
from harness.analysis.ranking import is_partial
from harness.analysis.run_reader import Reading, find
from harness.errors import HarnessError
from harness.files import write_atomically
from harness.reporting.console import console
from harness.reporting.report_tables import sheet
from harness.reporting.table import Sheet, Table
from harness.results.schema import Pair, Rank

FORMATS = ("table", "markdown", "csv", "html")
#: a file or a pipe has no width of its own; a table gets what it needs
ENDLESS = 2_000


def report(results: Sequence[Path], form: str, out: Path | None) -> None:
    """Print or write the report of the runs and all runs in the folders ``results``."""
    if form not in FORMATS:
        known = ", ".join(nearest_first(form, FORMATS))
        raise HarnessError(f"unknown --format {form!r}; known, nearest first: {known}")
    found = find(*results)
    text = render(boards(found.runs), found.notes, form, None if out else _width())
    if out is None:
        sys.stdout.write(text)
    else:
        try:
            write_atomically(out, text)
        except OSError as error:
            raise HarnessError(f"--out {out} cannot be written to: {error}") from error
    if form == "csv":  # there is no room for them in the rows
        for note in found.notes:
            print(f"note: {note}", file=sys.stderr)


def show(sheets: Sequence[Sheet]) -> None:
    """Print sheets as tables."""
    sys.stdout.write(to_text(sheets, [], _width()))


def _width() -> int | None:
    return console().width if sys.stdout.isatty() else None


def render(found: Sequence[Board], notes: Sequence[str], form: str, width: int | None = None) -> str:
    """All boards in one of :data:`FORMATS`. ``width`` is the terminal's; None: as wide as needed."""
    if form == "csv":
        return to_csv(found)
    sheets = [sheet(board, every_pair=form == "html") for board in found]
    if form == "table":
        return to_text(sheets, notes, width)
    makers: dict[str, Callable[..., str]] = {"markdown": to_markdown, "html": to_html}
    return makers[form](sheets, notes)


def to_text(sheets: Iterable[Sheet], notes: Sequence[str], width: int | None = None) -> str:
    """Tables for a terminal or a pipe."""
    out = io.StringIO()
    paper = Console(file=out, width=ENDLESS, color_system=None)
    for page in sheets:
        paper.print(page.title, *page.lines, sep="\n", markup=False, highlight=False, soft_wrap=True)
        for table in page.tables:
            paper.print(_rich(table, width or ENDLESS))
            if table.captions:
                paper.print(" ".join(table.captions), markup=False, highlight=False, soft_wrap=True)
        for kind, texts in (("alarm", page.alarms), ("note", page.notes)):
            for text in texts:
                paper.print(f"{kind}: {text}", markup=False, highlight=False, soft_wrap=True)
        paper.print()
    for text in notes:
        paper.print(f"note: {text}", markup=False, highlight=False, soft_wrap=True)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()).rstrip("\n") + "\n"


def _rich(table: Table, width: int) -> RichTable:
    """A table that is no wider than need be: texts wrap between words, and nothing else is broken, so that it is wider
    than the terminal where that has no room for its names and figures."""
    made = RichTable(title=escape(table.title) or None, title_justify="left")
    for index, name in enumerate(table.header):
        cells = [row[index] for row in table.rows]
        wraps = index in table.left[1:]
        parts = [*name.split(), *(word for cell in cells for word in (cell.split() if wraps else [cell]))]
        least = max(map(cell_len, parts), default=0)
        made.add_column(escape(name), justify="left" if index in table.left else "right", min_width=least)
    for index, row in enumerate(table.rows):
        made.add_row(*map(escape, row), end_section=index + 1 in table.breaks)
    wide = Console(width=ENDLESS)
    if Measurement.get(wide, wide.options, made).maximum > width:
        made.width = width
    return made


def to_markdown(sheets: Iterable[Sheet], notes: Sequence[str]) -> str:
    """Sections with tables, as a README takes them."""
    parts: list[str] = []
    for page in sheets:
        parts += [f"## {_md(page.title)}", "  \n".join(map(_md, page.lines))]
        for table in page.tables:
            if table.title:
                parts.append(f"### {_md(table.title)}")
            parts += [_md_table(table), *map(_md, table.captions)]
        told = [f"- **alarm:** {_md(text)}" for text in page.alarms] + [f"- note: {_md(text)}" for text in page.notes]
        if told:
            parts.append("\n".join(told))
    if notes:
        parts.append("\n".join(f"- note: {_md(text)}" for text in notes))
    return "\n\n".join(parts) + "\n"


def _md_table(table: Table) -> str:
    rule = [":--" if index in table.left else "--:" for index in range(len(table.header))]
    rows = [list(map(_md, table.header)), rule, *(list(map(_md, row)) for row in table.rows)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _md(text: str) -> str:
    for mark in "\\|*_<`":
        text = text.replace(mark, "\\" + mark)
    return text.replace("\n", " ")


STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem; color: #1a1a1a; background: #fff }
table { border-collapse: collapse; margin: .8rem 0; font-variant-numeric: tabular-nums }
th, td { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap }
th { border-bottom: 2px solid #555 } .l { text-align: left } tr.b td { border-top: 2px solid #999 }
tr.floor td { color: #888 } .alarm { color: #a00000 } .box { overflow-x: auto } p { margin: .3rem 0 }
"""


def to_html(sheets: Iterable[Sheet], notes: Sequence[str]) -> str:
    """One page that needs nothing else. Paired tables are folded away."""
    body: list[str] = []
    for page in sheets:
        body.append(f"<h2>{html.escape(page.title)}</h2>")
        body += [f"<p>{html.escape(line)}</p>" for line in page.lines]
        body += [f'<p class="alarm">Alarm: {html.escape(text)}</p>' for text in page.alarms]
        body += [f"<p>Note: {html.escape(text)}</p>" for text in page.notes]
        for table in page.tables:
            body.append(_html_table(table))
    body += [f"<p>Note: {html.escape(text)}</p>" for text in notes]
    head = f'<meta charset="utf-8">\n<title>kvprune results</title>\n<style>{STYLE}</style>'
    text = "\n".join(body)
    made = f"<head>\n{head}\n</head>\n<body>\n<h1>Results</h1>\n{text}\n</body>"
    return f'<!doctype html>\n<html lang="en">\n{made}\n</html>\n'


def _html_table(table: Table) -> str:
    def cells(tag: str, row: Sequence[str]) -> str:
        marked = (f'<{tag} class="l">' if index in table.left else f"<{tag}>" for index in range(len(row)))
        return "".join(f"{start}{html.escape(text)}</{tag}>" for start, text in zip(marked, row, strict=True))

    rows = []
    for index, row in enumerate(table.rows):
        kinds = [name for name, holds in (("b", index in table.breaks), ("floor", "floor" in row[-1])) if holds]
        mark = f' class="{" ".join(kinds)}"' if kinds else ""
        rows.append(f"<tr{mark}>{cells('td', row)}</tr>")
    captions = "".join(f"<p>{html.escape(text)}</p>" for text in table.captions)
    head = f"<thead><tr>{cells('th', table.header)}</tr></thead>"
    made = f'<div class="box"><table>{head}\n<tbody>\n{chr(10).join(rows)}\n</tbody></table></div>{captions}'
    if not table.title:
        return made
    title = html.escape(table.title)
    if table.title.startswith("Paired"):
        return f"<details><summary>{title}</summary>{made}</details>"
    return f"<h3>{title}</h3>{made}"


def to_csv(boards: Iterable[Board]) -> str:
    """One row a cell, of all boards: the cell's fields, where it comes from, and for overall cells its paired
    difference from the control, its rank and the area of its curve. Objects are JSON; nothing is an empty field.

    ``score`` of a mean over fewer subsets than the benchmark has is empty: the figure is ``partial_mean``.
    """
    rows = [row for board in boards for row in cell_rows(board)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _csv_value(value) for name, value in row.items()} for row in rows)
    return out.getvalue()


#: where there is none, all columns are empty
NO_PAIR, NO_RANK = Pair.model_construct(), Rank.model_construct(rank=None, tie=False, unranked=None)


def cell_rows(board: Board) -> Iterable[dict[str, Any]]:
    """A row for each cell of a board: its fields, and what else :func:`to_csv` says of it."""
    control = {pair.a: pair for pair in board.pairs if pair.against == "control"}
    ranked = {row.variant: row for row in board.ranks}
    areas = {variant: curve.area for curve in board.curves for variant in curve.variants}
    runs: dict[str, Reading] = {}
    for run in reversed(board.runs):
        runs |= {cell.variant: run for cell in run.summary.cells}
    for cell in board.cells:
        run = runs.get(cell.variant, board.runs[0])
        overall = cell.subset is None
        pair = control.get(cell.variant, NO_PAIR) if overall else NO_PAIR
        rank = ranked.get(cell.variant, NO_RANK) if overall else NO_RANK
        partial = is_partial(cell)
        yield {
            "model": board.model,
            **cell.to_json(),
            "score": None if partial else cell.score,
            "partial_mean": cell.score if partial else None,
            "difference": pair.difference,
            "difference_low": pair.low,
            "difference_high": pair.high,
            "difference_p": pair.p,
            "difference_p_holm": pair.p_holm,
            "difference_test": pair.test,
            "tie_with_control": pair.tie,
            "metric_differences": _metric_differences(pair),
            "rank": rank.rank,
            "tie_with_best": rank.tie if rank.rank else None,
            "unranked": rank.unranked,
            "area": areas.get(cell.variant) if overall else None,
            "dtype": board.basis["dtype"],
            "device": board.basis["device"],
            "hardware": run.run.hardware,
            "attention_kernel": board.basis["attention kernel"],
            "seed": board.basis["seed"],
            "run": run.name,
            "commit": run.run.commit,
            "complete": run.summary.complete,
        }


def _metric_differences(pair: Pair) -> dict[str, Any] | None:
    """Those of a pair with the control; None where there is no such pair."""
    return None if pair is NO_PAIR else {name: one.to_json() for name, one in pair.metrics.items()}


def _csv_value(value: Any) -> Any:
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else value
