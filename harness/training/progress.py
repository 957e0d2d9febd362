"""Progress of a training: a bar on a terminal, a line every minute in a log."""

from __future__ import annotations

import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

#: seconds between two lines of a log
EVERY = 60.0


class Progress:
    """Counts of things done, on a console."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False)

    def over(self, what: str, done: int, total: int) -> Iterator[int]:
        """The numbers from ``done`` to ``total``, shown as they are consumed."""
        numbers = iter(range(done, total))
        return self._bar(what, done, total, numbers) if self.console.is_terminal else self._lines(what, total, numbers)

    def _bar(self, what: str, done: int, total: int, numbers: Iterator[int]) -> Iterator[int]:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Bar(*columns, console=self.console) as bar:
            task = bar.add_task(what, total=total, completed=done)
            for number in numbers:
                yield number
                bar.advance(task)

    def _lines(self, what: str, total: int, numbers: Iterator[int]) -> Iterator[int]:
        begun = last = time.monotonic()
        for count, number in enumerate(numbers, 1):
            yield number
            now = time.monotonic()
            if now - last >= EVERY or number + 1 == total:
                each = (now - begun) / count
                left = each * (total - number - 1) / 60
                self.say(f"{what}: {number + 1} of {total}, {each:.2f} s each, {left:.0f} min left")
                last = now
