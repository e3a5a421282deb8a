"""Start, ready, death and stop, with real processes."""

from __future__ import annotations

import errno
import os
import re
import select
import shutil
import signal
import threading
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.supervisor.conftest import IDLE, STUBBORN, Program
from tokenpipe.errors import ConfigError, ForkError, StartupError
from tokenpipe.supervisor import Child, ChildSpec, Supervisor


def says_up(child: Child) -> str | None:
    return None if "up" in child.log_tail() else "waiting for up"


def wait_up(supervisor: Supervisor, *children: Child) -> None:
    supervisor.wait_ready({c: lambda c=c: says_up(c) for c in children}, 30.0)  # type: ignore[misc]


def state(pid: int) -> str:
    """Return the letter of /proc; Z where there is no such process (any more)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def gone(pid: int) -> bool:
    """Whether a process is dead, also where nobody has waited for it."""
    return state(pid) == "Z"


def test_ready_then_stop(supervisor: Supervisor, program: Program) -> None:
    one, two = (supervisor.start(program(IDLE, rank=rank)) for rank in "01")
    wait_up(supervisor, one, two)
    assert supervisor.poll() == []
    ended = supervisor.stop(10.0)
    assert [died.how for died in ended] == ["died by SIGTERM"] * 2
    assert supervisor.living == () and supervisor.poll() == []
    assert gone(one.pid) and gone(two.pid)


def test_child_that_ignores_sigterm_is_killed_at_the_deadline(
    supervisor: Supervisor, program: Program
) -> None:
    child = supervisor.start(program(STUBBORN))
    wait_up(supervisor, child)
    assert [died.how for died in supervisor.stop(0.05)] == ["died by SIGKILL"]


def test_stopped_child_is_killed(supervisor: Supervisor, program: Program) -> None:
    child = supervisor.start(program(IDLE))
    wait_up(supervisor, child)
    os.kill(child.pid, signal.SIGSTOP)
    assert eventually(lambda: state(child.pid) == "T")
    assert [died.how for died in supervisor.stop(0.05)] == ["died by SIGKILL"]


def test_only_the_chosen_are_stopped(supervisor: Supervisor, program: Program) -> None:
    one, two = (supervisor.start(program(IDLE, rank=rank)) for rank in "01")
    wait_up(supervisor, one, two)
    supervisor.stop(10.0, [one])
    assert supervisor.living == (two,)
    assert supervisor.stop(10.0, []) == []
    assert supervisor.living == (two,)


def test_death_is_reported_once_and_wakes_a_loop(supervisor: Supervisor, program: Program) -> None:
    child = supervisor.start(program("print('last words'); raise SystemExit(3)"))
    assert select.select([supervisor], [], [], 30.0)[0] == [supervisor]
    (died,) = supervisor.poll()
    assert died.child is child and died.how == "ended with exit code 3"
    assert died.log_tail == "last words"
    assert supervisor.poll() == []


def test_death_by_signal_is_named(supervisor: Supervisor, program: Program) -> None:
    child = supervisor.start(program(IDLE))
    wait_up(supervisor, child)
    os.kill(child.pid, signal.SIGKILL)
    select.select([supervisor], [], [], 30.0)
    assert [died.how for died in supervisor.poll()] == ["died by SIGKILL"]


def test_deadline_names_who_is_missing(supervisor: Supervisor, program: Program) -> None:
    ready, late = (supervisor.start(program(IDLE, rank=rank)) for rank in "01")
    with pytest.raises(StartupError) as caught:
        supervisor.wait_ready({ready: lambda: None, late: lambda: "no hello"}, 0.0)
    said = str(caught.value)
    assert f"worker 1 (pid {late.pid}): not ready after 0 s" in said and "no hello" in said
    assert f"pid {ready.pid}" not in said


def test_pump_is_what_waits(supervisor: Supervisor, program: Program) -> None:
    child = supervisor.start(program(IDLE))
    pumped: list[float] = []
    supervisor.wait_ready(
        {child: lambda: None if len(pumped) == 3 else "not yet"}, 30.0, pumped.append
    )
    assert len(pumped) == 3 and all(0 < seconds <= 30.0 for seconds in pumped)


def test_a_log_that_is_gone_hides_no_death(supervisor: Supervisor, program: Program) -> None:
    one, two = (supervisor.start(program(IDLE, rank=rank)) for rank in "01")
    wait_up(supervisor, one, two)
    one.log_path.rename(one.log_path.with_suffix(".1"))
    os.kill(one.pid, signal.SIGKILL)
    select.select([supervisor], [], [], 30.0)
    (died,) = supervisor.poll()
    assert died.child is one and died.log_tail == "(its log is gone)"
    shutil.rmtree(supervisor.log_dir)
    again = supervisor.start(program(IDLE))  # makes the directory again
    wait_up(supervisor, again)
    assert supervisor.log_dir.stat().st_mode & 0o777 == 0o700
    two.log_path.mkdir()
    assert {(died.child, died.log_tail) for died in supervisor.stop(30.0)} == {
        (again, "up"),
        (two, "(its log cannot be read: Is a directory)"),
    }
    assert gone(two.pid) and gone(again.pid)


def test_what_is_missing_above_a_removed_log_dir_is_private_too(
    tmp_path: Path, program: Program
) -> None:
    instance = tmp_path / "instance"
    with Supervisor(instance / "logs") as supervisor:
        shutil.rmtree(instance)
        wait_up(supervisor, supervisor.start(program(IDLE)))
    assert instance.stat().st_mode & 0o777 == 0o700


def test_grandchildren_go_with_their_parent(supervisor: Supervisor, program: Program) -> None:
    source = f"""
        import subprocess, sys
        print(subprocess.Popen([sys.executable, "-c", {IDLE!r}]).pid, flush=True)
    """
    supervisor.start(program("if 1:" + source))
    select.select([supervisor], [], [], 30.0)
    (died,) = supervisor.poll()
    grandchild = int(died.log_tail.split()[0])
    assert eventually(lambda: gone(grandchild))


def test_logs_go_where_asked_and_only_ours(tmp_path: Path, program: Program) -> None:
    for name, strangers in (("a", []), ("b", ["keep.me"])):
        directory = tmp_path / name
        with Supervisor(directory, keep_logs=False) as supervisor:
            wait_up(supervisor, supervisor.start(program(IDLE)))
            for stranger in strangers:
                (directory / stranger).touch()
        assert [path.name for path in directory.glob("*")] == strangers
        assert directory.exists() == bool(strangers)


def test_unusable_log_dir(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"log_dir .*file"):
        Supervisor(tmp_path / "file" / "logs")


def test_child_outlives_the_thread_that_started_it(
    supervisor: Supervisor, program: Program
) -> None:
    started: list[Child] = []
    spec = program(IDLE)
    thread = threading.Thread(target=lambda: started.append(supervisor.start(spec)))
    thread.start()
    thread.join()
    wait_up(supervisor, *started)
    assert supervisor.poll() == []


def test_forked_copy_is_refused(supervisor: Supervisor, program: Program) -> None:
    child = supervisor.start(program(IDLE))
    wait_up(supervisor, child)
    pid = os.fork()
    if pid == 0:
        try:
            supervisor.stop(0.0)
        except ForkError:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert supervisor.poll() == []  # the fork's end did not touch the child


def test_who_has_something_to_say_at_the_end_is_heard(tmp_path: Path) -> None:
    """A child that leaves only when it is answered: the pump is what answers it."""
    answered = tmp_path / "answered"
    ready = tmp_path / "ready"
    story = (
        "import pathlib, signal, time\n"
        f"ready, answered = pathlib.Path({str(ready)!r}), pathlib.Path({str(answered)!r})\n"
        "signal.signal(signal.SIGTERM, lambda *_: None)\n"
        "ready.touch()\n"
        "while not answered.exists(): time.sleep(0.01)\n"
    )
    (tmp_path / "leaver.py").write_text(story)
    pumped = 0

    def pump(seconds: float) -> None:
        nonlocal pumped
        pumped += 1
        if pumped == 3:
            answered.touch()

    with Supervisor(tmp_path / "logs") as supervisor:
        supervisor.start(ChildSpec("leaver", "0", "leaver", env={"PYTHONPATH": str(tmp_path)}))
        assert eventually(ready.exists)
        (died,) = supervisor.stop(30.0, pump=pump)
    assert died.returncode == 0 and pumped >= 3


@pytest.mark.case("F40")
def test_a_kernel_without_pidfds_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_pid: int) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", missing)
    with pytest.raises(ConfigError, match=rf"this kernel is {re.escape(os.uname().release)}"):
        Supervisor(tmp_path)


@pytest.mark.case("F17")
def test_a_supervisor_that_is_dropped_warns_and_ends_its_children(
    tmp_path: Path, program: Program
) -> None:
    supervisor = Supervisor(tmp_path)
    pid = supervisor.start(program(IDLE)).pid
    with pytest.warns(ResourceWarning, match=rf"Supervisor with worker 0 .pid {pid}. was"):
        del supervisor
    assert gone(pid)
