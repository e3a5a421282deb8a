"""A processor as a process: how it starts, how it ends, and what it tells its supervisor."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tokenpipe.instance import Instance, command_lane, report_lane
from tokenpipe.notify import NOTIFY_VARIABLE
from tokenpipe.processor import CONTROL_BYTES
from tokenpipe.topology import Topology
from tokenpipe.transport import Gap, Peer, Role, new_incarnation, open_receiver, open_sender
from tokenpipe.wire import (
    Counters,
    Message,
    ProcessorStarted,
    Snapshot,
    pack_control,
    unpack_control,
)

START_S = 20.0
MAIN = (sys.executable, "-m", "tokenpipe.processor")


class Engine:
    """An instance with an engine's ends of two lanes, and a processor as a child process."""

    def __init__(self, base: Path, **topology: Any) -> None:
        self.topology = Topology(slots_per_rank=4, vocab_size=1000, **topology)
        info = {"name": None, "topology": self.topology.to_json_dict()}
        self.instance = Instance.create(base, None, info)
        self._claim = self.instance.claim("engine", "0")
        me, to = Peer("engine", "0", new_incarnation()), Role("processor", "0")
        self.commands = open_sender(
            self.instance, command_lane(0), me=me, to=to, bound_bytes=CONTROL_BYTES
        )
        self.reports = open_receiver(
            self.instance,
            report_lane(0),
            me=me,
            expects=to,
            max_frame_bytes=CONTROL_BYTES,
            hold_bytes=CONTROL_BYTES,
        )
        self.reported: list[Message] = []
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        ours.setblocking(False)
        self._notifications = ours
        with theirs:
            self.process = subprocess.Popen(
                [*MAIN, "--endpoint", str(self.instance.directory), "--index", "0"],
                env={**os.environ, NOTIFY_VARIABLE: str(theirs.fileno())},
                pass_fds=[theirs.fileno()],
                stderr=subprocess.PIPE,
                text=True,
            )
        self.told: dict[str, Any] = {}

    def until(self, fact: Callable[[], object]) -> None:
        """Read and answer what comes until the fact holds."""
        deadline = time.monotonic() + START_S
        while not fact():
            assert time.monotonic() < deadline, self.told
            self.commands.poll()
            self.reports.peer_events()
            for item in self.reports.recv():
                assert not isinstance(item, Gap)
                self.reported += unpack_control(item)[1]
            self.reports.applied()
            self.reports.tick(time.monotonic())
            self._hear()
            time.sleep(0.002)

    def _hear(self) -> None:
        while True:
            try:
                self.told |= json.loads(self._notifications.recv(1 << 16))
            except BlockingIOError:
                return

    def ready(self) -> None:
        self.until(lambda: "ready" in self.told and self.commands.ready)

    def ended(self) -> tuple[int, str]:
        """Wait for the end of the process; return its exit status and what it wrote."""
        self.until(lambda: self.process.poll() is not None)
        self._hear()
        assert self.process.stderr is not None
        return self.process.returncode, self.process.stderr.read()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self._notifications.close()
        self.commands.close(0.0)
        self.reports.close()
        self._claim.release()
        self.instance.close()


@pytest.fixture
def engine(runtime_dir: Path) -> Iterator[Callable[..., Engine]]:
    made: list[Engine] = []

    def make(**topology: Any) -> Engine:
        made.append(Engine(runtime_dir, **topology))
        return made[-1]

    yield make
    for one in made:
        one.close()


Make = Callable[..., Engine]


def test_it_serves_commands_until_the_engine_ends_their_lane(engine: Make) -> None:
    e = engine()
    e.ready()
    comm = Path(f"/proc/{e.process.pid}/comm").read_text()
    assert comm.startswith("tp:processor 0")
    e.commands.send(pack_control(e.commands.next_header, [Snapshot(5)]))
    e.until(lambda: len(e.reported) == 2 and "watchdog" in e.told)
    assert e.reported[0] == ProcessorStarted("it has no journal")
    assert isinstance(e.reported[1], Counters) and e.reported[1].id == 5
    e.process.send_signal(signal.SIGINT)  # as a terminal's Ctrl-C; the engine decides
    e.commands.send(pack_control(e.commands.next_header, [Snapshot(6)]))
    e.until(lambda: len(e.reported) == 2)
    e.commands.end()
    assert e.ended() == (0, "")


def test_a_sigterm_ends_it(engine: Make) -> None:
    e = engine()
    e.ready()
    e.process.terminate()
    assert e.ended() == (0, "")


def test_a_tokenizer_that_cannot_be_read_ends_it_with_a_reason(
    engine: Make, tmp_path: Path
) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    e = engine(tokenizer=str(path))
    status, log = e.ended()
    assert status == 2
    assert "processor 0 cannot start: ConfigError: tokenizer" in log
    assert "Traceback" not in log
    assert e.told["failed"].startswith("ConfigError: tokenizer")


def test_arguments_are_needed() -> None:
    done = subprocess.run(MAIN, capture_output=True, text=True)
    assert done.returncode == 2 and "--endpoint" in done.stderr
