"""Put the frames of a lane in order. Pure: no clock, no socket.

Sequence numbers start at 1 and have no holes. A sender keeps each numbered frame until it is
acknowledged (`_core.SendWindow`). A receiver holds frames that come early until the missing ones
have come.
"""

from __future__ import annotations

from typing import NamedTuple


class Gap(NamedTuple):
    """Frames `first` to `last`, both included, are lost. Nobody can send them again."""

    first: int
    last: int


class ReceiveWindow:
    """Deliver frames in order, each once.

    `expected` is the next number to deliver. `applied` is the last number that is applied. `known`
    is the highest number that the sender has used, as far as the receiver knows: a frame below it
    that is not here is missing.
    """

    __slots__ = (
        "_held",
        "_started",
        "applied",
        "duplicates",
        "expected",
        "held_bytes",
        "hold_bytes",
        "known",
        "lost",
        "overflowed",
    )

    def __init__(self, first: int, hold_bytes: int, started: bool = False) -> None:
        """Begin with the number `first`. `started`: earlier frames were delivered."""
        self.expected = first
        self.applied = first - 1
        self.known = first - 1
        self.hold_bytes = hold_bytes
        self.held_bytes = 0
        self.duplicates = 0
        self.lost = 0  # frames in the Gaps that were delivered
        self.overflowed = 0  # frames that came early, found no room and were dropped
        self._held: dict[int, bytes] = {}
        self._started = started

    def accept(self, seq: int, frame: bytes, out: list[bytes | Gap]) -> None:
        """Take a frame. Append to `out` the frames that can be delivered now, in order."""
        if seq == self.expected:
            self._started = True
            out.append(frame)
            self.expected = seq + 1
            if seq > self.known:
                self.known = seq
            if self._held:
                self._release(out)
            return
        if seq < self.expected or seq in self._held:
            self.duplicates += 1
            return
        self.known = max(self.known, seq)
        if self.held_bytes + len(frame) > self.hold_bytes:
            self.overflowed += 1
            return
        self._held[seq] = frame
        self.held_bytes += len(frame)

    @property
    def plain(self) -> bool:
        """Whether no frame is held: then a frame in order can be delivered at once."""
        return not self._held

    def took(self, count: int) -> None:
        """Note that the next `count` frames were delivered. Call it only while `plain` is true."""
        if count:
            self._started = True
            self.expected += count
            self.known = max(self.known, self.expected - 1)

    def announce(self, next_seq: int, first_retained: int, out: list[bytes | Gap]) -> None:
        """Note which numbers the sender has used and which frames it still has.

        A Gap is appended to `out` for frames that it no longer has. Before the first delivery there
        is no Gap, only a later start: those frames were numbered for an earlier incarnation of this
        receiver.
        """
        self.known = max(self.known, next_seq - 1)
        if first_retained <= self.expected:
            return
        if self._started:
            self.give_up(first_retained - 1, out)
            return
        self.expected = first_retained
        self.applied = first_retained - 1
        for seq in [seq for seq in self._held if seq < first_retained]:
            self.held_bytes -= len(self._held.pop(seq))
        self._release(out)

    def missing(self) -> tuple[int, int] | None:
        """Return the first missing range as (first, last), or None if nothing is missing."""
        if self.expected > self.known:
            return None
        last = min(self._held) - 1 if self._held else self.known
        return self.expected, last

    def give_up(self, last: int, out: list[bytes | Gap]) -> None:
        """Call all missing frames up to `last` lost. Append the Gaps and the frames behind them."""
        while self.expected <= last:
            frame = self._held.pop(self.expected, None)
            if frame is not None:
                self.held_bytes -= len(frame)
                out.append(frame)
                self.expected += 1
                continue
            end = min([last, *(seq - 1 for seq in self._held)])
            out.append(Gap(self.expected, end))
            self.lost += end - self.expected + 1
            self.expected = end + 1
        self._started = True
        self.known = max(self.known, last)
        self._release(out)

    def apply(self, last: int) -> int:
        """Note that all frames up to `last` are applied. Return how many of them are new."""
        count = max(last - self.applied, 0)
        self.applied += count
        return count

    def _release(self, out: list[bytes | Gap]) -> None:
        while self._held:
            frame = self._held.pop(self.expected, None)
            if frame is None:
                return
            self.held_bytes -= len(frame)
            out.append(frame)
            self.expected += 1
            self._started = True
