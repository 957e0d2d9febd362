"""Makes every board of the results folders ahead of the first reader: ``python -m leaderboard.prebuild FOLDER ...``

Several runs that share a board are tested against each other again, which takes seconds; a single run's figures are
read from its summary. What is made is kept by :mod:`leaderboard.data.disk_cache`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.errors import HarnessError
from leaderboard.data import disk_cache
from leaderboard.data.library import open_library


def warm(paths: Sequence[Path]) -> int:
    """The number of boards that could be made; largest first, since those take longest."""
    made = 0
    library = open_library(paths)
    for group in sorted(library.groups, key=lambda group: -len(group.entries)):
        try:
            library.board(group)
            made += 1
        except HarnessError:  # the page says so where the board is looked at
            continue
    return made


if __name__ == "__main__":
    if hasattr(os, "nice"):
        os.nice(10)  # whoever looks at a page comes first
    warm([Path(name) for name in sys.argv[1:]])
    disk_cache.trim()
