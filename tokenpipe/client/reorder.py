"""Keep rows that came too early, until what lies before them has come.

Two lanes may bring rows of one request (it moved to another processor), and the later rows may
come first. Output is idempotent, so the whole frame is kept and simply applied again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tokenpipe._core import FINISH_ERROR
from tokenpipe.wire import OutputFrame


@dataclass(slots=True)
class Held:
    """One frame and the rows of it that wait: request key to offset. Times are in seconds."""

    frame: bytes
    waits: dict[int, int]
    came: float
    patience: float
    deadline: float


class ReorderBuffer:
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

    def add(self, frame: bytes, waits: dict[int, int], now: float) -> bool:
        """Keep a frame that came now; False where it has no room."""
        return self._keep(Held(frame, waits, now, self._max_s, now + self._max_s))

    def put_back(self, held: Held, waits: dict[int, int]) -> bool:
        """Keep a frame of which some rows wait still; False where it has no room."""
        held.waits = waits
        return self._keep(held)

    def _keep(self, held: Held) -> bool:
        if self._bytes + len(held.frame) > self._max_bytes:
            return False
        self._held.append(held)
        self._bytes += len(held.frame)
        return True

    def read_behind(self, made: float, now: float) -> None:
        """Hear that a frame made at `made` was read now.

        What came after that was made waits anew: a lane that is read late, because its client has
        too much to do, may still bring what is missing.
        """
        for held in self._held:
            if made < held.came:
                held.deadline = max(held.deadline, now + held.patience)

    def hurry(self, max_s: float, now: float) -> None:
        """Let nothing wait longer than this: who could bring the rest is gone."""
        for held in self._held:
            held.patience = min(held.patience, max_s)
            held.deadline = min(held.deadline, now + held.patience)

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


def last_word(frame: bytes, key: int) -> tuple[int, str, str] | None:
    """Return code, text and field of the error that a frame ends this request with, or None."""
    output = OutputFrame.unpack(frame)
    for row, row_key in enumerate(output.keys.tolist()):
        if row_key == key and output.finish[row] == FINISH_ERROR:
            return int(output.error_code[row]), output.errors[row], output.error_fields[row]
    return None
