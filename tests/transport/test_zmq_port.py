"""What ZeroMQ would do by itself, and does not here."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests.conftest import eventually
from tests.transport.child import child, line
from tests.transport.rig import Rig, frame, seq_of, turn
from tokenpipe.errors import ForkError, LaneBusy, LaneError
from tokenpipe.instance import Instance
from tokenpipe.transport import ZmqReceiverPort, ZmqSenderPort, context

BIND = """
import sys
from tokenpipe.instance import Instance
from tokenpipe.transport import ZmqReceiverPort
instance = Instance.attach(sys.argv[1])
port = ZmqReceiverPort(instance, "w0.0", max_frame_bytes=4096, bound_bytes=4096)
print("bound", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def owner(base: Path) -> Iterator[Instance]:
    made = Instance.create(base, None, {})
    yield made
    made.close()


def receiver(owner: Instance) -> ZmqReceiverPort:
    return ZmqReceiverPort(owner, "w0.0", max_frame_bytes=4096, bound_bytes=4096)


@pytest.mark.case("B11")
def test_a_second_bind_is_refused_and_names_the_first(owner: Instance) -> None:
    with child(BIND, owner.directory) as first:
        assert line(first) == "bound"
        inode = os.stat(owner.lane_path("w0.0")).st_ino
        with pytest.raises(LaneBusy, match=f"w0.0 is held by process {first.pid}"):
            receiver(owner)
        assert os.stat(owner.lane_path("w0.0")).st_ino == inode
    mine = receiver(owner)
    with pytest.raises(LaneBusy, match="this process"):
        receiver(owner)
    mine.close()


def test_a_message_that_was_found_is_received_without_another_question(
    owner: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    poll = zmq.zmq_poll

    def counting(pollset: list[Any], timeout: int) -> list[Any]:
        asked.append(pollset)
        return poll(pollset, timeout)

    there, here = receiver(owner), ZmqSenderPort(owner, "w0.0", "me", bound_bytes=4096)
    try:
        assert here.send(b"\x90hello") and eventually(there.readable)
        monkeypatch.setattr(zmq, "zmq_poll", counting)
        got = there.recv_run(9, (0, 0, 0, 0), [])
        assert got is not None and got[1] == b"\x90hello" and not asked
        assert there.recv_run(9, (0, 0, 0, 0), []) is None and len(asked) == 1
        assert there.send(got[0], b"answer") and eventually(here.readable)
        asked.clear()
        assert here.recv() == b"answer" and not asked
        assert here.recv() is None and len(asked) == 1
    finally:
        here.close()
        there.close()


@pytest.mark.case("B13")
def test_a_killed_receivers_socket_is_replaced(owner: Instance) -> None:
    with child(BIND, owner.directory) as first:
        assert line(first) == "bound"
    assert stat.S_ISSOCK(os.lstat(owner.lane_path("w0.0")).st_mode)
    mine = receiver(owner)
    mine.close()
    assert not os.path.lexists(owner.lane_path("w0.0"))


@pytest.mark.case("B13")
def test_a_file_at_the_sockets_place_is_left_alone(owner: Instance) -> None:
    path = Path(owner.lane_path("w0.0"))
    path.write_text("precious")
    with pytest.raises(LaneError, match="not a socket"):
        receiver(owner)
    assert path.read_text() == "precious"
    path.unlink()
    receiver(owner).close()  # and the refusal kept nothing


def test_a_close_in_libzmqs_thread_does_not_take_the_successors_socket(owner: Instance) -> None:
    for _ in range(50):
        receiver(owner).close()
    last = receiver(owner)
    deadline = time.monotonic() + 0.3
    while time.monotonic() < deadline:
        assert os.path.exists(owner.lane_path("w0.0"))
    last.close()
    assert sorted(p.name for p in owner.directory.iterdir() if p.is_socket()) == []


@pytest.mark.case("B13")
def test_a_sender_that_reconnects_late_takes_no_connection_from_its_successor(
    owner: Instance,
) -> None:
    """One life of a processor sends to two lives of a client: ROUTER_HANDOVER must see two peers.

    Where it sees one, the second is never read again, and never told.
    """

    def comes(port: ZmqReceiverPort, frame: bytes) -> bool:
        def came() -> bool:
            while (message := port.recv_run(9, (0, 0, 0, 0), [])) is not None:
                seen.append(message[1])
            return frame in seen

        seen: list[bytes] = []
        return eventually(came)

    def connect() -> ZmqSenderPort:
        return ZmqSenderPort(owner, "w0.0", "worker:0.0:1", bound_bytes=4096)

    first, early = receiver(owner), connect()
    assert early.send(b"\x90early") and comes(first, b"\x90early")
    first.close()
    second, late = receiver(owner), connect()
    assert late.send(b"\x90late") and comes(second, b"\x90late")
    assert early.send(b"\x90back") and comes(second, b"\x90back")
    for _ in range(3):
        assert late.send(b"\x90again") and comes(second, b"\x90again")
    for port in (early, late, second):
        port.close()


@pytest.mark.case("B73")
def test_a_message_with_more_parts_costs_only_itself(base: Path) -> None:
    rig = Rig("zmq", base)
    sender, receiving = rig.pair()
    stranger = context().socket(zmq.DEALER)
    stranger.linger = 0
    stranger.connect(f"ipc://{rig.instance.lane_path('w0.0')}")
    rig.send(sender, 3)
    for parts in ([b"a", b"b", b"c"], [b""], [b"", b"x"]):
        stranger.send_multipart(parts)
    rig.send(sender, 3)
    got = turn(lambda: receiving.counters["bad_frames"] >= 3, sender, receiving)
    rig.send(sender, 3)
    got += turn(lambda: not sender.unacked_frames, sender, receiving)
    assert [seq_of(f) for f in got] == list(range(1, 10))
    stranger.close()
    rig.close()


@pytest.mark.case("F10")
def test_parts_behind_a_good_frame_cost_only_themselves(base: Path) -> None:
    rig = Rig("zmq", base)
    sender, receiving = rig.pair()
    stranger = context().socket(zmq.DEALER)
    stranger.linger = 0
    stranger.connect(f"ipc://{rig.instance.lane_path('w0.0')}")
    socket = sender.port._socket  # type: ignore[attr-defined]

    def bad() -> int:
        return receiving.counters["bad_frames"] + receiving.counters["dropped_instance"]

    got = []
    for more in ([b"rest"], [b"", b"rest"], [b"a", b"b", b"c"], [frame(1, 2, 3, 4)], [b"x"] * 200):
        wanted = bad() + 2
        good = frame(*sender.next_header)
        sender.window.push(good)
        socket.send_multipart([good, *more])
        stranger.send_multipart([b"junk", *more])
        rig.send(sender, 3)
        got += turn(lambda: not sender.unacked_frames, sender, receiving)
        got += turn(lambda wanted=wanted: bad() >= wanted, sender, receiving)  # type: ignore[misc]
    assert [seq_of(f) for f in got] == list(range(1, 21))
    assert not sender.counters["resent"]
    stranger.close()
    rig.close()


@pytest.mark.case("B73")
def test_a_message_above_the_limit_never_arrives(base: Path) -> None:
    rig = Rig("zmq", base)
    sender, receiving = rig.pair()
    stranger = context().socket(zmq.DEALER)
    stranger.linger = 0
    stranger.connect(f"ipc://{rig.instance.lane_path('w0.0')}")
    stranger.send(bytes(2 << 20))  # the rig's receivers take 1 MiB
    rig.send(sender, 3)
    got = turn(lambda: not sender.unacked_frames, sender, receiving)
    assert [seq_of(f) for f in got] == [1, 2, 3]
    assert receiving.counters["bad_frames"] == 0
    stranger.close()
    rig.close()


def test_a_fork_is_refused_and_gets_a_context_of_its_own(base: Path) -> None:
    rig = Rig("zmq", base)
    sender, receiving = rig.pair()
    parents = context()
    pid = os.fork()
    if pid == 0:
        refused = 0
        for use in (lambda: rig.send(sender), sender.poll, receiving.recv, sender.port.close):
            try:
                use()
            except ForkError:
                refused += 1
        fresh = context() is not parents
        os._exit(0 if refused == 4 and fresh else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    rig.send(sender)
    assert len(turn(lambda: not sender.unacked_frames, sender, receiving)) == 1
    rig.close()
