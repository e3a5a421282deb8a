"""A failed start is told whole: who, when, in which phase, why."""

from __future__ import annotations

import pytest

from tests.conftest import eventually
from tests.supervisor.conftest import BUSY_START, LIVELY, Program
from tests.supervisor.test_supervisor import gone
from tokenpipe.errors import StartupError
from tokenpipe.supervisor import Child, Supervisor

BROKEN = """
from tokenpipe.notify import Notifier
notifier = Notifier.inherited()
notifier.phase("reading the model")
notifier.failed("no file at /models/none")
print("noise")
raise SystemExit(4)
"""


def hears(supervisor: Supervisor, child: Child, phase: str) -> bool:
    supervisor.read_notifications()
    return phase in str(child.missing())


@pytest.mark.case("B08")
def test_death_before_ready_names_everything(supervisor: Supervisor, program: Program) -> None:
    child = supervisor.start(program("import no_such_module", role="processor", rank="7"))
    with pytest.raises(StartupError) as caught:
        supervisor.wait_ready({child: lambda: "waiting for its hello"}, 30.0)
    said = str(caught.value)
    assert f"processor 7 (pid {child.pid})" in said and "exit code 1" in said
    assert "phase: waiting for its hello" in said and "no_such_module" in said
    assert str(child.log_path) in said


@pytest.mark.case("B49")
def test_deadline_says_phase_and_for_how_long(supervisor: Supervisor, program: Program) -> None:
    late = supervisor.start(program(BUSY_START, "60", rank="2"))
    well = supervisor.start(program(LIVELY))
    assert eventually(lambda: hears(supervisor, late, "kernels"))
    with pytest.raises(StartupError) as caught:
        supervisor.wait_ready({late: late.missing, well: well.missing}, 1.0)
    said = str(caught.value)
    assert f"worker 2 (pid {late.pid}): not ready after 1 s" in said
    assert "phase: compiling kernels" in said and "log " in said
    assert f"pid {well.pid}" not in said
    supervisor.close()  # what had started, and had no signal handler, is stopped
    assert gone(late.pid) and gone(well.pid)


@pytest.mark.case("B08")
def test_a_failed_start_is_told_in_the_childs_own_words(
    supervisor: Supervisor, program: Program
) -> None:
    child = supervisor.start(program(BROKEN))
    with pytest.raises(StartupError, match="no file at /models/none") as caught:
        supervisor.wait_ready({child: child.missing}, 30.0)
    said = str(caught.value)
    assert "exit code 4" in said and "phase: reading the model" in said and "noise" not in said
