"""Look inside: one sample, what one or two variants kept of its context, and what came of it."""

from __future__ import annotations

from leaderboard.looking import page

page()
