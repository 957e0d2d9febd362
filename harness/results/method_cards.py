"""What methods declare, read without importing them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from harness.errors import HarnessError
from harness.results.method_sources import METHODS

FILE = METHODS / "cards.yaml"


class Option(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    default: bool | int | float | str
    about: str


class Card(BaseModel):
    """What is known of a method (:func:`methods.cards.card`).

    text               what its score is, in paragraphs
    attention_weights  phases in which its scores come from attention weights
    lengths            how long heads' caches are under its own budget
    aliases            names that may stand for it, each with what it stands for
    plugin             it is not built in; what is not known of it is empty
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    summary: str
    text: tuple[str, ...]
    paper: str
    control: bool
    phases: tuple[str, ...]
    needs: tuple[str, ...]
    extra_pass: bool
    attention_weights: tuple[str, ...]
    cost: str
    budget: str
    budgets: tuple[str, ...]
    refused: dict[str, str]
    lengths: str
    protection: str
    positions: str
    options: tuple[Option, ...]
    aliases: dict[str, str]
    plugin: bool = False

    @property
    def paper_url(self) -> str | None:
        """The address on arXiv where the paper is named by its number there."""
        number = re.match(r"arXiv (\d{4}\.\d{4,5})\b", self.paper)
        return f"https://arxiv.org/abs/{number[1]}" if number else None


@cache
def cards(path: Path = FILE) -> tuple[Card, ...]:
    """The built-in methods in the registry's order, without importing them: fast, and without torch."""
    try:
        return TypeAdapter(tuple[Card, ...]).validate_python(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, ValidationError, yaml.YAMLError) as error:
        told = str(error).splitlines()[0]
        raise HarnessError(f"{path.name} cannot be read ({told}); python scripts/method_cards.py writes it") from error
