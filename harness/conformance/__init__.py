"""Checks that every method passes, built-in or not.

From a shell, ``kvprune check-method NAME --plugin FILE.py``. From pytest, in any repository::

    from harness.conformance import conformance_tests

    test_mine = conformance_tests("mine", plugin="mine.py")

From Python, :func:`check_method`. All three run the same list, :data:`CHECKS`, on small models with random weights:
no download, a few seconds. What each check asks is in its ``asks``.
"""

from __future__ import annotations

from harness.conformance.checks import CHECKS, check_method, prepare
from harness.conformance.pytest_plugin import conformance_tests
from harness.conformance.report import print_outcomes
from harness.conformance.suite import FAILED, PASSED, SKIPPED, Check, Outcome, Suite

__all__ = [
    "CHECKS",
    "FAILED",
    "PASSED",
    "SKIPPED",
    "Check",
    "Outcome",
    "Suite",
    "check_method",
    "conformance_tests",
    "prepare",
    "print_outcomes",
]
