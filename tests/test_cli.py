"""The command line, in a process of its own as a user has it."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import tokenpipe as package
from tokenpipe.topology import Topology


def tokenpipe(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tokenpipe", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_plan_prints_a_table(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("data_parallel_size: 2\nclients: 1\nname: mine\n")
    done = tokenpipe("check", str(tmp_path / "t.yaml"))
    assert done.returncode == 0 and done.stderr == ""
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "w1.0 steps worker 1.0 processor 1 64 MiB" in lines or (
        "w1.0 steps worker 1.0 processor 0 64 MiB" in lines  # a machine with one core
    )
    assert lines[0].endswith("/mine")


def test_plan_as_json_holds_the_effective_configuration(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("")
    done = tokenpipe("check", str(tmp_path / "t.yaml"), "--json")
    assert done.returncode == 0
    said = json.loads(done.stdout)
    assert Topology.from_json_dict(said["topology"]).clients == Topology().clients
    assert {"directory", "processes", "lanes", "topology"} == said.keys()


@pytest.mark.case("B72")
def test_wrong_file_is_named_by_line_and_starts_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text("clients: 1\nclients: on\n")
    done = tokenpipe("check", str(path))
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == f"error: {path}:2: clients: the key is given twice\n"


def test_table_and_json_say_the_same_of_a_process(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("processors: {mode: inline}\n")
    table, raw = (tokenpipe("check", str(tmp_path / "t.yaml"), *more) for more in ((), ("--json",)))
    lines = [" ".join(line.split()) for line in table.stdout.splitlines()]
    processes = json.loads(raw.stdout)["processes"]
    assert {process["runs_in"] for process in processes} == {"own process", "pipeline 0"}
    for process in processes:
        assert " ".join(process.values()) in lines


def test_version() -> None:
    assert tokenpipe("--version").stdout == f"tokenpipe {package.__version__}\n"
    assert package.__version__ == version("tokenpipe")


def test_plan_of_a_tokenizer_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(f"tokenizer: {tmp_path}/nope.json\n")
    done = tokenpipe("check", str(tmp_path / "t.yaml"))
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"error: tokenizer: {tmp_path}/nope.json cannot be read: No such")


def test_no_command_shows_what_there_is() -> None:
    assert "check" in (tokenpipe().stdout + tokenpipe().stderr)


def test_gc_removes_the_dead(runtime_dir: Path) -> None:
    directory = runtime_dir / "dead"
    directory.mkdir(mode=0o700)
    (directory / "pipeline0.lock").touch()
    done = tokenpipe("gc", "--runtime-dir", str(runtime_dir))
    assert done.stdout == f"removed  {directory}\n" and not directory.exists()


def test_gc_says_what_stayed(runtime_dir: Path) -> None:
    directory = runtime_dir / "dead"
    directory.mkdir(mode=0o700)
    (directory / "mine.txt").touch()
    done = tokenpipe("gc", "--runtime-dir", str(runtime_dir))
    assert done.stdout == f"stayed  {directory} (not ours: mine.txt)\n"
    (directory / "mine.txt").unlink()
    directory.rmdir()
