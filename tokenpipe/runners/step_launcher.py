"""Launch a step: prefill new rows, decode the others, sample, start the copy to the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenpipe.errors import RowsFailed

from .batch import DecodeBatch, RunnerBatch
from .devices import Device
from .in_flight import InFlightStep
from .model import I64, Model, Row, Sampled
from .sampling import Sampler


class StepLauncher:
    """Run the model over a batch. Sampled tokens go to the next step and stay on the device."""

    def __init__(self, paddle: Any, model: Model, device: Device) -> None:
        self._paddle = paddle
        self._model = model
        self._device = device
        self._sampler = Sampler(paddle)
        self._last: Any = None  # tokens of the newest step, on the device; None: the model has them
        self._last_rows: list[Row] = []

    @property
    def feeds_back(self) -> bool:
        """Whether the next decode gets the sampled tokens. If not, the model has them itself."""
        return self._last is not None

    def launch(self, batch: RunnerBatch, tried: Any = None) -> InFlightStep:
        """Run one step of the batch and start to copy its result.

        `tried` is the result, or the RowsFailed, of a decode of this batch that ran already.
        """
        parts: list[Any] = []
        failed: dict[int, str] = {}
        decode_batch = self._decode_all(batch, tried, parts, failed)
        fresh = self._prefill_all(batch.fresh(), parts, failed)
        rows, handles, lengths = decode_batch.rows, decode_batch.handles, decode_batch.lengths
        if fresh:
            rows = [*rows, *fresh]
            handles = np.append(handles, [row.handle for row in fresh]).astype(np.int64)
            lengths = np.append(lengths, lengths_of(fresh))
        own = any(isinstance(part, Sampled) for part in parts)
        if parts and not own:
            parts = [self.sample(parts, rows, lengths)]
        step = InFlightStep(rows, handles, parts, self._device, failed)
        if step.counted:
            decode_batch.taken += 1
            for row in fresh:
                row.produced += 1
        self._last = None if own or not parts else parts[0].tokens
        self._last_rows = rows
        if fresh:
            batch.join(fresh)
        return step

    def _decode_all(
        self, batch: RunnerBatch, tried: Any, parts: list[Any], failed: dict[int, str]
    ) -> DecodeBatch:
        """Decode, without the rows that the model gives up; return the batch that was decoded."""
        decode_batch = batch.decode_batch()
        while decode_batch.rows:
            try:
                if isinstance(tried, RowsFailed):
                    raise tried
                parts.append(self._decode(decode_batch) if tried is None else tried)
                break
            except RowsFailed as error:
                tried = None
                _give_up(decode_batch.rows, error, failed)
                batch.look()
                decode_batch = batch.decode_batch()
        return decode_batch

    def _prefill_all(self, fresh: list[Row], parts: list[Any], failed: dict[int, str]) -> list[Row]:
        """Prefill, without the rows that the model gives up; return those that were prefilled."""
        while fresh:
            try:
                parts.append(self._model.prefill(fresh))
                break
            except RowsFailed as error:
                _give_up(fresh, error, failed)
                fresh = [row for row in fresh if not row.failed]
        return fresh

    def _decode(self, batch: DecodeBatch) -> Any:
        if not self.feeds_back:
            return self._model.decode(batch.rows, None, None)
        part = self._model.decode(batch.rows, self._fed(batch.rows), batch.lengths)
        if isinstance(part, Sampled):  # the model now has its tokens itself
            self._last, self._last_rows = None, []
        return part

    def sample(self, logits: list[Any], rows: list[Row], lengths: I64) -> Sampled:
        """Sample from the logits of one or two calls of the model."""
        tensors = [self._tensor(part) for part in logits]
        whole = tensors[0] if len(tensors) == 1 else self._paddle.concat(tensors, axis=0)
        return self._sampler.sample(whole, rows, lengths)

    def _tensor(self, value: Any) -> Any:
        if isinstance(value, self._paddle.Tensor):
            return value
        if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
            return self._paddle.utils.dlpack.from_dlpack(value)  # of another framework; shared
        return self._paddle.to_tensor(value)

    def _fed(self, rows: list[Row]) -> Any:
        """Return the newest token of each row, on the device."""
        last = self._last.clip(min=0)  # a failed row has -1, which no embedding has
        if rows is self._last_rows:
            return last
        at = {id(row): i for i, row in enumerate(self._last_rows)}
        index = np.array([at[id(row)] for row in rows], np.int64)
        if len(index) == len(at) and (index == np.arange(len(at))).all():
            return last
        return self._paddle.gather(last, self._paddle.to_tensor(index))


def lengths_of(rows: list[Row]) -> I64:
    """Return int64 [rows], tokens of each sequence."""
    return np.array([row.length for row in rows], np.int64)


def _give_up(rows: list[Row], error: RowsFailed, failed: dict[int, str]) -> None:
    """Mark the rows that the model gave up. An error that names none of them is raised again."""
    named = [row for row in rows if row.handle in error.handles]
    if not named:
        raise error
    for row in named:
        row.failed = True
        failed[row.handle] = str(error)
