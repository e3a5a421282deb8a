"""StepFrame and OutputFrame as columns: numpy views, and defaults for what was left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tokenpipe import _core
from tokenpipe.errors import FrameError

from .columns import OutputColumn, StepColumn
from .lane import LaneHeader

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]
U16 = NDArray[np.uint16]
U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]
F32 = NDArray[np.float32]

_Scalar = TypeVar("_Scalar", bound=np.generic)


def _column(
    columns: dict[int, bytes], column: int, dtype: type[_Scalar], n: int, default: int = 0
) -> NDArray[_Scalar]:
    """Return a read-only view of a column, or n defaults where it is absent."""
    raw = columns.get(column)
    if raw is not None:
        return np.frombuffer(raw, dtype)
    filled = np.full(n, default, dtype)
    filled.flags.writeable = False
    return filled


@dataclass(frozen=True, slots=True)
class StepFrame:
    """One step of one worker rank. Each property is a read-only array, made when asked for."""

    header: LaneHeader
    dp: int
    tp: int
    step: int
    rows: int
    tokens_total: int
    mono_ns: int
    columns: dict[int, bytes]  # as on the wire; an absent column has its default

    @classmethod
    def unpack(cls, frame: bytes, before: StepFrame | None = None) -> StepFrame:
        """Return the frame's columns; FrameError says what is malformed.

        `before` is the sender's frame before this one: where this one continues it, its handles
        and positions are filled in from there, and FrameError says that it is not the one.
        """
        header, columns = _core.unpack_step(frame)
        dp, tp, step, rows, tokens, mono_ns = header[4:]
        lane = LaneHeader(*header[:4])
        if rows and StepColumn.HANDLES not in columns:
            if before is None or not before._leads_to(lane, rows):
                raise FrameError("StepFrame: the frame does not continue the frame before it")
            positions = before.positions + before.counts
            columns[StepColumn.HANDLES] = before.columns[StepColumn.HANDLES]
            columns[StepColumn.POSITION] = positions.astype(np.uint32).tobytes()
        return cls(lane, dp, tp, step, rows, tokens, mono_ns, columns)

    def _leads_to(self, lane: LaneHeader, rows: int) -> bool:
        mine = self.header
        before = (mine.instance, mine.sender, mine.seq + 1, self.rows)
        return before == (lane.instance, lane.sender, lane.seq, rows)

    @property
    def handles(self) -> I64:
        """Return the handle of each row."""
        return _column(self.columns, StepColumn.HANDLES, np.int64, 0)

    @property
    def counts(self) -> U16:
        """Return how many tokens each row has."""
        return _column(self.columns, StepColumn.COUNTS, np.uint16, self.rows, 1)

    @property
    def tokens(self) -> I32:
        """Return the token ids, rows one after another."""
        return _column(self.columns, StepColumn.TOKENS, np.int32, 0)

    @property
    def status(self) -> U8:
        """Return the RowStatus of each row."""
        return _column(self.columns, StepColumn.STATUS, np.uint8, self.rows)

    @property
    def positions(self) -> U32:
        """Return how many tokens each row's handle had produced before it."""
        return _column(self.columns, StepColumn.POSITION, np.uint32, self.rows)

    @property
    def lp_k(self) -> I32:
        """Return each row's number of top logprobs per token, -1 where it has none at all."""
        return _column(self.columns, StepColumn.LP_K, np.int32, self.rows, -1)

    @property
    def lp_ids(self) -> I32:
        """Return the logprobs' token ids, 1 + k per token, the sampled one first."""
        return _column(self.columns, StepColumn.LP_IDS, np.int32, 0)

    @property
    def lp_values(self) -> F32:
        """Return the logprobs, in the order of their ids."""
        return _column(self.columns, StepColumn.LP_VALUES, np.float32, 0)

    @property
    def lp_ranks(self) -> I32:
        """Return the rank of each sampled token that has logprobs."""
        return _column(self.columns, StepColumn.LP_RANKS, np.int32, 0)

    @property
    def extras_len(self) -> U32:
        """Return how many bytes of extras each row has."""
        return _column(self.columns, StepColumn.EXTRAS_LEN, np.uint32, self.rows)

    @property
    def extras_bytes(self) -> bytes:
        """Return the extras, rows one after another."""
        return self.columns.get(StepColumn.EXTRAS, b"")


@dataclass(frozen=True, slots=True)
class OutputFrame:
    """What one flush brings one client. Each property is a read-only array, made when asked for."""

    header: LaneHeader
    processor: int
    client: int
    rows: int
    tokens_total: int
    mono_ns: int  # when the newest step in it was published, 0 if none
    columns: dict[int, bytes]

    @classmethod
    def unpack(cls, frame: bytes) -> OutputFrame:
        """Return the frame's columns; FrameError says what is malformed."""
        header, columns = _core.unpack_output(frame)
        processor, client, rows, tokens, mono_ns = header[4:]
        return cls(LaneHeader(*header[:4]), processor, client, rows, tokens, mono_ns, columns)

    @property
    def keys(self) -> U64:
        """Return the request key of each row."""
        return _column(self.columns, OutputColumn.KEYS, np.uint64, 0)

    @property
    def counts(self) -> U32:
        """Return how many tokens each row has."""
        return _column(self.columns, OutputColumn.COUNTS, np.uint32, self.rows, 1)

    @property
    def tokens(self) -> I32:
        """Return the token ids, rows one after another."""
        return _column(self.columns, OutputColumn.TOKENS, np.int32, 0)

    @property
    def offsets(self) -> U32:
        """Return how many output tokens each row's request had before it."""
        return _column(self.columns, OutputColumn.OFFSETS, np.uint32, 0)

    @property
    def finish(self) -> U8:
        """Return each row's code in types.FINISH_CODES, 0 where the request goes on."""
        return _column(self.columns, OutputColumn.FINISH, np.uint8, self.rows)

    @property
    def stop_reason(self) -> I32:
        """Return the token id that ended each row's request, or -1."""
        return _column(self.columns, OutputColumn.STOP_REASON, np.int32, self.rows, -1)

    @property
    def lp_k(self) -> I32:
        """Return each row's number of top logprobs per token, -1 where it has none at all."""
        return _column(self.columns, OutputColumn.LP_K, np.int32, self.rows, -1)

    @property
    def lp_ids(self) -> I32:
        """Return the logprobs' token ids, 1 + k per token, the sampled one first."""
        return _column(self.columns, OutputColumn.LP_IDS, np.int32, 0)

    @property
    def lp_values(self) -> F32:
        """Return the logprobs, in the order of their ids."""
        return _column(self.columns, OutputColumn.LP_VALUES, np.float32, 0)

    @property
    def lp_ranks(self) -> I32:
        """Return the rank of each sampled token that has logprobs."""
        return _column(self.columns, OutputColumn.LP_RANKS, np.int32, 0)

    @property
    def errors(self) -> list[str]:
        """Return each row's error, empty where it has none."""
        return self._error_parts()[0]

    @property
    def error_fields(self) -> list[str]:
        """Return the name of the request's field that each row's error blames, empty for none."""
        return self._error_parts()[1]

    def _error_parts(self) -> tuple[list[str], list[str]]:
        if OutputColumn.ERROR_FIELD not in self.columns:
            texts = self._strings(OutputColumn.ERROR_LEN, 2, OutputColumn.ERROR)
            return texts, [""] * self.rows
        lengths = _column(self.columns, OutputColumn.ERROR_LEN, np.uint16, self.rows)
        fields = _column(self.columns, OutputColumn.ERROR_FIELD, np.uint8, self.rows)
        named = np.where(fields <= lengths, fields, 0).astype(np.uint16)
        both = np.stack([lengths - named, named], axis=1).astype("<u2").tobytes()
        parts = _core.split_text(both, 2, self.columns.get(OutputColumn.ERROR, b""))
        return parts[::2], parts[1::2]

    @property
    def error_code(self) -> U8:
        """Return each row's types.ErrorCode, 0 where it has none."""
        return _column(self.columns, OutputColumn.ERROR_CODE, np.uint8, self.rows)

    @property
    def texts(self) -> list[str]:
        """Return each row's text, empty where it has none."""
        return self._strings(OutputColumn.TEXT_LEN, 4, OutputColumn.TEXT)

    @property
    def text_len(self) -> U32:
        """Return how many bytes of text each row has."""
        return _column(self.columns, OutputColumn.TEXT_LEN, np.uint32, self.rows)

    @property
    def text_bytes(self) -> bytes:
        """Return the text in UTF-8, rows one after another."""
        return self.columns.get(OutputColumn.TEXT, b"")

    @property
    def text_offset(self) -> U32:
        """Return how many bytes of its request's text lie before each row's, where it has any."""
        return _column(self.columns, OutputColumn.TEXT_OFFSET, np.uint32, self.rows)

    @property
    def stop_string(self) -> I32:
        """Return which of its stop strings ended each row's request, or -1."""
        return _column(self.columns, OutputColumn.STOP_STRING, np.int32, self.rows, -1)

    @property
    def cached(self) -> U32:
        """Return, with each request's final row, how many prompt tokens a cache had."""
        return _column(self.columns, OutputColumn.CACHED, np.uint32, self.rows)

    @property
    def extras_len(self) -> U32:
        """Return how many bytes of its request's extras each row brings."""
        return _column(self.columns, OutputColumn.EXTRAS_LEN, np.uint32, self.rows)

    @property
    def extras_bytes(self) -> bytes:
        """Return these bytes, rows one after another."""
        return self.columns.get(OutputColumn.EXTRAS, b"")

    @property
    def extras_offset(self) -> U64:
        """Return how many bytes of its request's extras lie before each row's, if it has any."""
        return _column(self.columns, OutputColumn.EXTRAS_OFFSET, np.uint64, self.rows)

    @property
    def extras(self) -> list[bytes]:
        """Return each row's part of its request's extras, for that request's `ExtrasReader`."""
        ends = np.cumsum(self.extras_len, dtype=np.int64).tolist()
        data = self.extras_bytes
        return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def _strings(self, lengths: int, width: int, text: int) -> list[str]:
        found = self.columns.get(lengths)
        if found is None:
            return [""] * self.rows
        return _core.split_text(found, width, self.columns.get(text, b""))
