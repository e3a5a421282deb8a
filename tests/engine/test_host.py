"""An engine host in this process, with real workers, and clients in processes of their own."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import eventually
from tokenpipe.engine.host import EngineHost, start_host
from tokenpipe.instance import HEALTH_FILE
from tokenpipe.notify import Notifier
from tokenpipe.topology import Topology
from tokenpipe.worker import SYNTHETIC, EngineSpec

CLIENT = """
import asyncio, sys
from tokenpipe import AsyncClient, SamplingParams
async def main(endpoint, tokens):
    print("up", flush=True)
    sys.stdin.readline()  # all that is slow about a start is behind us
    async with AsyncClient(endpoint) as client:
        params = SamplingParams(max_tokens=tokens)
        async for output in client.generate([1, 2], params):
            print(output.offset + len(output.token_ids), flush=True)
asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


class Asking:
    """A client's process, ready to open."""

    def __init__(self, directory: Path, name: str, endpoint: str, tokens: int) -> None:
        self.out = directory / name
        with open(self.out, "w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", CLIENT, endpoint, str(tokens)],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                text=True,
                env={**os.environ, "PYTHONPATH": os.getcwd()},
            )
        assert eventually(lambda: self.out.read_text() == "up\n", 30.0), self.out.read_text()

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def tokens(self) -> int:
        return int(self.out.read_text().split()[-1].replace("up", "0"))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def serve_until(host: EngineHost, fact: object) -> bool:
    deadline = time.monotonic() + 20.0
    while not fact():  # type: ignore[operator]
        if time.monotonic() > deadline:
            return False
        host._turn(0.01)
    return True


@pytest.fixture(params=["process", "inline"])
def host(request: pytest.FixtureRequest, runtime_dir: Path) -> Iterator[EngineHost]:
    topology = Topology(runtime_dir=runtime_dir, processors={"mode": request.param})
    deadline = time.monotonic() + 60.0
    with start_host(topology, EngineSpec(SYNTHETIC), Notifier(None), deadline) as made:
        yield made


def test_client_that_takes_a_dead_ones_place_at_once_gets_its_output(
    host: EngineHost, tmp_path: Path
) -> None:
    """Before the lanes have noticed the death: what was for the dead one must not be in its way."""
    first = Asking(tmp_path, "first", host.endpoint, 1_000_000)
    second = Asking(tmp_path, "second", host.endpoint, 20)
    first.go()
    assert serve_until(host, lambda: first.tokens() > 10)
    first.kill()
    second.go()
    assert serve_until(host, lambda: second.process.poll() is not None), second.out.read_text()
    assert second.process.returncode == 0 and second.tokens() == 20
    assert serve_until(host, lambda: host.scheduler.idle)


def test_full_disk_is_logged_now_and_then_and_ends_nothing(
    host: EngineHost, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    part = Path(host.endpoint) / f"{HEALTH_FILE}.part"
    part.symlink_to("/dev/full")
    asking = Asking(tmp_path, "asking", host.endpoint, 20)
    asking.go()
    looks = 0

    def ended() -> bool:
        nonlocal looks
        looks += 1
        host._watch_at = 0.0
        host._look_around()
        return asking.process.poll() is not None

    with caplog.at_level(logging.ERROR, "tokenpipe.engine"):
        assert serve_until(host, ended), asking.out.read_text()
    assert asking.process.returncode == 0 and asking.tokens() == 20
    said = [record for record in caplog.records if "No space left on device" in record.message]
    assert 1 <= len(said) < looks
