"""One thing to wait on; a bell that has rung already is not forgotten."""

from __future__ import annotations

import asyncio
import time

from tests.transport.rig import Rig, turn, waiting
from tokenpipe.transport import LaneReceiver


def test_waiting_ends_with_a_message_or_with_the_time(rig: Rig) -> None:
    sender, receiver = rig.pair()
    with waiting(receiver) as waiter:
        turn(lambda: not receiver.port.readable(), sender, receiver)
        began = time.monotonic()
        assert not waiter.wait(0.05)
        assert time.monotonic() - began >= 0.05
        rig.send(sender)
        assert waiter.wait(5.0)
        assert len(receiver.recv()) == 1


def test_what_a_bounded_recv_left_is_pending(rig: Rig) -> None:
    sender, receiver = rig.pair()
    with waiting(receiver) as waiter:
        rig.send(sender, 10)
        left = 10
        while left:
            assert waiter.wait(5.0)
            left -= len(receiver.recv(limit=1))
        assert receiver.recv() == []
        assert not waiter.pending()


def test_a_bell_swallowed_by_a_send_is_not_lost(rig: Rig) -> None:
    sender, receiver = rig.pair()
    with waiting(sender) as waiter:
        for _ in range(20):
            rig.send(sender)
            turn_receiver(receiver)  # an acknowledgement comes back while we send again
            rig.send(sender)
            turn_receiver(receiver)
            assert waiter.wait(5.0)
            sender.poll()


def test_all_ports_with_a_message_are_ready_at_once_and_no_other(rig: Rig) -> None:
    sender, receiver = rig.pair()
    with waiting(sender, receiver) as waiter:
        turn(lambda: not receiver.port.readable(), sender, receiver)
        while waiter.ready(lambda: 0.0):  # the last acknowledgement may be on its way
            sender.poll()
        began = time.monotonic()
        assert waiter.ready(lambda: 0.05) == []
        assert time.monotonic() - began >= 0.05
        rig.send(sender, 3)
        assert waiter.ready(lambda: 5.0) == [receiver.port]
        assert len(receiver.recv(limit=1)) == 1  # it leaves the rest in the port
        receiver.applied()
        receiver.tick(time.monotonic() + 1)  # acknowledges
        deadline = time.monotonic() + 5
        while len(ready := waiter.ready(lambda: 5.0)) < 2:
            assert ready == [receiver.port] and time.monotonic() < deadline
        assert set(ready) == {sender.port, receiver.port}


def turn_receiver(receiver: LaneReceiver) -> None:
    deadline = time.monotonic() + 5
    while not receiver.recv():
        assert time.monotonic() < deadline
    receiver.applied()
    receiver.tick(time.monotonic() + 1)


def test_a_removed_port_is_forgotten(rig: Rig) -> None:
    sender, receiver = rig.pair()
    with waiting(sender, receiver) as waiter:
        waiter.remove(receiver.port)
        waiter.remove(receiver.port)
        sender.poll()
        rig.send(sender)
        sender.port.readable()
        assert not waiter.wait(0.05)


def test_the_rule_for_asyncio_loses_nothing(rig: Rig) -> None:
    sender, receiver = rig.pair()
    got: list[object] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        with waiting(receiver) as waiter:

            def pump() -> None:
                got.extend(receiver.recv(limit=3))
                receiver.applied()
                if len(got) == 300 and not done.done():
                    done.set_result(None)
                if waiter.pending():
                    loop.call_soon(pump)

            loop.add_reader(waiter.fileno(), pump)
            pump()
            for _ in range(100):
                rig.send(sender, 3)
                await asyncio.sleep(0)
            await asyncio.wait_for(done, 5)
            loop.remove_reader(waiter.fileno())

    asyncio.run(main())
    assert len(got) == 300
