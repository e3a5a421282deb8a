"""A step between its launch and the arrival of its results on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tokenpipe.types import RowStatus
from tokenpipe.worker import StepRows, tensors_of, with_arrays

from .devices import Device
from .model import I64, Row, Sampled
from .sampled_columns import SampledColumns


class InFlightStep:
    """One launched step: its rows, and the results of one or two calls of the model.

    `drained` has handles without rows in later steps. `counted`: each row has one token. If not,
    the numbers are known when the results arrive. `in_place`: each row has one token and nothing
    else, and the model returned the tokens on the host.
    """

    def __init__(
        self,
        rows: list[Row],
        handles: I64,
        parts: Sequence[Sampled],
        device: Device,
        failed: Mapping[int, str],
    ) -> None:
        """Start the copy. `failed` has the handles that the model gave up, with the reasons."""
        self.drained: list[int] = []
        self._rows = rows
        self._handles = handles
        self._failed = failed
        self._parts = parts
        self._names: list[list[str]] = []
        self.counted = all(part.counts is None for part in parts)
        # Most steps have one token a row and nothing else, so they do nothing else.
        self._plain = len(parts) == 1 and not failed and is_plain(parts[0])
        tensors = [parts[0].tokens] if self._plain else self._tensors()
        self._copy = device.copy_off(tensors)
        self.in_place = self._plain and self._copy.was_on_host

    def _tensors(self) -> list[Any]:
        tensors: list[Any] = []
        for part in self._parts:
            values = {"tokens": part.tokens, "counts": part.counts}
            if part.logprobs is not None:
                values |= {"ids": part.logprobs.token_ids, "values": part.logprobs.logprobs}
                values |= {"ranks": part.logprobs.ranks, "k": part.logprobs.k}
            names = [name for name, value in values.items() if value is not None]
            self._names.append(names)
            tensors += [values[name] for name in names]
        for part in self._parts:
            tensors += tensors_of(part.extras or {})
        return tensors

    def arrive(self) -> StepRows:
        """Return the rows of the step. Waits until they are on the host."""
        arrays = self._copy.wait()
        if self._plain:
            return StepRows(self._handles, arrays[0], drained=self.drained)
        columns, handles, status = self._columns(arrays), self._handles, None
        if self._failed:
            columns = SampledColumns.joined(
                [columns, SampledColumns.empty(list(self._failed.values()))]
            )
            status = np.zeros(columns.rows, np.uint8)
            status[len(handles) :] = RowStatus.ERROR
            handles = np.append(handles, np.fromiter(self._failed, np.int64))
        return StepRows(
            handles,
            columns.tokens,
            columns.counts,
            columns.logprobs,
            status,
            columns.extras,
            self.drained,
        )

    def credit(self, counts: Any) -> bool:
        """Add tokens to the rows, int [rows]. Return whether a row now has all its tokens."""
        for row, count in zip(self._rows, np.asarray(counts).tolist(), strict=False):
            row.produced += count
        return any(row.left <= 0 for row in self._rows)

    def _columns(self, values: list[Any]) -> SampledColumns:
        arrays = iter(values)
        parts = [SampledColumns({name: next(arrays) for name in names}) for names in self._names]
        for part, given in zip(parts, self._parts, strict=True):
            part.extras = with_arrays(given.extras or {}, arrays)
        return parts[0] if len(parts) == 1 else SampledColumns.joined(parts)


def is_plain(part: Sampled) -> bool:
    """Return whether a result has one token a row and nothing else."""
    return part.counts is None and part.logprobs is None and not part.extras
