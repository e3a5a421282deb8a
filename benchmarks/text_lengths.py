"""Measure whether a token's text costs more after many other tokens of the same request."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from tokenpipe.postprocess import Vocabulary

from .text_paths import ProcessorTable

LENGTHS = (10, 100, 1_000, 10_000, 60_000)
ROUNDS = 40  # of new requests, for the figures of the first tokens
CHUNK = 10  # frames made at once: so few are in cache. It divides all lengths
Report = dict[str, Any]


def by_length(
    vocabulary: Vocabulary,
    corpus: np.ndarray[Any, Any],
    starts: np.ndarray[Any, Any],
    stop: tuple[str, ...],
) -> Report:
    """Return ns a token up to each of LENGTHS, and `set_up_us`: µs to bind and drop a request.

    Sequence i of the batch is the corpus i32[n] from `starts[i]` on.
    """
    table = ProcessorTable(vocabulary, len(starts), stop)
    early = [length for length in LENGTHS if length <= 100]
    rounds: list[dict[int, float]] = []
    set_up: list[float] = []
    step = 1
    for turn in range(ROUNDS + 1):
        start = time.process_time_ns()
        table.drop()
        table.bind(turn + 2)
        set_up.append((time.process_time_ns() - start) / len(starts) / 1000)
        lengths = early if turn < ROUNDS else list(LENGTHS)

        def tokens(begin: int, end: int, turn: int = turn) -> np.ndarray[Any, Any]:
            steps = np.arange(begin, end)[:, None] + turn * 37
            batch: np.ndarray[Any, Any] = corpus[(steps + starts) % len(corpus)]
            return batch

        rounds.append(_feed(table, tokens, step, lengths))
        step += lengths[-1]
    figures = {str(length): found for length, found in rounds[-1].items()}
    for length in early:
        figures[str(length)] = statistics.median(figure[length] for figure in rounds)
    return {"set_up_us": statistics.median(set_up), **figures}


def _feed(
    table: ProcessorTable,
    tokens: Callable[[int, int], np.ndarray[Any, Any]],
    first: int,
    lengths: list[int],
) -> dict[int, float]:
    """Feed tokens up to the last of `lengths`; return ns a token from each length to the next.

    `tokens(a, b)` returns those of steps a to b. The first frame has step number `first`.
    """
    figures: dict[int, float] = {}
    for begin, end in pairwise([0, *lengths]):
        spent = 0
        for at in range(begin, end, CHUNK):
            frames = table.frames(tokens(at, at + CHUNK), first + at)
            start = time.process_time_ns()
            for frame in frames:
                table.step(frame)
            spent += time.process_time_ns() - start
        figures[end] = spent / ((end - begin) * len(table.handles))
    return figures
