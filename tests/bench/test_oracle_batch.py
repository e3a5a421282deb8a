"""A batch gives each handle its request's tokens, in order, however plans change it."""

import random

import pytest

from tokenpipe.bench.oracle import sequence
from tokenpipe.bench.oracle_batch import OracleBatch
from tokenpipe.wire import StepBind


def bind(handle: int, key: int, at: int = 0, max_tokens: int = 100) -> StepBind:
    return StepBind(handle, key, output_tokens=at, max_tokens=max_tokens)


def steps(batch: OracleBatch, number: int) -> dict[int, list[int]]:
    """Run steps; return the tokens of each handle."""
    got: dict[int, list[int]] = {}
    for _ in range(number):
        rows = batch.step()
        tokens = rows.tokens.tolist()
        k = len(tokens) // max(1, len(rows.handles))
        assert (rows.counts is None) == (k <= 1)
        for row, handle in enumerate(rows.handles.tolist()):
            got.setdefault(handle, []).extend(tokens[row * k : (row + 1) * k])
    return got


@pytest.mark.parametrize("k", [1, 3])
def test_handles_get_their_tokens_while_the_batch_changes(k: int) -> None:
    chance = random.Random(3)
    batch = OracleBatch(tokens_per_row=k)
    key_of: dict[int, int] = {}
    begin: dict[int, int] = {}
    got: dict[int, list[int]] = {}
    live: list[int] = []
    for handle in range(1, 60):
        key_of[handle], begin[handle] = chance.getrandbits(64), chance.randrange(50)
        free = live.pop(chance.randrange(len(live))) if len(live) > 8 else None
        batch.change([bind(handle, key_of[handle], begin[handle], 10_000)], [free] if free else [])
        live.append(handle)
        for owner, tokens in steps(batch, chance.randrange(5)).items():
            assert owner in live
            got.setdefault(owner, []).extend(tokens)
    assert len(got) > 30
    for handle, tokens in got.items():
        assert tokens == sequence(key_of[handle], begin[handle], len(tokens))


def test_a_handle_gets_no_token_after_its_length_and_the_overrun() -> None:
    batch = OracleBatch(tokens_per_row=2, overrun=1)
    batch.change([bind(1, 11, at=3, max_tokens=8), bind(2, 22, at=0, max_tokens=100)], [])
    got = steps(batch, 10)
    assert len(got[1]) == 6 + 2 and len(got[2]) == 20
    assert len(batch) == 1


def test_a_handle_may_be_freed_after_its_end_or_before_its_first_step() -> None:
    batch = OracleBatch(overrun=0)
    batch.change([bind(1, 11, max_tokens=1), bind(2, 22)], [])
    steps(batch, 3)
    batch.change([bind(3, 33), bind(4, 44)], [1, 2, 3])
    assert batch.step().handles.tolist() == [4]


def test_a_request_that_has_all_its_tokens_gets_only_the_overrun() -> None:
    batch = OracleBatch(overrun=0)
    batch.change([bind(1, 11, at=8, max_tokens=8)], [])
    assert len(batch) == 0


def test_rows_without_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="tokens_per_row"):
        OracleBatch(tokens_per_row=0)
