"""The wire once more, in msgpack and numpy and from docs/wire.md alone: the twin of csrc/.

Written for reading, not for speed. `read` and `write` are the two directions of a frame of
columns; `Packer` is the twin of StepPacker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np

VERSION = 1
MAX_ROWS, MAX_TOKENS, MAX_ENTRIES, MAX_HEADER = 1 << 20, 1 << 24, 1 << 28, 32
MAX_TEXT = MAX_EXTRAS = 1 << 28
U64 = (1 << 64) - 1


class Refused(ValueError):
    """The bytes are not a frame."""


class Pairs(list[Any]):
    """A map as it stands in the bytes, repeated keys included."""


@dataclass(frozen=True)
class Column:
    """One column: its id, numpy type, what it has an entry for, and its default."""

    id: int
    name: str
    dtype: str
    per: str  # "rows", "tokens", "entries", "lp_tokens", or bytes: "error", "text", "extras"
    default: int | None  # None: must be there


@dataclass(frozen=True)
class Shape:
    """One kind of frame of columns."""

    kind: int
    header: tuple[str, ...]
    limits: Mapping[str, int]
    columns: tuple[Column, ...]

    def column(self, name: str) -> Column:
        return next(c for c in self.columns if c.name == name)


LANE = ("instance", "sender", "receiver", "seq")

STEP = Shape(
    1,
    (*LANE, "dp", "tp", "step", "rows", "tokens", "mono_ns"),
    {"dp": (1 << 12) - 1, "tp": (1 << 32) - 1, "rows": MAX_ROWS, "tokens": MAX_TOKENS},
    (
        Column(1, "handles", "<i8", "rows", None),
        Column(2, "counts", "<u2", "rows", 1),
        Column(3, "tokens", "<i4", "tokens", None),
        Column(4, "status", "u1", "rows", 0),
        Column(5, "position", "<u4", "rows", 0),
        Column(6, "lp_k", "<i4", "rows", -1),
        Column(7, "lp_ids", "<i4", "entries", None),
        Column(8, "lp_values", "<f4", "entries", None),
        Column(9, "lp_ranks", "<i4", "lp_tokens", None),
        Column(10, "extras_len", "<u4", "rows", 0),
        Column(11, "extras", "u1", "extras_bytes", None),
    ),
)
OUTPUT = Shape(
    2,
    (*LANE, "processor", "client", "rows", "tokens", "mono_ns"),
    {
        "processor": (1 << 32) - 1,
        "client": (1 << 32) - 1,
        "rows": MAX_ROWS,
        "tokens": MAX_TOKENS,
    },
    (
        Column(1, "keys", "<u8", "rows", None),
        Column(2, "counts", "<u4", "rows", 1),
        Column(3, "tokens", "<i4", "tokens", None),
        Column(4, "offsets", "<u4", "rows", None),
        Column(5, "finish", "u1", "rows", 0),
        Column(6, "stop_reason", "<i4", "rows", -1),
        Column(7, "lp_k", "<i4", "rows", -1),
        Column(8, "lp_ids", "<i4", "entries", None),
        Column(9, "lp_values", "<f4", "entries", None),
        Column(10, "lp_ranks", "<i4", "lp_tokens", None),
        Column(11, "error_len", "<u2", "rows", 0),
        Column(12, "error", "u1", "error_bytes", None),
        Column(13, "text_len", "<u4", "rows", 0),
        Column(14, "text", "u1", "text_bytes", None),
        Column(15, "text_offset", "<u4", "rows", 0),
        Column(16, "stop_string", "<i4", "rows", -1),
        Column(17, "cached", "<u4", "rows", 0),
        Column(18, "extras_len", "<u4", "rows", 0),
        Column(19, "extras", "u1", "extras_bytes", None),
        Column(20, "extras_offset", "<u8", "rows", 0),
        Column(21, "error_code", "u1", "rows", 0),
        Column(22, "error_field", "u1", "rows", 0),
    ),
)
SHAPES = {1: STEP, 2: OUTPUT}


@dataclass(frozen=True)
class Frame:
    """Header by name, every column by name with its default filled in."""

    shape: Shape
    header: dict[str, int]
    columns: dict[str, np.ndarray]

    @property
    def continues(self) -> bool:
        """Whether its rows are those of the frame before: it has no handles, no positions."""
        return self.shape is STEP and self.header["rows"] > 0 and not len(self.columns["handles"])


def _need(condition: object, why: str) -> None:
    if not condition:
        raise Refused(why)


def _is_uint(value: object) -> bool:
    return type(value) is int and 0 <= value <= U64


def _value(raw: bytes) -> Any:
    try:
        return msgpack.unpackb(raw, strict_map_key=False, object_pairs_hook=Pairs)
    except Exception as error:  # msgpack raises what it likes on bytes it does not like
        raise Refused(str(error)) from error


def read(raw: bytes, kind: int) -> Frame:
    """Return the frame, or raise Refused."""
    shape = SHAPES[kind]
    value = _value(raw)
    _need(type(value) is list and len(value) == 4, "no array of four")
    found, version, header, body = value
    _need(_is_uint(found) and found == kind, "kind")
    _need(_is_uint(version) and version == VERSION, "version")
    _need(type(header) is list and len(shape.header) <= len(header) <= MAX_HEADER, "header")
    _need(all(_is_uint(v) for v in header), "header")
    names = dict(zip(shape.header, header, strict=False))
    for name, limit in shape.limits.items():
        _need(names[name] <= limit, name)
    return Frame(shape, names, _columns(shape, names, _body(shape, body)))


def _body(shape: Shape, body: object) -> dict[int, bytes]:
    if not isinstance(body, Pairs):
        raise Refused("body")
    found: dict[int, bytes] = {}
    known = {column.id for column in shape.columns}
    for column, data in body:
        _need(_is_uint(column) and type(data) is bytes, "column")
        if column in found and column in known:
            raise Refused("column twice")
        found[column] = data
    return found


def _columns(shape: Shape, names: dict[str, int], body: dict[int, bytes]) -> dict[str, np.ndarray]:
    n = {"rows": names["rows"], "tokens": names["tokens"]}
    columns: dict[str, np.ndarray] = {}
    continues = shape is STEP and names["rows"] > 0 and not body.get(1)
    for column in shape.columns:
        if continues and column.name in ("handles", "position"):
            _need(not body.get(column.id), column.name)
            columns[column.name] = np.empty(0, column.dtype)
            continue
        if column.per == "entries" and "entries" not in n:
            k, counts = columns["lp_k"].astype(int), columns["counts"].astype(int)
            _need((k >= -1).all(), "lp_k")
            n["entries"] = int((counts * (k + 1)).sum())
            n["lp_tokens"] = int(counts[k >= 0].sum())
            _need(n["entries"] <= MAX_ENTRIES, "entries")
        if column.per == "error_bytes":
            n["error_bytes"] = int(columns["error_len"].astype(int).sum())
        if column.per == "text_bytes":
            n["text_bytes"] = int(columns["text_len"].astype(int).sum())
            _need(n["text_bytes"] <= MAX_TEXT, "text")
        if column.per == "extras_bytes":
            n["extras_bytes"] = int(columns["extras_len"].astype(int).sum())
            _need(n["extras_bytes"] <= MAX_EXTRAS, "extras")
        data = body.get(column.id, b"")
        size = n[column.per] * np.dtype(column.dtype).itemsize
        if data or column.default is None:
            _need(len(data) == size, column.name)
            columns[column.name] = np.frombuffer(data, column.dtype)
        else:
            columns[column.name] = np.full(n[column.per], column.default, column.dtype)
        if column.name == "counts":
            _need(int(columns["counts"].astype(int).sum()) == n["tokens"], "counts")
    return columns


def follow(before: Frame, frame: Frame) -> Frame:
    """Return a frame that continues with the handles and positions that it means."""
    if not frame.continues:
        return frame
    mine, theirs = frame.header, before.header
    _need(before.shape is STEP and not before.continues, "no StepFrame before it")
    _need(all(mine[name] == theirs[name] for name in ("instance", "sender", "rows")), "not its")
    _need(mine["seq"] == theirs["seq"] + 1, "not the one before")
    slots = [handle >> 35 & 0xFFFF for handle in before.columns["handles"].tolist()]
    _need(len(set(slots)) == len(slots), "two rows of a slot")
    position = before.columns["position"] + before.columns["counts"]
    filled = {"handles": before.columns["handles"], "position": position.astype("<u4")}
    return Frame(frame.shape, mine, {**frame.columns, **filled})


def write(frame: Frame) -> bytes:
    """Return the frame's bytes; a column that is all default is left out."""
    body = {}
    for column in frame.shape.columns:
        data = frame.columns[column.name].astype(column.dtype)
        if data.size and (column.default is None or (data != column.default).any()):
            body[column.id] = data.tobytes()
    header = [frame.header[name] for name in frame.shape.header]
    packed: bytes = msgpack.packb([frame.shape.kind, VERSION, header, body])
    return packed


class Packer:
    """Counts positions and judges rows the way StepPacker does, a row at a time."""

    def __init__(self, dp: int, tp: int, vocab_size: int) -> None:
        self.dp, self.tp, self.vocab_size = dp, tp, vocab_size
        self.slots: dict[int, tuple[int, int]] = {}
        self.bad_tokens = 0

    def pack(
        self,
        header: Sequence[int],
        handles: Sequence[int],
        rows: Sequence[Sequence[int]],
        status: Sequence[int],
        drained: Sequence[int],
        logprobs: Sequence[tuple[int, Sequence[Sequence[tuple[int, float]]], Sequence[int]]],
        extras: Sequence[bytes] = (),
    ) -> Frame:
        """Return the frame of these rows (committed); logprobs are (k, per token pairs, ranks)."""
        out: list[tuple[int, list[int], int, tuple[Any, ...]]] = []
        again = []
        for handle, tokens, state, (k, pairs, ranks) in zip(
            handles, rows, status, logprobs, strict=True
        ):
            kept = list(tokens)
            if state != 0:
                kept = kept[: next((i for i, t in enumerate(kept) if t < 0), len(kept))]
            entries = [pair for token in pairs[: len(kept)] for pair in token]
            ranks = list(ranks[: len(kept)])
            numbers = [i for i, _ in entries] + ranks
            if any(not 0 <= t < self.vocab_size for t in kept) or any(
                not -(1 << 31) <= v < 1 << 31 for v in numbers
            ):
                self.bad_tokens += 1
                if state == 1:
                    again.append(handle)
                out.append((handle, [], 4, (k, [], [])))
            else:
                out.append((handle, kept, state, (k, entries, ranks)))
        out += [(handle, [], 1, (-1, [], [])) for handle in [*drained, *again]]
        if not any(entries for *_, (_, entries, _) in out):
            out = [(h, t, s, (-1, [], [])) for h, t, s, _ in out]
        return self._frame(header, out, [*extras, *[b""] * (len(out) - len(extras))])

    def _frame(
        self, header: Sequence[int], out: Sequence[tuple[Any, ...]], extras: Sequence[bytes]
    ) -> Frame:
        position = [self._position(handle, len(tokens)) for handle, tokens, _, _ in out]
        tokens = [t for _, row, _, _ in out for t in row]
        entries = [pair for *_, (_, pairs, _) in out for pair in pairs]
        columns = {
            "handles": [handle for handle, *_ in out],
            "counts": [len(row) for _, row, _, _ in out],
            "tokens": tokens,
            "status": [state for _, _, state, _ in out],
            "position": position,
            "lp_k": [k for *_, (k, _, _) in out],
            "lp_ids": [i for i, _ in entries],
            "lp_values": [v for _, v in entries],
            "lp_ranks": [r for *_, (_, _, ranks) in out for r in ranks],
            "extras_len": [len(part) for part in extras],
            "extras": list(b"".join(extras)),
        }
        *lane, step, mono_ns = header
        values = (*lane, self.dp, self.tp, step, len(out), len(tokens), mono_ns)
        return Frame(
            STEP,
            dict(zip(STEP.header, values, strict=True)),
            {c.name: np.array(columns[c.name], c.dtype) for c in STEP.columns},
        )

    def _position(self, handle: int, count: int) -> int:
        slot = handle >> 35 & 0xFFFF
        newest, before = self.slots.get(slot, (0, 0))
        if handle < newest:
            return 0
        if handle > newest:
            before = 0
        self.slots[slot] = (handle, before + count)
        return before
