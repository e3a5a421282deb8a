"""Draw how far a run is: tokens, their rate, what is left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import rich.progress as rp
from rich.console import Console
from rich.table import Column
from rich.text import Text

from .progress import Progress


class _Speed(rp.ProgressColumn):
    """Tokens a second, of late."""

    def render(self, task: rp.Task) -> Text:
        """Return it, nothing before there is any."""
        return Text("" if task.speed is None else f"{task.speed:,.0f} tokens/s")


class ProgressBar:
    """A bar of one run."""

    def __init__(self, shown: rp.Progress) -> None:
        """Put a task into a progress display."""
        self._shown = shown
        self._task = shown.add_task("tokenpipe bench", total=None, requests="")

    def show(self, progress: Progress) -> None:
        """Draw what there is by now."""
        self._shown.update(
            self._task,
            completed=progress.tokens,
            total=progress.of_tokens,
            requests=f"{progress.requests:,}/{progress.of_requests:,} requests",
        )


@contextmanager
def progress_bar(console: Console) -> Iterator[ProgressBar]:
    """Show a bar, which is gone when the block ends."""
    columns = (
        rp.BarColumn(bar_width=20),
        rp.TaskProgressColumn(),
        rp.TextColumn("{task.fields[requests]}"),
        _Speed(Column(no_wrap=True)),
        rp.TimeElapsedColumn(),
        rp.TimeRemainingColumn(),
        rp.TextColumn("left"),
    )
    with rp.Progress(*columns, console=console, transient=True) as shown:
        yield ProgressBar(shown)
