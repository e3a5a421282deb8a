"""An instance's directory: private, found again, cleaned up by its owner and nobody else."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from tests.transport.child import child, line
from tokenpipe.errors import ConfigError, ForkError, LaneBusy, LaneLost
from tokenpipe.instance import ENDPOINT_VARIABLE, Instance
from tokenpipe.instance import instance as instance_module
from tokenpipe.instance.runtime_dir import make_private
from tokenpipe.transport import ZmqReceiverPort

CREATE = """
import sys
from pathlib import Path
from tokenpipe.instance import Instance
instance = Instance.create(Path(sys.argv[1]), sys.argv[2], {})
print(instance.directory, flush=True)
sys.stdin.readline()
instance.close()
"""


def test_both_sides_find_the_same_things(base: Path) -> None:
    owner = Instance.create(base, None, {"topology": {"clients": 2}})
    guest = Instance.attach(owner.directory)
    assert guest.id == owner.id > 0
    assert guest.info["topology"] == {"clients": 2} and guest.info["pid"] == os.getpid()
    assert guest.lane_path("w0.0") == owner.lane_path("w0.0")
    assert guest.alive("pipeline", "0") and not guest.alive("worker", "0.0")
    assert guest.close() == [] and owner.directory.exists()
    assert owner.close() == [] and not owner.directory.exists()
    assert owner.close() == []


def test_an_endpoint_comes_from_the_environment(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ENDPOINT_VARIABLE, raising=False)
    with pytest.raises(ConfigError, match=ENDPOINT_VARIABLE):
        Instance.attach()
    owner = Instance.create(base, None, {})
    monkeypatch.setenv(ENDPOINT_VARIABLE, str(owner.directory))
    assert Instance.attach().id == owner.id
    owner.close()
    with pytest.raises(LaneLost, match="no instance"):
        Instance.attach()


@pytest.mark.case("B09")
def test_instances_are_apart_and_a_name_is_held_once(base: Path) -> None:
    with child(CREATE, base, "same") as other:
        directory = Path(line(other))
        with pytest.raises(LaneBusy, match=f"'same'.*held by process {other.pid}"):
            Instance.create(base, "same", {})
        unnamed = [Instance.create(base, None, {}) for _ in range(2)]
        paths = {i.lane_path("w0.0") for i in unnamed} | {str(directory / "w0.0")}
        ids = {i.id for i in unnamed} | {Instance.attach(directory).id}
        assert len(paths) == len(ids) == 3
        for instance in unnamed:
            instance.close()
        other.communicate("\n")
    assert not directory.exists()


@pytest.mark.case("B13")
def test_a_killed_instance_is_seen_as_dead_and_its_name_taken_over(base: Path) -> None:
    with child(CREATE, base, "mine") as dead:
        directory = Path(line(dead))
        first = Instance.attach(directory)
        left = socket.socket(socket.AF_UNIX)
        left.bind(str(directory / "w0.0"))
        left.close()
    with pytest.raises(LaneLost, match=f"gone.*process {dead.pid}"):
        Instance.attach(directory)
    again = Instance.create(base, "mine", {})
    assert again.directory == directory and again.id != first.id
    assert not (directory / "w0.0").exists()
    again.close()
    assert list(base.iterdir()) == []


@pytest.mark.case("B13")
def test_what_is_not_ours_stays(base: Path) -> None:
    owner = Instance.create(base, "x", {})
    (owner.directory / "notes.txt").write_text("precious")
    assert owner.close() == ["notes.txt"]
    again = Instance.create(base, "x", {})
    assert (again.directory / "notes.txt").read_text() == "precious"
    (again.directory / "notes.txt").unlink()
    assert again.close() == []


@pytest.mark.case("B14")
@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_the_directory_is_private_whatever_the_umask(base: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        owner = Instance.create(base, "x", {})
    finally:
        os.umask(before)
    assert stat.S_IMODE(owner.directory.stat().st_mode) == 0o700
    owner.close()


@pytest.mark.case("B14")
def test_what_others_could_have_prepared_is_refused(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (base / "link").symlink_to(base)
    with pytest.raises(ConfigError, match="symbolic link"):
        Instance.create(base, "link", {})
    (base / "file").write_text("")
    with pytest.raises(ConfigError, match="not a directory"):
        Instance.create(base, "file", {})
    (base / "wide").mkdir()
    (base / "wide").chmod(0o755)
    with pytest.raises(ConfigError, match=r"open to others .mode 0755"):
        Instance.create(base, "wide", {})
    (base / "all").mkdir()
    (base / "all").chmod(0o777)
    with pytest.raises(ConfigError, match="can be written by others"):
        Instance.create(base / "all", "x", {})
    owner = Instance.create(base, "x", {})
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(ConfigError, match="belongs to user"):
        Instance.attach(owner.directory)
    monkeypatch.undo()
    owner.close()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"instance": "x"}', "\xff"])
def test_a_broken_description_is_named(base: Path, text: str) -> None:
    owner = Instance.create(base, "x", {})
    (owner.directory / "instance.json").write_text(text)
    with pytest.raises(ConfigError, match=r"instance\.json"):
        Instance.attach(owner.directory)
    owner.close()


def test_only_the_process_that_created_closes(base: Path) -> None:
    owner = Instance.create(base, None, {})
    pid = os.fork()
    if pid == 0:
        try:
            owner.close()
        except ForkError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert owner.directory.exists() and Instance.attach(owner.directory).id == owner.id
    owner.close()


def test_a_directory_that_goes_while_we_come_is_made_anew(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = make_private
    times: list[Path] = []

    def made_and_removed(path: Path, *, exist_ok: bool) -> None:
        make(path, exist_ok=exist_ok)
        times.append(path)
        if len(times) == 1:
            path.rmdir()  # its predecessor's close() at this very moment

    monkeypatch.setattr(instance_module, "make_private", made_and_removed)
    owner = Instance.create(base, "x", {})
    assert len(times) == 2
    owner.close()


def test_a_lane_too_long_is_refused_by_both_ends(base: Path) -> None:
    owner = Instance.create(base, None, {})
    with pytest.raises(ConfigError, match="a socket may have 107"):
        owner.lane_path("w" * 100)
    owner.close()


def test_a_name_taken_over_is_another_instance(runtime_dir: Path) -> None:
    """The successor holds the same locks; whoever attached to the first must not be taken in."""
    first = Instance.create(runtime_dir, "it", {})
    attached = Instance.attach(first.directory)
    engine = first.claim("engine", "0")
    assert attached.alive("engine", "0")
    engine.release()
    first.close()
    assert not attached.alive("engine", "0")
    second = Instance.create(runtime_dir, "it", {})
    engine = second.claim("engine", "0")
    assert not attached.alive("engine", "0") and not attached.alive("pipeline", "0")
    assert Instance.attach(second.directory).alive("engine", "0")
    engine.release()
    second.close()


def test_a_lane_of_an_instance_that_vanishes_is_lost(
    runtime_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = Instance.create(runtime_dir, "it", {})

    def swept(first: str, path: str) -> None:
        os.unlink(first)  # by its owner, that closes
        raise FileNotFoundError(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", swept)
        with pytest.raises(LaneLost, match="is gone"):
            ZmqReceiverPort(instance, "w0.0", max_frame_bytes=1 << 20, bound_bytes=1 << 20)
    instance.close()
