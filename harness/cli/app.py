"""The application that the modules of commands add to."""

from __future__ import annotations

import typer

app = typer.Typer(
    help="Compare KV-cache pruning methods: score once, mask many.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
profile = typer.Typer(help="Measure how long things take on this machine.", no_args_is_help=True)
app.add_typer(profile, name="profile")
