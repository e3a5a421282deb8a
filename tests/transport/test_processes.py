"""Lanes between real processes that come late, are killed, stand still and come again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.transport.child import child, line
from tests.transport.rig import frame
from tokenpipe.errors import LaneLost
from tokenpipe.instance import Instance, worker_lane
from tokenpipe.transport import LaneSender, Peer, Role, new_incarnation, open_sender

PROCESSOR = Role("processor", "0")
LANE = worker_lane(0, 0)

# Receives and applies; prints each change, and at every line it is sent what it has so far.
RECEIVE = """
import json, os, sys, time, msgpack
from tokenpipe.instance import *
from tokenpipe.transport import *
instance = Instance.attach(sys.argv[1])
claim = instance.claim("processor", "0", "test")
print("claimed", flush=True)
if len(sys.argv) > 2:
    sys.stdin.readline()
me = Peer("processor", "0", new_incarnation())
lane = open_receiver(instance, "w0.0", me=me, expects=Role("worker", "0.0"),
                     max_frame_bytes=1 << 20, hold_bytes=1 << 20)
waiter = Waiter()
waiter.add(lane.port)
seqs = []
os.set_blocking(0, False)
while True:
    for change in lane.peer_events():
        print(type(change).__name__, flush=True)
    for item in lane.recv():
        seqs.append(msgpack.unpackb(item, strict_map_key=False)[2][3]
                    if isinstance(item, bytes) else list(item))
    lane.applied()
    lane.tick(time.monotonic())
    try:
        asked = os.read(0, 100)
        if not asked:
            break
        print(json.dumps([seqs, lane.counters]), flush=True)
    except BlockingIOError:
        pass
    waiter.wait(max(0, min(lane.next_deadline - time.monotonic(), 0.02)))
lane.close()
claim.release()
"""


class Worker:
    """The sending side, in this process."""

    def __init__(self, base: Path) -> None:
        self.instance = Instance.create(base, None, {})
        self.me = Peer("worker", "0.0", new_incarnation())
        self.claim = self.instance.claim("worker", "0.0")
        self.lane: LaneSender = open_sender(
            self.instance, LANE, me=self.me, to=PROCESSOR, bound_bytes=1 << 20
        )

    def send(self, count: int, timeout_s: float = 0.0) -> None:
        lane = self.lane
        for _ in range(count):
            data = frame(*lane.next_header, 100)
            lane.send(data, timeout_s)

    def until(self, fact: str, timeout_s: float = 10.0) -> float:
        """Poll until an attribute of the lane is true (or 0 frames wait); return the seconds."""
        began = time.monotonic()
        while not (getattr(self.lane, fact) if fact else self.lane.unacked_frames == 0):
            self.lane.poll()
            assert time.monotonic() - began < timeout_s
            time.sleep(0.001)
        return time.monotonic() - began


@pytest.fixture
def worker(base: Path) -> Iterator[Worker]:
    made = Worker(base)
    yield made
    made.lane.close(0.0)
    made.claim.release()
    made.instance.close()


@pytest.mark.case("B17")
@pytest.mark.parametrize("delay_s", [0.0, 0.7])
def test_a_peer_may_come_and_bind_when_it_likes(worker: Worker, delay_s: float) -> None:
    time.sleep(delay_s)
    with child(RECEIVE, worker.instance.directory, "late") as processor:
        assert line(processor) == "claimed"
        time.sleep(delay_s)
        assert processor.stdin is not None
        processor.stdin.write("\n")
        processor.stdin.flush()
        worker.lane.wait_ready(10)
        worker.send(3)
        worker.until("")
        assert received(processor)[0] == [1, 2, 3]
        assert worker.lane.close(5) == 0


def received(process: subprocess.Popen[str]) -> tuple[list[object], dict[str, int]]:
    """Ask the receiving process what it has."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    while not (said := line(process)).startswith("["):
        assert said
    seqs, counters = json.loads(said)
    return seqs, counters


@pytest.mark.case("B23")
def test_a_killed_receiver_is_named_within_two_seconds_and_its_frames_are_counted(
    worker: Worker,
) -> None:
    with child(RECEIVE, worker.instance.directory) as processor:
        worker.lane.wait_ready(10)
        os.kill(processor.pid, signal.SIGSTOP)
        worker.send(1000)
        os.kill(processor.pid, signal.SIGKILL)
        processor.wait()
        assert worker.until("lost") < 2
        with pytest.raises(LaneLost, match="processor 0 is dead"):
            worker.send(1)
        began = time.monotonic()
        assert worker.lane.close(5) == 1000
        assert time.monotonic() - began < 0.5


def test_a_receiver_killed_again_and_again_is_found_again(worker: Worker) -> None:
    next_seq = 1
    for _ in range(3):
        with child(RECEIVE, worker.instance.directory) as processor:
            worker.until("ready")
            worker.send(50)
            worker.until("")
            seqs, counters = received(processor)
            assert seqs == list(range(next_seq, next_seq + 50))
            assert counters["gap"] == counters["bad_frames"] == 0
            worker.send(5)  # lost with it, perhaps
            next_seq += 55
            os.kill(processor.pid, signal.SIGKILL)
        worker.until("lost")


def test_a_receiver_that_stood_still_gets_everything(worker: Worker) -> None:
    """Standing still is no death, however long: its lock is held."""
    with child(RECEIVE, worker.instance.directory) as processor:
        worker.lane.wait_ready(10)
        os.kill(processor.pid, signal.SIGSTOP)
        began = time.monotonic()
        while time.monotonic() - began < 4.5:
            worker.send(1)
            worker.lane.poll()
            time.sleep(0.01)
        assert not worker.lane.lost
        os.kill(processor.pid, signal.SIGCONT)
        worker.until("")
        seqs, counters = received(processor)
        assert seqs == list(range(1, worker.lane.next_seq))
        assert counters["gap"] == 0
        assert worker.lane.ready
