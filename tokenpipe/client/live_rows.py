"""Drop the rows of requests that have ended, for a reader of columns.

After a processor's death the last rows may come again: from its next process, or as a final row of
the pipeline, whose offset is unknown. Streams drop them by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tokenpipe.wire import OutputFrame

PIPELINE = 0xFFFF  # the processor of a frame that the pipeline wrote


class LiveRows:
    """Knows which requests have not ended. Set `careful` once rows may come again."""

    def __init__(self) -> None:
        self._live: set[int] = set()
        self.careful = False

    def add(self, keys: Iterable[int]) -> None:
        """Note submitted requests."""
        self._live.update(keys)

    def take(self, frame: OutputFrame) -> OutputFrame | None:
        """Return the frame without rows of ended requests, None if no row is left."""
        ends = frame.has_ends
        if self.careful or frame.processor == PIPELINE:
            keep = np.fromiter((key in self._live for key in frame.keys.tolist()), np.bool_)
            if not keep.all():
                frame = frame.picked(keep)
        if ends:
            self._live.difference_update(frame.keys[frame.finish > 0].tolist())
        return frame if frame.rows else None
