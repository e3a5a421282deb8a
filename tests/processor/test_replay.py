"""A processor that is brought back from its journal is the one that died, whenever it died."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.processor.rig import Rig, Row
from tests.processor.test_machine import SLOTS, WORDS, Engine
from tokenpipe.errors import FrameError
from tokenpipe.processor import Processor, records
from tokenpipe.processor.journal import Journal
from tokenpipe.processor.rank_feed import RankFeed
from tokenpipe.processor.records import LaneAt, Past
from tokenpipe.processor.replay import NO_LANE, Backlog, Life
from tokenpipe.wire import CloseClient, Message, OpenClient, Snapshot, pack_control

HEADER = (0, 0, 0, 1)


class Recorded:
    """A processor of rank `dp` that keeps a journal, and all that its journal must bring back."""

    def __init__(self, life: Life, dp: int) -> None:
        self.life = life
        self.processor = life.processor
        self.dp = dp
        self.told: list[Message] = list(life.reports)  # since the image
        self.fds = [os.memfd_create("test"), os.memfd_create("test")]
        self.journal = Journal(self.fds)
        self.sent = list(life.clients[0].frames)  # not acknowledged
        self.commands = 0
        self.journal.begin(life.image())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.processor, name)

    def _note(self, record: list[bytes], now: float) -> None:
        self.journal.add(record)
        self.journal.write(now)

    def feed(self, dp: int, tp: int, frame: bytes, now: float) -> None:
        self._note(records.frames(dp, tp, [frame]), now)
        self.processor.feed(dp, tp, frame, now)

    def gap(self, dp: int, tp: int, now: float) -> None:
        self._note(records.gap(dp, tp, 7), now)
        self.processor.gap(dp, tp, now)

    def command(self, message: Message, now: float) -> None:
        self.commands += 1
        self._note(records.commands([pack_control((1, 2, 3, self.commands), [message])]), now)
        self.processor.command(message, now)

    def seen(self, dp: int, now: float) -> None:
        self._note(records.seen(dp), now)
        self.processor.seen(dp, now)

    def tick(self, now: float) -> None:
        self._note(records.tick(), now)
        self.processor.tick(now)

    def rank_lost(self, dp: int, reason: str, now: float) -> None:
        self._note(records.rank_lost(dp, reason, True), now)
        self.life.ranks[dp].lose(self.processor, reason, now)

    def rank_up(self, dp: int, incarnation: int, now: float) -> None:
        self._note(records.rank_up(dp, incarnation), now)
        self.life.ranks[dp].open(self.processor, incarnation, now)

    def flush(self, client: int, header: Any, most: int, urgent_only: bool) -> bytes | None:
        frame = self.processor.flush(client, HEADER, most, urgent_only)
        if frame is not None:
            self.journal.add(records.flush(client, most, urgent_only))
            self.sent.append(frame)
        return frame

    def acked(self, count: int) -> None:
        count = min(count, len(self.sent))
        self.journal.add(records.acked(0, count))
        del self.sent[:count]

    def reports(self) -> list[Message]:
        reports = self.processor.reports()
        self.told += reports
        return reports

    def next(self, now: float) -> Recorded:
        """Return the processor that the journal brings back."""
        self.journal.write(now)
        past = Journal(self.fds).read()
        assert past is not None
        life = new_life(self.dp)
        life.go_through(past)
        assert life.processor._table.save() == self.processor._table.save()
        assert life.processor.next_deadline == self.processor.next_deadline
        assert life.processor.counters == self.processor.counters
        assert list(life.clients[0].frames) == self.sent
        untold = self.processor.reports()
        assert life.reports + life.processor.reports() == self.told + untold
        life.reports = []  # the engine has them, but for these
        life.processor._reports.load(untold, life.processor._reports.save()[1])
        for fd in self.fds:
            os.close(fd)
        return Recorded(life, self.dp)


def new_life(dp: int) -> Life:
    processor = Rig(ranks=2, clients=0, slots=SLOTS, vocab=WORDS, begun=False).processor
    ranks = {rank: RankFeed(rank) for rank in range(2)}
    return Life(9, processor, ranks, workers={(rank, 0): NO_LANE for rank in range(2)})


class Mortal(Engine):
    """The engine of test_machine with processors that die at any moment."""

    def recorded(self, dp: int) -> Recorded:
        it: Any = self.processors[dp]
        if not isinstance(it, Recorded):
            life = new_life(dp)
            life.load(as_life(it, dp).image())
            it = self.processors[dp] = Recorded(life, dp)  # type: ignore[call-overload]
        assert isinstance(it, Recorded)
        return it

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            for it in getattr(self, "processors", ()):
                for fd in getattr(it, "fds", ()):
                    os.close(fd)

    @rule(dp=st.integers(0, 1))
    def die_and_go_on(self, dp: int) -> None:
        self.processors[dp] = self.recorded(dp).next(self.now)  # type: ignore[call-overload]

    @rule(dp=st.integers(0, 1), count=st.integers(1, 5))
    def acknowledge(self, dp: int, count: int) -> None:
        self.recorded(dp).acked(count)


def as_life(processor: Processor, dp: int) -> Life:
    """Return the life of a processor that had no journal yet."""
    ranks = {rank: RankFeed(rank) for rank in range(2)}
    ranks[dp].up = True
    workers = {(rank, 0): NO_LANE for rank in range(2)}
    return Life(9, processor, ranks, workers=workers, clients={0: Backlog(5)})


TestMortal = Mortal.TestCase
TestMortal.settings = settings(max_examples=25, stateful_step_count=50, deadline=None)


def past_of(*parts: list[bytes]) -> Past:
    """Return a journal: an image of a processor with one client, then these records."""
    life = new_life(0)
    life.clients[0] = Backlog(5)
    batch = records.Batch(1.0, b"".join(b"".join(part) for part in parts))
    return Past(life.image(), [batch])


def test_lanes_and_clients_are_where_they_were() -> None:
    opened: list[Message] = [OpenClient(0, 5), OpenClient(1, 6), Snapshot(3)]
    closed = pack_control((1, 2, 3, 9), [CloseClient(0)])
    frame = Rig(begun=False).frame([Row(handle=1 << 35, tokens=[1])])
    life = new_life(0)
    life.go_through(
        past_of(
            records.lane(0, 0, LaneAt(44, 55, 1, b"route")),
            records.commands([pack_control((1, 2, 3, 8), opened), closed]),
            records.frames(0, 0, [frame]),
        )
    )
    assert life.workers[0, 0] == LaneAt(44, 55, 2, b"route")
    assert life.commands.expected == 10
    assert {index: of.incarnation for index, of in life.clients.items()} == {1: 6}
    assert not life.reports  # nobody waits for the counters any more


@pytest.mark.parametrize(
    "record",
    [
        records.acked(0, 1),  # of a frame that was never packed
        records.acked(3, 1),  # of a client that is not there
        records.rank_up(9, 5),
        records.lane(7, 0, NO_LANE),
        [b"\x63" + bytes(4)],
        [b"\x02\xff\xff\xff\xff"],
        records.frames(0, 0, [b"no frame"]),
    ],
)
def test_a_journal_that_makes_no_sense_is_refused(record: list[bytes]) -> None:
    with pytest.raises(FrameError):
        new_life(0).go_through(past_of(record))


def test_an_image_that_makes_no_sense_is_refused() -> None:
    image = past_of().image
    for at in range(len(image)):
        with pytest.raises(FrameError):
            new_life(0).load(image[:at])
    with pytest.raises(FrameError):
        new_life(0).load(image + b"x")
