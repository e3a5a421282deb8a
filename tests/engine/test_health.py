"""How the hops are is written where every API server reads it."""

from __future__ import annotations

import json
from pathlib import Path

from tokenpipe.engine.health import HEALTH_S, Health, HealthWriter, read_health
from tokenpipe.transport import HEALTH_FILE


def test_written_when_due_or_when_something_changes(tmp_path: Path) -> None:
    writer = HealthWriter(tmp_path)
    assert read_health(tmp_path, 1.0).problems == {"engine 0": "is not there"}
    writer.write(Health(ranks_up=(0,), running=1), 10.0)
    writer.write(Health(ranks_up=(0,), running=2), 10.0 + HEALTH_S / 2)  # not due yet
    assert read_health(tmp_path, 60.0) == Health({}, (0,), 1, 0)
    writer.write(Health(ranks_up=(0,), running=3), 10.0 + HEALTH_S)
    assert read_health(tmp_path, 60.0).running == 3
    problem = Health({"worker 0.0": "no sign of life"}, (), 3)
    writer.write(problem, 10.0 + HEALTH_S)  # at once
    assert read_health(tmp_path, 60.0) == problem
    writer.close()
    assert not list(tmp_path.iterdir())


def test_old_news_are_a_problem_of_the_engine(tmp_path: Path) -> None:
    writer = HealthWriter(tmp_path)
    writer.write(Health(), 0.0)
    path = tmp_path / HEALTH_FILE
    said = json.loads(path.read_text())
    path.write_text(json.dumps({**said, "time": said["time"] - 90}))
    assert read_health(tmp_path, 10.0).problems == {"engine 0": "no sign of life for 90 s"}
