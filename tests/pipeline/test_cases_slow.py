"""A client that does not read: all is kept within the bounds, past them only its own ends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tokenpipe import Finished, FinishReason, Released, StepLogprobs
from tokenpipe.bench.process_usage import rss_mb

from .case_rig import Rig, rig

WINDOW = {"client_window_bytes": 8192, "merge_bytes": 1 << 20}


def flood(r: Rig, handles: list[int], steps: int, first: int = 0) -> None:
    """Publish steps of one token a row; everybody else has turns in between."""
    for step in range(first, first + steps):
        r.publish([(h, [step]) for h in handles])
        if step % 16 == 0:
            r.turn()


@pytest.mark.case("B18")
def test_a_client_that_pauses_loses_nothing_within_the_bound(runtime_dir: Path) -> None:
    steps = 500
    with rig(runtime_dir, slots_per_rank=256, bounds=WINDOW) as r:
        keys = r.submit_many(256, tokens=steps)
        handles = [r.bind(key, slot) for slot, key in enumerate(keys)]
        r.reading.clear()
        flood(r, handles, steps)  # 0.5 MiB of tokens: past the window, short of merge_bytes
        r.until(lambda: len(r.of(Finished)) == 256)
        assert not any(r.got[key].tokens for key in keys)
        r.reading.add(0)
        r.until(lambda: r.ended(*keys))
        assert all(r.got[key].tokens == list(range(steps)) for key in keys)
        assert {r.got[key].reason for key in keys} == {FinishReason.LENGTH}
        r.publish([], handles)


@pytest.mark.case("B18")
def test_a_client_that_never_resumes_has_its_requests_ended_and_said(runtime_dir: Path) -> None:
    steps = 3000
    bounds = {"client_window_bytes": 8192, "merge_bytes": 1 << 18}
    with rig(runtime_dir, clients=2, slots_per_rank=65, bounds=bounds) as r:
        slow, (quick,) = r.submit_many(64, 0, tokens=steps), r.submit_many(1, 1, tokens=steps)
        handles = [r.bind(key, slot) for slot, key in enumerate([*slow, quick])]
        r.reading.discard(0)
        flood(r, handles, steps)
        r.until(lambda: len(r.of(Finished)) == 65)
        bad = [e for e in r.of(Finished) if e.finish_reason is FinishReason.ERROR]
        assert {e.request.internal_id for e in bad} == set(slow)
        assert all("slow_client" in (e.error or "") for e in bad)
        r.publish([], handles)
        r.until(lambda: len(r.of(Released)) == 65)  # its slots are free
        r.until(lambda: r.ended(quick))
        assert r.got[quick].tokens == list(range(steps))
        r.reading.add(0)  # whoever reads on finds out: what it has is right, and then an error
        r.until(lambda: r.ended(*slow))
        for key in slow:
            got = r.got[key]
            assert got.tokens == list(range(len(got.tokens))) and len(got.tokens) < steps
            assert got.reason is FinishReason.ERROR and "slow_client" in got.error


@pytest.mark.case("B19")
@pytest.mark.parametrize(
    ("others", "steps"),
    [(10, 1500), pytest.param(199, 10_000, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])],
)
def test_one_slow_reader_of_many_costs_neither_memory_nor_the_others(
    runtime_dir: Path, others: int, steps: int
) -> None:
    lags, k = 20, 20
    bounds = {"client_window_bytes": 1 << 16, "merge_bytes": 1 << 20}
    with rig(runtime_dir, clients=1 + others, slots_per_rank=256, bounds=bounds) as r:
        lagging = r.submit_many(lags, 0, tokens=steps)
        keys = [r.submit(client, tokens=steps) for client in range(1, 1 + others)]
        handles = [r.bind(key, slot) for slot, key in enumerate([*lagging, *keys])]
        r.reading.discard(0)
        rows = len(handles)
        scores = StepLogprobs(
            np.full((rows, k + 1), 5, np.int32),
            np.full((rows, k + 1), -1.0, np.float32),
            np.ones(rows, np.int32),
        )
        before = 0.0
        for step in range(steps):
            r.publish([(h, [step]) for h in handles], logprobs=scores)
            if step % 4 == 0:
                r.turn()
            if step == 100:
                before = rss_mb(r.pipe.processor_pids[0])
        r.until(lambda: r.ended(*keys))
        grown = rss_mb(r.pipe.processor_pids[0]) - before
        # All ids are kept, in buffers that double, and each client's turn of 32 steps has a place;
        # what the laggard did not read is dropped.
        ids = rows * steps * 8 / (1 << 20)
        unread = lags * steps * (k + 1) * 8 / (1 << 20)
        assert grown < ids + 1.2 + unread / 4, f"{grown} MiB"
        assert all(r.got[key].tokens == list(range(steps)) for key in keys)
        r.until(lambda: len(r.of(Finished)) == rows)
        bad = [e for e in r.of(Finished) if e.finish_reason is FinishReason.ERROR]
        assert {e.request.internal_id for e in bad} == set(lagging)
        assert all("slow_client" in (e.error or "") for e in bad)
        r.publish([], handles)
        r.until(lambda: len(r.of(Released)) == rows)
