"""A child's log file: whole, private, and quoted for its own life only."""

from __future__ import annotations

import select

import pytest

from tests.supervisor.conftest import IDLE, Program
from tokenpipe.errors import StartupError
from tokenpipe.supervisor import Supervisor


@pytest.mark.case("B05")
def test_output_never_blocks_and_lands_in_its_log(supervisor: Supervisor, program: Program) -> None:
    source = """
        import sys
        sys.stdout.write("x" * (1 << 20)); sys.stderr.write("y" * 200_000)
        print("\\nlast line"); sys.exit(9)
    """
    child = supervisor.start(program("if 1:" + source))
    select.select([supervisor], [], [], 30.0)
    (died,) = supervisor.poll()
    assert died.log_tail.endswith("last line") and len(died.log_tail) <= 4096
    text = child.log_path.read_text()
    assert text.count("x") == 1 << 20 and text.count("y") == 200_000
    assert child.log_path.stat().st_mode & 0o777 == 0o600


def test_tail_is_of_this_life_only(supervisor: Supervisor, program: Program) -> None:
    for word in ("first", "second"):
        child = supervisor.start(program(f"print('{word}')"))
        select.select([supervisor], [], [], 30.0)
        assert [died.log_tail for died in supervisor.poll()] == [word]
    assert child.log_path.read_text() == "first\nsecond\n"


def test_log_path_that_is_a_link_is_refused(supervisor: Supervisor, program: Program) -> None:
    (supervisor.log_dir / "worker-0.log").symlink_to("/dev/null")
    with pytest.raises(StartupError, match="worker 0 cannot be started"):
        supervisor.start(program(IDLE))
