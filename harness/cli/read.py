"""Commands that read results. None loads a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.app import app
from harness.cli.flags import Json, flag


@app.command()
def score(
    benchmark: Annotated[str, typer.Option(help="whose metrics: longbench or longbench_e")],
    predictions: Annotated[Path, typer.Option(help="folder of SUBSET.jsonl: pred, answers, all_classes, length")],
    json: Json = None,
) -> None:
    """Score the predictions of another program with a benchmark's own metrics. Needs no model."""
    from harness import files
    from harness.measure import score_predictions

    files.check_file(json)
    result = score_predictions.score(benchmark, predictions)
    score_predictions.print_scores(result)
    if json:
        files.write(result, json)


@app.command()
def report(
    results: Annotated[list[Path], typer.Argument(help="run folders, or folders of them")],
    form: Annotated[str, typer.Option("--format", help="table, markdown, csv or html")] = "table",
    out: Annotated[Path | None, flag("write it here instead of printing it")] = None,
) -> None:
    """Print results: scores with intervals, paired differences from the control, ranks, areas, alarms. Runs that may be
    compared share a table."""
    from harness.reporting import report as reporting

    reporting.report(results, form, out)


@app.command()
def compare(
    what: Annotated[list[str], typer.Argument(help="RUN | RUN_A RUN_B | RUN VARIANT_A VARIANT_B | RUN A RUN_B B")],
    samples: Annotated[int, typer.Option(min=0, help="most samples listed that differ")] = 20,
) -> None:
    """Paired differences, and the samples on which two variants or two runs differ. A variant is named as tables name
    it, in quotes; two runs are compared on each variant that both have; one run alone gives all its pairs."""
    from harness.reporting import compare as comparing
    from harness.reporting import report as reporting

    reporting.show(comparing.compared(what, samples))


@app.command()
def rescore(
    results: Annotated[list[Path], typer.Argument(help="run folders, or folders of them")],
    data: Annotated[Path | None, flag("the benchmark's rows, for runs that do not hold their texts")] = None,
    check: Annotated[bool, typer.Option("--check", help="write nothing; exit code 1 where a score changes")] = False,
) -> None:
    """Score stored predictions anew, without a model, and rebuild the summaries."""
    from harness.analysis import rescore as rescoring

    outcomes, notes = rescoring.rescore(results, data, check)
    for text in (*rescoring.told(outcomes, check), *(f"note: {note}" for note in notes)):
        print(text)
    raise typer.Exit(int(check and any(outcome.changed for outcome in outcomes)))


@app.command()
def leaderboard(
    results: Annotated[list[Path] | None, typer.Argument(help="run folders, or folders of them")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="default: 8501 or the next free one")] = None,
    address: Annotated[str, typer.Option(help="where to listen; 0.0.0.0 lets others in")] = "localhost",
    browser: Annotated[bool, typer.Option(help="open a browser")] = True,
) -> None:
    """Look at results in a browser: curves, tables, samples, published figures. Reads files only."""
    from harness.cli import serve_leaderboard

    raise typer.Exit(serve_leaderboard.serve(results or [Path("results")], port, address, browser))


@app.command()
def validate(
    results: Annotated[list[Path], typer.Argument(help="run folders, or folders of them")],
) -> None:
    """Check run folders that are to be submitted: files, fields, figures made anew, nothing private. No model is
    loaded. Exit code 1 where something is to be fixed."""
    from harness.validation import validator

    checked = [one for path in results for one in validator.validate(path)]
    for text in validator.report(checked):
        print(text)
    raise typer.Exit(int(not all(one.fine for one in checked)))
