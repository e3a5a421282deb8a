"""Kill -9 of every kind of process, with requests open through it."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import eventually
from tests.pipeline.engine import Asking, engine
from tokenpipe import (
    ClientLost,
    ErrorCode,
    Event,
    FinishReason,
    Pipeline,
    ProcessorFailed,
    ProcessorLost,
    ProcessorRestarted,
    ProcessorUp,
    RankLost,
    RankUp,
    Rescheduled,
    RescheduleReason,
    Topology,
)

NOTICED_S = 2.0


@pytest.mark.parametrize("tp", [0, 1])
def test_a_killed_worker_costs_its_requests_nothing_but_time(
    runtime_dir: Path, tmp_path: Path, tp: int
) -> None:
    topology = Topology(
        runtime_dir=runtime_dir, data_parallel_size=2, tensor_parallel_size=2, slots_per_rank=8
    )
    with engine(topology, tmp_path) as it:
        asking = Asking(it.pipe.endpoint, [600] * 16)
        it.until(lambda: asking.got > 500)
        os.kill(it.workers[0, tp].pid, signal.SIGKILL)
        took = it.until(lambda: it.seen(RankLost) and it.seen(Rescheduled))
        assert took < NOTICED_S
        (lost,) = it.seen(RankLost)
        assert isinstance(lost, RankLost) and lost.dp_rank == 0
        assert f"worker 0.{tp}" in lost.reason
        it.start_worker(0, tp)  # its sibling lives on, and is told that its batch is void
        answers = it.join(asking)
        reasons = {e.reason for e in it.seen(Rescheduled) if isinstance(e, Rescheduled)}
        assert reasons == {RescheduleReason.RANK_LOST}
        assert all(a.right and len(a.tokens) == 600 for a in answers)
        assert {a.reason for a in answers} == {FinishReason.LENGTH}
        it.until(lambda: len(it.seen(RankUp)) == 3)
        more = it.join(Asking(it.pipe.endpoint, [20] * 16))  # the slots of both ranks serve again
        assert all(a.right and a.reason == FinishReason.LENGTH for a in more)


def test_a_killed_processor_without_a_journal_harms_the_requests_of_its_ranks_alone(
    runtime_dir: Path, tmp_path: Path, no_journal: None
) -> None:
    topology = Topology(
        runtime_dir=runtime_dir, data_parallel_size=2, slots_per_rank=8, processors={"count": 2}
    )
    with engine(topology, tmp_path) as it:
        asking = Asking(it.pipe.endpoint, [600] * 16)
        it.until(lambda: asking.got > 500)
        os.kill(it.pipe.processor_pids[0], signal.SIGKILL)
        assert it.until(lambda: it.seen(ProcessorLost)) < NOTICED_S
        answers = it.join(asking)
        wrong = [a for a in answers if not a.right]
        assert not wrong
        hurt = [a for a in answers if a.reason == FinishReason.ERROR]
        whole = [a for a in answers if a.reason == FinishReason.LENGTH]
        assert len(hurt) == 8 and len(whole) == 8
        assert all("processor 0 was lost" in a.error for a in hurt)
        assert all(len(a.tokens) == 600 for a in whole)
        it.until(lambda: it.seen(ProcessorUp) and len(it.seen(RankUp)) == 3)
        more = it.join(Asking(it.pipe.endpoint, [20] * 16))
        assert all(a.right and a.reason == FinishReason.LENGTH for a in more)


@pytest.mark.parametrize(
    ("policies", "lives", "why"),
    [
        ({}, 4, r"all 3 restart\(s\) within 60 s are used up"),  # the first life and three more
        ({"restarts": 1, "within_s": 30.0}, 2, r"all 1 restart\(s\) within 30 s are used up"),
        ({"processor": "fail"}, 1, "policies.processor is fail"),
    ],
)
def test_a_processor_is_given_up_by_the_policy_after_the_last_word(
    runtime_dir: Path, policies: dict[str, Any], lives: int, why: str
) -> None:
    with Pipeline(Topology(runtime_dir=runtime_dir, policies=policies)) as pipe:
        for _ in range(lives):
            os.kill(pipe.processor_pids[0], signal.SIGKILL)
            events: list[Event] = []
            while not any(isinstance(e, ProcessorLost | ProcessorRestarted) for e in events):
                assert pipe.wait(5.0)
                events += pipe.poll()
        assert not any(isinstance(e, ProcessorUp) for e in events)
        for call in (pipe.poll, pipe.wait):
            with pytest.raises(ProcessorFailed, match=rf"died by SIGKILL; .*{why}"):
                call()


def test_a_processor_whose_reports_cannot_be_read_is_killed_and_replaced(runtime_dir: Path) -> None:
    with Pipeline(Topology(runtime_dir=runtime_dir)) as pipe:
        first = pipe.processor_pids[0]
        pipe._resources.processors._links[0].trouble = "its reports cannot be read: a test says so"
        events: list[Event] = []
        while not any(isinstance(e, ProcessorUp) for e in events):
            assert pipe.wait(5.0)
            events += pipe.poll()
        (lost,) = [e for e in events if isinstance(e, ProcessorLost)]
        assert "was killed, because its reports cannot be read" in lost.reason
        assert pipe.processor_pids[0] != first and not psutil.pid_exists(first)


HELD = """
import pathlib, sys, time
if "tokenpipe.processor" in getattr(sys, "orig_argv", ()):
    lived = pathlib.Path(__file__).with_name("lived")
    if lived.exists():
        while not lived.with_name("go").exists():
            time.sleep(0.01)
    lived.touch()
"""


def restarted(pipe: Pipeline) -> ProcessorLost | ProcessorRestarted:
    """Wait for the next start of a processor. Return the event that says why."""
    events: list[Event] = []
    deadline = time.monotonic() + 30.0
    while not any(isinstance(e, ProcessorUp | ProcessorRestarted) for e in events):
        assert time.monotonic() < deadline, events
        pipe.wait(1.0)
        events += pipe.poll()
    (why,) = [e for e in events if isinstance(e, ProcessorLost | ProcessorRestarted)]
    return why


def test_a_processor_that_is_started_again_and_late_is_killed_and_replaced(
    runtime_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(HELD)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    topology = Topology(runtime_dir=runtime_dir, timeouts={"startup_s": 5.0})
    with Pipeline(topology) as pipe:
        first = pipe.processor_pids[0]
        os.kill(first, signal.SIGKILL)
        assert eventually(lambda: pipe.poll() == [] and pipe.processor_pids[0] != first)
        assert pipe.problems() == {"processor 0": "not ready yet; phase: starting its interpreter"}
        (tmp_path / "go").touch()  # for the life after the next
        os.kill(pipe.processor_pids[0], signal.SIGSTOP)
        why = restarted(pipe)
        # It did not go on, so its journal may be what stopped it: the next one begins without.
        assert isinstance(why, ProcessorLost)
        assert "was killed, because it was not ready " in why.reason
        assert eventually(lambda: pipe.poll() == [] and pipe.problems() == {})


def test_a_silent_processor_is_named_and_where_told_so_killed(
    runtime_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for on_stuck in ("report", "kill"):
        topology = Topology(
            runtime_dir=runtime_dir,
            timeouts={"stuck_s": 1.0},
            policies={"on_stuck": on_stuck},
        )
        with Pipeline(topology) as pipe:
            (pid,) = pipe.processor_pids
            os.kill(pid, signal.SIGSTOP)
            if on_stuck == "report":
                assert eventually(lambda it=pipe: "processor 0" in it.problems())  # type: ignore[misc]
                assert pipe.problems()["processor 0"].startswith("no sign of life for ")
                os.kill(pid, signal.SIGCONT)
                assert eventually(lambda it=pipe: it.problems() == {})  # type: ignore[misc]
                assert pipe.processor_pids == [pid]
            else:
                why = restarted(pipe)
                assert isinstance(why, ProcessorRestarted)
                assert "was killed, because it gave no sign of life for " in why.reason
    said = [record.message for record in caplog.records if "; restart 1 of 3 " in record.message]
    assert len(said) == 1
    assert "; its requests go on in the next process; its log is empty" in said[0]


def test_a_processor_whose_log_was_rotated_away_is_reported_and_replaced(
    runtime_dir: Path, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    with Pipeline(Topology(runtime_dir=runtime_dir, log_dir=logs)) as pipe:
        for rotated in (logs / "processor-0.log", logs):
            rotated.rename(rotated.with_suffix(".1"))
            os.kill(pipe.processor_pids[0], signal.SIGKILL)
            why = restarted(pipe)
            assert "died by SIGKILL" in why.reason and "(its log is gone)" in why.reason
            assert (logs / "processor-0.log").exists()  # a new one


@pytest.mark.case("F04")
@pytest.mark.parametrize("killed", [False, True])
def test_a_pipeline_whose_directory_was_removed_makes_it_again(
    runtime_dir: Path, killed: bool
) -> None:
    topology = Topology(runtime_dir=runtime_dir, data_parallel_size=2, processors={"count": 2})
    with Pipeline(topology) as pipe:
        pids = pipe.processor_pids
        shutil.rmtree(pipe.endpoint)
        if killed:
            os.kill(pids[0], signal.SIGKILL)
            assert isinstance(restarted(pipe), ProcessorRestarted)
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert not Path(pipe.endpoint).exists()


CLIENT = """
import sys, tokenpipe
with tokenpipe.Client(sys.argv[1]) as client:
    for out in client.generate([1], tokenpipe.SamplingParams(max_tokens=1_000_000)):
        print(len(out.token_ids), flush=True)
"""


def readable(pipe: Any) -> bool:
    return bool(select.select([pipe], [], [], 0)[0])


@pytest.mark.case("B43")
def test_killed_clients_give_all_their_slots_back(runtime_dir: Path, tmp_path: Path) -> None:
    topology = Topology(runtime_dir=runtime_dir, slots_per_rank=2, clients=3)
    with engine(topology, tmp_path) as it:
        command = [sys.executable, "-c", CLIENT, it.pipe.endpoint]
        clients = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
        for client in clients:  # both have output in flight; no slot is free
            it.until(partial(readable, client.stdout))
        assert it.scheduler.counts["binds"] == 2
        probe = Asking(it.pipe.endpoint, [5])
        it.until(lambda: it.scheduler.counts["Submitted"] == 3)
        for client in clients:
            client.kill()
            client.communicate()
        assert it.until(lambda: len(it.seen(ClientLost)) == 2) < NOTICED_S
        (answer,) = it.join(probe)
        assert answer.right and answer.reason == FinishReason.LENGTH
        it.until(lambda: it.scheduler.counts["Released"] == 3)
        assert it.scheduler.idle
        assert not it.pipe._table.requests and not it.pipe._table.bindings


ENGINE = """
import sys, tokenpipe
from pathlib import Path
from tests.pipeline.engine import Asking, engine
topology = tokenpipe.Topology(runtime_dir=Path(sys.argv[1]), data_parallel_size=2,
                              tensor_parallel_size=2, slots_per_rank=4)
with engine(topology, Path(sys.argv[2])) as it:
    print(it.pipe.endpoint, flush=True)
    it.until(lambda: False, 60.0)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_engine_takes_everybody_with_it_and_clients_hear_of_it(
    tmp_path: Path, how: signal.Signals
) -> None:
    base = tmp_path / "run"
    base.mkdir(mode=0o700)
    command = [sys.executable, "-c", ENGINE, str(base), str(tmp_path / "logs")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            endpoint = child.stdout.readline().strip()
            asking = Asking(endpoint, [100_000] * 4)
            assert eventually(lambda: asking.got > 100)
            family = psutil.Process(child.pid).children(recursive=True)
            assert len(family) == 6  # 2 processors, 4 workers
            killed = time.monotonic()
            child.send_signal(how)
            asking.join(10.0)
            assert not asking.is_alive() and time.monotonic() - killed < NOTICED_S + 1.0
            assert asking.failure is None
            assert {a.code for a in asking.answers} == {ErrorCode.LOST}
            assert all(a.right for a in asking.answers)
            assert eventually(lambda: not any(p.is_running() for p in family), 5.0)
        finally:
            child.kill()
