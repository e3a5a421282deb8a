"""Frames that continue the one before, as the table reads them."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.processor.rig import Rig
from tests.wire.test_packer_next import Wire
from tokenpipe import _core
from tokenpipe.errors import FrameError
from tokenpipe.processor.verify import Verifier
from tokenpipe.types import make_handle
from tokenpipe.wire import OutputFrame

SLOTS, VOCAB, LANE = 4, 1000, (1, 2, 3, 4)
HANDLES = [make_handle(0, slot, 1) for slot in range(SLOTS)]
GAP = 4  # TP_EV_GAP


class Side:
    """A table with its bindings, and what its client got."""

    def __init__(self) -> None:
        self.table = _core.Table(0, [0], SLOTS, VOCAB, [], 1 << 20, 1 << 40, None)
        self.table.open_client(0)
        for slot, handle in enumerate(HANDLES):
            self.table.bind(handle, slot, 0, 1 << 20, 0, False, (), (), False, None)
        self.got: dict[int, list[int]] = defaultdict(list)
        self.gaps: list[int] = []

    def feed(self, frame: bytes) -> None:
        """Feed a frame and flush."""
        for kind, handle, *_ in self.table.feed(0, 0, frame) or ():
            self.gaps += [handle] if kind == GAP else []
        packed = self.table.flush(0, LANE, 1 << 20, False)
        if packed is None:
            return
        out = OutputFrame.unpack(packed[0])
        at = 0
        for key, count in zip(out.keys.tolist(), out.counts.tolist(), strict=True):
            self.got[key] += out.tokens[at : at + count].tolist()
            at += count


def sender() -> tuple[Wire, _core.SendWindow, _core.StepPacker]:
    wire = Wire()
    window = _core.SendWindow(1 << 20, 1, 2, wire)
    window.receiver = 3
    return wire, window, _core.StepPacker(0, 0, SLOTS, VOCAB, window)


subsets = st.sampled_from([[0, 1, 2, 3]] * 6 + [[3, 1], [0], [2, 1, 0], [0, 1, 0], []])


@given(st.lists(subsets, max_size=30), st.data())
def test_as_if_every_frame_named_its_rows(plan: list[list[int]], data: st.DataObject) -> None:
    wire, window, packer = sender()
    named = _core.StepPacker(0, 0, SLOTS, VOCAB)
    short, long = Side(), Side()
    for step, slots in enumerate(plan, 1):
        handles = np.array([HANDLES[slot] for slot in slots], np.int64)
        tokens = data.draw(
            st.lists(st.integers(0, VOCAB), min_size=len(slots), max_size=len(slots))
        )
        ids = np.array(tokens, np.int64)
        seq = window.next_seq
        packer.send_next(step, 5, handles, ids, None, None, None)
        short.feed(wire.frames[-1])
        long.feed(named.pack(1, 2, 3, seq, step, 5, handles, ids))
        named.commit()
        assert short.got == long.got
    assert short.table.counters() == long.table.counters()


@given(st.sets(st.integers(0, 150), min_size=1, max_size=4))
def test_behind_a_lost_frame_nothing_is_read_wrong(lost: set[int]) -> None:
    wire, _, packer = sender()
    side = Side()
    for step in range(150):
        ids = np.full(SLOTS, step, np.int32) + np.arange(SLOTS, dtype=np.int32)
        packer.send_next(step + 1, 5, np.array(HANDLES), ids, None, None, None)
    refused = 0
    for step, frame in enumerate(wire.frames):
        if step in lost:
            continue
        try:
            side.feed(frame)
        except FrameError as error:
            refused += 1
            assert "does not continue the frame before it" in str(error)
    first = min(lost)
    for slot in range(SLOTS):
        assert side.got[slot] == [step + slot for step in range(min(first, 150))]
    if any(first < step < 150 and step not in lost for step in (1, 65, 129)):
        # The first frame after it that names its rows shows the jump.
        assert sorted(side.gaps) == HANDLES
    assert refused <= len(lost) * 63


def test_another_sender_or_a_frame_that_is_none_ends_it() -> None:
    wire, _, packer = sender()
    for step in range(6):
        ids = np.full(SLOTS, step, np.int32)
        packer.send_next(step + 1, 5, np.array(HANDLES), ids, None, None, None)
    side = Side()
    with pytest.raises(FrameError, match="does not continue the frame before it"):
        side.feed(wire.frames[3])
    for frame in wire.frames[:3]:
        side.feed(frame)
    header, columns = _core.unpack_step(wire.frames[3])
    for place in (0, 1):  # of another instance, of another life
        other = list(header)
        other[place] += 1
        with pytest.raises(FrameError, match="does not continue the frame before it"):
            side.feed(_core.pack_step(tuple(other), columns))
    fewer = (*header[:7], SLOTS - 1, SLOTS - 1, header[9])
    with pytest.raises(FrameError, match="does not continue the frame before it"):
        side.feed(_core.pack_step(fewer, {3: bytes(4 * (SLOTS - 1))}))
    side.feed(wire.frames[3])
    side.feed(wire.frames[4])
    assert side.got[0] == [0, 1, 2, 3, 4]


def test_verified_ranks_are_compared_with_the_rows_filled_in() -> None:
    verifier = Verifier(2, 64)
    frames = []
    for tp in range(2):
        wire = Wire()
        window = _core.SendWindow(1 << 20, 1, 2 + tp, wire)
        window.receiver = 3
        packer = _core.StepPacker(0, tp, SLOTS, VOCAB, window)
        for step in range(6):
            ids = np.full(SLOTS, step, np.int32)
            ids[2] += tp * (step == 5)
            packer.send_next(step + 1, 5, np.array(HANDLES), ids, None, None, None)
        frames.append(wire.frames)
    found = []
    for leader, follower in zip(*frames, strict=True):
        for tp, raw in enumerate((leader, follower)):
            read = verifier.read(tp, raw)
            assert read is not None
            found += list(verifier.feed(read))
    assert [(d.tp, d.step, d.handle) for d in found] == [(1, 6, HANDLES[2])]
    with pytest.raises(FrameError, match="does not continue the frame before it"):
        verifier.read(0, frames[0][3])


def test_a_rank_that_was_down_takes_up_with_the_next_frame_that_names_its_rows() -> None:
    rig = Rig()
    wire, _, packer = sender()
    for step in range(70):
        ids = np.full(SLOTS, step, np.int32)
        packer.send_next(step + 1, 5, np.array(HANDLES), ids, None, None, None)
    rig.processor.rank_lost(0, "another of its workers died", rig.now)
    for frame in wire.frames[:10]:
        rig.processor.feed(0, 0, frame, rig.now)  # nobody is up: stale
    rig.processor.rank_up(0, 99, rig.now)
    refused = 0
    for frame in wire.frames[10:]:
        try:
            rig.processor.feed(0, 0, frame, rig.now)
        except FrameError:
            refused += 1
    assert 0 < refused < 63
    assert rig.processor.counters["bad_frames"] == refused
