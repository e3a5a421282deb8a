"""Publishers and readers of plans that are let go without being closed."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker.far import Far
from tokenpipe.errors import LaneBusy
from tokenpipe.types import make_handle
from tokenpipe.worker import Publisher, StepLane


@pytest.fixture
def far(runtime_dir: Path) -> Iterator[Far]:
    one = Far(runtime_dir)
    yield one
    one.close()


def test_a_publisher_that_is_let_go_gives_its_rank_back(far: Far) -> None:
    for step in (1, 2):
        pub = far.publisher()
        with pytest.raises(LaneBusy):
            Publisher(far.endpoint)
        pub.publish(step, [make_handle(0, 0, 1)], [step])
        with pytest.warns(ResourceWarning, match=r"Publisher 0\.0 was collected without close"):
            del pub
        far.until(lambda: not far.lanes[0].sender)  # it ended, nobody had to find it dead
    assert [one.step for one in far.steps()] == [1, 2]


def test_a_fork_gives_nothing_back(far: Far) -> None:
    with far.publisher() as pub:
        pid = os.fork()
        if pid == 0:
            del pub
            gc.collect()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        pub.publish(1, [make_handle(0, 0, 1)], [1])
        far.until(lambda: not pub.unacknowledged, pub.poll)
        assert far.beside(pub.close) == 0


def test_a_reader_of_plans_that_is_let_go_frees_its_lane(far: Far) -> None:
    for _ in range(2):
        reader = StepLane.worker(far.endpoint)
        with pytest.raises(LaneBusy):
            StepLane.worker(far.endpoint)
        with pytest.warns(
            ResourceWarning, match=r"StepLaneReader 0\.0 was collected without close"
        ):
            del reader
            gc.collect()
