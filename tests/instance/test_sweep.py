"""What the dead left is removed; what the living have is not touched."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tokenpipe.errors import LaneBusy
from tokenpipe.instance import HEALTH_FILE, Instance, Reservation, sweep
from tokenpipe.instance.sweep import remove_files

HOLD = """
import signal, sys
from pathlib import Path
from tokenpipe.instance import Instance
base, name, role = sys.argv[1:]
if role == "owner":
    instance = Instance.create(Path(base), name, {})
else:
    instance = Instance.attach(Path(base) / name)
    claim = instance.claim(role, "0")
print("up", flush=True)
signal.pause()
"""


class Holder:
    """A process that holds one lock of an instance."""

    def __init__(self, base: Path, name: str, role: str) -> None:
        command = [sys.executable, "-c", HOLD, str(base), name, role]
        env = {**os.environ, "PYTHONPATH": os.getcwd()}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "up\n"

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


def outcomes(base: Path) -> dict[str, str]:
    return {swept.directory.name: swept.outcome for swept in sweep(base)}


@pytest.mark.case("B46")
def test_dead_instances_go_and_the_living_stay(runtime_dir: Path) -> None:
    dead, living = (Holder(runtime_dir, name, "owner") for name in ("dead", "living"))
    client = Holder(runtime_dir, "dead", "client")
    logs = runtime_dir / "dead" / "logs"
    logs.mkdir()
    (logs / "processor-0.log").write_text("last words")
    (runtime_dir / "dead" / HEALTH_FILE).write_text("{}")
    dead.kill()
    before = sorted((runtime_dir / "living").iterdir())
    assert outcomes(runtime_dir) == {"dead": "alive", "living": "alive"}  # its client lives on
    client.kill()
    assert outcomes(runtime_dir) == {"dead": "removed", "living": "alive"}
    assert sorted((runtime_dir / "living").iterdir()) == before
    living.kill()
    assert outcomes(runtime_dir) == {"living": "removed"}


@pytest.mark.case("B46")
def test_what_is_not_ours_stays(runtime_dir: Path) -> None:
    Holder(runtime_dir, "dead", "owner").kill()
    (runtime_dir / "dead" / "thesis.txt").write_text("three years")
    (runtime_dir / "no-instance").mkdir(mode=0o700)
    (runtime_dir / "link").symlink_to(runtime_dir / "dead")
    (runtime_dir / "no-instance" / "ours.lock").touch()
    for _ in range(2):  # the second time no lock is left to know it by
        swept, other = sweep(runtime_dir)
        assert (swept.outcome, swept.said) == ("stayed", "not ours: thesis.txt")
        assert (other.directory.name, other.said) == ("no-instance", "not ours: ours.lock")
    assert [p.name for p in (runtime_dir / "dead").iterdir()] == ["thesis.txt"]
    (runtime_dir / "dead" / "thesis.txt").unlink()
    (runtime_dir / "link").unlink()
    (runtime_dir / "no-instance" / "ours.lock").unlink()
    assert {swept.said for swept in sweep(runtime_dir)} == {"empty, and no instance's"}
    for name in ("dead", "no-instance"):
        (runtime_dir / name).rmdir()
    assert list(sweep(runtime_dir / "none")) == []


def test_reservation_outlives_the_instances_inside_it(runtime_dir: Path) -> None:
    kept = Reservation.take(runtime_dir, "a")
    for _ in range(2):
        engine = Holder(runtime_dir, "a", "owner")
        with pytest.raises(LaneBusy, match=f"held by process {os.getpid()}|already held"):
            Reservation.take(runtime_dir, "a")
        kept.clear()  # nothing: an engine lives
        assert (kept.directory / "instance.json").exists()
        assert outcomes(runtime_dir) == {"a": "alive"}
        engine.kill()
        assert outcomes(runtime_dir) == {"a": "alive"}
        kept.clear()
        assert [p.name for p in kept.directory.iterdir()] == ["supervisor0.lock"]
    instance = Instance.create(runtime_dir, "a", {})
    assert instance.close() == ["supervisor0.lock"]
    (kept.directory / "logs").mkdir()
    (kept.directory / "logs" / "engine-0.log").write_text("")
    kept.close(logs=True)
    assert not kept.directory.exists()


def test_reservation_of_a_living_instance_is_refused(runtime_dir: Path) -> None:
    engine = Holder(runtime_dir, "a", "owner")
    with pytest.raises(LaneBusy, match=f"already running: process {engine.process.pid}"):
        Reservation.take(runtime_dir, "a")
    engine.kill()
    assert outcomes(runtime_dir) == {"a": "removed"}


def test_a_socket_that_its_owner_removes_meanwhile_is_no_trouble(
    runtime_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = runtime_dir / "it"
    directory.mkdir()
    gone = directory / "o0.0"
    (directory / "e0.lock").touch()
    entries = [gone, directory / "e0.lock"]  # as listed before its owner unlinked the first
    with monkeypatch.context() as patched:
        patched.setattr(Path, "iterdir", lambda self: iter(entries))
        remove_files(directory, ())
    assert list(directory.iterdir()) == []
    directory.rmdir()


def test_a_directory_that_somebody_removed_is_closed_all_the_same(runtime_dir: Path) -> None:
    kept = Reservation.take(runtime_dir, "a")
    instance = Instance.create(runtime_dir, "a", {})
    shutil.rmtree(kept.directory)
    assert instance.close() == []
    kept.clear()
    kept.close(logs=True)
