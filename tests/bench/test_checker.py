"""The checker counts each kind of wrong token, and none in a right output."""

import random

import numpy as np
import pytest

from tokenpipe.bench.checker import Checker
from tokenpipe.bench.oracle import sequence
from tokenpipe.bench.verdict import Verdict

BASE = 0x1234_5678 << 32


def checker(*keys: int) -> Checker:
    made = Checker()
    for key in keys:
        made.add(key)
    return made


def feed(made: Checker, rows: list[tuple[int, int, list[int]]]) -> None:
    """Feed rows (key, offset, tokens) as one frame."""
    made.rows(
        np.array([row[0] for row in rows], dtype=np.uint64),
        np.array([row[1] for row in rows], dtype=np.uint32).astype(np.int64),
        np.array([len(row[2]) for row in rows], dtype=np.int64),
        np.array([t for row in rows for t in row[2]], dtype=np.int32),
    )


def right(key: int, offset: int, count: int) -> tuple[int, int, list[int]]:
    return key, offset, sequence(key, offset, count)


@pytest.mark.parametrize("columnar", [True, False])
def test_right_output_is_right_however_it_is_split(columnar: bool) -> None:
    chance = random.Random(1)
    keys = [BASE + i for i in range(3000)]  # more than the first allocation
    made = checker(*keys)
    at = dict.fromkeys(keys, 0)
    for _ in range(40):
        rows = []
        for key in chance.sample(keys, 50):
            rows.append(right(key, at[key], chance.randrange(4)))
            at[key] += len(rows[-1][2])
        if columnar:
            feed(made, rows)
        else:
            for row in rows:
                made.stream(*row)
    for key in keys:
        assert made.received(key) == at[key]
        made.finish(key, at[key])
    assert made.verdict() == Verdict(tokens=sum(at.values()))


def test_one_token_rows_need_no_counts() -> None:
    made = checker(BASE, BASE + 1)
    for offset in range(5):
        tokens = [sequence(key, offset, 1)[0] for key in (BASE, BASE + 1)]
        made.rows(
            np.array([BASE, BASE + 1], dtype=np.uint64),
            np.array([offset, offset], dtype=np.int64),
            None,
            np.array(tokens, dtype=np.int32),
        )
    assert made.verdict() == Verdict(tokens=10)


def test_a_request_may_be_twice_in_a_frame_where_its_rows_follow_one_another() -> None:
    made = checker(BASE)
    feed(made, [right(BASE, 0, 2), right(BASE, 2, 3)])
    assert made.verdict() == Verdict(tokens=5)


def test_counts_a_repeat_also_within_one_frame() -> None:
    made = checker(BASE, BASE + 1)
    feed(made, [right(BASE, 0, 2), right(BASE, 0, 2), right(BASE + 1, 0, 1)])
    feed(made, [right(BASE, 1, 2)])
    assert made.verdict() == Verdict(tokens=4, duplicated=3)


def test_counts_tokens_that_are_missing_in_the_middle_and_at_the_end() -> None:
    made = checker(BASE)
    feed(made, [right(BASE, 0, 2)])
    feed(made, [right(BASE, 5, 2)])
    assert made.verdict() == Verdict(tokens=4, lost=3)
    made.finish(BASE, 9)
    assert made.verdict() == Verdict(tokens=4, lost=5)


def test_a_late_token_is_reordered_and_not_lost() -> None:
    made = checker(BASE)
    feed(made, [right(BASE, 0, 2)])
    feed(made, [right(BASE, 4, 2)])
    feed(made, [right(BASE, 2, 2)])
    made.finish(BASE, 6)
    assert made.verdict() == Verdict(tokens=4, reordered=2)


def test_counts_tokens_of_another_request() -> None:
    made = checker(BASE, BASE + 1)
    feed(made, [(BASE, 0, sequence(BASE + 1, 0, 3)), right(BASE + 1, 0, 3)])
    assert made.verdict() == Verdict(tokens=3, misattributed=3)


@pytest.mark.parametrize("stranger", [BASE + 7, BASE + 10**6, 42])
def test_counts_output_of_an_unknown_request(stranger: int) -> None:
    made = checker(BASE)
    feed(made, [right(BASE, 0, 1), right(stranger, 0, 2)])
    assert made.verdict() == Verdict(tokens=1, misattributed=2)


def test_counts_output_after_the_end() -> None:
    made = checker(BASE)
    feed(made, [right(BASE, 0, 3)])
    made.finish(BASE, 2)
    feed(made, [right(BASE, 3, 1)])
    assert made.verdict().wrong == 2


def test_counts_outputs_that_a_reader_found_misplaced() -> None:
    made = checker(BASE)
    made.misplaced(3)
    made.misplaced(-2)
    assert made.verdict() == Verdict(lost=3, duplicated=2)
