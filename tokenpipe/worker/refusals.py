"""Keep the requests that an executor refused until their rows are published."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import numpy as np

from tokenpipe.errors import FieldError, RequestRefused
from tokenpipe.extras import RowExtras
from tokenpipe.logs import RateLimit
from tokenpipe.types import RowStatus
from tokenpipe.wire import StepBind

from .executor import StepRows

_log = logging.getLogger("tokenpipe.worker")


class Refusals:
    """The refused requests of one rank. Each has a status and a reason."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = RateLimit(1.0, clock)
        self._rows: dict[int, tuple[RowStatus, RowExtras]] = {}  # by handle

    def __bool__(self) -> bool:
        """Return whether a refusal waits to be published."""
        return bool(self._rows)

    def add(self, binding: StepBind, error: Exception) -> None:
        """Keep and log the reason why `Executor.admit` refused a request."""
        if isinstance(error, RequestRefused | FieldError):
            status, why, field = RowStatus.REFUSED, str(error), error.field or ""
        else:
            status, why, field = RowStatus.ERROR, f"{type(error).__name__}: {error}", ""
        self._rows[binding.handle] = status, RowExtras(error=why, error_field=field)
        said = f"request {binding.key:#x} is refused: {why}"
        self._limit.log(_log, logging.WARNING, "refused", said)

    def take(self) -> StepRows:
        """Return a row without tokens for each refused request, and forget them."""
        rows, self._rows = self._rows, {}
        status, extras = zip(*rows.values(), strict=True)
        return StepRows(
            np.fromiter(rows, np.int64, len(rows)),
            np.zeros(0, np.int32),
            np.zeros(len(rows), np.int32),
            status=np.array(status, np.uint8),
            extras=dict(enumerate(extras)),
        )

    def clear(self) -> None:
        """Forget all of them, because their handles are dead."""
        self._rows.clear()
