"""Overview: score against what was removed, one chart a board, and under it the ranked table."""

from __future__ import annotations

from leaderboard.boards import page

page()
