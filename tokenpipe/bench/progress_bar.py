"""Draw the progress of a run in the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import rich.progress as rp
from rich.console import Console
from rich.table import Column
from rich.text import Text

from .progress import Progress


class _TokenRate(rp.ProgressColumn):
    """The number of tokens in the last second."""

    def render(self, task: rp.Task) -> Text:
        """Return the rate, or nothing if there is none yet."""
        return Text("" if task.speed is None else f"{task.speed:,.0f} tokens/s")


class ProgressBar:
    """The bar of one run."""

    def __init__(self, display: rp.Progress) -> None:
        self._display = display
        self._task = display.add_task("tokenpipe bench", total=None, requests="")

    def show(self, progress: Progress) -> None:
        """Draw how far the run is now."""
        self._display.update(
            self._task,
            completed=progress.tokens,
            total=progress.of_tokens,
            requests=f"{progress.requests:,}/{progress.of_requests:,} requests",
        )


@contextmanager
def progress_bar(console: Console) -> Iterator[ProgressBar]:
    """Show a bar until the block ends, and then remove it."""
    columns = (
        rp.BarColumn(bar_width=20),
        rp.TaskProgressColumn(),
        rp.TextColumn("{task.fields[requests]}"),
        _TokenRate(Column(no_wrap=True)),
        rp.TimeElapsedColumn(),
        rp.TimeRemainingColumn(),
        rp.TextColumn("left"),
    )
    with rp.Progress(*columns, console=console, transient=True) as display:
        yield ProgressBar(display)
