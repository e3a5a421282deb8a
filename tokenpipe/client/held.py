"""Keep rows that came too early, until what lies before them has come.

Two lanes may bring rows of one request (it moved to another processor), and the later rows may
come first. Output is idempotent, so the whole frame is kept and simply applied again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tokenpipe.types import FINISH_CODES, FinishReason
from tokenpipe.wire import OutputFrame


@dataclass(slots=True)
class Held:
    """One frame and the rows of it that wait: request key to offset."""

    frame: bytes
    deadline: float
    waits: dict[int, int]


class HeldFrames:
    """Hold frames, bounded in bytes and time."""

    def __init__(self, max_bytes: int, max_s: float) -> None:
        self._max_bytes = max_bytes
        self._max_s = max_s
        self._held: list[Held] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    @property
    def next_deadline(self) -> float | None:
        """When the first of them has waited too long."""
        return min((held.deadline for held in self._held), default=None)

    def add(self, frame: bytes, waits: dict[int, int], deadline: float) -> bool:
        """Keep a frame; False where it has no room."""
        if self._bytes + len(frame) > self._max_bytes:
            return False
        self._held.append(Held(frame, deadline, waits))
        self._bytes += len(frame)
        return True

    def deadline(self, now: float) -> float:
        """Return until when a frame that comes now may wait."""
        return now + self._max_s

    def hurry(self, deadline: float) -> None:
        """Let nothing wait longer than this: who could bring the rest is gone."""
        for held in self._held:
            held.deadline = min(held.deadline, deadline)

    def pop_due(self, received: Callable[[int], int | None]) -> Held | None:
        """Remove and return a frame one of whose rows can be applied now.

        `received` tells how many tokens a request has, None if it is over.
        """
        for held in self._held:
            for key, offset in list(held.waits.items()):
                has = received(key)
                if has is None:
                    del held.waits[key]
                elif has >= offset:
                    return self._remove(held)
            if not held.waits:
                return self._remove(held)
        return None

    def pop_expired(self, now: float) -> Iterator[Held]:
        """Remove and yield what has waited too long."""
        for held in [held for held in self._held if held.deadline <= now]:
            yield self._remove(held)

    def clear(self) -> None:
        """Drop everything."""
        self._held.clear()
        self._bytes = 0

    def _remove(self, held: Held) -> Held:
        self._held.remove(held)
        self._bytes -= len(held.frame)
        return held


def last_word(frame: bytes, key: int) -> str:
    """Return the error a frame ends this request with, or nothing."""
    output = OutputFrame.unpack(frame)
    for row, row_key in enumerate(output.keys.tolist()):
        if row_key == key and FINISH_CODES[output.finish[row]] is FinishReason.ERROR:
            return output.errors[row]
    return ""
