"""Make OutputFrames by hand."""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass, field

from tokenpipe import _core


@dataclass
class Row:
    """One row of an OutputFrame; `logprobs` are (ids, values, rank) per token."""

    key: int
    offset: int
    tokens: list[int] = field(default_factory=list)
    finish: int = 0
    stop_reason: int = -1
    error: str = ""
    error_code: int = 0
    error_field: str = ""  # behind `error` in the row's bytes
    text: str = ""
    text_offset: int = 0
    extras: bytes = b""
    extras_offset: int = 0
    logprobs: list[tuple[list[int], list[float], int]] | None = None


def output_frame(
    *rows: Row, seq: int = 1, lane: tuple[int, int, int] = (1, 2, 3), made_s: float = 0.0
) -> bytes:
    """Return the frame; every column is there that its rows need."""
    tokens = [token for row in rows for token in row.tokens]
    columns: dict[int, bytes] = {
        1: array("Q", [row.key for row in rows]).tobytes(),
        2: array("I", [len(row.tokens) for row in rows]).tobytes(),
        3: array("i", tokens).tobytes(),
        4: array("I", [row.offset for row in rows]).tobytes(),
        5: bytes(row.finish for row in rows),
        6: array("i", [row.stop_reason for row in rows]).tobytes(),
    }
    if any(row.logprobs for row in rows):
        entries = [entry for row in rows for entry in row.logprobs or ()]
        ks = [len(row.logprobs[0][0]) - 1 if row.logprobs else -1 for row in rows]
        values = [value for entry in entries for value in entry[1]]
        columns[7] = array("i", ks).tobytes()
        columns[8] = array("i", [i for entry in entries for i in entry[0]]).tobytes()
        columns[9] = struct.pack(f"<{len(values)}f", *values)
        columns[10] = array("i", [entry[2] for entry in entries]).tobytes()
    errors = [(row.error + row.error_field).encode() for row in rows]
    if any(errors):
        columns[11] = array("H", [len(error) for error in errors]).tobytes()
        columns[12] = b"".join(errors)
        columns[21] = bytes(row.error_code for row in rows)
        columns[22] = bytes(len(row.error_field.encode()) for row in rows)
    texts = [row.text.encode() for row in rows]
    if any(texts):
        columns[13] = array("I", [len(text) for text in texts]).tobytes()
        columns[14] = b"".join(texts)
        columns[15] = array("I", [row.text_offset for row in rows]).tobytes()
    if any(row.extras for row in rows):
        columns[18] = array("I", [len(row.extras) for row in rows]).tobytes()
        columns[19] = b"".join(row.extras for row in rows)
        columns[20] = array("Q", [row.extras_offset for row in rows]).tobytes()
    columns = {column: raw for column, raw in columns.items() if raw or column <= 2}
    header = (*lane, seq, 0, 0, len(rows), len(tokens), int(made_s * 1e9))
    return _core.pack_output(header, columns)
