"""Keep one step between its launch and its publishing: its rows, and its results on their way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenpipe.extras import RowAnnex
from tokenpipe.types import RowStatus
from tokenpipe.worker import StepLogprobs, tensors_of, with_arrays

from .devices import Device
from .model import I64, Row, Sampled


class RankPublishes(Protocol):
    """The part of `Publisher` that a runner uses."""

    def publish(
        self,
        step: int,
        handles: Any,
        tokens: Any,
        counts: Any = None,
        status: Any = None,
        logprobs: Any = None,
        drained: Any = None,
        *,
        annexes: Any = None,
    ) -> None:
        """Send one step."""

    def poll(self) -> None:
        """Read acknowledgements."""

    def fail(self, error: str | BaseException) -> None:
        """Say that this rank cannot go on."""


class InFlightStep:
    """One launched step: the results of one or two calls of the model, for their rows."""

    def __init__(
        self, step: int, rows: list[Row], handles: I64, parts: Sequence[Sampled], device: Device
    ) -> None:
        """Start to copy what was sampled."""
        self.step = step
        self.rows = rows
        self.counted = True  # every row has one token, and has been credited with it
        self.failed: list[int] = []  # handles that the model gave up
        self.drained: list[int] = []  # handles of which no later step has a row
        self._handles = handles
        self._names: list[list[str]] = []
        self._parts = parts
        self._columns: _Columns | None = None
        self._tokens: NDArray[Any] | None = None
        # One id a row and nothing beside it is what most steps are: they pay for nothing else.
        self._plain = len(parts) == 1 and is_plain(parts[0])
        if self._plain:
            self._copy = device.copy_off((parts[0].tokens,))
            return
        tensors: list[Any] = []
        for part in parts:
            values = {"tokens": part.tokens, "counts": part.counts}
            if part.logprobs is not None:
                values |= {"ids": part.logprobs.token_ids, "values": part.logprobs.logprobs}
                values |= {"ranks": part.logprobs.ranks, "k": part.logprobs.k}
            names = [name for name, value in values.items() if value is not None]
            self._names.append(names)
            tensors += [values[name] for name in names]
        for part in parts:
            tensors += tensors_of(part.annexes or {})
        self._copy = device.copy_off(tensors)

    def arrive(self) -> _Columns:
        """Return what was sampled; waits until it is there."""
        if self._columns is None and self._plain:
            self._columns = _Columns({"tokens": self._copy.wait()[0]})
        elif self._columns is None:
            arrays = iter(self._copy.wait())
            parts = [_Columns({name: next(arrays) for name in names}) for names in self._names]
            for part, given in zip(parts, self._parts, strict=True):
                part.annexes = with_arrays(given.annexes or {}, arrays)
            self._columns = parts[0] if len(parts) == 1 else _Columns.joined(parts)
        return self._columns

    def publish(self, pub: RankPublishes) -> None:
        """Send the step; after an exception of the lane it may be called again."""
        if self._plain and not self.failed:
            if self._tokens is None:
                self._tokens = self._copy.wait()[0]
            drained = self.drained or None
            pub.publish(self.step, self._handles, self._tokens, drained=drained)
            return
        columns, handles, status = self.arrive(), self._handles, None
        if self.failed:
            columns = columns.with_empty(len(self.failed))
            status = np.zeros(len(handles) + len(self.failed), np.uint8)
            status[len(handles) :] = RowStatus.ERROR
            handles = np.append(handles, np.array(self.failed, np.int64))
        pub.publish(
            self.step,
            handles,
            columns.tokens,
            counts=columns.counts,
            status=status,
            logprobs=columns.logprobs,
            drained=self.drained or None,
            **({"annexes": columns.annexes} if columns.annexes else {}),
        )


def is_plain(part: Sampled) -> bool:
    """Whether a model's result is one id a row and nothing beside it."""
    beside = part.counts is not None or part.logprobs is not None or part.annexes
    return not beside and len(part.tokens.shape) == 1


class _Columns:
    """The columns of `publish`: tokens flat, counts per row, logprobs flat where k differs."""

    def __init__(self, values: dict[str, NDArray[Any]]) -> None:
        """Take what one call of the model gave: `tokens` [rows] or [rows, most]."""
        tokens, counts = values["tokens"], values.get("counts")
        self.counts = None if counts is None else counts.astype(np.int32)
        self.logprobs: StepLogprobs | None = None
        self.annexes: dict[int, RowAnnex] = {}
        taken: Any = ...
        if tokens.ndim == 2:
            if self.counts is None:
                self.counts = np.full(len(tokens), tokens.shape[1], np.int32)
            taken = np.arange(tokens.shape[1]) < self.counts[:, None]
        elif self.counts is not None:
            taken = self.counts > 0
        self.tokens = tokens[taken]
        self.rows = len(tokens)
        if "ids" in values:
            self.logprobs = self._ragged(values, taken)

    def _ragged(self, values: dict[str, NDArray[Any]], taken: Any) -> StepLogprobs:
        ids, found, ranks = (values[name][taken] for name in ("ids", "values", "ranks"))
        k = values.get("k")
        if k is None:
            k = np.full(self.rows, ids.shape[1] - 1, np.int32)
        per_token = k if self.counts is None else np.repeat(k, self.counts)
        wanted = np.arange(ids.shape[1]) <= per_token[:, None]
        return StepLogprobs(ids[wanted], found[wanted], ranks[per_token >= 0], k)

    @classmethod
    def joined(cls, parts: Sequence[_Columns]) -> _Columns:
        """Return the rows of all parts, one after another."""
        columns = cls({"tokens": np.zeros(0, np.int64)})
        if not parts:
            return columns
        for part in parts:
            columns.annexes |= {columns.rows + row: annex for row, annex in part.annexes.items()}
            columns.rows += part.rows
        columns.tokens = np.concatenate([part.tokens for part in parts])
        if any(part.counts is not None for part in parts):
            columns.counts = np.concatenate([part.counted() for part in parts])
        if any(part.logprobs is not None for part in parts):
            each = zip(*(part._with_logprobs() for part in parts), strict=True)
            columns.logprobs = StepLogprobs(*(np.concatenate(arrays) for arrays in each))
        return columns

    def with_empty(self, rows: int) -> _Columns:
        """Return these and `rows` rows more that have no token."""
        nothing = {"tokens": np.zeros(rows, np.int64), "counts": np.zeros(rows, np.int64)}
        return self.joined([self, _Columns(nothing)])

    def counted(self) -> NDArray[Any]:
        """Return how many tokens each row has."""
        return np.ones(self.rows, np.int32) if self.counts is None else self.counts

    def _with_logprobs(self) -> StepLogprobs:
        if self.logprobs is not None:
            return self.logprobs
        none = np.zeros(0, np.int64), np.zeros(0, np.float32), np.zeros(0, np.int64)
        return StepLogprobs(*none, np.full(self.rows, -1, np.int32))
