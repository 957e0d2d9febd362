"""Commands that read results. None loads a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.app import app
from harness.cli.flags import Json, flag


@app.command()
def score(
    benchmark: Annotated[str, typer.Option(help="longbench or longbench_e, whose metrics are used")],
    predictions: Annotated[Path, typer.Option(help="folder of SUBSET.jsonl: pred, answers, all_classes, length")],
    json: Json = None,
) -> None:
    """Score another program's predictions with a benchmark's own metrics. Loads no model."""
    from harness import files
    from harness.measure import score_predictions

    files.check_file(json)
    result = score_predictions.score(benchmark, predictions)
    score_predictions.print_scores(result)
    if json:
        files.write(result.model_dump(), json)


@app.command()
def report(
    results: Annotated[list[Path], typer.Argument(help="run folders, or folders of run folders")],
    form: Annotated[str, typer.Option("--format", help="table, markdown, csv or html")] = "table",
    out: Annotated[Path | None, flag("write to this file instead of printing")] = None,
) -> None:
    """Print results: scores with intervals, paired differences from the control, ranks, areas, alarms. Comparable runs
    share a table."""
    from harness.reporting import render

    render.report(results, form, out)


@app.command()
def compare(
    what: Annotated[list[str], typer.Argument(help="RUN | RUN_A RUN_B | RUN VARIANT_A VARIANT_B | RUN A RUN_B B")],
    samples: Annotated[int, typer.Option(min=0, help="how many differing samples to list at most")] = 20,
) -> None:
    """Print paired differences and the samples on which two variants or two runs differ. Give a variant by its name in
    the tables, in quotes. Two runs are compared on every variant they share; a single run gives all its pairs."""
    from harness.reporting import compare as comparing
    from harness.reporting import render

    render.show(comparing.compared(what, samples))


@app.command()
def rescore(
    results: Annotated[list[Path], typer.Argument(help="run folders, or folders of run folders")],
    data: Annotated[Path | None, flag("the benchmark's data, for runs without their texts")] = None,
    check: Annotated[bool, typer.Option("--check", help="write nothing; exit with code 1 if a score changes")] = False,
) -> None:
    """Recompute the scores of stored predictions and rebuild the summaries. Loads no model."""
    from harness.analysis import rescore as rescoring

    outcomes, notes = rescoring.rescore(results, data, check)
    for text in (*rescoring.told(outcomes, check), *(f"note: {note}" for note in notes)):
        print(text)
    raise typer.Exit(int(check and any(outcome.changed for outcome in outcomes)))


@app.command()
def leaderboard(
    results: Annotated[list[Path] | None, typer.Argument(help="run folders, or folders of run folders")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="default: 8501 or the next free one")] = None,
    address: Annotated[str, typer.Option(help="address to listen on; 0.0.0.0 accepts other machines")] = "localhost",
    browser: Annotated[bool, typer.Option(help="open a browser")] = True,
) -> None:
    """Show results in a browser: curves, tables, samples, published figures. Only reads files."""
    from harness.cli import serve_leaderboard

    raise typer.Exit(serve_leaderboard.serve(results or [Path("results")], port, address, browser))


@app.command()
def validate(
    results: Annotated[list[Path], typer.Argument(help="run folders, or folders of run folders")],
) -> None:
    """Check run folders before they are submitted: files, fields, recomputed figures, nothing private. Loads no model.
    Exit code 1 if anything must be fixed."""
    from harness.validation import validator

    checked = [one for path in results for one in validator.validate(path)]
    for text in validator.report(checked):
        print(text)
    raise typer.Exit(int(not all(one.fine for one in checked)))
