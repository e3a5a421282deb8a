"""The two children of a server, played by real processes that are neither engine nor API server."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.supervisor.test_supervisor import gone
from tokenpipe.errors import StartupError
from tokenpipe.serve.processes import REPORT_S, ServerFailed, ServerProcesses
from tokenpipe.serve.server_resources import server_resources
from tokenpipe.serve.signals import SecondSignal, StopSignals
from tokenpipe.supervisor import Child, ChildSpec
from tokenpipe.topology import Topology

WELL = """
import signal, sys
from tokenpipe.notify import Notifier
print(*sys.argv[1:], flush=True)
Notifier.inherited().ready()
signal.pause()
"""
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WELL
LATE = WELL.replace("Notifier.inherited().ready()", "")


@contextmanager
def processes(
    runtime_dir: Path, tmp_path: Path, sources: Mapping[str, str], **keys: object
) -> Iterator[ServerProcesses]:
    """Make the processes of a server; each role runs a source of its own."""
    values = {"name": "it", "runtime_dir": str(runtime_dir), "api": {"port": 0}, **keys}
    specs = []
    for role, source in sources.items():
        (tmp_path / f"{role}_of_test.py").write_text(source)
        path = {"PYTHONPATH": str(tmp_path)}
        specs.append(ChildSpec(role, "0", f"{role}_of_test", ("--first",), path))
    signals = StopSignals()
    try:
        with server_resources(Topology.from_json_dict(values)) as resources:
            yield ServerProcesses(resources, signals, specs)
    finally:
        signals.close()


def started(made: ServerProcesses, timeout_s: float = 60.0) -> dict[str, Child]:
    deadline = time.monotonic() + timeout_s
    made.start(deadline)
    assert made.wait_ready(deadline)
    return {child.spec.role: child for child in made.children.living}


def replaced(made: ServerProcesses, old: Child) -> bool:
    """Whether another child has the role of `old`, and has written its arguments."""
    made.look()
    new = [child for child in made.children.living if child.spec.role == old.spec.role]
    return any(child is not old and "--deadline" in child.log_tail() for child in new)


def test_a_dead_child_is_started_again_with_a_new_deadline(
    runtime_dir: Path, tmp_path: Path
) -> None:
    sources = {"engine": WELL, "api": WELL}
    policies = {"engine": "restart", "restarts": 1}
    with processes(runtime_dir, tmp_path, sources, policies=policies) as made:
        first = started(made)
        left = runtime_dir / "it" / "health.json"
        left.touch()
        old = first["engine"]
        os.kill(old.pid, signal.SIGKILL)
        assert eventually(lambda: replaced(made, old))
        new = {child.spec.role: child for child in made.children.living}
        assert new["api"] is first["api"] and not left.exists()
        words = new["engine"].log_tail().split()
        assert words[:2] == ["--first", "--deadline"] and len(words) == 3
        assert float(words[2]) > new["engine"].started
        os.kill(new["engine"].pid, signal.SIGKILL)
        with pytest.raises(ServerFailed, match=r"engine 0 .* died by SIGKILL; it is not started"):
            eventually(lambda: replaced(made, new["engine"]))
        assert not gone(first["api"].pid)


def test_policies_are_for_each_role(runtime_dir: Path, tmp_path: Path) -> None:
    with processes(runtime_dir, tmp_path, {"engine": WELL, "api": WELL}) as made:
        first = started(made)
        os.kill(first["api"].pid, signal.SIGKILL)
        assert eventually(lambda: replaced(made, first["api"]))
        os.kill(first["engine"].pid, signal.SIGKILL)
        with pytest.raises(ServerFailed, match=r"policies\.engine is fail"):
            eventually(lambda: replaced(made, first["engine"]))


def test_a_late_child_is_given_a_moment_to_say_why(runtime_dir: Path, tmp_path: Path) -> None:
    with processes(runtime_dir, tmp_path, {"engine": LATE}) as made:
        began = time.monotonic()
        deadline = began + 0.2
        made.start(deadline)
        with pytest.raises(StartupError, match=r"engine 0 .*not ready"):
            made.wait_ready(deadline)
        assert time.monotonic() - began >= 0.2 + REPORT_S


def test_a_signal_ends_a_start(runtime_dir: Path, tmp_path: Path) -> None:
    with processes(runtime_dir, tmp_path, {"engine": LATE}) as made:
        deadline = time.monotonic() + 60.0
        made.start(deadline)
        made.signals.handle(signal.SIGTERM, None)
        assert not made.wait_ready(deadline)


def test_end_asks_first_and_kills_at_its_deadline(
    runtime_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with processes(runtime_dir, tmp_path, {"engine": STUBBORN, "api": WELL}) as made:
        first = started(made)
        made.end("api", 30.0)
        assert first["api"].died is not None and not gone(first["engine"].pid)
        assert "died by SIGTERM" in caplog.text
        made.end("engine", 0.1)
        assert gone(first["engine"].pid)
        assert f"{first['engine']} did not end within 0.1 s; it was killed" in caplog.text


def test_a_second_signal_interrupts_an_end(runtime_dir: Path, tmp_path: Path) -> None:
    with processes(runtime_dir, tmp_path, {"engine": STUBBORN}) as made:
        child = started(made)["engine"]
        for number in (signal.SIGTERM, signal.SIGINT):
            made.signals.handle(number, None)
        with pytest.raises(SecondSignal) as second:
            made.end("engine", 30.0)
        assert second.value.number == signal.SIGINT and not gone(child.pid)
        made.kill()
        assert eventually(lambda: gone(child.pid))
