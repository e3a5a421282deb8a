"""Keep frames with rows that came too early, until the rows before them have come.

When a request moves to another processor, two lanes carry its rows, and later rows may come first.
A frame may be applied twice without harm, so the whole frame is kept and applied again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tokenpipe._core import FINISH_ERROR
from tokenpipe.wire import OutputFrame

LATE_S = 30.0  # a client that reads its lanes later than this may call rows lost that still come


@dataclass(slots=True)
class HeldFrame:
    """One frame that waits. Times are in seconds."""

    frame: bytes
    waits: dict[int, int]  # offset of each waiting row, by request key
    came: float
    max_s: float  # longest wait
    deadline: float


class ReorderBuffer:
    """Holds frames, bounded in bytes and in time (seconds)."""

    def __init__(self, max_bytes: int, max_s: float) -> None:
        self._max_bytes = max_bytes
        self._max_s = max_s
        self._held: list[HeldFrame] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    @property
    def next_deadline(self) -> float | None:
        """The time at which the first frame has waited too long; None without frames."""
        return min((held.deadline for held in self._held), default=None)

    def add(self, frame: bytes, waits: dict[int, int], now: float) -> bool:
        """Keep a frame that came at `now`. Return False if there is no room for it."""
        return self._keep(HeldFrame(frame, waits, now, self._max_s, now + self._max_s))

    def put_back(self, held: HeldFrame, waits: dict[int, int]) -> bool:
        """Keep a frame with rows that still wait. Return False if there is no room for it."""
        held.waits = waits
        return self._keep(held)

    def _keep(self, held: HeldFrame) -> bool:
        if self._bytes + len(held.frame) > self._max_bytes:
            return False
        self._held.append(held)
        self._bytes += len(held.frame)
        return True

    def extend_deadlines(self, made: float, now: float) -> None:
        """Wait longer, because a frame made at `made` was read only now.

        The client reads its lanes late. So a lane may still hold the missing rows of each frame
        that came after `made`. Another process wrote this time, so the wait has a bound.
        """
        for held in self._held:
            if made < held.came:
                late = min(now, held.came + LATE_S)
                held.deadline = max(held.deadline, late + held.max_s)

    def shorten_deadlines(self, max_s: float, now: float) -> None:
        """Let no frame wait longer than `max_s`, because the sender of missing rows is gone."""
        for held in self._held:
            held.max_s = min(held.max_s, max_s)
            held.deadline = min(held.deadline, now + held.max_s)

    def pop_due(self, received: Callable[[int], int | None]) -> HeldFrame | None:
        """Remove and return a frame with a row that can be applied now, or None.

        `received` returns how many tokens a request has, None for a request that has ended.
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

    def pop_expired(self, now: float) -> Iterator[HeldFrame]:
        """Remove and yield the frames that have waited too long."""
        for held in [held for held in self._held if held.deadline <= now]:
            yield self._remove(held)

    def clear(self) -> None:
        """Drop all frames."""
        self._held.clear()
        self._bytes = 0

    def _remove(self, held: HeldFrame) -> HeldFrame:
        self._held.remove(held)
        self._bytes -= len(held.frame)
        return held


def final_error(frame: bytes, key: int) -> tuple[int, str, str] | None:
    """Return code, text and field of the error with which a frame ends this request, or None."""
    output = OutputFrame.unpack(frame)
    for row, row_key in enumerate(output.keys.tolist()):
        if row_key == key and output.finish[row] == FINISH_ERROR:
            return int(output.error_code[row]), output.errors[row], output.error_fields[row]
    return None
