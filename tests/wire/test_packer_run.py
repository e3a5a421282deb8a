"""Frames that name no rows: when a packer makes them, and that they mean what they would say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire import oracle
from tests.wire.test_packer import DP, SLOTS, VOCAB, handle
from tests.wire.test_packer_next import RECEIVER, STEP, Wire, end
from tokenpipe import _core
from tokenpipe.wire import LaneHeader, RankFailed, pack_control

BATCH = [handle(0), handle(1), handle(2)]
RUN = 63  # frames that continue one that names its rows, at most


def send(packer: _core.StepPacker, handles: list[int], tokens: list[int]) -> int:
    return packer.send_next(next(STEP), 5, np.array(handles), np.array(tokens), None, None, None)


def named(wire: Wire) -> list[bool]:
    """Return for each StepFrame whether it names its rows."""
    return [not oracle.read(frame, 1).continues for frame in wire.frames if frame[1] == 1]


def test_rows_are_named_once_in_a_while() -> None:
    wire, _, packer = end()
    for step in range(2 * (RUN + 1) + 3):
        send(packer, BATCH, [1, 2, 3])
        assert wire.newest().columns["position"].tolist() == [step] * 3
    # The first two begin handles and begin positions; neither is what most frames are.
    runs = "".join("N" if n else "." for n in named(wire))
    assert runs.startswith("NN") and set(runs[2 : 2 + RUN]) == {"."} and runs[2 + RUN] == "N"
    assert runs.count("N") == 2 + len(runs[2:]) // (RUN + 1)
    sizes = [len(frame) for frame in wire.frames]
    assert max(sizes[2 : 2 + RUN]) < min(sizes[:2])


def test_other_rows_are_named() -> None:
    wire, _, packer = end()
    for handles in (BATCH, BATCH, BATCH, BATCH[::-1], BATCH[:2], BATCH[:2], [handle(0, 2)], BATCH):
        send(packer, handles, [1] * len(handles))
        assert wire.newest().columns["handles"].tolist() == handles
    assert named(wire) == [True, True, False, True, True, False, True, True]


def test_a_handle_with_two_rows_is_never_left_out() -> None:
    wire, _, packer = end()
    twice = [handle(0), handle(1), handle(0)]
    for step in range(5):
        send(packer, twice, [1, 2, 3])
        assert wire.newest().columns["position"].tolist() == [2 * step, step, 2 * step + 1]
    assert all(named(wire))


def test_a_bad_token_and_what_has_more_than_tokens_name_their_rows() -> None:
    wire, _, packer = end()
    for _ in range(3):
        send(packer, BATCH, [1, 2, 3])
    send(packer, BATCH, [1, VOCAB, 3])
    assert wire.newest().columns["position"].tolist() == [3, 3, 3]
    send(packer, BATCH, [4, 5, 6])
    assert wire.newest().columns["position"].tolist() == [4, 3, 4]
    send(packer, BATCH, [4, 5, 6])
    packer.send_next(
        next(STEP), 5, np.array(BATCH), np.array([7, 8, 9]), None, None, np.array(BATCH[:1])
    )
    assert wire.newest().columns["position"].tolist() == [6, 5, 6, 7]
    assert named(wire) == [True, True, False, True, True, False, True]


def test_what_the_lane_refuses_is_not_counted() -> None:
    wire, _, packer = end()
    for step in range(12):
        wire.takes = step % 3 != 2
        send(packer, BATCH, [step] * 3)
    wire.takes = True
    send(packer, BATCH, [0] * 3)
    assert wire.newest().columns["position"].tolist() == [8] * 3
    assert named(wire).count(False) == 7


def test_a_frame_continues_only_the_one_right_before_it() -> None:
    wire, window, packer = end()
    for _ in range(3):
        send(packer, BATCH, [1, 2, 3])
    lane = LaneHeader(1, 1 << 40, RECEIVER, window.next_seq)
    assert window.send(pack_control(lane, [RankFailed(DP, 1, "x")])) <= _core.SENT_LOOK
    wire.frames.pop()
    send(packer, BATCH, [1, 2, 3])
    send(packer, BATCH, [1, 2, 3])
    window.receiver = 9  # another life of the processor, which has seen nothing
    send(packer, BATCH, [1, 2, 3])
    send(packer, BATCH, [1, 2, 3])
    assert named(wire) == [True, True, False, True, False, True, False]
    assert wire.newest().columns["position"].tolist() == [6] * 3


change = st.sampled_from(["same"] * 8 + ["other", "bad", "refused", "counts", "drained"])


@given(st.lists(change, max_size=30), st.randoms(use_true_random=False))
@pytest.mark.case("B50")
def test_means_what_the_twin_says(plan: list[str], rng: np.random.Generator) -> None:
    wire, window, packer = end()
    twin = oracle.Packer(DP, 1, VOCAB)
    batch = BATCH
    for step, way in enumerate(plan):
        if way == "other":
            batch = [handle(s, rng.choice([1, 2])) for s in range(SLOTS) if rng.random() < 0.8]
        tokens = [rng.choice([-1, VOCAB] if way == "bad" else [3, 4]) for _ in batch]
        drained = batch[:1] if way == "drained" else []
        counts = np.ones(len(batch), np.int32) if way == "counts" else None
        wire.takes = way != "refused"
        seq = window.next_seq
        sent = packer.send_next(
            step, 5, np.array(batch, np.int64), np.array(tokens, np.int64), counts, None,
            np.array(drained, np.int64) if drained else None,
        )  # fmt: skip
        if not wire.takes:
            assert sent == _core.SEND_REFUSED
            continue
        nothing: list[tuple[int, list[list[tuple[int, float]]], list[int]]]
        nothing = [(-1, [[] for _ in range(1)], [])] * len(batch)
        expected = twin.pack(
            (1, 1 << 40, RECEIVER, seq, step, 5),
            batch, [[t] for t in tokens], [0] * len(batch), drained, nothing,
        )  # fmt: skip
        newest = wire.newest()
        assert newest.header == expected.header
        for name, array in expected.columns.items():
            assert newest.columns[name].tobytes() == array.tobytes(), name
