"""Who is at the end of a lane."""

from __future__ import annotations

from tokenpipe.transport import Peer, Role, new_incarnation


def test_a_peer_is_named_without_its_incarnation_and_routed_with_it() -> None:
    peer = Peer("worker", "0.1", 0xAB)
    assert str(peer) == str(Role("worker", "0.1")) == "worker 0.1"
    assert peer.route == "worker:0.1:ab"
    assert peer.route != Peer("worker", "0.1", 0xAC).route


def test_every_incarnation_is_another_and_none_is_nobody() -> None:
    made = {new_incarnation() for _ in range(1000)}
    assert len(made) == 1000
    assert all(0 < incarnation < 1 << 63 for incarnation in made)
