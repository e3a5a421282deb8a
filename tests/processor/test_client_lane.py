"""Output within a client's window: in order, whole, and the final rows before the rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Clock
from tests.processor.rig import Rig, Row
from tests.processor.shell import Client, Shell
from tokenpipe.processor.client_lane import OutputSender
from tokenpipe.transport import timing
from tokenpipe.wire import OpenClient

WINDOW = 16384


class ClientRig:
    """A processor, its lane to client 0, and that client."""

    def __init__(self, base: Path) -> None:
        self.shell = Shell(base, bounds={"client_window_bytes": WINDOW})
        self.client = self.shell.client()
        self.rig = Rig(slots=64)
        self.sender = self.open(self.client)

    def open(self, client: Client) -> OutputSender:
        return OutputSender(
            self.shell.instance,
            self.shell.topology,
            0,
            OpenClient(0, client.me.incarnation),
            time.monotonic,
        )

    def turn(self) -> None:
        self.sender.poll()
        self.sender.flush(self.rig.processor)
        self.client.read()

    def until(self, fact: Callable[[], object]) -> None:
        self.shell.until(fact, self.turn)

    def close(self) -> None:
        self.sender.close(0.0)
        self.shell.close()


@pytest.fixture
def o(runtime_dir: Path) -> Iterator[ClientRig]:
    made = ClientRig(runtime_dir)
    yield made
    made.close()


def test_what_is_unsent_arrives_and_is_gone(o: ClientRig) -> None:
    h = o.rig.bind(1)
    o.rig.feed(Row(h, [5, 6]))
    assert o.sender.pending(o.rig.processor)
    o.until(lambda: o.client.tokens() == {1: [5, 6]})
    o.until(lambda: not o.sender.lane.unacked_frames)
    assert not o.sender.pending(o.rig.processor) and not o.sender.stuck
    assert o.sender.next_deadline < float("inf")


def test_past_the_window_output_merges_and_then_goes_on_where_it_stood(o: ClientRig) -> None:
    h = o.rig.bind(1, max_tokens=1 << 20)
    o.rig.feed(Row(h, [1]))
    o.until(lambda: o.sender.lane.ready and not o.sender.lane.unacked_frames)
    o.client.acks = False
    for step in range(200):
        o.rig.feed(Row(h, [100 + step % 800] * 50))
        o.turn()
        assert o.sender.lane.unacked_bytes <= WINDOW
    frames = o.sender.lane.unacked_frames
    acked_at = o.sender._acked_at
    assert o.sender.behind(acked_at + 0.01)  # at work: worth a wait
    assert not o.sender.behind(acked_at + 1.0)  # stopped: nobody waits for it
    assert o.rig.processor.unsent_bytes(0) > 4 * 50 * 100  # most of it waits, in one place
    o.client.acks = True
    expected = [1] + [100 + step % 800 for step in range(200) for _ in range(50)]
    o.until(lambda: o.client.tokens()[1] == expected)
    assert len(o.client.frames) < frames + 12  # what waited came in a few frames
    o.until(lambda: not o.sender.lane.unacked_frames)
    assert not o.sender.behind(o.sender._acked_at)


def test_a_final_row_passes_a_full_window(o: ClientRig) -> None:
    long, short = o.rig.bind(1, max_tokens=1 << 20), o.rig.bind(2, slot=1, max_tokens=2)
    o.rig.feed(Row(long, [1]), Row(short, [1]))
    o.until(lambda: o.sender.lane.ready and not o.sender.lane.unacked_frames)
    o.client.acks = False
    for _ in range(200):
        o.rig.feed(Row(long, [7] * 50))
        o.turn()
    full = o.sender.lane.unacked_bytes
    o.turn()
    assert o.sender.lane.unacked_bytes == full  # nothing more of what may wait
    o.rig.feed(Row(short, [2]))
    o.turn()
    assert o.sender.lane.unacked_bytes > full
    assert not o.rig.processor.urgent(0) and o.rig.processor.unsent_bytes(0) > 0
    o.client.acks = True
    o.until(lambda: o.client.tokens()[2] == [1, 2])


def test_a_frame_larger_than_the_room_is_kept_and_goes_first(o: ClientRig) -> None:
    h = o.rig.bind(1, max_tokens=1 << 20)
    o.rig.feed(Row(h, [1]))
    o.until(lambda: o.sender.lane.ready and not o.sender.lane.unacked_frames)
    o.client.acks = False
    fill = 0

    def final_row(k: int) -> None:
        nonlocal fill
        o.rig.feed(Row(h, [100 + fill % 800], k=k))
        h2 = o.rig.bind(100 + fill, slot=1, max_tokens=1)
        o.rig.feed(Row(h2, [3], k=k))
        o.rig.drain(h2)
        o.turn()
        fill += 1

    for k, room in (900, 40_000), (60, 12_000):
        while o.sender.lane.room > room:
            assert not o.sender.stuck
            final_row(k)
    final_row(1600)  # the logprobs of this token are larger than what is left
    assert o.sender.stuck
    before = o.sender.lane.unacked_frames
    o.turn()
    assert o.sender.stuck and o.sender.lane.unacked_frames == before
    assert o.sender.pending(o.rig.processor)
    o.client.acks = True
    o.until(lambda: len(o.client.tokens().get(1, [])) == fill + 1)
    assert not o.sender.stuck
    assert all(o.client.tokens()[100 + i] == [3] for i in range(fill))


def test_another_life_of_the_client_ends_the_lane(o: ClientRig) -> None:
    h = o.rig.bind(1)
    o.rig.feed(Row(h, [5]))
    o.until(lambda: o.client.frames)
    o.client.close()
    o.shell._open.remove(o.client)
    o.client = o.shell.client()
    o.rig.feed(Row(h, [6]))
    o.until(lambda: o.sender.lane.lost)
    assert not o.sender.pending(o.rig.processor)  # nobody could get it any more
    assert not o.client.frames  # it was not meant for this one


def test_closing_says_what_was_not_confirmed(o: ClientRig) -> None:
    h = o.rig.bind(1)
    o.rig.feed(Row(h, [5]))
    o.until(lambda: o.client.frames and not o.sender.lane.unacked_frames)
    o.client.acks = False
    o.rig.feed(Row(h, [6]))
    o.turn()
    assert o.sender.close(0.05) == 1


@pytest.mark.case("F04")
def test_a_client_that_runs_and_never_welcomes_is_named_after_a_deadline(
    o: ClientRig, clock: Clock
) -> None:
    opened, shell = OpenClient(1, 77), o.shell
    claim = shell.instance.claim("client", "1")
    sender = OutputSender(shell.instance, shell.topology, 0, opened, clock)
    assert sender.lane.unheard(clock.advance(timing.UNHEARD_S - 0.1)) == ""
    said = sender.lane.unheard(clock.advance(0.1))
    assert said == "lane o0.1: client 1 runs but does not answer"
    o.until(lambda: o.sender.lane.ready)
    assert o.sender.lane.unheard(time.monotonic() + 1000.0) == ""  # a stopped client has its lane
    sender.close(0.0)
    claim.release()
