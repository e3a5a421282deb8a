"""One ZeroMQ context a process: a fork makes its own and leaves its parent's alone."""

from __future__ import annotations

import os

import zmq

from tokenpipe.transport import context


def test_a_process_has_one_context_with_room_for_many_sockets() -> None:
    assert context() is context()
    assert context().max_sockets == 4096


def test_a_fork_and_its_fork_have_contexts_of_their_own() -> None:
    parents = context()

    def child(depth: int) -> int:
        pid = os.fork()
        if pid:
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        mine = context()
        fresh = mine is not parents and mine is context() and not mine.closed
        with mine.socket(zmq.PAIR) as socket:
            socket.linger = 0
            socket.bind(f"inproc://fork{depth}")
        mine.term()
        os._exit(int(not fresh) or (child(depth + 1) if depth < 1 else 0))

    assert child(0) == 0
    assert context() is parents and not parents.closed
