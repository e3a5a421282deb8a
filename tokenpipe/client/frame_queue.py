"""Keep whole frames for a reader of columns."""

from __future__ import annotations

from collections import deque

from tokenpipe.errors import LaneError, TokenpipeError


class FrameQueue:
    """A sink that keeps frames in the order in which they came, and reads no row."""

    def __init__(self) -> None:
        self.frames: deque[bytes] = deque()
        self.error: TokenpipeError | None = None
        self.bad_frames = 0
        self.repeats = False  # whether rows may come again

    def feed(self, frame: bytes, now: float) -> None:
        """Keep a frame."""
        self.frames.append(frame)

    def gap(self, lane: str) -> None:
        """Let the reader raise an error after the frames that came before."""
        self.fail(LaneError(f"gap: output was lost on lane {lane}"))

    def source_lost(self, now: float) -> None:
        """Note that the next process of a processor may send the last rows again."""
        self.repeats = True

    def engine_lost(self, error: TokenpipeError) -> None:
        """Let the reader raise an error after the frames that came before."""
        self.fail(error)

    def fail(self, error: TokenpipeError) -> None:
        """Let the reader raise `error` after the frames that came before."""
        self.error = self.error or error
