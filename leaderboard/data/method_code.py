"""The methods' code behind a board: what they declare to cost, and whose code has changed since its run."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from harness.analysis.boards import Board
from harness.analysis.run_reader import Reading
from harness.results.method_cards import cards
from harness.results.method_sources import Unknown, as_hashed_now, current_hash
from leaderboard.escaping import brief

NOT_STATED = "not stated"
STALE = "stale: its code has changed since"


def costs(board: Board) -> dict[str, str]:
    """What each method costs, as its run wrote down, or as its class in this package says; :data:`NOT_STATED`
    where neither does."""
    found: dict[str, str] = {}
    for run in board.runs:
        for method, cost in run.run.method_costs.items():
            found.setdefault(method, brief(cost, 120))
    here = {card.name: card.cost for card in cards()}
    return {method: found.get(method) or here.get(method) or NOT_STATED for method in _methods(board)}


def stale(board: Board) -> dict[str, str]:
    """:data:`STALE` by method, for those of which a run's hash of the code is not that of this package's code."""
    changed = {method for run in board.runs for method in _methods(board) if _changed(run, method)}
    return dict.fromkeys(sorted(changed), STALE)


def _methods(board: Board) -> Iterable[str]:
    return dict.fromkeys(cell.method for cell in board.cells if cell.level_kind != "none")


def _changed(run: Reading, method: str) -> bool:
    then = run.run.method_hashes.get(method)
    options = frozenset(one.options for one in run.configuration.variants if one.method == method)
    now = _hash_now(method, run.configuration.model, options) if then else None
    return then is not None and now is not None and now != as_hashed_now(method, then)


@cache
def _hash_now(method: str, model: str, options: frozenset[str]) -> str | None:
    """The hash of a method's code in this package; None where it is not known, as for a plugin."""
    try:
        return current_hash(method, model, options)
    except (Unknown, OSError):
        return None
