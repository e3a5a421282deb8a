"""Closing has one deadline, whoever does not answer; nothing is left of a start that failed."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.conftest import Clock
from tests.pipeline.engine import Asking, engine
from tokenpipe import ConfigError, LaneBusy, LaneClosed, Pipeline, Topology
from tokenpipe.errors import LaneLost
from tokenpipe.instance import Instance
from tokenpipe.worker import StepLane


@pytest.mark.parametrize("mode", ["process", "inline"])
def test_everything_in_flight_is_ended_within_the_deadline(
    runtime_dir: Path, tmp_path: Path, mode: str
) -> None:
    topology = Topology(
        runtime_dir=runtime_dir,
        data_parallel_size=2,
        tensor_parallel_size=2,
        processors={"mode": mode},
    )
    with engine(topology, tmp_path) as it:
        asking = Asking(it.pipe.endpoint, [100_000] * 16)
        it.until(lambda: asking.got > 500)
        if mode == "process":
            os.kill(it.pipe.processor_pids[0], signal.SIGSTOP)  # it will not say a word
        begin = time.monotonic()
        it.pipe.close(timeout_s=1.0)
        assert time.monotonic() - begin < 3.0
        asking.join(10)
        assert isinstance(asking.failure, LaneLost) or all(a.error for a in asking.answers)
        assert all(a.right for a in asking.answers)
        assert not it.pipe.wait(0.0) and it.pipe.poll() is not None
        with pytest.raises(LaneClosed):
            it.pipe.commands()
        it.pipe.close()
        it.supervisor.stop(5.0)
        it.scheduler.schedule = lambda grant=None: None  # type: ignore[method-assign]

        def ended(dp_rank: int) -> _Ended:
            return _Ended()

        it.pipe.step_lane = ended  # type: ignore[method-assign, assignment]


class _Ended:
    def end(self) -> None:
        """Nothing is there any more to be ended."""


def test_a_start_that_fails_leaves_nothing(
    runtime_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(self: Instance, role: str, rank: str, *args: object) -> None:
        raise LaneBusy(f"{role} {rank} is held")

    with monkeypatch.context() as patched:
        patched.setattr(Instance, "claim", busy)
        with pytest.raises(LaneBusy):
            Pipeline(Topology(runtime_dir=runtime_dir))
    assert list(runtime_dir.iterdir()) == []
    notes = runtime_dir / "file"
    notes.write_text("not a directory")
    with pytest.raises(ConfigError, match="log_dir"):
        Pipeline(Topology(runtime_dir=runtime_dir, log_dir=notes))
    assert list(runtime_dir.iterdir()) == [notes]
    notes.unlink()


def test_one_part_that_fails_to_close_keeps_no_other_open(runtime_dir: Path) -> None:
    pipe = Pipeline(Topology(runtime_dir=runtime_dir, processors={"mode": "inline"}))

    def fail(end: float) -> None:
        raise RuntimeError("a plan lane fails")

    pipe._resources.step_lanes.close = fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="a plan lane fails"):
        pipe.close()
    assert list(runtime_dir.iterdir()) == []
    assert "TOKENPIPE_ENDPOINT" not in os.environ


def test_step_lanes_end_together(runtime_dir: Path, clock: Clock) -> None:
    """Workers that do not answer cost one wait, not one each."""
    topology = Topology(
        runtime_dir=runtime_dir,
        data_parallel_size=4,
        processors={"mode": "inline"},
    )
    with Pipeline(topology) as pipe:
        silent = [StepLane.worker(pipe.endpoint, dp) for dp in range(4)]
        hear = threading.Thread(target=lambda: [s.recv(0.2) for s in silent])
        for dp in range(4):
            pipe.step_lane(dp)
        hear.start()
        while hear.is_alive():
            pipe.wait(0.02)
        begin = time.monotonic()
        pipe._resources.step_lanes.close(begin + 30.0)
        assert time.monotonic() - begin < 1.5
        for one in silent:
            one.close()


def test_a_rank_that_there_is_not_has_no_lane(runtime_dir: Path) -> None:
    topology = Topology(runtime_dir=runtime_dir, processors={"mode": "inline"})
    with Pipeline(topology) as pipe:
        with pytest.raises(ConfigError, match="no worker \\(dp 7"):
            pipe.step_lane(7)


@pytest.mark.case("F17")
def test_a_pipeline_that_is_dropped_warns_and_leaves_nothing(runtime_dir: Path) -> None:
    pipe = Pipeline(Topology(runtime_dir=runtime_dir))
    pids, endpoint = pipe.processor_pids, Path(pipe.endpoint)
    with pytest.warns(ResourceWarning, match=r"Pipeline .* was collected without close"):
        del pipe
        gc.collect()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids) and not endpoint.exists()
