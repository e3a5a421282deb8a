"""A token is a function of its request's key and its offset."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tokenpipe.bench.oracle import VOCAB_SIZE, logprobs_of, seeds, sequence, token, tokens_of

KEYS = st.integers(0, 2**64 - 1)


@given(KEYS, st.integers(0, 2**31), st.integers(0, 40))
def test_a_sequence_is_the_same_as_its_single_tokens(key: int, offset: int, count: int) -> None:
    tokens = sequence(key, offset, count)
    assert tokens == [token(key, offset + i) for i in range(count)]
    assert all(0 <= t < VOCAB_SIZE for t in tokens)


@given(KEYS, st.integers(1, 1000))
def test_a_shifted_sequence_has_other_tokens(key: int, shift: int) -> None:
    here, there = sequence(key, 0, 64), sequence(key, shift, 64)
    assert sum(a == b for a, b in zip(here, there, strict=True)) < 16


@given(KEYS, st.integers(0, 63))
def test_a_neighbouring_key_has_other_tokens(key: int, bit: int) -> None:
    mine, other = sequence(key, 0, 64), sequence(key ^ (1 << bit), 0, 64)
    assert sum(a == b for a, b in zip(mine, other, strict=True)) < 8


def test_neighbouring_keys_differ_at_each_offset() -> None:
    keys = np.arange(1 << 16, dtype=np.uint64) + np.uint64(0xABCD_EF01_0000_0000)
    starts, strides = seeds(keys)
    for offset in (0, 1, 1000):
        tokens = tokens_of(starts, strides, np.full(len(keys), offset, dtype=np.int64))
        most = int(np.bincount(tokens, minlength=VOCAB_SIZE).max())
        assert most < 10, f"{most} of 65536 keys share one token at offset {offset}"


def test_logprobs_follow_from_the_token() -> None:
    tokens = np.array([5, 77, VOCAB_SIZE - 1], dtype=np.int32)
    ids, values, ranks = logprobs_of(tokens, 3)
    assert ids.shape == values.shape == (3, 4) and ranks.shape == (3,)
    assert ids[:, 0].tolist() == tokens.tolist()
    assert ((ids >= 0) & (ids < VOCAB_SIZE)).all() and (values <= 0).all() and (ranks >= 1).all()
    again = logprobs_of(tokens[1:2], 3)
    assert again[0].tolist() == ids[1:2].tolist() and again[1].tolist() == values[1:2].tolist()
