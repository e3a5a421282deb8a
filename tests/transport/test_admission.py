"""Whom a lane lets in."""

from __future__ import annotations

from tokenpipe.transport import Peer, Role
from tokenpipe.transport.admission import refusal
from tokenpipe.transport.lane_messages import LaneMessage


def test_the_door_lets_in_whom_it_expects_and_no_ghosts() -> None:
    me, expects = Peer("processor", "0", 9), Role("worker", "0.0")

    def judged(instance: int = 1, target: int = 0, since_ns: int = 50, **fields: object) -> str:
        told = {"role": "worker", "rank": "0.0", "since_ns": since_ns, "pinned": False, **fields}
        hello = LaneMessage(instance, 4, target, "hello", told)
        against = refusal(hello, instance=1, me=me, expects=expects, since_ns=50)
        return against[0] if against else ""

    assert judged() == judged(target=9, pinned=True) == ""
    assert judged(instance=2) == "instance"
    assert judged(rank="0.1") == judged(role="client") == "role"
    assert judged(target=8, pinned=True) == "receiver"
    assert judged(since_ns=49) == "stale"


def test_a_refusal_names_both_sides() -> None:
    me, expects = Peer("processor", "0", 9), Role("worker", "0.0")
    told = {"role": "client", "rank": "3", "since_ns": 0, "pinned": False}
    hello = LaneMessage(1, 4, 0, "hello", told)
    assert refusal(hello, instance=1, me=me, expects=expects, since_ns=0) == (
        "role",
        "processor 0 expects worker 0.0 here, not client 3",
    )
    refused = refusal(hello, instance=0xAB, me=me, expects=expects, since_ns=0)
    assert refused == ("instance", "this is instance ab, not 1")
