"""The types and protocols that all rivals share."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


class Bound(NamedTuple):
    """One request of the batch. The processor gets it before the run."""

    slot: int
    key: int
    client: int
    max_tokens: int
    eos: int


class Columns(NamedTuple):
    """A client's message as columns: keys u64[n], offsets i64[n], tokens i32[n]."""

    keys: NDArray[np.uint64]
    offsets: NDArray[np.int64]
    tokens: NDArray[np.int32]
    ended: list[int]  # the rows whose request ended


Delta = tuple[int, int, list[int], bool]  # key, offset, token ids, finished


class Send(Protocol):
    """Turn the arrays of a step into a message."""

    def message(self, step: int, slots: NDArray[np.int64], tokens: NDArray[np.int32]) -> Any: ...


class Process(Protocol):
    """Keep the state of all requests; turn a step's message into one for each client."""

    def __init__(self, requests: list[Bound]) -> None: ...
    def messages(self, message: Any) -> list[tuple[int, Any]]: ...


class Receive(Protocol):
    """Read a client's message, as columns or as deltas."""

    def columns(self, message: Any) -> Columns: ...
    def deltas(self, message: Any) -> list[Delta]: ...


def columns_of(rows: list[Delta]) -> Columns:
    """Return rows of one token as columns, which are checked faster."""
    return Columns(
        np.array([row[0] for row in rows], dtype=np.uint64),
        np.array([row[1] for row in rows], dtype=np.int64),
        np.array([row[2][0] for row in rows], dtype=np.int32),
        [index for index, row in enumerate(rows) if row[3]],
    )
