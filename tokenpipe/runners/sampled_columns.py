"""Turn a model's results into the columns of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenpipe.errors import RowError
from tokenpipe.extras import RowExtras
from tokenpipe.worker import StepLogprobs


class SampledColumns:
    """The result of one call: tokens flat, counts of each row, logprobs flat if k differs."""

    def __init__(self, values: dict[str, NDArray[Any]]) -> None:
        """Use these arrays: `tokens` [rows], or [rows, most] with `counts` [rows].

        `ids`, `values`, `ranks` and `k` are a `StepLogprobs`. Raises RowError for other shapes.
        """
        tokens, counts = values["tokens"], values.get("counts")
        self.counts = None if counts is None else counts.astype(np.int32)
        self.logprobs: StepLogprobs | None = None
        self.extras: dict[int, RowExtras] = {}
        taken: Any = ...
        if tokens.ndim == 2 and self.counts is not None:
            taken = np.arange(tokens.shape[1]) < self.counts[:, None]
        elif tokens.ndim != 1:
            raise RowError(
                f"tokens: shape {tokens.shape}, needs [rows], or [rows, most] and counts"
            )
        elif self.counts is not None:
            taken = self.counts > 0
        self.tokens = tokens[taken]
        self.rows = len(tokens)
        if "ids" in values:
            self.logprobs = self._ragged(values, taken)

    @classmethod
    def joined(cls, parts: Sequence[SampledColumns]) -> SampledColumns:
        """Return the rows of all parts, one after another."""
        columns = cls({"tokens": np.zeros(0, np.int64)})
        if not parts:
            return columns
        for part in parts:
            columns.extras |= {columns.rows + row: extras for row, extras in part.extras.items()}
            columns.rows += part.rows
        columns.tokens = np.concatenate([part.tokens for part in parts])
        if any(part.counts is not None for part in parts):
            columns.counts = np.concatenate([part._counted() for part in parts])
        if any(part.logprobs is not None for part in parts):
            each = zip(*(part._with_logprobs() for part in parts), strict=True)
            columns.logprobs = StepLogprobs(*(np.concatenate(arrays) for arrays in each))
        return columns

    @classmethod
    def empty(cls, reasons: Sequence[str]) -> SampledColumns:
        """Return a row without tokens for each reason. The reason is its error."""
        nothing = np.zeros(len(reasons), np.int64)
        columns = cls({"tokens": nothing, "counts": nothing})
        columns.extras = {row: RowExtras(error=why) for row, why in enumerate(reasons)}
        return columns

    def _counted(self) -> NDArray[Any]:
        return np.ones(self.rows, np.int32) if self.counts is None else self.counts

    def _ragged(self, values: dict[str, NDArray[Any]], taken: Any) -> StepLogprobs:
        ids, found, ranks = (values[name][taken] for name in ("ids", "values", "ranks"))
        k = values.get("k")
        if k is None:
            k = np.full(self.rows, ids.shape[1] - 1, np.int32)
        per_token = k if self.counts is None else np.repeat(k, self.counts)
        wanted = np.arange(ids.shape[1]) <= per_token[:, None]
        return StepLogprobs(ids[wanted], found[wanted], ranks[per_token >= 0], k)

    def _with_logprobs(self) -> StepLogprobs:
        if self.logprobs is not None:
            return self.logprobs
        none = np.zeros(0, np.int64), np.zeros(0, np.float32), np.zeros(0, np.int64)
        return StepLogprobs(*none, np.full(self.rows, -1, np.int32))
