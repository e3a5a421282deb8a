"""Feed a processor what came on the lanes of one DP rank. The same calls have the same effect."""

from __future__ import annotations

from collections.abc import Sequence

from tokenpipe._core import peek
from tokenpipe.errors import FrameError
from tokenpipe.wire import Kind, RankFailed, unpack_control

from .core import Processor


class RankFeed:
    """Knows whether a rank is up, and which of its TP ranks have failed."""

    def __init__(self, dp_rank: int) -> None:
        self.dp_rank = dp_rank
        self.up = False
        self.failed: set[int] = set()  # TP ranks that failed, until their next incarnation
        self.bad_frames = 0  # frames that could not be read, and were dropped

    def open(self, processor: Processor, incarnation: int, now: float) -> None:
        """Note that all workers of the rank are there."""
        self.up = True
        processor.rank_up(self.dp_rank, incarnation, now)

    def lose(self, processor: Processor, reason: str, now: float, died: bool = True) -> None:
        """Note that a worker of the rank is gone. `died`: it did not close its lane in order."""
        if self.up:
            self.up = False
            processor.rank_lost(self.dp_rank, reason, now, died=died)

    def frames(
        self, processor: Processor, tp_rank: int, frames: Sequence[bytes], now: float
    ) -> None:
        """Feed frames of a worker, in order."""
        at = 0
        while at < len(frames):
            at = processor.feed_run(self.dp_rank, tp_rank, frames, at, now)
            if at < len(frames):
                self._take(processor, tp_rank, frames[at], now)
                at += 1

    def _take(self, processor: Processor, tp_rank: int, frame: bytes, now: float) -> None:
        try:
            if peek(frame)[0] == Kind.CONTROL:
                for message in unpack_control(frame)[1]:
                    if isinstance(message, RankFailed):
                        reason = f"worker {self.dp_rank}.{tp_rank} failed: {message.message}"
                        self.failed.add(tp_rank)
                        self.lose(processor, reason, now)
            else:
                processor.feed(self.dp_rank, tp_rank, frame, now)
        except FrameError:
            self.bad_frames += 1  # its lost rows show as a jump of the positions
