"""The StepFrame: one step of one worker rank, as columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenpipe import _core
from tokenpipe.errors import FrameError

from .column_view import F32, I32, I64, U8, U16, U32, column_view
from .columns import StepColumn
from .lane import LaneHeader


@dataclass(frozen=True, slots=True)
class StepFrame:
    """One step of one worker rank. The properties are read-only arrays, made at each access."""

    header: LaneHeader
    dp: int
    tp: int
    step: int
    rows: int
    tokens_total: int
    mono_ns: int
    columns: dict[int, bytes]  # by StepColumn, as on the wire; an absent one has its default

    @classmethod
    def unpack(cls, frame: bytes, before: StepFrame | None = None) -> StepFrame:
        """Unpack a frame. FrameError says what is malformed.

        A frame that continues the one before has no handles and no positions. They are taken from
        `before`, the sender's previous frame. FrameError if `before` is another frame or None.
        """
        header, columns = _core.unpack_step(frame)
        dp, tp, step, rows, tokens, mono_ns = header[4:]
        lane = LaneHeader(*header[:4])
        if rows and StepColumn.HANDLES not in columns:
            if before is None or not (before._is_before(lane, rows) and before._is_sole()):
                raise FrameError("StepFrame: the frame does not continue the frame before it")
            positions = before.positions + before.counts
            columns[StepColumn.HANDLES] = before.columns[StepColumn.HANDLES]
            columns[StepColumn.POSITION] = positions.astype(np.uint32).tobytes()
        return cls(lane, dp, tp, step, rows, tokens, mono_ns, columns)

    def _is_before(self, lane: LaneHeader, rows: int) -> bool:
        mine = self.header
        before = (mine.instance, mine.sender, mine.seq + 1, self.rows)
        return before == (lane.instance, lane.sender, lane.seq, rows)

    def _is_sole(self) -> bool:
        """Return whether no slot has two rows, as no frame continues two rows of a slot."""
        slots = self.handles >> _core.GENERATION_BITS & (1 << _core.SLOT_BITS) - 1
        return len(np.unique(slots)) == self.rows

    @property
    def handles(self) -> I64:
        """Handle of each row, int64 [rows]."""
        return column_view(self.columns, StepColumn.HANDLES, np.int64, 0)

    @property
    def counts(self) -> U16:
        """Number of tokens of each row, uint16 [rows]."""
        return column_view(self.columns, StepColumn.COUNTS, np.uint16, self.rows, 1)

    @property
    def tokens(self) -> I32:
        """Token ids of all rows in order, int32 [tokens_total]."""
        return column_view(self.columns, StepColumn.TOKENS, np.int32, 0)

    @property
    def status(self) -> U8:
        """RowStatus of each row, uint8 [rows]."""
        return column_view(self.columns, StepColumn.STATUS, np.uint8, self.rows)

    @property
    def positions(self) -> U32:
        """Number of tokens that each row's handle had before the row, uint32 [rows]."""
        return column_view(self.columns, StepColumn.POSITION, np.uint32, self.rows)

    @property
    def lp_k(self) -> I32:
        """Number k of top logprobs of each row's tokens, int32 [rows]; -1 for no logprobs."""
        return column_view(self.columns, StepColumn.LP_K, np.int32, self.rows, -1)

    @property
    def lp_ids(self) -> I32:
        """Token ids of the logprobs, int32: 1 + k for each token, the sampled token first."""
        return column_view(self.columns, StepColumn.LP_IDS, np.int32, 0)

    @property
    def lp_values(self) -> F32:
        """Logprobs, float32, in the order of `lp_ids`."""
        return column_view(self.columns, StepColumn.LP_VALUES, np.float32, 0)

    @property
    def lp_ranks(self) -> I32:
        """Rank of each sampled token that has logprobs, int32."""
        return column_view(self.columns, StepColumn.LP_RANKS, np.int32, 0)

    @property
    def extras_len(self) -> U32:
        """Bytes of extras of each row, uint32 [rows]."""
        return column_view(self.columns, StepColumn.EXTRAS_LEN, np.uint32, self.rows)

    @property
    def extras_bytes(self) -> bytes:
        """The extras of all rows in order."""
        return self.columns.get(StepColumn.EXTRAS, b"")
