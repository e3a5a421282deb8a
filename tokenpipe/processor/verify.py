"""Compare the tokens of the TP ranks of a DP rank. It never delays the rows of TP rank 0.

Tokens are compared by handle and position. How a rank splits them into rows and frames, and how it
numbers its steps, changes nothing.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from tokenpipe._core import GENERATION_BITS
from tokenpipe.errors import FrameError
from tokenpipe.types import RowStatus
from tokenpipe.wire import StepColumn, StepFrame

_SAME = (StepColumn.HANDLES, StepColumn.POSITION, StepColumn.COUNTS, StepColumn.TOKENS)
_TOKENS_PER_STEP = 4096  # so many tokens count as a step of the window


class Divergence(NamedTuple):
    """The first step and handle in which a TP rank's tokens differ from those of TP rank 0."""

    tp: int
    step: int
    handle: int


class _Side:
    """Tokens of one rank that the other rank of the pair has not sent yet."""

    def __init__(self) -> None:
        self.frames: deque[StepFrame] = deque()
        self.tokens: dict[int, dict[int, tuple[int, int]]] = {}  # handle: position: token, step
        self.count = 0  # of these tokens
        self.noted: bytes | None = None  # the handles of the last frame
        self.newest: dict[int, int] = {}  # handle, by slot
        self.drained: dict[int, int] = {}  # handle, by slot: no more rows of it

    def is_over(self, handle: int) -> bool:
        """Return whether this rank has no more rows of a handle."""
        place = _place(handle)
        return self.drained.get(place) == handle or self.newest.get(place, 0) > handle

    def note(self, frame: StepFrame) -> None:
        """Note which handles have come, and which have no more rows."""
        raw, status = frame.columns.get(StepColumn.HANDLES), StepColumn.STATUS in frame.columns
        if raw == self.noted and not status:
            return
        self.noted = raw
        for handle in frame.handles.tolist():
            place = _place(handle)
            self.newest[place] = max(handle, self.newest.get(place, 0))
        for at in (frame.status == RowStatus.DRAINED).nonzero()[0].tolist() if status else ():
            handle = int(frame.handles[at])
            self.drained[_place(handle)] = handle

    def drop(self, handle: int) -> None:
        self.count -= len(self.tokens.pop(handle, ()))


class _Pair:
    """TP rank 0 and one other rank."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._sides = (_Side(), _Side())
        self.compared = 0
        self.skipped = 0

    def add(self, which: int, frame: StepFrame) -> tuple[int, int] | None:
        """Take a frame of rank 0 (which is 0) or of the other. Return (step, handle) that differ.

        Ranks nearly always send equal frames, so these are compared as bytes.
        """
        mine, other = self._sides[which], self._sides[1 - which]
        loose = mine.tokens or other.tokens
        if not loose and other.frames and _is_same(frame, other.frames[0]):
            for side in self._sides:
                side.note(frame)
            other.frames.popleft()
            self.compared += 1
            return None
        mine.frames.append(frame)
        if loose or other.frames:
            found = self._compare_tokens()
        else:
            found = None
            if len(mine.frames) > self._window:
                mine.note(mine.frames.popleft())
                self.skipped += 1
        return found

    def _compare_tokens(self) -> tuple[int, int] | None:
        different: list[tuple[int, int]] = []
        self.compared += len(self._sides[1].frames)
        for side, other in (self._sides, self._sides[::-1]):
            while side.frames:
                frame = side.frames.popleft()
                different += self._match(side, other, frame)
                side.note(frame)
        for side, other in (self._sides, self._sides[::-1]):
            for handle in [handle for handle in side.tokens if other.is_over(handle)]:
                side.drop(handle)  # after a free, a rank may have more rows than the other
            while side.count > self._window * _TOKENS_PER_STEP:
                side.drop(next(iter(side.tokens)))
                self.skipped += 1
        return min(different, default=None)

    def _match(self, side: _Side, other: _Side, frame: StepFrame) -> list[tuple[int, int]]:
        """Compare the tokens of a frame, and keep those that the other rank has not sent yet."""
        different = []
        tokens = iter(frame.tokens.tolist())
        rows = zip(
            frame.handles.tolist(), frame.positions.tolist(), frame.counts.tolist(), strict=True
        )
        for handle, position, count in rows:
            theirs = other.tokens.get(handle, {})
            for at in range(position, position + count):
                token = next(tokens)
                if side.is_over(handle):
                    continue  # its positions begin again at 0
                had = theirs.pop(at, None)
                if had is None:
                    side.tokens.setdefault(handle, {})[at] = (token, frame.step)
                    side.count += 1
                    continue
                other.count -= 1
                if had[0] != token:
                    first = side is self._sides[0]
                    different.append((frame.step if first else had[1], handle))
            if not theirs:
                other.tokens.pop(handle, None)
        return different


class Verifier:
    """Keeps what each TP rank sent, up to `window` steps, until it can be compared."""

    def __init__(self, tp_size: int, window: int) -> None:
        self._window = window
        self._newest: list[StepFrame | None] = [None] * tp_size
        self._before = (0, 0)  # compared and skipped in earlier incarnations
        self._pairs = [_Pair(window) for _ in range(1, tp_size)]
        self._reported: set[int] = set()
        self._joining: set[int] = set()  # TP ranks whose next frame may continue an unknown one

    def reset(self) -> None:
        """Forget all steps, because the rank begins a new incarnation."""
        self._before = (self.compared, self.skipped)
        self._pairs = [_Pair(self._window) for _ in self._pairs]
        self._reported.clear()

    @property
    def compared(self) -> int:
        """How many frames were compared."""
        return self._before[0] + sum(pair.compared for pair in self._pairs)

    @property
    def skipped(self) -> int:
        """How many frames, or requests, left the window before they could be compared."""
        return self._before[1] + sum(pair.skipped for pair in self._pairs)

    def join(self) -> None:
        """Begin between two frames. Each TP rank is read from its next frame with handles on."""
        self._joining = set(range(len(self._newest)))

    def read(self, tp: int, raw: bytes) -> StepFrame | None:
        """Unpack the next frame of a TP rank's lane. Raises FrameError.

        Returns None for a frame that continues one from before `join`.
        """
        before, self._newest[tp] = self._newest[tp], None
        try:
            frame = self._newest[tp] = StepFrame.unpack(raw, before)
        except FrameError:
            if tp not in self._joining:
                raise
            return None
        self._joining.discard(tp)
        return frame

    def feed(self, frame: StepFrame) -> list[Divergence]:
        """Add a step. Return differences: at most one for each TP rank in an incarnation."""
        found = []
        for tp in range(1, len(self._newest)) if frame.tp == 0 else (frame.tp,):
            different = self._pairs[tp - 1].add(min(frame.tp, 1), frame)
            if different is not None and tp not in self._reported:
                self._reported.add(tp)
                found.append(Divergence(tp, *different))
        return found


def _is_same(one: StepFrame, other: StepFrame) -> bool:
    return all(one.columns.get(c) == other.columns.get(c) for c in _SAME)


def _place(handle: int) -> int:
    return handle >> GENERATION_BITS
