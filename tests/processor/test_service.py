"""One processor with all its lanes, a turn at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processor.rig import Row
from tests.processor.shell import INCARNATION, Client, Shell, Worker
from tokenpipe.errors import LaneError
from tokenpipe.instance import command_lane, report_lane
from tokenpipe.processor import CONTROL_BYTES, ProcessorService, new_life
from tokenpipe.processor.cadence import FRAMES_PER_TURN
from tokenpipe.transport import Gap, LaneReceiver, LaneSender, MemoryLane, Peer, new_incarnation
from tokenpipe.types import make_handle
from tokenpipe.wire import (
    Bind,
    CloseClient,
    Counters,
    HandleFinished,
    Message,
    OpenClient,
    RankOpened,
    Snapshot,
    pack_control,
    unpack_control,
)

ENGINE = Peer("engine", "0", new_incarnation())
SERVICE = Peer("processor", "0", INCARNATION)
HANDLE = make_handle(0, 0, 1)


class Served:
    """A service, and the engine's ends of its two lanes, through memory."""

    def __init__(self, base: Path, **topology: Any) -> None:
        self.shell = Shell(base, **topology)
        self.reads = True  # whether the engine takes reports
        self.reported: list[Message] = []
        self.commands, theirs = self._lane(command_lane(0), ENGINE, SERVICE)
        reports, self.reports = self._lane(report_lane(0), SERVICE, ENGINE)
        life = new_life(0, self.shell.topology)
        life.incarnation = INCARNATION
        self.service = ProcessorService(
            self.shell.instance, self.shell.topology, 0, theirs, reports, life=life
        )
        self.service_reports = reports

    def _lane(self, name: str, source: Peer, to: Peer) -> tuple[LaneSender, LaneReceiver]:
        lane = MemoryLane(name)
        both: dict[str, Any] = {"instance": self.shell.instance.id, "alive": lambda: True}
        receiver = LaneReceiver(
            lane.receiver(), me=to, expects=source, hold_bytes=CONTROL_BYTES, **both
        )
        sender = LaneSender(
            lane.sender(source.route), me=source, to=to, bound_bytes=CONTROL_BYTES, **both
        )
        return sender, receiver

    def turn(self) -> None:
        self.service.turn(0.0)
        self.commands.poll()
        self.reports.peer_events()
        if self.reads or not self.reports.sender:
            for item in self.reports.recv():
                assert not isinstance(item, Gap)
                self.reported += unpack_control(item)[1]
            self.reports.applied()
            self.reports.tick(time.monotonic())

    def until(self, fact: Callable[[], object], *others: Callable[[], object]) -> None:
        self.shell.until(fact, self.turn, *others)

    def order(self, *messages: Message) -> None:
        self.send_raw(lambda header: pack_control(header, list(messages)))

    def send_raw(self, make: Callable[[tuple[int, int, int, int]], bytes]) -> None:
        self.until(lambda: self.commands.ready)
        self.commands.send(make(self.commands.next_header))

    def of(self, kind: type) -> list[Any]:
        return [message for message in self.reported if isinstance(message, kind)]

    def serve(self, **options: Any) -> tuple[Worker, Client]:
        """Bring a worker and client 0, and a request of it into slot 0."""
        worker, client = self.shell.worker(), self.shell.client()
        self.until(lambda: self.of(RankOpened) and worker.lane.ready, worker.lane.poll)
        incarnation = self.of(RankOpened)[0].incarnation
        self.order(
            OpenClient(0, client.me.incarnation),
            Bind(
                handle=HANDLE,
                rank_incarnation=incarnation,
                key=1,
                client=0,
                **({"max_tokens": 3} | options),
            ),
        )
        return worker, client

    def close(self) -> None:
        self.service.close(0.0)
        self.commands.close(0.0)
        self.reports.close()
        self.shell.close()


@pytest.fixture
def served(runtime_dir: Path) -> Iterator[Callable[..., Served]]:
    made: list[Served] = []

    def make(**topology: Any) -> Served:
        made.append(Served(runtime_dir, **topology))
        return made[-1]

    yield make
    for one in made:
        one.close()


Make = Callable[..., Served]


def test_rows_become_output_and_reports(served: Make) -> None:
    s = served()
    worker, client = s.serve()
    worker.send(Row(HANDLE, [5, 6]))
    worker.send(Row(HANDLE, [7, 8]))
    s.until(lambda: client.tokens() == {1: [5, 6, 7]}, worker.lane.poll, client.read)
    s.until(lambda: s.of(HandleFinished), worker.lane.poll, client.read)
    assert s.of(HandleFinished) == [HandleFinished(HANDLE, 2, -1, 3, "")]
    s.until(lambda: not worker.lane.unacked_frames, worker.lane.poll, client.read)


def test_a_turn_says_whether_something_came_and_waits_no_longer_than_told(served: Make) -> None:
    s = served()
    s.until(lambda: s.service_reports.ready)
    while s.service.turn(0.0):  # what is left of the hellos
        pass
    assert s.service.turn(0.0) is False
    assert s.service.next_deadline < float("inf")
    s.order(Snapshot(9))
    assert s.service.turn(30.0) is True
    s.until(lambda: s.of(Counters))
    assert s.of(Counters)[0].id == 9 and s.of(Counters)[0].values["bindings"] == 0
    assert len(s.service.ports) == 3  # a worker's lane, commands, reports


def test_a_flood_is_read_in_short_turns_and_commands_are_answered_in_between(
    served: Make,
) -> None:
    s = served()
    worker, client = s.serve(max_tokens=1 << 20)
    frames, read = 3000, s.service.processor.counters["frames"]
    for _ in range(frames):
        worker.send(Row(HANDLE, [5]))
    last, asked = read + frames, False
    while read < last:
        s.turn()
        client.read()
        before, read = read, s.service.processor.counters["frames"]
        assert read - before <= FRAMES_PER_TURN
        if read - before == FRAMES_PER_TURN and not asked:
            asked = True
            s.order(Snapshot(1))
    assert asked
    s.until(lambda: s.of(Counters))
    assert s.of(Counters)[0].values["frames"] < last
    s.until(lambda: client.tokens()[1] == [5] * frames, client.read)


def test_output_that_waits_for_its_interval_ends_the_wait(served: Make) -> None:
    s = served()
    worker, client = s.serve(stream_interval_ms=200)
    worker.send(Row(HANDLE, [5]))
    s.until(lambda: client.tokens() == {1: [5]}, worker.lane.poll, client.read)
    worker.send(Row(HANDLE, [6]))
    began = time.monotonic()
    while client.tokens() != {1: [5, 6]}:
        s.service.turn(30.0)
        client.read()
    assert time.monotonic() - began < 15.0  # no message comes that would end a wait of 30 s


def test_a_client_that_comes_again_gets_a_lane_of_its_own_and_one_that_goes_none(
    served: Make,
) -> None:
    s = served()
    worker, client = s.serve()
    worker.send(Row(HANDLE, [5]))
    s.until(lambda: client.frames, worker.lane.poll, client.read)
    client_lane = s.service._clients[0]
    s.order(OpenClient(0, client.me.incarnation))  # said twice, it is the same one
    s.order(Snapshot(1))
    s.until(lambda: s.of(Counters), client.read)
    assert s.service._clients[0] is client_lane
    worker.send(Row(HANDLE, [6]))
    s.until(lambda: client.tokens() == {1: [5, 6]}, worker.lane.poll, client.read)
    s.order(CloseClient(0), Snapshot(2))
    s.until(lambda: len(s.of(Counters)) == 2)
    assert not s.service._clients
    worker.send(Row(HANDLE, [7]))  # its request goes on to its end, for nobody
    s.until(lambda: s.of(HandleFinished), worker.lane.poll)


def test_a_command_that_cannot_be_read_is_no_state_to_go_on_from_either(served: Make) -> None:
    s = served()
    s.send_raw(lambda header: pack_control(header, [Snapshot(1)])[:-1])
    with pytest.raises(LaneError, match="processor 0: commands"):
        s.order(Snapshot(2))
        s.until(lambda: s.of(Counters))


def test_lost_commands_are_no_state_to_go_on_from(served: Make) -> None:
    s = served()
    s.order(Snapshot(1))
    s.until(lambda: s.of(Counters))
    s.commands.window.push(b"numbered, and never arrives")
    s.commands.window.forget()  # and its sender cannot send it again
    with pytest.raises(LaneError, match="lost for good"):
        s.order(Snapshot(3))
        s.until(lambda: len(s.of(Counters)) == 3)


def test_an_ended_command_lane_asks_it_to_stop(served: Make) -> None:
    s = served()
    s.until(lambda: s.commands.ready)
    assert not s.service.stopping
    s.commands.end()
    s.until(lambda: s.service.stopping)


def test_reports_wait_in_order_while_the_engine_does_not_read(served: Make) -> None:
    s = served()
    s.until(lambda: s.service_reports.ready and s.reports.sender)
    s.reads = False
    for number in range(1, 200):
        s.order(Snapshot(number))
        s.turn()
    s.reads = True
    s.until(lambda: len(s.of(Counters)) == 199)
    assert [counters.id for counters in s.of(Counters)] == list(range(1, 200))


def test_closing_hands_out_what_is_left(served: Make) -> None:
    s = served()
    worker, client = s.serve()
    worker.send(Row(HANDLE, [5, 6, 7]))
    s.until(lambda: s.service.processor.counters["tokens"] == 3, worker.lane.poll)
    closing = threading.Thread(target=lambda: s.service.close(20.0))
    closing.start()
    while closing.is_alive():
        client.read()
        s.reports.peer_events()
        for item in s.reports.recv():
            assert not isinstance(item, Gap)
            s.reported += unpack_control(item)[1]
        s.reports.applied()
        s.reports.tick(time.monotonic())
        closing.join(0.001)
    assert client.tokens() == {1: [5, 6, 7]}
    assert s.of(HandleFinished)
