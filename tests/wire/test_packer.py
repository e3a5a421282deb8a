"""StepPacker against its twin: positions, bad rows, what an uncommitted frame leaves behind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire import oracle
from tests.wire.strategies import Step, steps
from tokenpipe import _core
from tokenpipe.errors import RowError
from tokenpipe.wire import StepFrame

DP, TP, SLOTS, VOCAB = 5, 1, 3, 100
HEADER = (1, 2, 3, 4, 9, 77)  # lane, step, mono_ns


def handle(slot: int, generation: int = 1, dp: int = DP) -> int:
    return dp << 51 | slot << 35 | generation


def arrays(step: Step, rng: st.DataObject) -> dict[str, Any]:
    """Return publish()'s arrays for a step, of widths drawn by chance where the values fit."""

    def ints(values: list[int]) -> np.ndarray:
        fits = all(-(1 << 31) <= v < 1 << 31 for v in values)
        return np.array(values, np.int32 if fits and rng.draw(st.booleans()) else np.int64)

    given: dict[str, Any] = {
        "handles": np.array(step.handles, np.int64),
        "tokens": ints([t for row in step.rows for t in row]),
    }
    counts = [len(row) for row in step.rows]
    if counts != [1] * len(counts) or rng.draw(st.booleans()):
        given["counts"] = np.array(counts, rng.draw(st.sampled_from(["u2", "i4", "i8"])))
    if any(step.status) or rng.draw(st.booleans()):
        given["status"] = np.array(step.status, np.uint8)
    if len(step.drained) > 0 or rng.draw(st.booleans()):
        given["drained"] = np.array(step.drained, np.int64)
    ks = [k for k, _, _ in step.logprobs]
    if any(k >= 0 for k in ks) or rng.draw(st.booleans()):
        entries = [pair for _, pairs, _ in step.logprobs for token in pairs for pair in token]
        given["lp_k"] = ints(ks)
        given["lp_ids"] = ints([i for i, _ in entries])
        given["lp_values"] = np.array([v for _, v in entries], np.float32)
        given["lp_ranks"] = ints([r for _, _, ranks in step.logprobs for r in ranks])
    if any(step.extras) or rng.draw(st.booleans()):
        given["extras_len"] = np.array([len(part) for part in step.extras], np.uint32)
        given["extras"] = b"".join(step.extras)
    return given


@given(st.lists(st.tuples(steps(DP, SLOTS, VOCAB), st.booleans()), max_size=6), st.data())
@pytest.mark.case("B50")
def test_packs_what_the_twin_packs(plan: list[tuple[Step, bool]], data: st.DataObject) -> None:
    packer = _core.StepPacker(DP, TP, SLOTS, VOCAB)
    twin = oracle.Packer(DP, TP, VOCAB)
    for step, taken in plan:
        given = arrays(step, data)
        if not taken:  # a frame no lane took leaves nothing behind
            packer.pack(*HEADER, **given)
            continue
        expected = twin.pack(
            HEADER,
            step.handles,
            step.rows,
            step.status,
            step.drained,
            step.logprobs,
            step.extras,
        )
        frame = packer.pack(*HEADER, **given)
        packer.commit()
        back = oracle.read(frame, 1)
        assert back.header == expected.header
        for name, array in expected.columns.items():
            assert back.columns[name].tobytes() == array.tobytes(), name
        if all(t < VOCAB and t >= 0 for row in step.rows for t in row):
            assert frame == oracle.write(expected)
        assert packer.bad_tokens == twin.bad_tokens


def test_a_plain_decode_row_takes_sixteen_bytes_or_less() -> None:
    packer = _core.StepPacker(0, 0, 256)
    handles = np.arange(256, dtype=np.int64) << 35 | 1
    tokens = np.arange(256, dtype=np.int32)
    for _ in range(2):
        frame = packer.pack((1 << 64) - 1, *HEADER[1:], handles, tokens)
        packer.commit()
    assert len(frame) <= 256 * 16 + 100


def test_an_empty_step_and_a_drained_only_step_are_frames() -> None:
    packer = _core.StepPacker(DP, TP, SLOTS)
    none = np.empty(0, np.int64)
    assert StepFrame.unpack(packer.pack(*HEADER, none, none)).rows == 0
    frame = StepFrame.unpack(packer.pack(*HEADER, none, none, drained=np.array([handle(1)])))
    assert (frame.counts.tolist(), frame.status.tolist()) == ([0], [1])


def test_a_bad_token_in_a_drained_row_keeps_the_marker() -> None:
    packer = _core.StepPacker(DP, TP, SLOTS, VOCAB)
    frame = StepFrame.unpack(
        packer.pack(
            *HEADER,
            np.array([handle(0), handle(1)]),
            np.array([VOCAB, 5]),
            status=np.array([1, 0], np.uint8),
        )
    )
    assert frame.handles.tolist() == [handle(0), handle(1), handle(0)]
    assert frame.status.tolist() == [4, 0, 1]
    assert frame.counts.tolist() == [0, 1, 0]


@pytest.mark.parametrize("token", [-7, 1 << 31, VOCAB, 1 << 40, -(1 << 63)])
@pytest.mark.case("B50")
def test_one_bad_token_harms_one_row(token: int) -> None:
    packer = _core.StepPacker(DP, TP, SLOTS, VOCAB)
    handles = np.array([handle(0), handle(1), handle(2)])
    frame = StepFrame.unpack(packer.pack(*HEADER, handles, np.array([1, token, 3])))
    assert frame.status.tolist() == [0, 4, 0]
    assert frame.tokens.tolist() == [1, 3]
    assert packer.bad_tokens == 0
    packer.commit()
    assert packer.bad_tokens == 1


def test_no_frame_has_more_rows_than_a_reader_takes() -> None:
    half = 1 << 19  # each row is bad and drained: its marker needs a row of its own
    packer = _core.StepPacker(DP, TP, SLOTS, VOCAB)
    rows = np.full(half, handle(0)), np.full(half, VOCAB)
    drained = np.full(half, 1, np.uint8)
    with pytest.raises(RowError, match=f"{3 * half} rows are too many"):
        packer.pack(*HEADER, *rows, status=drained, drained=rows[0])
    frame = StepFrame.unpack(packer.pack(*HEADER, *rows, status=drained))
    assert frame.rows == 2 * half


GOOD: dict[str, Any] = {"handles": np.array([handle(0), handle(1)]), "tokens": np.array([1, 2])}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tokens": np.array([1, 2, 3])}, "counts sum to 2, tokens has 3"),
        ({"tokens": [1, 2]}, r"tokens: list is not an array; .* of int32 or int64 \[n\]"),
        ({"handles": {1, 2}}, r"handles: set is not an array; pass a list, .* of int64 \[n\]"),
        ({"tokens": np.array([1, 0, 2, 0])[::2]}, "tokens: this numpy.ndarray .* C-contiguous"),
        ({"tokens": np.array([1.0, 2.0])}, "tokens: float64, needs int32 or int64"),
        ({"tokens": np.array([1, 2], np.uint32)}, "tokens: uint32, needs int32 or int64"),
        ({"tokens": np.array([1, 2], ">i4")}, "tokens: big-endian int32, needs int32 or int64"),
        ({"tokens": np.array([1, 2], "i2")}, "tokens: int16, needs int32 or int64"),
        ({"tokens": np.array([True, False])}, "tokens: bool, needs"),
        ({"tokens": np.array([1, None])}, "tokens: Python objects, needs"),
        ({"tokens": np.array([1j, 2])}, "tokens: entries of struct format Zd, needs"),
        ({"tokens": np.array([[1], [2]])}, r"tokens: shape \[2, 1\], needs one dimension, \[n\]"),
        ({"tokens": np.array(1)}, r"tokens: shape \[\], needs one dimension"),
        ({"tokens": np.zeros((1, 2, 1, 1, 1), int)}, r"tokens: shape \[1, 2, 1, 1, ...\], needs"),
        ({"handles": np.array([1, 2], np.int32)}, "handles: int32, needs int64"),
        ({"handles": np.array([[1, 2]])}, r"handles: shape \[1, 2\]"),
        ({"counts": np.array([1.0, 1.0])}, "counts: float64, needs int32, int64 or uint16"),
        ({"status": np.array([0, 0])}, "status: int64, needs uint8"),
        ({"lp_values": np.array([0.5])}, "logprobs.logprobs: float64, needs float32"),
        ({"lp_ranks": np.array([0.5])}, "logprobs.ranks: float64, needs int32 or int64"),
        ({"handles": np.array([handle(0), handle(1, dp=4)])}, "row 1: .* not a handle of dp 5"),
        ({"handles": np.array([handle(0), handle(1, dp=6)])}, "row 1: .* not a handle of dp 5"),
        ({"handles": np.array([handle(0), handle(SLOTS)])}, "row 1"),
        ({"handles": np.array([handle(0, 0), handle(1)])}, "row 0"),
        ({"handles": np.array([-1, handle(1)])}, "row 0: -1 is not a handle"),
        ({"drained": np.array([0])}, "row 2: 0 is not a handle"),
        ({"counts": np.array([2])}, "counts has 1 entries for 2 handles"),
        ({"counts": np.array([3, -1])}, "outside 0..65535"),
        ({"counts": np.array([65537, 1])}, "outside 0..65535"),
        ({"counts": np.array([1 << 40, 2])}, "outside 0..65535"),
        ({"status": np.array([0], np.uint8)}, "status has 1 entries"),
        ({"lp_ids": np.array([1])}, "logprobs: k is needed"),
        ({"lp_k": np.array([0])}, "logprobs.k has 1 entries"),
        ({"lp_k": np.array([0, -2])}, r"logprobs.k\[1\] is -2"),
        ({"lp_k": np.array([1, -1])}, "need 2, 2 and 1 entries, not 0, 0 and 0"),
        ({"lp_k": np.array([(1 << 31) - 2, -1])}, "need 2147483647"),
        ({"lp_k": np.array([0, -2], np.int32)}, r"logprobs.k\[1\] is -2"),
        ({"lp_k": np.array([(1 << 31) - 1, 0], np.int32)}, r"logprobs.k\[0\] is 2147483647"),
        ({"lp_k": np.array([1, -1], np.int32)}, "need 2, 2 and 1 entries, not 0, 0 and 0"),
        ({"lp_k": np.array([(1 << 31) - 2, -1], np.int32)}, "need 2147483647"),
    ],
)
@pytest.mark.case("B21")
def test_wrong_arrays_are_named_and_change_nothing(change: dict[str, Any], says: str) -> None:
    packer = _core.StepPacker(DP, TP, SLOTS, VOCAB)
    packer.pack(*HEADER, **GOOD)
    packer.commit()
    with pytest.raises(RowError, match=says):
        packer.pack(*HEADER, **{**GOOD, **change})
    frame = StepFrame.unpack(packer.pack(*HEADER, **GOOD))
    assert frame.positions.tolist() == [1, 1]


def test_arguments_are_checked() -> None:
    packer = _core.StepPacker(DP, TP, SLOTS)
    with pytest.raises(TypeError, match="pack needs tokens"):
        packer.pack(*HEADER, handles=GOOD["handles"])  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'tokenz'"):
        packer.pack(*HEADER, **GOOD, tokenz=None)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'seq'"):
        packer.pack(*HEADER, **GOOD, seq=1)  # type: ignore[misc]
    with pytest.raises(OverflowError):
        packer.pack(1, 2, 3, -4, 5, 6, **GOOD)
    for wrong in (
        (1 << 12, 0, 1),
        (0, 0, 0),
        (0, 0, 65537),
        (0, 0, 1, 0),
        (0, 0, 1, (1 << 31) + 1),
    ):
        with pytest.raises(ValueError, match="out of range"):
            _core.StepPacker(*wrong)


def test_the_largest_handle_is_a_handle() -> None:
    packer = _core.StepPacker((1 << 12) - 1, 0, 1 << 16, 1 << 31)
    big = (1 << 63) - 1
    frame = StepFrame.unpack(packer.pack(*HEADER, np.array([big]), np.array([(1 << 31) - 1])))
    assert frame.handles.tolist() == [big]
    assert frame.tokens.tolist() == [(1 << 31) - 1]


def test_unaligned_and_read_only_buffers_are_fine() -> None:
    packer = _core.StepPacker(DP, TP, SLOTS)
    raw = b"x" + GOOD["handles"].tobytes()
    handles = np.frombuffer(raw, np.int64, offset=1)
    tokens = np.frombuffer(b"x" + np.array([1, 2], np.int32).tobytes(), np.int32, offset=1)
    expected = packer.pack(*HEADER, **GOOD)
    assert packer.pack(*HEADER, handles, tokens) == expected
