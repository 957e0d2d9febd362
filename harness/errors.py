"""Mistakes of a user. The command line prints them without a traceback and exits with 2."""

from __future__ import annotations


class HarnessError(ValueError):
    """A user's mistake: says the value given, the values allowed, and what to do next."""

    users_mistake = True


def is_users_mistake(error: BaseException) -> bool:
    """Whether an error is one that the user can mend. The classes say so themselves, since methods and benchmarks have
    error classes of their own and import nothing of the harness."""
    return bool(getattr(error, "users_mistake", False))
