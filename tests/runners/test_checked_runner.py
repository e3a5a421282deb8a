"""A runner in a loop without an engine, and what its frames say."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runners.rig import bind, handle
from tokenpipe.errors import RowError
from tokenpipe.runners import CPUModelRunner
from tokenpipe.runners.checked_runner import CheckedRunner, Packed
from tokenpipe.runners.probe import ProbeModel
from tokenpipe.types import RowStatus


@pytest.mark.usefixtures("paddle")
def test_it_runs_what_is_changed_and_keeps_the_tokens() -> None:
    model = ProbeModel()
    checked = CheckedRunner(CPUModelRunner(model, depth=1))
    checked.change([bind(0, (1, 2), 5), bind(1, (3,), 50)])
    checked.step()
    checked.change(frees=[handle(1)])
    checked.finish()
    assert checked.pub.tokens[handle(0)] == model.expected((1, 2), 5)
    assert checked.pub.drained == [handle(1)] and not checked.pub.bad
    assert len(checked.pub.publish_s) >= 5


def test_frames_are_read_again() -> None:
    pub = Packed()
    rows = (np.array([1, 2]), np.array([7, 8], np.int32))
    ids = np.array([[7, 1], [8, 2]])
    logprobs = (ids, np.full((2, 2), -0.5, np.float32), np.array([1, 2]))
    status = np.array([RowStatus.OK, RowStatus.ERROR], np.uint8)
    pub.publish(1, *rows, status=status, logprobs=logprobs, drained=[3])
    assert dict(pub.tokens) == {1: [7], 2: [8], 3: []} and pub.drained == [3] and pub.bad == [2]
    assert dict(pub.logprobs) == {1: [(2, -0.5, 7)], 2: [(2, -0.5, 8)]}
    pub.fail("no memory")
    assert pub.failure == "no memory"
    with pytest.raises(RowError):
        pub.publish(2, rows[0], rows[1][:1])
