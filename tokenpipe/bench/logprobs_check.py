"""Compare logprobs with those of the oracle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenpipe.types import TokenLogprobs
from tokenpipe.wire import OutputFrame

from .oracle import VOCAB_BITS, logprobs_of


def misscored_in_frame(frame: OutputFrame, k: int | None, bits: int = VOCAB_BITS) -> int:
    """Return how many tokens of a frame have wrong logprobs.

    `k` is the number of top logprobs that the client asked for; None asks for no logprobs at all.
    """
    counts, ks = frame.counts, frame.lp_k
    if k is None:
        return int(counts[ks >= 0].sum())
    if not (ks[counts > 0] == k).all():
        return int(counts[ks != k].sum())  # the entries of the other rows are not compared then
    ids, values, ranks = logprobs_of(frame.tokens, k, bits)
    right = (frame.lp_ids.reshape(ids.shape) == ids).all(axis=1)
    right &= (frame.lp_values.reshape(ids.shape) == values).all(axis=1)
    right &= frame.lp_ranks == ranks
    return int(np.count_nonzero(~right))


def misscored_in_output(
    token_ids: Sequence[int],
    logprobs: Sequence[TokenLogprobs] | None,
    k: int | None,
    bits: int = VOCAB_BITS,
) -> int:
    """Return how many tokens of a stream's output have wrong, missing or unwanted logprobs."""
    got = [] if logprobs is None else list(logprobs)
    expected: list[TokenLogprobs] = []
    if k is not None:
        tokens = np.asarray(token_ids, dtype=np.int32)
        columns = (column.tolist() for column in logprobs_of(tokens, k, bits))
        expected = [
            TokenLogprobs(tuple(ids), tuple(values), rank)
            for ids, values, rank in zip(*columns, strict=True)
        ]
    same = sum(mine == theirs for mine, theirs in zip(got, expected, strict=False))
    return max(len(got), len(expected)) - same
