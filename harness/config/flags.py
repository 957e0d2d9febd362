"""Values of flags: their types, what each of them may be, and the one message that a mistake gets.

A command's flags are the fields of a :class:`Flags`: the command line, a YAML file and Python all fill that. Each
type takes a value as any of them gives it (``"1,2"``, ``["1", "2"]``, ``1``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from benchmarks.registry import nearest_first
from harness.errors import HarnessError

#: no count is larger; up to here floats are exact
MOST = 10**12


class Flags(BaseModel):
    """The flags of a command; None means not given. A bad value or an unknown name: :class:`HarnessError`."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    def __init__(self, **given: Any) -> None:
        for name in given:
            if name not in type(self).model_fields:
                near = ", ".join(nearest_first(name, type(self).model_fields))
                raise HarnessError(f"unknown key {name!r}; known, nearest first: {near}")
        try:
            super().__init__(**{name: value for name, value in given.items() if value is not None})
        except ValidationError as error:
            raise HarnessError(_message(error)) from None


def _message(error: ValidationError) -> str:
    """The first fault, in terms of the flag."""
    first = error.errors()[0]
    text = first["msg"].removeprefix("Value error, ")
    return f"{flag_name(str(first['loc'][0]))} {text}" if first["loc"] else text


def flag_name(field: str) -> str:
    """The flag of a field, such as ``--keep-tokens``."""
    return f"--{field.replace('_', '-')}"


def parts(value: Any) -> list[Any]:
    """The parts of a list given as ``a,b``, as repeated flags, or as a list."""
    items = value if isinstance(value, list | tuple) else [value]
    found = [part.strip() for item in items for part in str(item).split(",")]
    return [part for part in found if part]


def _unique_parts(value: Any) -> list[Any]:
    found = parts(value)
    if not found:
        raise ValueError("was given without a value")
    return list(dict.fromkeys(found))


def _unique(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(values))  # 0.5 and 0.50


def count(least: int) -> Callable[[Any], int]:
    """Whole numbers from ``least`` to :data:`MOST`."""

    def convert(value: Any) -> int:
        try:
            number = int(str(value))
        except ValueError:
            number = least - 1
        if not least <= number <= MOST:
            raise ValueError(f"must be a whole number from {least} to {MOST}, got {value!r}")
        return number

    return convert


def one_of(*words: str) -> Callable[[Any], str]:
    """One of a few words. YAML reads a bare on or off as a truth value."""

    *others, last = filter(None, words)
    allowed = f"{', '.join(others)} or {last}" if others else last

    def convert(value: Any) -> str:
        word = {True: "on", False: "off"}[value] if isinstance(value, bool) else value
        if word not in words:
            raise ValueError(f"must be {allowed}, got {value!r}")
        return str(word)

    return convert


def _fraction(value: Any) -> Decimal:
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        number = Decimal("nan")
    if not (number.is_finite() and number >= 0 and float(number) < 1):
        raise ValueError(f"must be a number, at least 0 and less than 1, got {str(value)!r}")
    return abs(number)  # no -0


def _number(value: Any) -> float:
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if number != number:
        raise ValueError(f"must be a number such as -4 or -5.5, got {value!r}")
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str | Path) or not str(value).strip() or "\0" in str(value):
        raise ValueError(f"takes one text, got {value!r}")
    return str(value)


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, got {value!r}")
    return value


def _options(value: Any) -> tuple[str, ...]:
    """Several are separated by commas or repeated; a comma inside a value is left alone."""
    items = value if isinstance(value, list | tuple) else [value]
    return tuple(part for item in items for part in re.split(r",\s*(?=\w+\.\w+=)", str(item)))


def _path(value: Any) -> Path:
    return Path(_text(value))


def help_text(text: str) -> Any:
    """What ``--help`` says of a flag."""
    return Field(description=text)


#: around the type of one value: several of them, each once
several = (BeforeValidator(_unique_parts), AfterValidator(_unique))
Positive = Annotated[int, BeforeValidator(count(1))]
NotNegative = Annotated[int, BeforeValidator(count(0))]
Fraction = Annotated[Decimal, BeforeValidator(_fraction)]
Number = Annotated[float, BeforeValidator(_number)]
Text = Annotated[str, BeforeValidator(_text)]
Switch = Annotated[bool, BeforeValidator(_switch)]
FilePath = Annotated[Path, BeforeValidator(_path)]
Names = Annotated[tuple[str, ...], *several]
Positives = Annotated[tuple[Positive, ...], *several]
NotNegatives = Annotated[tuple[NotNegative, ...], *several]
Fractions = Annotated[tuple[Fraction, ...], *several]
Numbers = Annotated[tuple[Number, ...], *several]
FilePaths = Annotated[tuple[Path, ...], *several]

#: flags that several commands have
Methods = Annotated[Names, help_text("methods, or all")]
Options = Annotated[
    tuple[str, ...],
    BeforeValidator(_options),
    help_text("METHOD.NAME=VALUE; several values are several variants"),
]
Lengths = Annotated[Positives, help_text("context lengths in tokens (default: the benchmark's)")]
Subsets = Annotated[
    Names, help_text("subsets, groups of them, or what several names begin with (default: all that can be run)")
]
Model = Annotated[Text, help_text("embedded name, folder, or Hugging Face name")]
Device = Annotated[Text, help_text("auto, cpu, cuda, cuda:N")]
Dtype = Annotated[Text, help_text("auto, float32, bfloat16, float16, float64")]
Seed = Annotated[NotNegative, help_text("seed of samples and random scores")]
Plugins = Annotated[FilePaths, help_text("Python files that register methods")]
