"""The live view of the demo: what is pushed, what is processed, and what happened when."""

from __future__ import annotations

import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples.forge.scene.standing import Standing


class Screen:
    """Two bars and, above them, a line for everything worth knowing; only the lines where nobody looks on."""

    def __init__(self, console: Console, pushes: int) -> None:
        columns = (
            TextColumn("{task.description:<42}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._bars = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._total = pushes
        self._pushed = self._bars.add_task("pushes", total=pushes)
        self._processed = self._bars.add_task("push events processed", total=1)
        self._console = console
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def tell(self, line: str) -> None:
        """Print a line above the bars."""
        self._console.print(
            f"{time.monotonic() - self._began:5.1f} s  {line}", highlight=False, soft_wrap=True
        )

    def show(self, now: Standing, pushed: int) -> None:
        """Move the bars."""
        spooled = f", {now.spooled} on disk" if now.spooled else ""
        told = f"processed ({now.workers} workers, {now.live} jobs to do{spooled})"
        self._bars.update(self._pushed, completed=pushed, total=max(pushed, self._total))
        self._bars.update(
            self._processed, completed=now.processed, total=max(1, now.events), description=told
        )
