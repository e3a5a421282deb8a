"""Rows that are nobody's are counted and named, and reach nobody."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tokenpipe.errors import RowError
from tokenpipe.types import FIRST_GENERATION, split_handle

from .case_rig import rig


def log_of(r: object, name: str = "processor-0") -> str:
    """Return what processor 0 has logged so far."""
    found = sorted(Path(r.pipe.log_dir).glob("*processor*"))  # type: ignore[attr-defined]
    return "".join(path.read_text() for path in found)


@pytest.mark.case("B38")
@pytest.mark.parametrize("mode", ["process", "inline"])
def test_a_slots_number_is_nobodys_handle(runtime_dir: Path, mode: str) -> None:
    with rig(runtime_dir, processors={"mode": mode}) as r:
        keys = [r.submit(tokens=4) for _ in range(2)]
        handles = [r.bind(key, slot) for slot, key in enumerate(keys)]
        assert all(split_handle(handle)[2] >= FIRST_GENERATION for handle in handles)
        for number in (1, 2):  # the slot is meant, and its number given
            r.publish([(number, [111])])
        r.publish([(handles[0], [5]), (handles[1], [6])])
        r.until(lambda: r.got[keys[0]].tokens == [5] and r.got[keys[1]].tokens == [6])
        counted = r.pipe.counters()
        assert counted["processor 0"]["stale"] == 2
        assert counted["processor 0"]["stale_handle"] == 2
        assert counted["processor 0"]["rows"] == 4
        if mode == "process":
            r.until(lambda: "a slot's number is not a handle" in log_of(r))
        r.publish([(h, [1, 2, 3]) for h in handles], handles)
        r.until(lambda: r.ended(*keys))


def test_rows_that_no_bind_comes_for_are_named_in_the_log(runtime_dir: Path) -> None:
    timeouts = {"park_s": 0.2}
    with rig(runtime_dir, timeouts=timeouts) as r:
        key = r.submit(tokens=2)
        handle = r.bind(key, 0)
        r.publish([(handle + 1, [7])])  # a generation that is not given yet
        r.until(lambda: "rows but no bind" in log_of(r))
        assert f"the newest is {handle + 1}: dp 0, slot 0" in log_of(r)
        assert r.pipe.counters()["processor 0"]["park_lost"] == 1
        r.publish([(handle, [1, 2])], [handle])
        r.until(lambda: r.ended(key))
        assert r.got[key].tokens == [1, 2]


def test_every_processor_is_asked_and_a_stopped_one_is_left_out(runtime_dir: Path) -> None:

    with rig(runtime_dir, ranks=2, processors={"count": 2}) as r:
        assert sorted(r.pipe.counters()) == ["processor 0", "processor 1"]
        stopped = r.pipe.processor_pids[1]
        os.kill(stopped, signal.SIGSTOP)
        try:
            assert sorted(r.pipe.counters(0.3)) == ["processor 0"]
        finally:
            os.kill(stopped, signal.SIGCONT)
        r.until(lambda: sorted(r.pipe.counters(0.3)) == ["processor 0", "processor 1"])


def test_a_step_that_does_not_grow_is_refused_where_it_is_published(runtime_dir: Path) -> None:
    with rig(runtime_dir) as r:
        key = r.submit(tokens=2)
        handle = r.bind(key, 0)
        r.publish([(handle, [1])])
        with pytest.raises(RowError, match=f"step {r.steps} after step {r.steps}"):
            r.pubs[0].publish(r.steps, [handle], [2])
        r.publish([(handle, [2])], [handle])
        r.until(lambda: r.ended(key))
        assert r.got[key].tokens == [1, 2]
