"""Run work whose length a caller chooses in threads, so that the event loop goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from typing_extensions import ParamSpec

THREADS = 4
INLINE_BYTES = 4096  # work on fewer bytes takes about a millisecond, as a change of threads may

P = ParamSpec("P")
R = TypeVar("R")


class OffLoop:
    """Some threads, which begin with the first long work. An open one does not hold up the end."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None

    async def run(self, size: int, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Return what `work` returns. It runs in a thread if it reads `size` bytes, and many."""
        if size <= INLINE_BYTES:
            return work(*args, **kwargs)
        if self._executor is None:
            self._executor = ThreadPoolExecutor(THREADS, "tp-encode")
        call: Any = partial(work, *args, **kwargs)
        result: R = await asyncio.get_running_loop().run_in_executor(self._executor, call)
        return result

    def close(self) -> None:
        """Start no more work."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
