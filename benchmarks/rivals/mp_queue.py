"""The standard library: tuples through `multiprocessing.Queue`, and a short Python loop.

The queue pickles in a thread of its own, which must get the GIL from the thread that computes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .protocols import Bound, Columns, Delta, columns_of

LABEL = "mp_queue"

Row = tuple[int, list[int]]


class Send:
    """Send slots and tokens as lists, which a queue pickles fastest."""

    def message(
        self, step: int, slots: NDArray[np.int64], tokens: NDArray[np.int32]
    ) -> tuple[int, list[int], list[int]]:
        """Return the step as a tuple."""
        return step, slots.tolist(), tokens.tolist()


class Process:
    """Read the rows once, into one list for each client."""

    def __init__(self, requests: list[Bound]) -> None:
        self._requests: dict[int, tuple[Bound, list[int]]] = {r.slot: (r, []) for r in requests}
        self._clients = 1 + max(r.client for r in requests)

    def messages(self, message: tuple[int, list[int], list[int]]) -> list[tuple[int, list[Delta]]]:
        """Return each client's deltas."""
        requests = self._requests
        outputs: list[list[Delta]] = [[] for _ in range(self._clients)]
        for slot, token in zip(message[1], message[2], strict=True):
            found = requests.get(slot)
            if found is None:
                continue
            request, ids = found
            offset = len(ids)
            ids.append(token)
            over = token == request.eos or offset + 1 >= request.max_tokens
            if over:
                del requests[slot]
            outputs[request.client].append((request.key, offset, [token], over))
        return [(client, rows) for client, rows in enumerate(outputs) if rows]


class Receive:
    """Return the deltas unchanged."""

    def deltas(self, message: list[Delta]) -> list[Delta]:
        """Return one delta a row."""
        return message

    def columns(self, message: list[Delta]) -> Columns:
        """Return the rows as columns."""
        return columns_of(message)
