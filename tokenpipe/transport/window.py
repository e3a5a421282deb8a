"""Order, hold and heal the frames of a lane. No clock, socket or frame inside.

Sequence numbers start at 1 and have no holes. What a sender numbered it keeps until it is
acknowledged (`_core.SendWindow`); what a receiver gets early it holds until the missing ones are
there.
"""

from __future__ import annotations

from typing import NamedTuple


class Gap(NamedTuple):
    """Frames `first` to `last`, both included, are lost for good."""

    first: int
    last: int


class ReceiveWindow:
    """Put frames in order, once each.

    `expected` is the next to deliver, `applied` the last acknowledged as done. `known` is the
    highest number the sender is known to have used: below it, what is absent is missing.
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

    def __init__(self, first: int, hold_bytes: int) -> None:
        self.expected = first
        self.applied = first - 1
        self.known = first - 1
        self.hold_bytes = hold_bytes
        self.held_bytes = 0
        self.duplicates = 0
        self.lost = 0  # frames called lost in a Gap
        self.overflowed = 0  # came early and found no room; will be asked for again
        self._held: dict[int, bytes] = {}
        self._started = False

    def accept(self, seq: int, frame: bytes, out: list[bytes | Gap]) -> None:
        """Take a frame and append to `out` what can now be delivered, in order."""
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
        """Whether nothing is held, so that what comes in order can be delivered as it comes."""
        return not self._held

    def took(self, count: int) -> None:
        """Note that the next `count` frames were delivered; nothing is held."""
        if count:
            self._started = True
            self.expected += count
            self.known = max(self.known, self.expected - 1)

    def announce(self, next_seq: int, first_retained: int, out: list[bytes | Gap]) -> None:
        """Hear how far the sender is, and append a Gap for what it can no longer send.

        Before the first delivery the start merely moves: what is no longer there was numbered for
        an earlier life of ours, after the hello by which we knew where to start.
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
        """Return the first hole as (first, last) where something is known to be missing."""
        if self.expected > self.known:
            return None
        last = min(self._held) - 1 if self._held else self.known
        return self.expected, last

    def give_up(self, last: int, out: list[bytes | Gap]) -> None:
        """Call everything absent up to `last` lost, and append that and what it held back."""
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
        """Call everything up to `last` applied and return how many frames that adds."""
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
