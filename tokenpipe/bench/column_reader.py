"""Read whole frames as columns, as a gateway does, and check each row."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tokenpipe._core import OFFSET_UNKNOWN
from tokenpipe.client import Client
from tokenpipe.types import FINISH_CODES, ErrorCode
from tokenpipe.wire import OutputFrame

from .client_results import ClientResults, PlannedRequest

PROMPT_TOKENS = 8  # of each request: the length of a prompt does not matter to the output path
EARLY_WAIT_S = 5.0  # how long a row waits for the tokens before it
IDLE_WAIT_S = 1.0


@dataclass
class _EarlyFrame:
    frame: OutputFrame
    came: float
    until: float  # it is checked at this time, even if earlier tokens are missing


class ColumnReader:
    """Submit requests on time and check whole frames until each request has ended.

    Where no row arrives for `patience_s`, the reader stops. The report then has fewer ends than
    requests.
    """

    def __init__(self, client: Client, results: ClientResults, patience_s: float = 60.0) -> None:
        self._client = client
        self._results = results
        self._patience_s = patience_s
        self._live: dict[int, PlannedRequest] = {}
        self._to_cancel: dict[int, int] = {}  # key -> number of tokens after which to cancel
        self._early: list[_EarlyFrame] = []  # a row's earlier tokens have not come yet

    def run(self) -> None:
        """Submit and read until all requests have ended."""
        begin = heard = time.monotonic()
        waiting = self._results.requests[::-1]
        while waiting or self._live:
            now = time.monotonic()
            if self._live and now - heard > self._patience_s:
                break
            while waiting and begin + waiting[-1].at_s <= now:
                self._submit(waiting.pop())
            timeout_s = begin + waiting[-1].at_s - now if waiting else IDLE_WAIT_S
            for frame in self._client.frames(timeout_s=max(0.0, min(timeout_s, IDLE_WAIT_S))):
                self.take(frame)
                heard = time.monotonic()
                if waiting and begin + waiting[-1].at_s <= heard:
                    break
            if not self._live:
                heard = time.monotonic()
            self._check_early(time.monotonic())
        self._check_early(float("inf"))

    def take(self, frame: OutputFrame) -> None:
        """Check a frame, or keep it until the tokens before it have come.

        A request that moves to another processor, or back to the engine, has two lanes to this
        client, and the later lane may be faster.
        """
        results = self._results
        came_ns = time.monotonic_ns()
        came = came_ns / 1e9
        cpu = time.thread_time()
        if frame.mono_ns:
            results.latency.add(came_ns - frame.mono_ns)
            results.received(came)
        results.token_counter.add(len(frame.tokens))
        for early in self._early:
            # This frame was made before the early frame came. So the lane of this frame is read
            # late, and may still bring the missing tokens.
            if 0 < frame.mono_ns < early.came * 1e9:
                early.until = came + EARLY_WAIT_S
        self._early.append(_EarlyFrame(frame, came, came + EARLY_WAIT_S))
        self._check_early(came)
        results.verify_s += time.thread_time() - cpu
        if self._to_cancel:
            self._cancel(frame.keys.tolist())

    def _submit(self, request: PlannedRequest) -> None:
        key = self._client.submit([0] * PROMPT_TOKENS, self._results.params(request))
        self._expect(key, request)
        if request.cancel_at >= 0:
            self._to_cancel[key] = request.cancel_at
            self._cancel([key])

    def _expect(self, key: int, request: PlannedRequest) -> None:
        self._results.checker.add(key)
        self._live[key] = request

    def _check_early(self, now: float) -> None:
        """Check the frames whose earlier tokens have come or that have waited long enough."""
        while True:
            due = (e for e in self._early if e.until <= now or not self._is_early(e.frame))
            found = next(due, None)
            if found is None:
                return
            self._early = [early for early in self._early if early is not found]
            self._check(found.frame)

    def _is_early(self, frame: OutputFrame) -> bool:
        return self._results.checker.ahead(frame.keys, frame.offsets.astype(np.int64))

    def _check(self, frame: OutputFrame) -> None:
        results, counts = self._results, frame.counts
        results.checker.rows(
            frame.keys, frame.offsets.astype(np.int64), counts.astype(np.int64), frame.tokens
        )
        results.checker.scores(frame)
        if results.text is not None:
            results.text.frame(frame)
        for row in np.flatnonzero(frame.finish).tolist():
            self._end(frame, row)

    def _end(self, frame: OutputFrame, row: int) -> None:
        """Note the end of the request that this row ends."""
        results, key = self._results, int(frame.keys[row])
        tokens = int(frame.offsets[row]) + int(frame.counts[row])
        if tokens >= OFFSET_UNKNOWN:
            tokens = results.checker.received(key)
        reason = str(FINISH_CODES[int(frame.finish[row])])
        request = self._live.pop(key, None)
        if request is None:
            results.errors.append(f"request {key:#x} ended twice, or was never submitted")
            results.reasons["error"] += 1
            return
        self._to_cancel.pop(key, None)
        code = ErrorCode(int(frame.error_code[row])) if reason == "error" else None
        results.ended(key, reason, tokens, request.output_tokens, frame.errors[row], code)
        if results.text is not None and reason != "error":
            results.text.finish(key, tokens)

    def _cancel(self, keys: Iterable[int]) -> None:
        """Cancel each of these requests that has its planned number of tokens."""
        for key in keys:
            tokens = self._to_cancel.get(key)
            if tokens is not None and self._results.checker.received(key) >= tokens:
                del self._to_cancel[key]
                self._results.cancelled += 1
                self._client.cancel(key)
