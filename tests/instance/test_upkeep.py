"""Files that another program removes come back, and are kept fresh."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.conftest import Clock
from tokenpipe.errors import LaneBusy
from tokenpipe.instance.role_lock import RoleLock, holder, take
from tokenpipe.instance.upkeep import LOOK_S, TOUCH_S, Upkeep


@pytest.fixture
def directory(base: Path) -> Path:
    made = base / "it"
    made.mkdir(mode=0o700)
    return made


def upkeep_of(directory: Path, clock: Clock, owns: bool) -> tuple[Upkeep, RoleLock]:
    upkeep = Upkeep(directory, owns=owns, clock=clock)
    lock = take(directory / "worker0.0.lock", "note", 7)
    upkeep.add_lock(lock)
    (directory / "text").write_text("what it says")
    upkeep.add_text("text", "what it says")
    return upkeep, lock


@pytest.mark.case("F04")
def test_the_owner_makes_its_directory_again_at_once(directory: Path, clock: Clock) -> None:
    upkeep, lock = upkeep_of(directory, clock, owns=True)
    upkeep.look(lambda: True)
    shutil.rmtree(directory)
    upkeep.look(lambda: True)
    assert not directory.exists(), "a look is not due"
    clock.advance(LOOK_S)
    upkeep.look(lambda: False)
    assert (directory / "text").read_text() == "what it says"
    assert directory.stat().st_mode & 0o777 == 0o700
    assert lock.in_place and b'"instance": 7' in lock.path.read_bytes()
    lock.release()
    assert holder(lock.path) is None


@pytest.mark.case("F04")
def test_another_process_waits_for_a_second_look_and_for_a_living_owner(
    directory: Path, clock: Clock
) -> None:
    """An owner that closes removes the files of all, and nobody may make them again."""
    upkeep, lock = upkeep_of(directory, clock, owns=False)
    lock.path.unlink()
    for alive, back in ((True, False), (False, False), (True, True)):
        upkeep.look(lambda alive=alive: alive)  # type: ignore[misc]
        clock.advance(LOOK_S)
        assert lock.path.exists() == back
    shutil.rmtree(directory)
    for _ in range(3):
        upkeep.look(lambda: True)
        clock.advance(LOOK_S)
    assert not directory.exists(), "only its owner makes it again"
    directory.mkdir(mode=0o700)
    upkeep.look(lambda: True)
    assert lock.in_place and (directory / "text").exists()
    upkeep.remove("text")
    lock.release()
    lock.path.unlink()
    (directory / "text").unlink()
    upkeep.restore()
    assert not list(directory.iterdir())


@pytest.mark.case("F04")
def test_files_stay_fresh(directory: Path, clock: Clock) -> None:
    upkeep, lock = upkeep_of(directory, clock, owns=False)
    paths = [lock.path, directory / "text", directory]
    for path in paths:
        os.utime(path, (1.0, 1.0))
    clock.advance(TOUCH_S - 1.0)
    upkeep.look(lambda: True)
    assert [path.stat().st_mtime for path in paths] == [1.0] * 3
    clock.advance(1.0)
    upkeep.look(lambda: True)
    assert all(path.stat().st_mtime > 1e9 for path in paths)
    lock.release()


def test_a_role_that_was_taken_meanwhile_is_said_once(
    directory: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    upkeep, lock = upkeep_of(directory, clock, owns=True)

    def taken() -> None:
        raise LaneBusy("worker0.0 is held by process 1 (no note)")

    upkeep.add("socket", taken)
    for _ in range(3):
        upkeep.restore()
    (said,) = caplog.messages
    assert said.endswith(
        "files are missing and cannot be made again: worker0.0 is held by process 1 (no note)"
    )
    lock.release()
