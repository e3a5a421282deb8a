"""The health of an instance is written where each API server reads it."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from tokenpipe.instance import HEALTH_FILE
from tokenpipe.instance.health import HEALTH_S, Health, HealthWriter, read_health


def test_written_when_due_or_when_something_changes(tmp_path: Path) -> None:
    writer = HealthWriter(tmp_path)
    (said,) = read_health(tmp_path, 1.0).problems.values()
    assert said == "is not there, or cannot write its status"
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
    (said,) = read_health(tmp_path, 10.0).problems.values()
    assert said.startswith("no sign of life for 90 s") and "cannot write it" in said


def test_a_full_disk_is_an_oserror_and_the_next_call_writes(tmp_path: Path) -> None:
    writer = HealthWriter(tmp_path)
    writer.write(Health(running=1), 10.0)
    part = tmp_path / f"{HEALTH_FILE}.part"
    part.symlink_to("/dev/full")
    problem = Health({"rank 0": "is down"})
    for _ in range(2):
        with pytest.raises(OSError) as caught:
            writer.write(problem, 10.0)
        assert caught.value.errno == errno.ENOSPC
        assert read_health(tmp_path, 60.0).running == 1  # the old one is whole
    part.unlink()
    writer.write(problem, 10.0)  # though nothing is news
    assert read_health(tmp_path, 60.0) == problem
    writer.close()


def test_a_status_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / HEALTH_FILE).mkdir()
    said = {"engine 0": "its status cannot be read: Is a directory"}
    assert read_health(tmp_path, 10.0).problems == said
