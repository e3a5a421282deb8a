"""Losses, delays, restarts of either end in any order: what a lane promises holds all the same."""

from __future__ import annotations

import random
from collections import deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.transport import chaos
from tests.transport.rig import frame, seq_of
from tokenpipe.transport import Gap, LaneReceiver, LaneSender, Peer, PeerDown, PeerUp

INSTANCE = 7


class LaneMachine(RuleBasedStateMachine):
    """`delivered[sender, receiver]` must be a prefix of what that pair was sent, without a gap."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.lives = 0
        self.net = chaos.Net()
        self.sent: dict[tuple[int, int], list[int]] = {}
        self.delivered: dict[tuple[int, int], list[int]] = {}
        self.up = 0
        self.new_sender()
        self.new_receiver()

    # --- both ends ------------------------------------------------------------------------

    def life(self) -> int:
        self.lives += 1
        self.now += 0.001
        return self.lives

    def new_sender(self) -> None:
        me = Peer("worker", "0.0", self.life())
        self.worker = me
        self.sender = LaneSender(
            chaos.Sender(self.net, me.route.encode()),
            instance=INSTANCE,
            me=me,
            to=Peer("processor", "0", 0),
            bound_bytes=2000,
            alive=lambda: True,
            clock=lambda: self.now,
        )

    def new_receiver(self) -> None:
        self.processor = Peer("processor", "0", self.life())
        self.up = 0
        self.receiver = LaneReceiver(
            chaos.Receiver(self.net),
            instance=INSTANCE,
            me=self.processor,
            expects=Peer("worker", "0.0", 0),
            hold_bytes=300,
            alive=lambda: True,
            clock=lambda: self.now,
            gap_timeout_s=1e9,  # so that every gap is one that the sender caused: there are none
        )

    # --- what happens -----------------------------------------------------------------------

    @precondition(lambda self: self.sender.receiver and not self.sender.lost)
    @rule(count=st.integers(1, 5))
    def send(self, count: int) -> None:
        for _ in range(count):
            lane = self.sender
            if lane.lost or lane.room < 80:
                return
            pair = (self.worker.incarnation, lane.receiver)
            seq = lane.next_seq
            lane.send(frame(INSTANCE, *pair, seq))
            self.sent.setdefault(pair, []).append(seq)

    @rule()
    def carry(self) -> None:
        self.net.carry()

    @rule(apply=st.booleans())
    def go_on(self, apply: bool) -> None:
        """Take a turn at both ends, so that runs get far."""
        self.now += 0.01
        self.sender.poll()
        self.net.carry()
        self.receive(20, apply)
        self.receive(20, apply)
        self.net.carry()
        self.sender.poll()

    @precondition(lambda self: self.net.up or self.net.down)
    @rule(up=st.integers(0, 6), down=st.integers(0, 3))
    def lose(self, up: int, down: int) -> None:
        for _ in range(min(up, len(self.net.up))):
            self.net.up.popleft()
        for _ in range(min(down, len(self.net.down))):
            self.net.down.popleft()

    @precondition(lambda self: self.net.up)
    @rule()
    def repeat(self) -> None:
        self.net.up.extend(list(self.net.up)[-3:] if len(self.net.up) < 50 else [])

    @precondition(lambda self: self.net.up)
    @rule()
    def the_dead_come_last(self) -> None:
        """Reorder between routes, as a ROUTER may; on one route the order stays."""
        mine = self.worker.route.encode()
        self.net.up = deque(sorted(self.net.up, key=lambda message: message[0] != mine))

    @rule(seconds=st.sampled_from([0.004, 0.03, 0.11, 0.6]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.sender.tick(self.now)
        self.receiver.tick(self.now)

    @rule()
    def sender_polls(self) -> None:
        self.sender.poll()

    @rule(limit=st.integers(1, 20), apply=st.booleans())
    def receive(self, limit: int, apply: bool) -> None:
        for change in self.receiver.peer_events():
            if isinstance(change, PeerUp):
                assert self.up == 0
                self.up = change.incarnation
            else:
                assert isinstance(change, PeerDown) and change.incarnation == self.up
                self.up = 0
        for item in self.receiver.recv(limit):
            pair = (self.up, self.processor.incarnation)
            got = self.delivered.setdefault(pair, [])
            if isinstance(item, Gap):
                raise AssertionError(f"{item} of {pair}, though the sender keeps everything")
            got.append(seq_of(item))
        if apply:
            self.receiver.applied()

    @rule(sender=st.booleans())
    def doubt(self, sender: bool) -> None:
        if sender:
            self.sender.doubt()
        else:
            self.receiver.doubt(self.now)

    @rule()
    def restart_sender(self) -> None:
        self.new_sender()

    @rule()
    def restart_receiver(self) -> None:
        self.net.arrived.clear()
        self.new_receiver()

    # --- what must hold ---------------------------------------------------------------------

    @invariant()
    def every_pair_got_a_prefix(self) -> None:
        for pair, got in self.delivered.items():
            assert got == self.sent.get(pair, [])[: len(got)]

    @invariant()
    def the_bound_holds(self) -> None:
        assert self.sender.unacked_bytes <= 2000
        assert self.receiver._protocol.window.held_bytes <= 300

    def teardown(self) -> None:
        """Let the net be kind: everything sent to the living arrives."""
        pair = (self.worker.incarnation, self.processor.incarnation)
        for _ in range(60):
            self.now += 0.06
            self.sender.poll()
            self.net.carry()
            self.receive(50, True)
            self.receiver.tick(self.now)
            self.net.carry()
        assert self.sender.ready and self.up == pair[0]
        assert self.sender.unacked_frames == 0
        assert self.delivered.get(pair, []) == self.sent.get(pair, [])
        self.every_pair_got_a_prefix()


LaneMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestChaos = LaneMachine.TestCase


@pytest.mark.parametrize("seed", range(160))
def test_long_runs(seed: int) -> None:
    """Go further than the machine does: mostly life as usual, with trouble now and then."""
    rng = random.Random(seed)
    world = LaneMachine()

    def send() -> None:
        if world.sender.receiver and not world.sender.lost:
            world.send(rng.randint(1, 5))

    usual = [lambda: world.go_on(rng.random() < 0.7), send]
    trouble = [
        world.carry,
        world.repeat,
        world.the_dead_come_last,
        world.sender_polls,
        world.restart_sender,
        world.restart_receiver,
        lambda: world.doubt(rng.random() < 0.5),
        lambda: world.lose(rng.randint(0, 6), rng.randint(0, 3)),
        lambda: world.wait(rng.choice([0.004, 0.03, 0.11, 0.6])),
        lambda: world.receive(rng.randint(1, 20), rng.random() < 0.5),
    ]
    for _ in range(120):
        rng.choice(usual if rng.random() < 0.6 else trouble)()
        world.every_pair_got_a_prefix()
        world.the_bound_holds()
    world.teardown()
