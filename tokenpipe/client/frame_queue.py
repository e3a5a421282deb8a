"""Keep whole frames for a reader of columns; rows are not looked at."""

from __future__ import annotations

from collections import deque

from tokenpipe.errors import LaneError, TokenpipeError


class FrameQueue:
    """Frames as they came, for those who read columns."""

    def __init__(self) -> None:
        self.frames: deque[bytes] = deque()
        self.error: TokenpipeError | None = None
        self.bad_frames = 0

    def feed(self, frame: bytes, now: float) -> None:
        """Keep a frame."""
        self.frames.append(frame)

    def gap(self, lane: str) -> None:
        """Have the reader told, after what came before."""
        self.fail(LaneError(f"gap: output was lost on lane {lane}"))

    def source_lost(self, now: float) -> None:
        """Do nothing: what the processor left open, the engine ends."""

    def fail(self, error: TokenpipeError) -> None:
        """Have the reader told, after what came before."""
        self.error = self.error or error
