"""Errors about methods that a user can mend."""

from __future__ import annotations


class MethodError(ValueError):
    """A user's mistake about a method: says the value given, the values allowed, and what to do next."""

    users_mistake = True


class Unsupported(MethodError):
    """A combination that makes no sense for a method, and why; a run of several methods continues without it."""
