"""Errors that a user can mend. The command line prints them without a traceback and exits with 2."""

from benchmarks.base import BenchmarkError
from harness.engine.adapter import EngineError
from harness.engine.cache import PositionsExceeded
from methods.base import MethodError


class HarnessError(ValueError):
    """A user's mistake: says the value given, the values allowed, and what to do next."""


USER_ERRORS = (HarnessError, MethodError, BenchmarkError, EngineError, PositionsExceeded)
