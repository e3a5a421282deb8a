"""Play one API server: submit a share of the trace, check every token that comes back.

`python -m tokenpipe.bench.client --work FILE --report FILE` is what the bench starts, one process a
client. `--consume columns` reads whole frames, `streams` gives each request an async consumer.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tokenpipe.client import AsyncClient, AsyncStream, Client
from tokenpipe.types import FINISH_CODES, SamplingParams
from tokenpipe.wire import OutputFrame

from .checker import Checker
from .cpu import Meter, pin
from .pace import Samples

PROMPT_TOKENS = 8  # sent for each request; the lengths of a trace's prompts cost us nothing


class Work(NamedTuple):
    """One request to submit: when, how long, with which parameters."""

    at_s: float
    output_tokens: int


class Consumer:
    """What both ways of reading share: the checker, the counts, the report."""

    def __init__(self, work: list[Work], logprobs: int | None) -> None:
        self.work = work
        self.checker = Checker()
        self.reasons: Counter[str] = Counter()
        self.latency = Samples()
        self.item_tokens: Counter[int] = Counter()
        self.verify_s = 0.0
        self.first = self.last = 0.0
        self.short = 0  # requests that ended before their length though nobody aborted them
        self.errors: list[str] = []
        self.held: list[OutputFrame] = []  # with rows that begin beyond where their request stands
        self._logprobs = logprobs

    def params(self, work: Work) -> SamplingParams:
        """Return the parameters of one request."""
        return SamplingParams(max_tokens=work.output_tokens, logprobs=self._logprobs)

    def ended(self, key: int, reason: str, tokens: int, wanted: int, error: str | None) -> None:
        """Book a final output."""
        self.reasons[reason] += 1
        if reason == "length" and tokens != wanted:
            self.short += 1
        if error:
            self.errors.append(error)
        self.checker.finish(key, tokens)

    def report(self) -> dict[str, Any]:
        """Return verdict, counts and times as plain values."""
        verdict = self.checker.verdict()
        items = sorted(self.item_tokens.items())
        return {
            "tokens": verdict.tokens,
            "lost": verdict.lost,
            "duplicated": verdict.duplicated,
            "misattributed": verdict.misattributed,
            "reordered": verdict.reordered,
            "short": self.short,
            "reasons": dict(self.reasons),
            "errors": self.errors[:10],
            "latency_us": self.latency.us(),
            "verify_s": self.verify_s,
            "first": self.first,
            "last": self.last,
            "item_tokens": _quantiles(items),
        }


def read_columns(client: Client, me: Consumer) -> None:
    """Submit on time and check whole frames until every request has ended."""
    begin = time.monotonic()
    wanted: dict[int, int] = {}
    waiting = me.work[::-1]
    live = 0
    while waiting or live:
        now = time.monotonic()
        while waiting and begin + waiting[-1].at_s <= now:
            work = waiting.pop()
            key = client.submit([0] * PROMPT_TOKENS, me.params(work))
            me.checker.add(key)
            wanted[key] = work.output_tokens
            live += 1
        timeout_s = begin + waiting[-1].at_s - now if waiting else 1.0
        for frame in client.frames(timeout_s=max(0.0, min(timeout_s, 1.0))):
            live -= _take(me, frame, wanted)
            if waiting and begin + waiting[-1].at_s <= time.monotonic():
                break


def _take(me: Consumer, frame: OutputFrame, wanted: dict[int, int]) -> int:
    """Check a frame, or hold it until it fits; return how many requests ended.

    A request that went to another processor, or back to the engine, has two lanes to us, and the
    later one may be faster.
    """
    came = time.monotonic_ns()
    cpu = time.thread_time()
    if frame.mono_ns:
        me.latency.add(came - frame.mono_ns)
        me.last = came / 1e9
        me.first = me.first or me.last
    me.held.append(frame)
    ended = 0
    while (fits := next((f for f in me.held if not _ahead(me, f)), None)) is not None:
        me.held = [f for f in me.held if f is not fits]
        ended += _check(me, fits, wanted)
    me.verify_s += time.thread_time() - cpu
    return ended


def _ahead(me: Consumer, frame: OutputFrame) -> bool:
    return me.checker.ahead(frame.keys, frame.offsets.astype(np.int64))


def _check(me: Consumer, frame: OutputFrame, wanted: dict[int, int]) -> int:
    """Check a frame; return how many requests ended in it."""
    counts = frame.counts
    me.checker.rows(
        frame.keys, frame.offsets.astype(np.int64), counts.astype(np.int64), frame.tokens
    )
    over = np.flatnonzero(frame.finish)
    for row in over.tolist():
        key = int(frame.keys[row])
        tokens = int(frame.offsets[row]) + int(counts[row])
        if tokens >= 0xFFFFFFFF:  # its writer did not know how far the stream is
            tokens = me.checker.received(key)
        reason = str(FINISH_CODES[int(frame.finish[row])])
        me.ended(key, reason, tokens, wanted.pop(key), frame.errors[row])
    return len(over)


async def read_streams(client: AsyncClient, me: Consumer) -> None:
    """Give every request a task of its own, started on time."""
    begin = time.monotonic()
    tasks = [asyncio.create_task(_stream(client, me, work, begin)) for work in me.work]
    await asyncio.gather(*tasks)


async def _stream(client: AsyncClient, me: Consumer, work: Work, begin: float) -> None:
    delay_s = begin + work.at_s - time.monotonic()
    if delay_s > 0:
        await asyncio.sleep(delay_s)  # a request is due at its time of arrival
    items = me.item_tokens
    stream = client.generate([0] * PROMPT_TOKENS, me.params(work))
    assert isinstance(stream, AsyncStream)  # one sample
    kept: list[tuple[int, list[int]]] = []
    out = None
    async for out in stream:
        kept.append((out.offset, out.token_ids))
        items[len(out.token_ids)] += 1
        if not me.first:
            me.first = time.monotonic()
    me.last = time.monotonic()
    cpu = time.thread_time()
    assert out is not None and out.finish_reason is not None
    me.checker.add(stream.key)
    # Deltas that follow one another are checked as one: the checker works on columns.
    at, run = 0, list[int]()
    for offset, ids in kept:
        if offset != at + len(run):
            me.checker.stream(stream.key, at, run)
            at, run = offset, []
        run += ids
    me.checker.stream(stream.key, at, run)
    tokens = out.offset + len(out.token_ids)
    me.ended(stream.key, str(out.finish_reason), tokens, work.output_tokens, out.error)
    me.verify_s += time.thread_time() - cpu


def _quantiles(items: list[tuple[int, int]]) -> dict[str, int]:
    total = sum(n for _, n in items)
    found: dict[str, int] = {}
    for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
        seen = 0
        for tokens, n in items:
            seen += n
            if seen >= share * total:
                found[name] = tokens
                break
    return found


def main(argv: list[str]) -> int:
    """Run one client; the exit status says nothing about tokens, the report does."""
    parser = argparse.ArgumentParser(prog="python -m tokenpipe.bench.client", description=__doc__)
    parser.add_argument("--endpoint")
    parser.add_argument("--name", default="bench")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--consume", choices=("columns", "streams"), default="columns")
    parser.add_argument("--logprobs", type=int)
    parser.add_argument("--pin", type=int)
    args = parser.parse_args(argv)
    if args.pin is not None:
        pin(args.pin)
    me = Consumer([Work(*pair) for pair in json.loads(args.work.read_text())], args.logprobs)
    gc.collect()
    gc.freeze()
    meter = Meter.start()
    if args.consume == "columns":
        with Client(args.endpoint, name=args.name) as client:
            meter = Meter.start()
            read_columns(client, me)
    else:
        asyncio.run(_all_streams(args, me))
    args.report.write_text(json.dumps({**me.report(), **meter.spent()}))
    return 0


async def _all_streams(args: argparse.Namespace, me: Consumer) -> None:
    async with AsyncClient(args.endpoint, name=args.name) as client:
        await read_streams(client, me)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
