"""Commands whose flags are the fields of a configuration: type, range, default and help text are declared there."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_origin, get_type_hints

import typer
from pydantic.fields import FieldInfo

from harness.config.flags import flag_name

Texts = list[str] | None
#: what was given on the command line, by field of a configuration
Given = dict[str, Any]


def flag(text: str, *names: str) -> Any:
    """A flag whose help text says its default."""
    return typer.Option(*names, help=text, show_default=False)


Json = Annotated[Path | None, flag("write the figures to this file as JSON", "--json")]


def takes(fields: Mapping[str, FieldInfo]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command a flag for each field of a configuration. What was given reaches the command as its parameter
    ``given``, by field name; its other parameters are flags of its own."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        flags = [_parameter(name, field) for name, field in fields.items()]

        @functools.wraps(command)
        def call(**values: Any) -> None:
            given = {name: values.pop(name) for name in fields}
            command(given={name: value for name, value in given.items() if value not in (None, [])}, **values)

        signature = inspect.signature(command)
        own = [one.replace(kind=one.KEYWORD_ONLY) for name, one in signature.parameters.items() if name != "given"]
        call.__signature__ = signature.replace(parameters=[*flags, *own])  # type: ignore[attr-defined]
        hints = {**get_type_hints(command, include_extras=True), **{flag.name: flag.annotation for flag in flags}}
        call.__annotations__ = {name: hint for name, hint in hints.items() if name != "given"}
        return call

    return decorate


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    kind: Any = list[str] if _is_list(field) else bool if field.annotation is bool else str
    option = typer.Option(flag_name(name), help=f"{field.description}{_default(field)}", show_default=False)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def _is_list(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is tuple


def _default(field: FieldInfo) -> str:
    """What a help text says of the default, unless it describes one in words."""
    if field.is_required():
        return " (required)"
    if field.default in (None, (), "", False) or "(default" in str(field.description):
        return ""
    return f" (default: {','.join(map(str, field.default)) if _is_list(field) else field.default})"


def quiet() -> None:
    """No progress bars and chatter of libraries between the lines of ours."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
