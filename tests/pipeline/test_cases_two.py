"""Two instances side by side in one directory, and what comes early on a lane of plans."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tokenpipe import LaneBusy, Pipeline, StepBind, StepLane, StepPlan, Topology
from tokenpipe.types import split_handle

from .case_rig import rig


@pytest.mark.case("B09")
def test_no_row_crosses_between_two_instances_of_one_topology(
    runtime_dir: Path, tmp_path: Path
) -> None:
    file = tmp_path / "t.yaml"
    file.write_text("data_parallel_size: 2\nslots_per_rank: 64\n")
    same = Topology.load(file).model_dump(exclude_unset=True)
    with rig(runtime_dir, ranks=2, **same) as a, rig(runtime_dir, ranks=2, **same) as b:
        assert a.pipe.endpoint != b.pipe.endpoint
        keys, handles = {}, {}
        for name, r in (("a", a), ("b", b)):
            keys[name] = [r.submit(tokens=3, request_id=f"{name}{i}") for i in range(100)]
            handles[name] = [r.bind(key, i // 2, i % 2) for i, key in enumerate(keys[name])]
        places = [[split_handle(h)[:2] for h in handles[name]] for name in "ab"]
        assert places[0] == places[1] and not set(handles["a"]) & set(handles["b"])
        for name, r, base in (("a", a, 1000), ("b", b, 2000)):
            for dp in range(2):
                mine = handles[name][dp::2]
                rows = [(h, [base + 2 * i + dp] * 3) for i, h in enumerate(mine)]
                r.publish(rows, mine, dp=dp)
        for name, r, base in (("a", a, 1000), ("b", b, 2000)):
            r.until(partial(r.ended, *keys[name]))
            assert [r.got[key].tokens for key in keys[name]] == [[base + i] * 3 for i in range(100)]
            assert {q.external_id[0] for q in r.requests.values()} == {name}


@pytest.mark.case("B09")
def test_a_living_name_is_refused_and_stays_as_it_is(runtime_dir: Path) -> None:
    with rig(runtime_dir, name="engine") as r:
        with pytest.raises(LaneBusy, match="engine"):
            Pipeline(Topology(runtime_dir=runtime_dir, name="engine"))
        key = r.submit(tokens=1)
        h = r.bind(key, 0)
        r.publish([(h, [3])], [h])
        r.until(lambda: r.ended(key))
        assert r.got[key].tokens == [3]


@pytest.mark.case("B17")
def test_plans_that_are_sent_before_their_worker_is_there_wait_for_it(runtime_dir: Path) -> None:
    with rig(runtime_dir, workers=False, clients=0) as r:
        lane = r.pipe.step_lane(0)
        for number in range(1, 6):
            lane.send(StepPlan(number, (StepBind(number, 7, 0, max_tokens=5),)))
        r.turn()
        reader = r.beside(lambda: StepLane.worker(r.pipe.endpoint))
        plans: list[StepPlan] = []

        def all_came() -> bool:
            plans.extend(reader.recv())
            return len(plans) >= 5

        r.until(all_came)
        assert [plan.number for plan in plans] == [1, 2, 3, 4, 5]
        assert plans[0].binds[0].handle == 1
        reader.close()
