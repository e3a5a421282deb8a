"""Who is at the end of a lane."""

from __future__ import annotations

from tokenpipe.transport import Peer, Role, new_incarnation


def test_a_peer_is_named_without_its_incarnation_and_routed_with_it() -> None:
    peer = Peer("worker", "0.1", 0xAB)
    assert str(peer) == str(Role("worker", "0.1")) == "worker 0.1"
    assert peer.route == "worker:0.1:ab"
    assert peer.route != Peer("worker", "0.1", 0xAC).route


def test_an_incarnation_like_another_has_its_low_32_bits() -> None:
    first = new_incarnation()
    made = {new_incarnation(first) for _ in range(100)}
    assert len(made | {first}) == 101
    assert {one & 0xFFFFFFFF for one in made} == {first & 0xFFFFFFFF}
    assert all(0 < one < 1 << 63 for one in made)


def test_every_incarnation_is_another_and_none_is_nobody() -> None:
    made = {new_incarnation() for _ in range(1000)}
    assert len(made) == 1000
    assert all(0 < incarnation < 1 << 63 for incarnation in made)
