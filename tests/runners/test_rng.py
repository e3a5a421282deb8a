"""What is drawn for a token follows from its request's seed and the token's index alone."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from tokenpipe.runners import Row
from tokenpipe.runners.rng import seeds, uniforms
from tokenpipe.types import SamplingParams


def row(params: SamplingParams, key: int = 1) -> Row:
    return Row(1, key, (1,), (), params, 9)


def test_numbers_follow_from_seed_and_offset_and_are_even() -> None:
    params = SamplingParams(seed=11)
    mine = seeds([row(params, 1), row(params, 2), row(SamplingParams(), 11)])
    assert mine[0] == mine[1] != mine[2]  # a seed is not another request's key
    numbers = uniforms(np.repeat(mine[:1], 20_000), np.arange(20_000))
    assert 0 < numbers.min() and numbers.max() < 1
    buckets = Counter((numbers * 16).astype(int).tolist())
    assert all(abs(buckets[b] - 1250) < 150 for b in range(16))
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.03  # four deviations


@given(st.lists(st.tuples(st.integers(0, (1 << 64) - 1), st.integers(0, 1 << 40)), max_size=9))
def test_a_row_draws_the_same_alone_and_in_any_batch(places: list[tuple[int, int]]) -> None:
    given_ = np.array([seed for seed, _ in places], np.uint64)
    offsets = np.array([at for _, at in places], np.int64)
    together = uniforms(given_, offsets)
    alone = [uniforms(given_[i : i + 1], offsets[i : i + 1])[0] for i in range(len(places))]
    assert together.tolist() == alone and together.dtype == np.float32
    assert ((together > 0) & (together < 1)).all()


@given(st.integers(-(1 << 63), (1 << 64) - 1))
def test_any_seed_is_one_and_none_is_the_key(seed: int) -> None:
    assume(seed % (1 << 64) != 1 ^ (1 << 63))  # the one seed that draws as the key 1 does
    with_seed = [row(SamplingParams(seed=seed), key) for key in (5, 6)]
    given_, same, keyed = seeds([*with_seed, row(SamplingParams())])
    assert given_ == same != keyed


def test_neighbours_have_nothing_in_common() -> None:
    """Seeds and offsets that differ by one draw what is as even as any."""
    drawn = uniforms(seeds([row(SamplingParams(seed=i)) for i in range(4096)]), np.zeros(4096, int))
    assert abs(float(drawn.mean()) - 0.5) < 0.02
    assert len(set(drawn.tolist())) > 4080
