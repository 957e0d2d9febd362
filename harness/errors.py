"""Errors that a user can mend. The command line prints them without a traceback and exits with 2."""

from __future__ import annotations

import sys


class HarnessError(ValueError):
    """A user's mistake: says the value given, the values allowed, and what to do next."""


#: further errors of the kind, by the module that has each
_OTHERS = (
    ("methods.base", "MethodError"),
    ("benchmarks.base", "BenchmarkError"),
    ("harness.engine.adapter", "EngineError"),
    ("harness.engine.context", "PositionsExceeded"),
)


def user_errors() -> tuple[type[Exception], ...]:
    """All kinds of a user's mistakes that can have been raised so far. Of a module that nobody has imported, none can,
    so that commands without a model load no torch for the sake of a message."""
    return (HarnessError, *(getattr(sys.modules[module], name) for module, name in _OTHERS if module in sys.modules))
