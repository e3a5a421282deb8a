"""Bad rows, bad frames and strangers on a socket: each harms at most what it names."""

from __future__ import annotations

import pickle
import socket
import struct
from functools import partial
from pathlib import Path

import pytest
import zmq

from tokenpipe import Finished, FinishReason, ProcessorLost, RankLost, Released, StepLogprobs
from tokenpipe.transport import context
from tokenpipe.wire import LaneHeader, StepPlan, pack_control

from .case_rig import Rig, rig

VOCAB = 1000


@pytest.mark.case("B50")
@pytest.mark.parametrize("token", [-7, VOCAB, 1 << 31, -(1 << 40)])
def test_a_bad_token_ends_its_own_request_once(runtime_dir: Path, token: int) -> None:
    with rig(runtime_dir, vocab_size=VOCAB) as r:
        bad, good = r.submit_many(2, tokens=3)
        handles = [r.bind(bad, 0), r.bind(good, 1)]
        r.publish([(h, [5]) for h in handles])
        r.publish([(handles[0], [token]), (handles[1], [6])])
        r.publish([(handles[0], [7]), (handles[1], [7])], handles)
        r.until(lambda: r.ended(bad, good) and len(r.of(Released)) == 2)
        assert r.got[bad].tokens == [5] and r.got[bad].reason is FinishReason.ERROR
        assert "token" in r.got[bad].error
        assert r.got[good].tokens == [5, 6, 7] and r.got[good].reason is FinishReason.LENGTH
        assert len(r.of(Finished)) == 2 and r.pubs[0].bad_tokens == 1


@pytest.mark.case("B50")
def test_a_nan_among_the_logprobs_is_carried_as_it_is(runtime_dir: Path) -> None:
    with rig(runtime_dir) as r:
        key = r.submit(tokens=1)
        h = r.bind(key, 0)
        nan = float("nan")
        r.publish([(h, [5])], [h], logprobs=StepLogprobs([[5, 6]], [[nan, float("-inf")]], [1]))
        r.until(lambda: r.ended(key))
        assert r.got[key].tokens == [5] and r.got[key].reason is FinishReason.LENGTH


@pytest.mark.case("B50")
def test_rows_of_nobody_and_broken_frames_cost_only_themselves(runtime_dir: Path) -> None:
    with rig(runtime_dir) as r:
        key = r.submit(tokens=4)
        h = r.bind(key, 0)
        r.publish([(h, [1])])
        r.publish([(h + (3 << 35), [99]), (h, [2])])  # a slot that nobody bound
        lane = r.pubs[0]._lane
        lane.send(pack_control(lane.next_header, [StepPlan(1)]))  # not for a processor
        lane.send(pack_control(lane.next_header, [StepPlan(2)])[:-3])  # cut short
        r.publish([(h, [3])])
        r.publish([(h, [4])], [h])
        r.until(lambda: r.ended(key))
        assert r.got[key].tokens == [1, 2, 3, 4]
        assert r.got[key].reason is FinishReason.LENGTH
        assert not r.of(ProcessorLost) and not r.of(RankLost)


def deep(levels: int) -> bytes:
    """Return nested MessagePack arrays."""
    return b"\x91" * levels + b"\xc0"


def garbage(r: Rig) -> list[bytes]:
    """Return messages that no end of ours would send."""
    head = LaneHeader(r.pipe._resources.instance.id, 1, 2, 1)
    frame = pack_control(head, [StepPlan(1)])
    return [
        b"",
        pickle.dumps({"boom": print}),
        deep(10_000),
        b"\xdd\xff\xff\xff\xff",  # an array of 2^32 - 1 elements
        b"\xc6\x80\x00\x00\x00abc",  # 2 GiB of bytes, it says
        frame[:1] + bytes([frame[1], 0x7F]) + frame[3:],  # another version
        frame[: len(frame) // 2],
        bytes(range(256)) * 64,
    ]


def announce_two_gib(path: Path) -> None:
    """Greet as a DEALER does, then announce a message of 2 GiB."""
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(5)
        stranger.connect(str(path))
        greeting = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0")
        stranger.sendall(greeting + bytes(32))
        theirs = b""
        while len(theirs) < 64:
            part = stranger.recv(64 - len(theirs))
            assert part, "it hung up at the greeting"
            theirs += part
        ready = b"\x05READY" + b"\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
        stranger.sendall(bytes([4, len(ready)]) + ready)
        stranger.sendall(b"\x02" + struct.pack(">Q", 2 << 30) + b"x" * 1000)
        while stranger.recv(4096):  # until it is shown the door
            pass


@pytest.mark.case("B73")
def test_a_stranger_on_any_socket_harms_nobody(runtime_dir: Path) -> None:
    with rig(runtime_dir, clients=1) as r:
        r.pipe.step_lane(0)
        key = r.submit(tokens=6)
        h = r.bind(key, 0)
        r.publish([(h, [1, 2])])
        r.until(lambda: r.got[key].tokens == [1, 2])
        sockets = sorted(p for p in Path(r.pipe.endpoint).iterdir() if p.is_socket())
        assert {p.name[0] for p in sockets} >= set("wcseo"), sockets
        strangers = []
        for path in sockets:
            stranger = context().socket(zmq.DEALER)
            stranger.linger = 0
            stranger.connect(f"ipc://{path}")
            for message in garbage(r):
                stranger.send(message)
            stranger.send_multipart([b"a", b"b", b"c"])
            strangers.append(stranger)
            r.beside(partial(announce_two_gib, path))
        r.publish([(h, [3, 4])])
        r.until(lambda: r.got[key].tokens == [1, 2, 3, 4])
        r.publish([(h, [5, 6])], [h])
        r.until(lambda: r.ended(key) and r.of(Released))
        assert r.got[key].tokens == [1, 2, 3, 4, 5, 6]
        assert not r.of(ProcessorLost) and not r.of(RankLost)
        again = r.submit(tokens=1)  # and both ways still work
        g = r.bind(again, 1)
        r.publish([(g, [9])], [g])
        r.until(lambda: r.ended(again))
        for stranger in strangers:
            stranger.close()
