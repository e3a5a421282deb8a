"""Each record is read as it was written; cut or wrong bytes are refused."""

from __future__ import annotations

import pytest

from tokenpipe.errors import FrameError
from tokenpipe.processor import records
from tokenpipe.processor.records import LaneAt, Record, What

ALL = {
    What.COMMANDS: (records.commands([b"a", b""]), ([b"a", b""],)),
    What.FRAMES: (records.frames(4095, 7, [b"abc", b"d"]), (4095, 7, [b"abc", b"d"])),
    What.GAP: (records.gap(1, 2, 1 << 60), (1, 2, 1 << 60)),
    What.SEEN: (records.seen(3), (3,)),
    What.UP: (records.rank_up(3, (1 << 63) - 1), (3, (1 << 63) - 1)),
    What.LOST: (records.rank_lost(3, "wörter", False), (3, False, "wörter")),
    What.TICK: (records.tick(), ()),
    What.FLUSH: (records.flush(5, 1 << 40, True), (5, 1 << 40, True)),
    What.ACKED: (records.acked(5, 6), (5, 6)),
    What.LANE: (records.lane(1, 2, LaneAt(3, 4, 5, b"r")), (1, 2, LaneAt(3, 4, 5, b"r"))),
}


def test_every_kind_is_read_as_it_was_written() -> None:
    assert set(ALL) == set(What)
    batch = b"".join(b"".join(parts) for parts, _ in ALL.values())
    assert list(records.read(batch)) == [Record(kind, values) for kind, (_, values) in ALL.items()]


@pytest.mark.parametrize("kind", What)
def test_cut_records_are_refused(kind: What) -> None:
    whole = b"".join(ALL[kind][0])
    for size in range(1, len(whole)):
        with pytest.raises(FrameError):
            list(records.read(whole[:size]))


@pytest.mark.parametrize("kind", sorted(set(What) - {What.LOST, What.LANE}))
def test_records_of_a_wrong_size_are_refused(kind: What) -> None:
    whole = b"".join(ALL[kind][0])
    longer = bytes([kind]) + (len(whole) - 5 + 1).to_bytes(4, "little") + whole[5:] + b"x"
    if kind is What.TICK:
        assert len(list(records.read(longer))) == 1  # it has no values that could be wrong
        return
    with pytest.raises(FrameError):
        list(records.read(longer))
