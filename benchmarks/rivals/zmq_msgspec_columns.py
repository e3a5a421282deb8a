"""The fastest Python without own C code: byte columns by msgspec, numpy over whole steps.

The state of the requests is in arrays, indexed by slot. Values that depend only on the batch (the
split by client, the keys of the rows) are kept while the batch does not change. A row has one
token here; rows of several tokens would need another path.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from .protocols import Bound, Columns, Delta

LABEL = "zmq_msgspec_columns"


class Step(msgspec.Struct, array_like=True, gc=False):
    """One step of a rank: slots i64[n], tokens i32[n]."""

    step: int
    slots: bytes
    tokens: bytes


class Output(msgspec.Struct, array_like=True, gc=False):
    """A client's part of a step: keys u64[n], offsets i64[n], tokens i32[n], rows that ended."""

    keys: bytes
    offsets: bytes
    tokens: bytes
    ended: list[int] = []


class Send:
    """Send the bytes of the arrays."""

    def __init__(self) -> None:
        self._encode = msgspec.msgpack.Encoder().encode

    def message(self, step: int, slots: NDArray[np.int64], tokens: NDArray[np.int32]) -> bytes:
        """Return the step as bytes."""
        return self._encode(Step(step, slots.tobytes(), tokens.tobytes()))


class Process:
    """Process a whole step with array operations."""

    def __init__(self, requests: list[Bound]) -> None:
        slots = 1 + max(r.slot for r in requests)
        self._key = np.zeros(slots, dtype=np.uint64)
        self._client = np.full(slots, -1, dtype=np.int64)  # -1: the slot is free
        self._eos = np.full(slots, -1, dtype=np.int32)
        self._max = np.zeros(slots, dtype=np.int64)
        self._count = np.zeros(slots, dtype=np.int64)
        self._token_ids = np.zeros((slots, 1 << 10), dtype=np.int32)
        for r in requests:
            self._key[r.slot], self._client[r.slot] = r.key, r.client
            self._eos[r.slot], self._max[r.slot] = r.eos, r.max_tokens
        self._decode = msgspec.msgpack.Decoder(Step).decode
        self._encode = msgspec.msgpack.Encoder().encode
        self._batch = b""
        # client, its rows (None: all of them), their keys
        self._split: list[tuple[int, NDArray[np.int64] | None, bytes]] = []

    def messages(self, message: bytes) -> list[tuple[int, bytes]]:
        """Return each client's columns as bytes."""
        step = self._decode(message)
        if step.slots != self._batch:
            self._regroup(step.slots)
        slots, eos, top = self._slots, self._row_eos, self._row_max
        tokens = np.frombuffer(step.tokens, dtype=np.int32)[self._live]
        offsets = self._count[slots]
        self._keep(slots, offsets, tokens)
        after = offsets + 1
        self._count[slots] = after
        over = (tokens == eos) | (after >= top)
        if not over.any():
            return [
                (client, self._encode(Output(keys, _some(offsets, rows), _some(tokens, rows))))
                for client, rows, keys in self._split
            ]
        outputs = [
            (
                client,
                self._encode(
                    Output(
                        keys,
                        _some(offsets, rows),
                        _some(tokens, rows),
                        np.flatnonzero(over if rows is None else over[rows]).tolist(),
                    )
                ),
            )
            for client, rows, keys in self._split
        ]
        self._client[slots[over]] = -1
        self._batch = b""  # the next step has another batch
        return outputs

    def _keep(
        self, slots: NDArray[np.int64], offsets: NDArray[np.int64], tokens: NDArray[np.int32]
    ) -> None:
        if len(offsets) and int(offsets.max()) >= self._token_ids.shape[1]:
            self._token_ids = np.pad(self._token_ids, ((0, 0), (0, self._token_ids.shape[1])))
        self._token_ids[slots, offsets] = tokens

    def _regroup(self, batch: bytes) -> None:
        slots = np.frombuffer(batch, dtype=np.int64)
        self._batch = batch
        live = np.flatnonzero(self._client[slots] >= 0)
        self._live = slice(None) if len(live) == len(slots) else live
        self._slots = slots[live]
        self._row_eos, self._row_max = self._eos[self._slots], self._max[self._slots]
        clients = self._client[self._slots]
        self._split = []
        for client in np.unique(clients).tolist():
            rows = np.flatnonzero(clients == client)
            keys = self._key[self._slots[rows]].tobytes()
            self._split.append((client, None if len(rows) == len(clients) else rows, keys))


def _some(column: NDArray[Any], rows: NDArray[np.int64] | None) -> bytes:
    return column.tobytes() if rows is None else column[rows].tobytes()


class Receive:
    """Read the columns without copying them."""

    def __init__(self) -> None:
        self._decode = msgspec.msgpack.Decoder(Output).decode

    def columns(self, message: bytes) -> Columns:
        """Return the columns."""
        out = self._decode(message)
        return Columns(
            np.frombuffer(out.keys, dtype=np.uint64),
            np.frombuffer(out.offsets, dtype=np.int64),
            np.frombuffer(out.tokens, dtype=np.int32),
            out.ended,
        )

    def deltas(self, message: bytes) -> list[Delta]:
        """Return one delta a row."""
        keys, offsets, tokens, ended = self.columns(message)
        over = [False] * len(keys)
        for row in ended:
            over[row] = True
        rows = zip(keys.tolist(), offsets.tolist(), tokens.tolist(), over, strict=True)
        return [(key, offset, [token], last) for key, offset, token, last in rows]
