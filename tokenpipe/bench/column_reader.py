"""Read whole frames of columns, as a gateway would, and check every row."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tokenpipe._core import OFFSET_UNKNOWN
from tokenpipe.client import Client
from tokenpipe.types import FINISH_CODES
from tokenpipe.wire import OutputFrame

from .client_results import ClientResults, PlannedRequest

PROMPT_TOKENS = 8  # sent for each request; the lengths of a trace's prompts cost us nothing
AHEAD_S = 5.0  # a row that begins beyond where its request stands waits so long for the others


@dataclass
class _Held:
    frame: OutputFrame
    came: float
    until: float


class ColumnReader:
    """Submit on time and check whole frames until every request has ended.

    A request that is silent for `patience_s`, with nothing else to read either, is not waited for:
    the report then has fewer ends than requests.
    """

    def __init__(self, client: Client, me: ClientResults, patience_s: float = 60.0) -> None:
        self._client = client
        self._me = me
        self._patience_s = patience_s
        self._live: dict[int, PlannedRequest] = {}
        self._leaving: dict[int, int] = {}  # key -> tokens after which it is given up
        self._held: list[_Held] = []  # with rows that begin beyond where their request stands

    def run(self) -> None:
        """Do all of the work."""
        begin = heard = time.monotonic()
        waiting = self._me.work[::-1]
        while waiting or self._live:
            now = time.monotonic()
            if self._live and now - heard > self._patience_s:
                break
            while waiting and begin + waiting[-1].at_s <= now:
                self._submit(waiting.pop())
            timeout_s = begin + waiting[-1].at_s - now if waiting else 1.0
            for frame in self._client.frames(timeout_s=max(0.0, min(timeout_s, 1.0))):
                self.take(frame)
                heard = time.monotonic()
                if waiting and begin + waiting[-1].at_s <= heard:
                    break
            if not self._live:
                heard = time.monotonic()
            self._check_what_fits(time.monotonic())
        self._check_what_fits(float("inf"))

    def _submit(self, work: PlannedRequest) -> None:
        key = self._client.submit([0] * PROMPT_TOKENS, self._me.params(work))
        self._expect(key, work)
        if work.cancel_at >= 0:
            self._leaving[key] = work.cancel_at
            self._give_up([key])

    def _expect(self, key: int, work: PlannedRequest) -> None:
        self._me.checker.add(key)
        self._live[key] = work

    def take(self, frame: OutputFrame) -> None:
        """Check a frame, or hold it until it fits.

        A request that went to another processor, or back to the engine, has two lanes to us, and
        the later one may be faster.
        """
        me = self._me
        came = time.monotonic_ns()
        cpu = time.thread_time()
        if frame.mono_ns:
            me.latency.add(came - frame.mono_ns)
            me.last = came / 1e9
            me.first = me.first or me.last
        me.tally.add(len(frame.tokens))
        for held in self._held:
            # Of a lane that is read late: it may still bring what is missing.
            if 0 < frame.mono_ns < held.came * 1e9:
                held.until = came / 1e9 + AHEAD_S
        self._held.append(_Held(frame, came / 1e9, came / 1e9 + AHEAD_S))
        self._check_what_fits(came / 1e9)
        me.verify_s += time.thread_time() - cpu
        if self._leaving:
            self._give_up(frame.keys.tolist())

    def _check_what_fits(self, now: float) -> None:
        while (
            held := next((h for h in self._held if h.until <= now or not self._ahead(h)), None)
        ) is not None:
            self._held = [h for h in self._held if h is not held]
            self._check(held.frame)

    def _ahead(self, held: _Held) -> bool:
        frame = held.frame
        return self._me.checker.ahead(frame.keys, frame.offsets.astype(np.int64))

    def _check(self, frame: OutputFrame) -> None:
        me, counts = self._me, frame.counts
        me.checker.rows(
            frame.keys, frame.offsets.astype(np.int64), counts.astype(np.int64), frame.tokens
        )
        me.checker.scores(frame)
        if me.text is not None:
            me.text.frame(frame)
        for row in np.flatnonzero(frame.finish).tolist():
            key = int(frame.keys[row])
            tokens = int(frame.offsets[row]) + int(counts[row])
            if tokens >= OFFSET_UNKNOWN:
                tokens = me.checker.received(key)
            reason = str(FINISH_CODES[int(frame.finish[row])])
            work = self._live.pop(key, None)
            if work is None:
                me.errors.append(f"request {key:#x} ended twice, or was never made")
                me.reasons["error"] += 1
                continue
            self._leaving.pop(key, None)
            me.ended(key, reason, tokens, work.output_tokens, frame.errors[row])
            if me.text is not None and reason != "error":
                me.text.finish(key, tokens)

    def _give_up(self, keys: Iterable[int]) -> None:
        """Give up those of these requests that have had as many tokens as their work says."""
        for key in keys:
            tokens = self._leaving.get(key)
            if tokens is not None and self._me.checker.received(key) >= tokens:
                del self._leaving[key]
                self._me.cancelled += 1
                self._client.give_up(key)
