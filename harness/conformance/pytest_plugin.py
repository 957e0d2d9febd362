"""The checks as a pytest test, for the repository that a method lives in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness.conformance.checks import CHECKS, prepare
from harness.conformance.suite import FAILED, SKIPPED, Suite


def conformance_tests(
    name: str, plugin: str | Path | None = None, options: Sequence[str] = (), model: str = ""
) -> Callable[..., None]:
    """A test function with one case for each check of method ``name``; see
    :func:`harness.conformance.prepare` for the arguments. Bind it to a name that starts with ``test``::

        test_mine = conformance_tests("mine", plugin="mine.py")

    The cases share their models, and a case runs the checks that it needs, so any selection of them works.
    """
    import pytest

    suites: list[Suite] = []

    @pytest.mark.parametrize("check", [check.name for check in CHECKS])
    def test_conformance(check: str) -> None:
        if not suites:
            suites.append(prepare(name, plugin, options, model))
        found = suites[0].outcome(check)
        if found.status == SKIPPED:
            pytest.skip(found.reason)
        if found.status == FAILED:
            pytest.fail(f"{name}: {found.check.asks}\n{found.reason}", pytrace=False)

    test: Any = test_conformance
    test.__doc__ = f"The conformance checks of {name}."
    return test
