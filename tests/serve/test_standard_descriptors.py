"""A server that is started in the wild: without descriptors, with ignored signals, frozen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import eventually
from tests.serve.caller import Caller
from tests.serve.running import Running, descendants

CLOSED = """
import os, sys
os.closerange(0, 3)
from tokenpipe.serve.standard_descriptors import open_standard_descriptors
sys.stdout = sys.stderr = None
open_standard_descriptors()
print("harmless")
ok = all(os.path.samestat(os.fstat(fd), os.stat(os.devnull)) for fd in range(3))
os._exit(0 if ok and os.get_inheritable(1) and os.open("/", os.O_RDONLY) == 3 else 1)
"""
IGNORING = (
    "-c",
    "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN);"
    "from tokenpipe.cli import main; sys.argv.insert(1, 'serve'); sys.exit(main())",
)


@pytest.mark.case("F40")
def test_closed_standard_descriptors_are_opened() -> None:
    assert subprocess.run([sys.executable, "-c", CLOSED]).returncode == 0


@pytest.mark.case("F40")
def test_a_signal_that_is_ignored_at_the_start_stays_ignored_and_a_freeze_ends_nothing(
    tmp_path: Path, runtime_dir: Path
) -> None:
    arguments = ("--engine-arg", "rate=50")
    keys: dict[str, Any] = {"timeouts": {"stuck_s": 2.0}, "policies": {"on_stuck": "kill"}}
    with Running(tmp_path, runtime_dir, *arguments, command=IGNORING, **keys) as server:
        os.kill(server.process.pid, signal.SIGHUP)
        caller = Caller(server, 300)
        assert eventually(lambda: caller.tokens)
        everyone = [server.process.pid, *descendants(server.process.pid)]
        for pid in everyone:
            os.kill(pid, signal.SIGSTOP)
        assert not eventually(lambda: server.process.poll() is not None, 6.0)
        for pid in everyone:
            os.kill(pid, signal.SIGCONT)
        caller.join(30)
        assert caller.tokens == 300, caller.error
        assert eventually(server.is_ready)
        assert [server.process.pid, *descendants(server.process.pid)] == everyone
