"""A forked child that ends in order leaves everything of its parent alone."""

from __future__ import annotations

import gc
import os
import sys
import threading
from pathlib import Path

import pytest

from tests.conftest import eventually
from tokenpipe import Client, Pipeline, Publisher, RankUp, Submitted, Topology


@pytest.mark.case("F33")
@pytest.mark.parametrize("mode", ["process", "inline"])
def test_a_fork_that_ends_in_order_ends_nothing(runtime_dir: Path, mode: str) -> None:
    """The child collects its copies of all objects, and runs the interpreter's normal end."""
    with Pipeline(Topology(runtime_dir=runtime_dir, processors={"mode": mode})) as pipe:
        made: list[Publisher | Client] = []

        def open_both() -> None:
            made.extend([Publisher(pipe.endpoint), Client(pipe.endpoint)])

        opening = threading.Thread(target=open_both)
        opening.start()
        seen = []
        while opening.is_alive():
            pipe.wait(0.05)
            seen += pipe.poll()
        files = sorted(os.listdir(pipe.endpoint))
        pid = os.fork()
        if pid == 0:
            made.clear()
            gc.collect()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            try:
                sys.exit(0)  # as a forked worker ends: handlers and finalizers run
            finally:
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert sorted(os.listdir(pipe.endpoint)) == files
        pub, client = made
        assert isinstance(pub, Publisher) and isinstance(client, Client)
        key = client.submit([1, 2])

        def until(kind: type[object]) -> object:
            def came() -> object:
                seen.extend(pipe.poll())
                return any_of(kind)

            assert eventually(came)
            return any_of(kind)

        def any_of(kind: type[object]) -> object:
            return next((event for event in seen if isinstance(event, kind)), None)

        until(RankUp)
        asked = until(Submitted)
        assert isinstance(asked, Submitted) and asked.request.internal_id == key
        with pipe.commands(0) as cmd:
            handle = cmd.bind(asked.request, 0)
        pub.publish(1, [handle], [7])

        def applied() -> bool:
            pipe.poll()
            pub.poll()
            return not pub.unacknowledged

        assert eventually(applied)
        closing = [threading.Thread(target=one.close) for one in made]
        for thread in closing:
            thread.start()
        while any(thread.is_alive() for thread in closing):
            pipe.wait(0.05)
            pipe.poll()
