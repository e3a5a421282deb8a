"""What a publisher sends, when it sends nothing, and what stands after it raised."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.worker.far import Far
from tokenpipe.errors import (
    ConfigError,
    ForkError,
    LaneBusy,
    LaneClosed,
    LaneFull,
    LaneLost,
    RowError,
    StartupError,
)
from tokenpipe.extras import RowExtras
from tokenpipe.types import RowStatus, make_handle
from tokenpipe.wire import RankFailed
from tokenpipe.worker import StepLogprobs

Make = Callable[..., Far]
A, B = make_handle(0, 0, 1), make_handle(0, 1, 1)


@pytest.fixture
def far(runtime_dir: Path) -> Iterator[Make]:
    """Make far ends that are closed with the test."""
    made: list[Far] = []

    def make(**options: Any) -> Far:
        made.append(Far(runtime_dir, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_step_arrives_as_it_was_published(far: Make) -> None:
    f = far(vocab_size=100)
    with f.publisher() as pub:
        assert pub.ready and pub.sends and (pub.dp_rank, pub.tp_rank) == (0, 0)
        pub.publish(
            7,
            [A, B],
            np.array([1, 2, 3], np.int64),
            counts=[2, 1],
            logprobs=StepLogprobs([1, 9, 2, 8], [-0.5, -1, -0.25, -2], [1, 3], k=[1, -1]),
            step_ns=1234,
        )
        pub.publish(8, [], [], drained=[A])
        f.until(lambda: len(f.frames) == 2 and not pub.unacknowledged, pub.poll)
        step, last = f.steps()
        assert (step.dp, step.tp, step.step, step.mono_ns) == (0, 0, 7, 1234)
        assert step.handles.tolist() == [A, B] and step.counts.tolist() == [2, 1]
        assert step.tokens.tolist() == [1, 2, 3] and step.status.tolist() == [0, 0]
        assert step.lp_k.tolist() == [1, -1] and step.lp_ids.tolist() == [1, 9, 2, 8]
        assert last.handles.tolist() == [A] and last.status.tolist() == [RowStatus.DRAINED]
        assert (step.header.seq, last.header.seq) == (1, 2)
        assert step.header.sender == pub.incarnation
        f.beside(pub.close)


def test_positions_count_on_per_handle(far: Make) -> None:
    f = far()
    pub = f.publisher()
    pub.publish(1, [A, B], [1, 2])
    pub.publish(2, [B, A], [3, 4, 5], counts=[2, 1])
    pub.publish(3, [A], [6])
    f.until(lambda: len(f.frames) == 3, pub.poll)
    assert [step.positions.tolist() for step in f.steps()] == [[0, 0], [1, 1], [2]]
    f.beside(pub.close)


def test_after_an_error_nothing_was_numbered_and_the_step_may_come_again(far: Make) -> None:
    f = far(bounds={"lane_bytes": 4096, "max_frame_bytes": 4096}, backpressure="fail")
    pub = f.publisher()
    f.acks = False
    with pytest.raises(RowError):
        pub.publish(1, [A, B], [1])
    step = 1
    with pytest.raises(LaneFull):
        while True:
            pub.publish(step, [A], [step])
            step += 1
    f.acks = True
    f.until(lambda: not pub.unacknowledged, pub.poll)
    pub.publish(step, [A], [step])
    f.until(lambda: len(f.frames) == step, pub.poll)
    assert [s.tokens.tolist() for s in f.steps()] == [[n] for n in range(1, step + 1)]
    assert [s.positions.tolist() for s in f.steps()] == [[n] for n in range(step)]
    assert [s.header.seq for s in f.steps()] == list(range(1, step + 1))
    f.beside(pub.close)


def tokens_of(f: Far) -> dict[int, list[int]]:
    """Return all tokens by handle, checked against the positions."""
    got: dict[int, list[int]] = {}
    for step in f.steps():
        at = 0
        rows = zip(step.handles.tolist(), step.positions, step.counts.tolist(), strict=True)
        for handle, position, count in rows:
            assert position == len(got.setdefault(handle, []))
            got[handle] += step.tokens[at : at + count].tolist()
            at += count
    return got


@pytest.mark.case("B04")
@pytest.mark.case("F33")
@pytest.mark.parametrize("plain", [True, False])
def test_a_fork_that_publishes_ten_rows_gets_ten_errors(far: Make, plain: bool) -> None:
    f = far()
    pub = f.publisher()
    pub.publish(1, [A], [1])
    f.until(lambda: not pub.unacknowledged, pub.poll)
    extras = None if plain else {0: RowExtras(custom=b"x")}
    pid = os.fork()
    if pid == 0:
        refused = 0
        for step in range(2, 12):
            try:
                pub.publish(step, [A], [step], extras=extras)
            except ForkError as error:
                refused += str(os.getppid()) in str(error) and str(os.getpid()) in str(error)
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 10
    pub.publish(2, [A], [2], extras=extras)
    f.until(lambda: not pub.unacknowledged, pub.poll)
    assert [step.tokens.tolist() for step in f.steps()] == [[1], [2]]
    f.beside(pub.close)


@pytest.mark.case("F07")
def test_a_step_that_is_too_large_for_a_frame_goes_in_several(far: Make) -> None:
    f = far(bounds={"lane_bytes": 1 << 20, "max_frame_bytes": 4096})
    pub = f.publisher()
    handles = [make_handle(0, slot, 1) for slot in range(8)]
    tokens = np.arange(8 * 400, dtype=np.int32)
    k = [20 if row % 2 else -1 for row in range(8)]
    entries = 4 * 400 * 21
    logprobs = StepLogprobs(
        np.arange(entries, dtype=np.int32),
        np.arange(entries, dtype=np.float32) / 8,
        np.arange(1, 1601, dtype=np.int32),
        k=k,
    )
    extras = {3: RowExtras(draft_token_ids=list(range(400)), reasoning_tokens=7)}
    pub.publish(4, handles, tokens, [400] * 8, logprobs=logprobs, drained=[A], extras=extras)
    assert pub.last_step == 4
    pub.publish(5, [B], [9])
    f.until(lambda: f.frames and f.steps()[-1].step == 5 and not pub.unacknowledged, pub.poll)
    steps = f.steps()
    assert max(map(len, f.frames)) <= 4096 and {step.step for step in steps} == {4, 5}
    got = tokens_of(f)
    assert [got[h] for h in handles[2:]] == tokens.reshape(8, 400)[2:].tolist()
    assert got[A] == list(range(400)) and got[B] == [*range(400, 800), 9]
    assert np.concatenate([s.lp_ids for s in steps]).tolist() == list(range(entries))
    assert np.concatenate([s.lp_ranks for s in steps]).tolist() == list(range(1, 1601))
    drained = [h for s in steps for h in s.handles[s.status == RowStatus.DRAINED].tolist()]
    assert drained == [A]
    f.beside(pub.close)


@pytest.mark.case("F07")
def test_a_row_that_fits_no_frame_becomes_an_error_row(far: Make) -> None:
    f = far(bounds={"lane_bytes": 1 << 20, "max_frame_bytes": 4096})
    pub = f.publisher()
    logprobs = StepLogprobs(
        np.zeros(1001, np.int32), np.zeros(1001, np.float32), np.ones(1, np.int32), k=[1000, -1]
    )
    pub.publish(1, [A, B], [1, 2], logprobs=logprobs, extras={1: RowExtras(custom=b"x")})
    pub.publish(2, [A, B], [1, 3], extras={0: RowExtras(pooled=np.zeros(2000, np.float32))})
    f.until(lambda: f.frames and f.steps()[-1].step == 2, pub.poll)
    first, second = f.steps()
    assert first.status.tolist() == [RowStatus.ERROR, RowStatus.OK]
    assert first.counts.tolist() == [0, 1] and first.tokens.tolist() == [2]
    assert second.status.tolist() == [RowStatus.ERROR, RowStatus.OK]
    assert b"8078 bytes; a frame has at most 3584 for a row (max_frame_bytes)" in f.frames[1]
    f.beside(pub.close)


@pytest.mark.case("F07")
def test_a_large_step_goes_on_where_the_lane_was_full(far: Make) -> None:
    f = far(bounds={"lane_bytes": 8192, "max_frame_bytes": 4096}, backpressure="fail")
    pub = f.publisher()
    f.acks = False
    arguments: tuple[Any, ...] = ([A, B], np.arange(20_000, dtype=np.int32), [5000, 15_000])
    with pytest.raises(LaneFull):
        pub.publish(3, *arguments)
    assert pub.last_step is None and pub.unacknowledged
    f.acks = True
    for _ in range(1000):
        try:
            pub.publish(3, *arguments)
            break
        except LaneFull:
            f.until(lambda: not pub.unacknowledged, pub.poll)
    assert pub.last_step == 3
    with pytest.raises(RowError, match="step 3 after step 3, which was taken"):
        pub.publish(3, *arguments)
    f.until(lambda: not pub.unacknowledged, pub.poll)
    assert tokens_of(f) == {A: list(range(5000)), B: list(range(5000, 20_000))}
    # a step that is given up in the middle: the next one follows, and its plain rows are sent
    f.acks = False
    with pytest.raises(LaneFull):
        pub.publish(4, *arguments)
    f.acks = True
    f.until(lambda: not pub.unacknowledged, pub.poll)
    pub.publish(5, [B], [7])
    f.until(lambda: f.steps()[-1].step == 5, pub.poll)
    assert tokens_of(f)[B][-1] == 7 and pub.last_step == 5
    f.beside(pub.close)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((-1, [A], [1]), r"step: an int from 0 to 2\*\*64 - 1 is needed, not -1"),
        ((1 << 64, [A], [1]), "step: .* not 18446744073709551616"),
        (("one", [A], [1]), "step: .* not 'one'"),
        ((1, {A}, [1]), r"handles: set is not an array; pass a list, .* of int64 \[n\]"),
        ((1, [A], [1.5]), "tokens: float64, needs int32 or int64"),
        ((1, [A, B], [[1], [2]]), r"tokens: shape \[2, 1\], needs one dimension"),
        ((1, [A, B], np.array([[1], [2]], np.int32)), r"tokens: shape \[2, 1\]"),
        ((1, [A, B], [1, 2, 3], [[1, 2]]), r"counts: shape \[1, 2\]"),
        ((1, [A, B], [1, 2], [[1], [1, 2]]), "counts: .*inhomogeneous"),
        ((1, [A], [1], None, ["OK"]), "status: entries of struct format"),
        (
            (1, [A], [1], None, None, ([[1]], np.array([[0.5]]), [1])),
            "logprobs.logprobs: float64, needs float32",
        ),
        ((1, [A], [1], None, None, None, None, -5), "step_ns: .* not -5"),
    ],
)
@pytest.mark.case("B21")
def test_a_wrong_argument_is_named_in_words(
    far: Make, arguments: tuple[Any, ...], says: str
) -> None:
    f = far()
    pub = f.publisher()
    with pytest.raises(RowError, match=says):
        pub.publish(*arguments)
    pub.publish(np.int64(1), [A], [1])
    f.until(lambda: len(f.frames) == 1, pub.poll)
    assert f.steps()[0].step == 1
    f.beside(pub.close)


def test_blocking_ends_at_its_deadline(far: Make) -> None:
    f = far(bounds={"lane_bytes": 4096, "max_frame_bytes": 4096}, timeouts={"publish_s": 0.05})
    pub = f.publisher()
    f.acks = False
    with pytest.raises(LaneFull, match=r"waited 0\.05 s"):
        for step in range(1, 1000):
            pub.publish(step, [A], [1])
    f.acks = True
    f.beside(pub.close)


def test_blocking_ends_when_there_is_room(far: Make) -> None:
    f = far(bounds={"lane_bytes": 4096, "max_frame_bytes": 4096}, timeouts={"publish_s": 30.0})
    pub = f.publisher()

    def publish() -> None:
        for step in range(1, 500):
            pub.publish(step, [A], [step])

    f.beside(publish)
    f.until(lambda: len(f.frames) == 499, pub.poll)
    f.beside(pub.close)


@pytest.mark.case("B26")
@pytest.mark.parametrize(("policy", "sent"), [("leader", 1), ("verify", 2)])
def test_which_tp_ranks_send_is_the_publishers_business(far: Make, policy: str, sent: int) -> None:
    f = far(tensor_parallel_size=2, tp_policy=policy)
    pubs = [f.publisher(0, tp) for tp in range(2)]
    for pub in pubs:
        pub.publish(1, [A], [1])
        pub.publish(2, [], [], drained=[A])
    f.until(lambda: not any(pub.unacknowledged for pub in pubs), *(pub.poll for pub in pubs))
    assert [pub.sends for pub in pubs] == [True, policy == "verify"]
    assert len(f.frames) == 2 * sent
    for pub in pubs:
        f.beside(pub.close)


def test_a_bad_token_marks_its_row_and_the_others_go_on(far: Make) -> None:
    f = far(vocab_size=100)
    pub = f.publisher()
    pub.publish(1, [A, B], [-1, 5])
    pub.publish(2, [A, B], [100, 6])
    f.until(lambda: len(f.frames) == 2, pub.poll)
    assert pub.bad_tokens == 2
    for step, good in zip(f.steps(), (5, 6), strict=True):
        assert step.status.tolist() == [RowStatus.BAD_TOKEN, RowStatus.OK]
        assert step.tokens.tolist()[-1] == good
    f.beside(pub.close)


def test_a_rank_that_fails_says_so_once_and_with_its_reason(far: Make) -> None:
    f = far()
    pub = f.publisher()
    pub.fail(ValueError("no memory"))
    f.until(lambda: f.frames, pub.poll)
    assert f.messages() == [RankFailed(0, 0, "ValueError: no memory")]
    f.beside(pub.close)


def test_a_rank_is_one_process_and_must_exist(far: Make) -> None:
    f = far(data_parallel_size=2, processors={"count": 1})
    pub = f.publisher(1)
    with pytest.raises(LaneBusy):
        f.publisher(1)
    for dp, tp in ((2, 0), (-1, 0), (0, 1)):
        with pytest.raises(ConfigError, match="data_parallel_size 2"):
            f.publisher(dp, tp)
    f.beside(pub.close)
    again = f.publisher(1)  # given up, it may be had again
    assert again.incarnation != pub.incarnation
    f.beside(again.close)


def test_without_a_processor_it_is_not_ready_and_keeps_nothing(far: Make) -> None:
    f = far(listens=False)
    for _ in range(2):  # the rank is free again after the first
        with pytest.raises(StartupError, match="no welcome"):
            f.publisher(timeout_s=0.1)


def test_closing_says_what_was_not_delivered_and_ends_it(far: Make) -> None:
    f = far()
    pub = f.publisher()
    f.acks = False
    for step in range(1, 6):
        pub.publish(step, [A], [step])
    assert pub.unacknowledged == 5
    assert pub.close(timeout_s=0.05) == 5
    with pytest.raises((LaneClosed, LaneLost)):
        pub.publish(6, [A], [6])
