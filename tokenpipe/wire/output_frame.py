"""The OutputFrame: the output of several steps for one client, as columns."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tokenpipe import _core

from .column_view import F32, I32, U8, U32, U64, column_view
from .columns import OutputColumn
from .lane import LaneHeader
from .output_rows import pick_rows


@dataclass(frozen=True, slots=True)
class OutputFrame:
    """The output of one flush for one client, a row for each request.

    The properties are read-only arrays, made at each access.
    """

    header: LaneHeader
    processor: int
    client: int
    rows: int
    tokens_total: int
    mono_ns: int  # when its newest step was published (ns, monotonic clock), 0 for no step
    columns: dict[int, bytes]  # by OutputColumn, as on the wire; an absent one has its default

    @classmethod
    def unpack(cls, frame: bytes) -> OutputFrame:
        """Unpack a frame. FrameError says what is malformed."""
        header, columns = _core.unpack_output(frame)
        processor, client, rows, tokens, mono_ns = header[4:]
        return cls(LaneHeader(*header[:4]), processor, client, rows, tokens, mono_ns, columns)

    @property
    def has_ends(self) -> bool:
        """Whether a row may be the final row of its request. Cheaper than a look at `finish`."""
        return OutputColumn.FINISH in self.columns

    def picked(self, keep: NDArray[np.bool_]) -> OutputFrame:
        """Return a frame with those rows for which `keep` is true, bool [rows]."""
        columns = pick_rows(self.columns, self.rows, self.counts, self.lp_k, keep)
        tokens = len(columns.get(OutputColumn.TOKENS, b"")) // 4
        return replace(self, rows=int(keep.sum()), tokens_total=tokens, columns=columns)

    @property
    def keys(self) -> U64:
        """Request key of each row, uint64 [rows]."""
        return column_view(self.columns, OutputColumn.KEYS, np.uint64, 0)

    @property
    def counts(self) -> U32:
        """Number of tokens of each row, uint32 [rows]."""
        return column_view(self.columns, OutputColumn.COUNTS, np.uint32, self.rows, 1)

    @property
    def tokens(self) -> I32:
        """Token ids of all rows in order, int32 [tokens_total]."""
        return column_view(self.columns, OutputColumn.TOKENS, np.int32, 0)

    @property
    def offsets(self) -> U32:
        """Number of output tokens that each request has before the row, uint32 [rows]."""
        return column_view(self.columns, OutputColumn.OFFSETS, np.uint32, 0)

    @property
    def finish(self) -> U8:
        """Index in types.FINISH_CODES for each row, uint8 [rows]; 0 if the request goes on."""
        return column_view(self.columns, OutputColumn.FINISH, np.uint8, self.rows)

    @property
    def stop_reason(self) -> I32:
        """Token id that ended each request, int32 [rows]; -1 for none."""
        return column_view(self.columns, OutputColumn.STOP_REASON, np.int32, self.rows, -1)

    @property
    def lp_k(self) -> I32:
        """Number k of top logprobs of each row's tokens, int32 [rows]; -1 for no logprobs."""
        return column_view(self.columns, OutputColumn.LP_K, np.int32, self.rows, -1)

    @property
    def lp_ids(self) -> I32:
        """Token ids of the logprobs, int32: 1 + k for each token, the sampled token first."""
        return column_view(self.columns, OutputColumn.LP_IDS, np.int32, 0)

    @property
    def lp_values(self) -> F32:
        """Logprobs, float32, in the order of `lp_ids`."""
        return column_view(self.columns, OutputColumn.LP_VALUES, np.float32, 0)

    @property
    def lp_ranks(self) -> I32:
        """Rank of each sampled token that has logprobs, int32."""
        return column_view(self.columns, OutputColumn.LP_RANKS, np.int32, 0)

    @property
    def errors(self) -> list[str]:
        """Error text of each row; "" for no error."""
        return self._error_parts()[0]

    @property
    def error_fields(self) -> list[str]:
        """Name of the request's field that is to blame for each row's error; "" for none."""
        return self._error_parts()[1]

    def _error_parts(self) -> tuple[list[str], list[str]]:
        if OutputColumn.ERROR_FIELD not in self.columns:
            texts = self._strings(OutputColumn.ERROR_LEN, 2, OutputColumn.ERROR)
            return texts, [""] * self.rows
        lengths = column_view(self.columns, OutputColumn.ERROR_LEN, np.uint16, self.rows)
        fields = column_view(self.columns, OutputColumn.ERROR_FIELD, np.uint8, self.rows)
        named = np.where(fields <= lengths, fields, 0).astype(np.uint16)
        both = np.stack([lengths - named, named], axis=1).astype("<u2").tobytes()
        parts = _core.split_text(both, 2, self.columns.get(OutputColumn.ERROR, b""))
        return parts[::2], parts[1::2]

    @property
    def error_code(self) -> U8:
        """types.ErrorCode of each row, uint8 [rows]; 0 for no error."""
        return column_view(self.columns, OutputColumn.ERROR_CODE, np.uint8, self.rows)

    @property
    def texts(self) -> list[str]:
        """Text of each row; "" for no text."""
        return self._strings(OutputColumn.TEXT_LEN, 4, OutputColumn.TEXT)

    @property
    def text_len(self) -> U32:
        """Bytes of text of each row, uint32 [rows]."""
        return column_view(self.columns, OutputColumn.TEXT_LEN, np.uint32, self.rows)

    @property
    def text_bytes(self) -> bytes:
        """The text of all rows in order, in UTF-8."""
        return self.columns.get(OutputColumn.TEXT, b"")

    @property
    def text_offset(self) -> U32:
        """Bytes of its request's text before each row with text, uint32 [rows]."""
        return column_view(self.columns, OutputColumn.TEXT_OFFSET, np.uint32, self.rows)

    @property
    def stop_string(self) -> I32:
        """Index of the stop string that ended each request, int32 [rows]; -1 for none."""
        return column_view(self.columns, OutputColumn.STOP_STRING, np.int32, self.rows, -1)

    @property
    def cached(self) -> U32:
        """Number of prompt tokens from a cache, uint32 [rows]; set in a request's final row."""
        return column_view(self.columns, OutputColumn.CACHED, np.uint32, self.rows)

    @property
    def extras_len(self) -> U32:
        """Bytes of extras of each row, uint32 [rows]."""
        return column_view(self.columns, OutputColumn.EXTRAS_LEN, np.uint32, self.rows)

    @property
    def extras_bytes(self) -> bytes:
        """The extras of all rows in order."""
        return self.columns.get(OutputColumn.EXTRAS, b"")

    @property
    def extras_offset(self) -> U64:
        """Bytes of its request's extras before each row with extras, uint64 [rows]."""
        return column_view(self.columns, OutputColumn.EXTRAS_OFFSET, np.uint64, self.rows)

    @property
    def extras(self) -> list[bytes]:
        """Extras of each row, for the `ExtrasReader` of its request."""
        ends = np.cumsum(self.extras_len, dtype=np.int64).tolist()
        data = self.extras_bytes
        return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def _strings(self, lengths: int, width: int, text: int) -> list[str]:
        found = self.columns.get(lengths)
        if found is None:
            return [""] * self.rows
        return _core.split_text(found, width, self.columns.get(text, b""))
