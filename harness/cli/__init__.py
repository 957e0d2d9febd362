"""The command line. Heavy imports wait until a command runs, so that help and mistakes are quick."""

from __future__ import annotations

import sys

from harness.cli import evaluate, listing, measure, read
from harness.cli.app import app
from harness.errors import is_users_mistake

__all__ = ["app", "evaluate", "listing", "main", "measure", "read"]


def main() -> None:
    """Entry point: a user's mistake is one message on standard error and exit code 2, without a traceback."""
    try:
        app()
    except OSError as error:
        if error.filename is None:
            raise
        print(f"error: {error.filename}: {error.strerror}; give a path that can be read and written", file=sys.stderr)
        sys.exit(2)
    except Exception as error:
        if not is_users_mistake(error):
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
