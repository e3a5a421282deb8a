"""Make the final rows of requests that no processor holds. No I/O."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from typing_extensions import Buffer

from tokenpipe._core import pack_output
from tokenpipe.types import FINISH_CODES, ErrorCode, FinishReason, Request
from tokenpipe.wire import OutputColumn

PIPELINE = 0xFFFF  # the processor number of an OutputFrame that the pipeline wrote
ROWS_PER_FRAME = 512
ERROR_BYTES = 2048  # a frame of such rows, each with the longest held-back text, fits the lane


@dataclass(frozen=True, slots=True)
class FinalRow:
    """The last output row of a request that no processor holds."""

    client: int
    key: int
    offset: int
    finish_reason: FinishReason
    error_code: ErrorCode = ErrorCode.NONE
    error: str = ""
    error_field: str = ""
    text_offset: int = 0
    text: bytes = b""  # bytes that its last binding held back


def pack_final_rows(lane: tuple[int, int, int, int], rows: Sequence[FinalRow]) -> bytes:
    """Pack final rows of one client, at most `ROWS_PER_FRAME`, into an OutputFrame."""
    n = len(rows)
    fields = [field if len(field := row.error_field.encode()) < 256 else b"" for row in rows]
    texts = [row.error.encode()[:ERROR_BYTES].decode(errors="ignore").encode() for row in rows]
    errors = [text + field for text, field in zip(texts, fields, strict=True)]
    columns: dict[int, Buffer] = {
        OutputColumn.KEYS: struct.pack(f"<{n}Q", *(row.key for row in rows)),
        OutputColumn.COUNTS: bytes(4 * n),
        OutputColumn.OFFSETS: struct.pack(f"<{n}I", *(row.offset for row in rows)),
        OutputColumn.FINISH: bytes(FINISH_CODES.index(row.finish_reason) for row in rows),
        OutputColumn.ERROR_LEN: struct.pack(f"<{n}H", *(len(error) for error in errors)),
        OutputColumn.ERROR: b"".join(errors),
        OutputColumn.ERROR_CODE: bytes(row.error_code for row in rows),
    }
    if any(fields):
        columns[OutputColumn.ERROR_FIELD] = bytes(map(len, fields))
    if any(row.text for row in rows):
        columns[OutputColumn.TEXT_LEN] = struct.pack(f"<{n}I", *(len(row.text) for row in rows))
        columns[OutputColumn.TEXT] = b"".join(row.text for row in rows)
        offsets = (row.text_offset for row in rows)
        columns[OutputColumn.TEXT_OFFSET] = struct.pack(f"<{n}I", *offsets)
    return pack_output((*lane, PIPELINE, rows[0].client, n, 0, 0), columns)


class RecentlyEnded:
    """Remember the last requests that a processor ended.

    A processor sends its client the final row before it reports the outcome. A kill can still lose
    the row in its socket's buffer and leave the report. So when a processor dies, these requests
    get a final row too. A client that has its own final row drops the second one.
    """

    def __init__(self, capacity: int = 1 << 14) -> None:
        # All pages are written now, so that memory does not grow with the age of the process.
        self._keys = np.ones(capacity, np.uint64)
        self._clients = np.ones(capacity, np.uint32)
        self._ranks = np.full(capacity, -1, np.int32)
        self._at = 0

    def add(self, request: Request, dp_rank: int) -> None:
        """Remember a request that ended on a rank, in place of the oldest."""
        at = self._at
        self._keys[at] = request.internal_id
        self._clients[at] = request.client
        self._ranks[at] = dp_rank
        self._at = (at + 1) % len(self._keys)

    def take(self, dp_ranks: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yield (client, key) of the requests of these ranks, and forget them."""
        (found,) = np.nonzero(np.isin(self._ranks, dp_ranks))
        self._ranks[found] = -1
        yield from zip(self._clients[found].tolist(), self._keys[found].tolist(), strict=True)
