"""What is larger than a frame may be goes in several, or is refused where it is given."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tokenpipe import (
    Aborted,
    Client,
    FieldError,
    Finished,
    FinishReason,
    RankLost,
    Released,
    Rescheduled,
    SamplingParams,
    StepLogprobs,
)
from tokenpipe.processor import service

from .case_rig import rig

MIB = 1 << 20
SLOTS = 16
LONG = 1_200_000  # ids; so many of all slots are more than a control lane takes at a time
assert SLOTS * 4 * LONG > service.CONTROL_BYTES


def test_orders_that_fit_no_frame_together_go_in_several(runtime_dir: Path) -> None:
    ids = [5] * LONG
    with rig(runtime_dir, slots_per_rank=SLOTS) as r:
        keys = r.submit_many(SLOTS + 1, tokens=LONG + 1)
        with r.pipe.commands(0) as cmd:
            handles = [
                cmd.bind(r.requests[key], slot, output_token_ids=ids)
                for slot, key in enumerate(keys[:SLOTS])
            ]
            cmd.abort(r.requests[keys[SLOTS]])  # behind them all
        r.publish([(h, [7]) for h in handles], handles)
        r.until(lambda: len(r.of(Finished)) == SLOTS and r.of(Aborted))
        assert {e.finish_reason for e in r.of(Finished)} == {FinishReason.LENGTH}
        r.until(lambda: len(r.of(Released)) >= SLOTS)


def test_reports_that_fit_no_frame_together_go_in_several(runtime_dir: Path) -> None:
    ids = [5] * LONG
    with rig(runtime_dir, slots_per_rank=SLOTS) as r:
        for slot, key in enumerate(r.submit_many(SLOTS, tokens=LONG + 9)):
            with r.pipe.commands(0) as cmd:
                handle = cmd.bind(r.requests[key], slot, output_token_ids=ids)
            r.publish([(handle, [7])])
        r.until(lambda: not r.pubs[0].unacknowledged)
        r.pubs[0].close()
        r.until(lambda: r.of(RankLost) and len(r.of(Rescheduled)) == SLOTS)
        # With the row, or without it where the bind was still on its way.
        assert all(e.output_token_ids in (ids, [*ids, 7]) for e in r.of(Rescheduled))


def test_output_is_cut_to_frames_that_its_client_takes(runtime_dir: Path) -> None:
    steps = 40
    bounds = {"lane_bytes": MIB, "max_frame_bytes": MIB // 8}
    with rig(runtime_dir, bounds=bounds) as r:
        keys = r.submit_many(4, tokens=1000 * steps)
        handles = [r.bind(key, slot) for slot, key in enumerate(keys)]
        r.reading.clear()  # so that it piles up
        for first in range(0, 1000 * steps, 1000):
            r.publish([(h, [*range(first, first + 1000)]) for h in handles])
            r.turn()
        r.until(lambda: len(r.of(Finished)) == 4)
        r.reading.add(0)
        r.until(lambda: r.ended(*keys))
        assert all(r.got[key].tokens == list(range(1000 * steps)) for key in keys)
        r.publish([], handles)


def test_a_step_and_a_request_above_the_bound_are_refused_by_name(runtime_dir: Path) -> None:
    bounds = {"lane_bytes": 4 * MIB, "max_frame_bytes": MIB}
    with rig(runtime_dir, bounds=bounds) as r:
        key = r.submit(tokens=3)
        handle = r.bind(key, 0)
        k = 1 << 18
        large = StepLogprobs(
            np.zeros((1, k + 1), np.int32), np.zeros((1, k + 1), np.float32), np.ones(1, np.int32)
        )
        r.steps += 1
        r.pubs[0].publish(r.steps, [handle], [1], logprobs=large)
        r.until(lambda: r.of(Finished))
        assert re.search("2097232 bytes.*max_frame_bytes", r.of(Finished)[0].error or "")
        r.publish([], [handle])
        key = r.submit(tokens=3)
        handle = r.bind(key, 1)
        with r.beside(lambda: Client(r.pipe.endpoint, name="large")) as client:
            with pytest.raises(FieldError, match=r"prompt_token_ids: .*max_frame_bytes is 1048576"):
                client.submit([1] * (MIB // 2), SamplingParams(max_tokens=3))
            small = client.submit([1], SamplingParams(max_tokens=1))
            r.until(lambda: small in r.requests)
        r.publish([(handle, [1, 2, 3])], [handle])
        r.until(lambda: r.ended(key))
        assert r.got[key].tokens == [1, 2, 3]
