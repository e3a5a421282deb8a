"""Children of any kind, as modules in a directory of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tokenpipe.supervisor import ChildSpec, Supervisor

Program = Callable[..., ChildSpec]

IDLE = "import signal\nprint('up', flush=True)\nsignal.pause()\n"
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + IDLE

LIVELY = """
import os, select, signal, sys
from tokenpipe.notify import Notifier
notifier = Notifier.inherited()
assert "TOKENPIPE_NOTIFY" not in os.environ
notifier.phase("loading weights")
notifier.ready(port=7)
while True:
    select.select([], [], [], 0.05)
    notifier.watchdog()
"""
BUSY_START = """
import signal, sys, time
from tokenpipe.notify import Notifier
notifier = Notifier.inherited()
notifier.phase("compiling kernels")
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    pass
notifier.ready()
signal.pause()
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Make a ChildSpec that runs the given source."""

    def make(source: str, *args: str, role: str = "worker", rank: str = "0") -> ChildSpec:
        name = f"program_{abs(hash(source))}"
        (tmp_path / f"{name}.py").write_text(source)
        return ChildSpec(role, rank, name, args, {"PYTHONPATH": str(tmp_path)})

    return make


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    with Supervisor(tmp_path / "logs") as made:
        yield made
