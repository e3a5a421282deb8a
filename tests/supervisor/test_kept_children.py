"""Real children that die, are late or fall silent: each is told once, and acted on."""

from __future__ import annotations

import logging
import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Clock, eventually
from tests.instance.test_lock_watch import no_descriptors
from tests.supervisor.conftest import BUSY_START, LIVELY, Program
from tests.supervisor.test_supervisor import gone, state
from tokenpipe.errors import StartupError, TokenpipeError
from tokenpipe.supervisor import Child, Died, KeptChildren, Restart, Supervisor
from tokenpipe.topology import Policies, Timeouts, Topology

_log = logging.getLogger("tokenpipe.test_kept_children")


class GivenUp(TokenpipeError):
    """What the owner of these children raises."""


def keep(
    supervisor: Supervisor,
    *,
    stuck_s: float = 1.0,
    startup_s: float = 60.0,
    clock: Callable[[], float] = time.monotonic,
    **policies: Any,
) -> KeptChildren:
    timeouts = Timeouts(stuck_s=stuck_s, startup_s=startup_s)
    topology = Topology(policies=Policies(**policies), timeouts=timeouts)
    return KeptChildren(supervisor, topology, GivenUp, _log, clock)


def wait_ready(kept: KeptChildren, *children: Child) -> None:
    kept.children.wait_ready({child: child.missing for child in children}, 60.0)


def one_death(kept: KeptChildren) -> Died:
    assert select.select([kept.children], [], [], 30.0)[0]
    (died,) = kept.children.poll()
    return died


def told(caplog: pytest.LogCaptureFixture, text: str) -> int:
    return sum(text in record.message for record in caplog.records)


def has(kept: KeptChildren, *names: str) -> bool:
    """Whether these and no others have a problem now."""
    kept.look()
    return sorted(kept.problems) == sorted(names)


@pytest.mark.case("B45")
def test_stuck_is_told_from_dead(
    supervisor: Supervisor, program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    kept, spec = keep(supervisor), program(LIVELY)
    stuck, well = (kept.start(replace(spec, rank=rank)) for rank in "01")
    wait_ready(kept, stuck, well)
    os.kill(stuck.pid, signal.SIGSTOP)
    assert eventually(lambda: has(kept, "worker 0"))
    assert kept.problems["worker 0"].startswith("no sign of life for ")
    kept.look()
    assert supervisor.poll() == [] and state(stuck.pid) == "T"
    with caplog.at_level(logging.INFO):
        os.kill(stuck.pid, signal.SIGCONT)
        assert eventually(lambda: has(kept))
    assert told(caplog, f"{stuck} gave no sign of life for ") == 1
    assert told(caplog, f"{stuck} gives signs of life again") == 1
    assert told(caplog, str(well)) == 0


@pytest.mark.case("B45")
def test_a_silent_child_is_killed_where_told_so(
    supervisor: Supervisor, program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    kept = keep(supervisor, on_stuck="kill")
    child = kept.start(program(LIVELY))
    wait_ready(kept, child)
    os.kill(child.pid, signal.SIGSTOP)
    assert eventually(lambda: has(kept, "worker 0") or gone(child.pid))
    died = one_death(kept)
    assert kept.died(died, "2 requests end") == Restart(1, 3, 60.0)
    said = f"{child} was killed, because it gave no sign of life for "
    assert told(caplog, said) == 1
    assert told(caplog, " s; restart 1 of 3 within 60 s; 2 requests end; its log is empty") == 1
    kept.start_again(died.child.spec)
    wait_ready(kept, *supervisor.living)
    assert has(kept)


FORKING = """
import os, select, signal
from tokenpipe.notify import Notifier
notifier = Notifier.inherited()
fork = os.fork()
notifier.ready()
if fork:
    print(fork, flush=True)
while True:
    select.select([], [], [], 0.05)
    if not fork or os.path.exists(f"/proc/{fork}"):
        notifier.watchdog()
    if fork and os.waitpid(fork, os.WNOHANG)[0]:
        notifier.left(fork)
        signal.pause()
"""


def test_a_silent_fork_is_killed_alone(
    supervisor: Supervisor, program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    kept = keep(supervisor, on_stuck="kill", stuck_s=2.0)
    child = kept.start(replace(program(FORKING), processes=2))
    wait_ready(kept, child)
    fork = int(child.log_tail())
    os.kill(fork, signal.SIGSTOP)
    assert eventually(lambda: has(kept, "worker 0") or gone(fork))
    assert eventually(lambda: gone(fork))
    assert supervisor.poll() == [] and not gone(child.pid)
    assert told(caplog, f"worker 0, process {fork}, gave no sign of life for ") == 1


@pytest.mark.case("B07")
def test_a_starting_child_is_never_stuck(supervisor: Supervisor, program: Program) -> None:
    kept, spec = keep(supervisor, stuck_s=0.001, on_stuck="kill"), program(BUSY_START, "0.5")
    children = [kept.start(replace(spec, rank=str(i))) for i in range(8)]
    seen: list[bool] = []

    def pump(seconds: float) -> None:
        if all(child.missing() for child in children):
            kept.look()
            seen.append(any("sign of life" in problem for problem in kept.problems.values()))
        supervisor.poll(seconds)

    supervisor.wait_ready({c: c.missing for c in children}, 60.0, pump)
    assert seen and not any(seen)


def test_a_child_that_is_started_again_and_late_is_killed(
    supervisor: Supervisor, program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    kept = keep(supervisor, startup_s=2.0, restarts=1)
    first = kept.start(program(BUSY_START, "600"))
    os.kill(first.pid, signal.SIGKILL)
    died = one_death(kept)
    kept.died(died)
    kept.start_again(died.child.spec)
    (late,) = supervisor.living
    kept.look()
    assert kept.problems == {"worker 0": f"not ready yet; phase: {late.missing()}"}
    assert eventually(lambda: has(kept, "worker 0") and late.kill_reason)
    with pytest.raises(GivenUp) as caught:
        kept.died(one_death(kept))
    said = str(caught.value)
    assert said.startswith(
        f"{late} was killed, because it was not ready 2 s after its start; phase:"
    )
    assert "it is not started again: all 1 restart(s) within 60 s are used up" in said
    assert told(caplog, f"{late} is killed, because it was not ready ") == 1
    assert told(caplog, said) == 1


def test_a_child_that_is_started_again_says_so_when_it_is_ready(
    supervisor: Supervisor, program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    kept = keep(supervisor, stuck_s=60.0)
    first = kept.start(program(LIVELY))
    wait_ready(kept, first)
    os.kill(first.pid, signal.SIGKILL)
    died = one_death(kept)
    kept.died(died)
    with caplog.at_level(logging.INFO):
        kept.start_again(died.child.spec)
        (second,) = supervisor.living
        assert eventually(lambda: has(kept))
        kept.look()
    assert told(caplog, f"{second} is ready again") == 1 and told(caplog, "is ready") == 1


def test_a_policy_that_gives_up_names_the_child_the_policy_and_the_end_of_the_log(
    supervisor: Supervisor, program: Program
) -> None:
    kept = keep(supervisor, worker="fail")
    child = kept.start(program("print('why I end'); raise SystemExit(5)"))
    with pytest.raises(GivenUp) as caught:
        kept.died(one_death(kept))
    assert str(caught.value) == (
        f"{child} ended with exit code 5; it is not started again: policies.worker is fail; "
        "its log ends:\nwhy I end"
    )


@pytest.mark.case("F03")
def test_a_start_that_fails_is_tried_again_after_growing_pauses(
    supervisor: Supervisor, program: Program, caplog: pytest.LogCaptureFixture, clock: Clock
) -> None:
    kept, spec = keep(supervisor, clock=clock, restarts=4), program(LIVELY)
    first = kept.start(spec)
    os.kill(first.pid, signal.SIGKILL)
    kept.died(one_death(kept))
    with no_descriptors():
        kept.start_again(spec)
        assert "Too many open files" in kept.problems["worker 0"]
        for pause in (1.0, 2.0):
            clock.advance(pause - 0.1)
            kept.retry()
            assert told(caplog, f"restart {int(pause) + 2} of 4 within 60 s, in ") == 0
            clock.advance(0.1)
            kept.retry()
            assert told(caplog, f"restart {int(pause) + 2} of 4 within 60 s, in ") == 1
    assert supervisor.living == ()
    clock.advance(4.0)
    kept.retry()
    wait_ready(kept, *supervisor.living)
    assert has(kept)
    kept.retry()
    assert len(supervisor.living) == 1


@pytest.mark.case("F03")
def test_starts_that_fail_use_up_the_budget_of_deaths(
    supervisor: Supervisor, program: Program, clock: Clock
) -> None:
    kept, spec = keep(supervisor, clock=clock, restarts=2), program(LIVELY)
    first = kept.start(spec)
    os.kill(first.pid, signal.SIGKILL)
    kept.died(one_death(kept))
    with no_descriptors():
        kept.start_again(spec)
        clock.advance(1.0)
        with pytest.raises(GivenUp, match=r"^worker 0 cannot be started: .*Too many open files"):
            kept.retry()


@pytest.mark.case("F03")
@pytest.mark.parametrize("spare", range(6))
def test_a_start_that_fails_halfway_leaves_nothing(
    supervisor: Supervisor, program: Program, spare: int
) -> None:
    """The fixture `nothing_left_behind` finds a process or a descriptor that stays."""
    spec = program(LIVELY)
    with no_descriptors(spare), pytest.raises(StartupError, match="Too many open files"):
        supervisor.start(spec)


@pytest.mark.case("F40")
def test_a_supervisor_that_did_not_run_counts_all_times_anew(
    tmp_path: Path, program: Program, caplog: pytest.LogCaptureFixture, clock: Clock
) -> None:
    with Supervisor(tmp_path / "logs", clock=clock) as supervisor:
        kept = keep(supervisor, clock=clock, stuck_s=5.0, startup_s=20.0, on_stuck="kill")
        ready = kept.start(program(LIVELY))
        wait_ready(kept, ready)
        starting = kept.start(program(BUSY_START, "600", rank="1"), clock() + 20.0)
        kept.look()
        os.kill(ready.pid, signal.SIGSTOP)
        kept.look()
        clock.advance(3600.0)
        kept.look()
        assert not ready.kill_reason and not starting.kill_reason
        assert told(caplog, "nothing ran here for 3600 s; all times are counted anew") == 1
        for _ in range(10):
            clock.advance(2.0)
            kept.look()
        assert str(ready.kill_reason) == "it gave no sign of life for 6 s"
        assert not starting.kill_reason
        clock.advance(2.0)
        kept.look()
        assert "it was not ready" in starting.kill_reason
