"""Filling a prompt up to a length: a search for the largest number of units whose prompt still fits."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.base import BenchmarkError

#: steps of linear interpolation before bisection takes over: costs are nearly linear, so few are needed
_GUESSES = 8


def largest_fit(cost: Callable[[int], int], room: int, guess: int, least: int, what: str) -> int:
    """The number of units ``n >= least`` with ``cost(n) <= room < cost(n + 1)``.

    cost    tokens of the whole prompt with n units, measured on its final text; grows with n
    room    tokens that the prompt may take
    guess   where to start; affects only the time
    least   the fewest units that make a sample
    what    the sample in words, for the error

    Every step moves one end of the bracket, so the search ends. Raises :class:`BenchmarkError` if ``least`` units do
    not fit, or if more units stop adding tokens.
    """
    low, low_cost = least, cost(least)
    if low_cost > room:
        raise BenchmarkError(
            f"{what}: its shortest prompt takes {low_cost} tokens, the length leaves {room}; use a longer --length"
        )
    high, high_cost = None, 0
    n, steps = max(guess, least + 1), 0
    while high is None or high - low > 1:
        n_cost, steps = cost(n), steps + 1
        slope = (n_cost - low_cost) / (n - low)
        if n_cost > room:
            high, high_cost = n, n_cost
        else:
            low, low_cost = n, n_cost
            if n > 2 * room:
                raise BenchmarkError(f"{what}: {n} units take only {n_cost} tokens, so the prompt cannot be filled")
        if high is None:
            # beyond the expected end by a tenth each time, so that a flat cost cannot stall the search
            n = low + max(low // 10, int((room - low_cost) / slope) if slope > 0 else low) + 1
        elif steps > _GUESSES:
            n = (low + high) // 2
        else:
            ahead = int((room - low_cost) / ((high_cost - low_cost) / (high - low)))
            n = min(max(low + ahead, low + 1), high - 1)
    return low
