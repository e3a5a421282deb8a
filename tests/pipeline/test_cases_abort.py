"""Aborts and disconnects: every slot comes back, each request has one end, nothing is kept."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tokenpipe import (
    Aborted,
    AbortRequested,
    ClientLost,
    Finished,
    FinishReason,
    Released,
    SlotBusy,
)
from tokenpipe.bench.options import Options
from tokenpipe.bench.run import run

from .case_rig import Rig, rig

QUICK = {"drained_s": 0.3}  # until a drained row that does not come is not waited for


def nothing_is_kept(r: Rig) -> bool:
    """Whether the engine's bindings is empty."""
    return not (r.pipe._table.requests or r.pipe._table.bindings)


@pytest.mark.case("B31")
@pytest.mark.parametrize("answered", [True, False])
def test_the_whole_batch_aborted_and_no_traffic_after_it(runtime_dir: Path, answered: bool) -> None:
    with rig(runtime_dir, timeouts=QUICK) as r:
        keys = r.submit_many(4)
        handles = [r.bind(key, slot) for slot, key in enumerate(keys)]
        r.publish([(h, [1]) for h in handles])
        r.until(lambda: all(r.got[key].tokens for key in keys))
        r.abort(*keys)
        if answered:
            r.publish([], handles)
        r.until(lambda: len(r.of(Released)) == 4)  # the worker polls, and publishes nothing
        assert {e.reason for e in r.of(Released)} == {"drained" if answered else "drained_timeout"}
        assert [r.told_of(h) for h in handles] == [["Aborted", "Released"]] * 4
        r.until(lambda: r.ended(*keys))
        assert {r.got[key].reason for key in keys} == {FinishReason.ABORT}
        again = r.submit(tokens=1)  # every slot can be had again
        r.publish([(r.bind(again, 2), [5])])
        r.until(lambda: r.ended(again))


@pytest.mark.case("B43")
def test_all_slots_disconnected_and_a_probe_is_served(runtime_dir: Path) -> None:
    with rig(runtime_dir, clients=2, slots_per_rank=4, timeouts=QUICK) as r:
        keys = r.submit_many(4, client=0)
        handles = [r.bind(key, slot) for slot, key in enumerate(keys)]
        probe = r.submit(client=1, tokens=1)
        with pytest.raises(SlotBusy):
            r.bind(probe, 1)
        r.reading.discard(0)
        r.beside(r.clients[0].close)
        r.until(lambda: len(r.of(AbortRequested)) == 4 and r.of(ClientLost))
        r.abort(*keys)
        # The worker has not answered and may never: the probe does not wait for it.
        h = r.bind(probe, 1)
        r.publish([(h, [7]), *((old, [6]) for old in handles)])
        r.until(lambda: r.ended(probe))
        assert r.got[probe].tokens == [7]
        r.until(lambda: len(r.of(Released)) >= 4)  # and the slots come back by the clock
        assert [r.told_of(old) for old in handles] == [["Aborted", "Released"]] * 4


@pytest.mark.case("B39")
def test_given_up_then_aborted_then_all_aborted(runtime_dir: Path) -> None:
    with rig(runtime_dir, clients=2, slots_per_rank=64) as r:
        queued, running = r.submit_many(30), r.submit_many(60)
        handles = [r.bind(key, slot) for slot, key in enumerate(running)]
        r.publish([(h, [1]) for h in handles])
        preempted, finished = handles[:10], handles[10:20]
        with r.pipe.commands() as cmd:
            for h in preempted:
                cmd.preempt(h)
        r.publish([(h, [2] * 99) for h in finished], preempted)
        r.until(lambda: len(r.of(Finished)) == 10)
        keys = [*queued, *running]
        for key in keys[::2]:
            r.clients[0].cancel(key)
            r.clients[0].cancel(key)
        r.until(lambda: len(r.of(AbortRequested)) == 40)  # 45, of which 5 had finished
        for _ in range(3):
            r.abort(*keys)
        r.publish([], [h for h in handles if h not in preempted])
        r.events += r.pipe.finish(timeout_s=20.0)
        r.until(lambda: r.ended(*keys))
        ends = [e.request.internal_id for e in r.of(Finished)]
        ends += [e.request.internal_id for e in r.of(Aborted)]
        assert sorted(ends) == sorted(keys)  # each has one outcome
        assert len(r.of(Released)) == 60 and nothing_is_kept(r)
        aborted = [key for key in keys if r.got[key].reason is FinishReason.ABORT]
        assert len(aborted) == 80


@pytest.mark.case("B39")
@pytest.mark.soak
def test_ten_thousand_aborts_leave_empty_tables(runtime_dir: Path) -> None:
    with rig(runtime_dir, slots_per_rank=100) as r:
        for _ in range(100):
            keys = r.submit_many(100)
            handles = [r.bind(key, slot) for slot, key in enumerate(keys)]
            r.publish([(h, [1]) for h in handles])
            r.abort(*keys)
            r.publish([], handles)
            r.until(partial(r.ended, *keys))
            r.until(lambda: not r.pipe._table.bindings)
        assert len(r.of(Aborted)) == len(r.of(Released)) == 10_000
        assert nothing_is_kept(r)


@pytest.mark.case("B44")
@pytest.mark.parametrize("mode", ["process", "inline"])
def test_after_many_aborts_every_slot_is_free(tmp_path: Path, mode: str) -> None:
    topology = tmp_path / "t.yaml"
    topology.write_text(
        f"processors: {{mode: {mode}}}\nslots_per_rank: 32\ntimeouts: {{drained_s: 60}}\n"
    )
    report = run(
        Options(topology=topology, clients=1, requests=1500, abort_rate=0.6, preempt_rate=0.2)
    )
    assert report["ok"], report
    events = report["events"]
    assert events["Aborted"] > 50
    assert events["binds"] == events["Released"] and report["unreleased"] == 0
