"""What a check is, and how the checks of one method are run."""

from __future__ import annotations

import inspect
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from harness.conformance.fixtures import Bench

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
HERE = Path(__file__).parents[1]  # the harness
STANDARD = Path(sysconfig.get_paths()["stdlib"])


class Broken(AssertionError):
    """A method does not do what a check asks for; the text says what was expected, what came, and where."""


class Skip(Exception):
    """A check does not apply to a method; the text says why."""


def expect(holds: bool, text: str) -> None:
    """:class:`Broken` with ``text`` unless ``holds``."""
    if not holds:
        raise Broken(text)


@dataclass(frozen=True)
class Check:
    """One property that every method must have; made by :func:`check`.

    name     as reports and test ids show it
    asks     what is checked, in one line
    run      takes the bench; raises :class:`Broken`, :class:`Skip`, or whatever the method raises
    needs    checks without which this one says nothing; where one of them has failed, it is skipped
    control  whether it applies to the control, which is never scored
    """

    name: str
    asks: str
    run: Callable[[Bench], None]
    needs: tuple[str, ...] = ()
    control: bool = False


def check(asks: str, *needs: str, control: bool = False) -> Callable[[Callable[[Bench], None]], Check]:
    """Decorator that makes a function on a bench a :class:`Check` of its name."""
    return lambda run: Check(run.__name__, asks, run, needs, control)


class Outcome(NamedTuple):
    """What a check found: ``passed``, ``failed`` or ``skipped``, and why."""

    check: Check
    status: str
    reason: str = ""


@dataclass
class Suite:
    """Checks of one method; each runs once, and after those that it needs.

    Every check runs with the models of one bench, so a method that leaves something behind is seen by
    ``model_untouched`` whichever check it was that called it.
    """

    bench: Bench
    checks: Sequence[Check]
    _found: dict[str, Outcome] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """What is checked, and on which models."""
        bench = self.bench
        options = "".join(f", {name}={value}" for name, value in bench.given.items())
        info = bench.info
        return (
            f"{bench.name}{options} on random weights, {bench.shape}: "
            f"{info.layers} layers, {info.query_heads} query and {info.kv_heads} KV heads"
        )

    def outcome(self, name: str) -> Outcome:
        """The outcome of a check, made on the first call."""
        if name not in self._found:
            check = next(check for check in self.checks if check.name == name)
            self._found[name] = self._run(check)
        return self._found[name]

    def outcomes(self) -> Iterator[Outcome]:
        for check in self.checks:
            yield self.outcome(check.name)

    def _run(self, check: Check) -> Outcome:
        if self.bench.cls.is_control and not check.control:
            return Outcome(check, SKIPPED, "the control keeps every pair and is never scored")
        for needed in check.needs:
            found = self.outcome(needed)
            if found.status == FAILED or found.reason.startswith("needs "):
                return Outcome(check, SKIPPED, f"needs {needed} to pass")
        try:
            check.run(self.bench)
        except Skip as reason:
            return Outcome(check, SKIPPED, str(reason))
        except Broken as reason:
            return Outcome(check, FAILED, str(reason))
        except Exception as error:  # the method is foreign code
            return Outcome(check, FAILED, explain(error, self.bench.cls))
        return Outcome(check, PASSED)


def explain(error: BaseException, cls: type) -> str:
    """An exception as its author needs it: type, message, and the line of their file that it comes from."""
    text = f"{type(error).__name__}: {error}"
    frame = _own_frame(error, cls)
    if frame is None:
        return text
    where = f"{frame.filename}, line {frame.lineno}, in {frame.name}"
    return f"{text}\n  at {where}" + (f": {frame.line}" if frame.line else "")


def _own_frame(error: BaseException, cls: type) -> traceback.FrameSummary | None:
    """The innermost frame in a file that defines the method's class or one of its bases, else the innermost one that
    is neither the harness's nor an installed package's."""
    frames = traceback.extract_tb(error.__traceback__)
    own = {_file_of(base) for base in cls.__mro__ if base.__module__ != "methods.base"}
    outside = [f for f in frames if not _ours(Path(f.filename))]
    return next((f for f in reversed(frames) if f.filename in own), outside[-1] if outside else None)


def _ours(path: Path) -> bool:
    return path.is_relative_to(HERE) or "site-packages" in path.parts or path.is_relative_to(STANDARD)


def _file_of(cls: type) -> str | None:
    try:
        return inspect.getfile(cls)
    except (TypeError, OSError):  # a built-in class, or one made in no file
        return None
