"""A client of the bench that fails is named; one that ends with its report is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client.engine import FakeEngine, fake_engine
from tests.conftest import eventually
from tokenpipe.bench.arguments import Arguments
from tokenpipe.bench.bench_processes import BenchFailed, BenchProcesses, living
from tokenpipe.bench.options import Options
from tokenpipe.bench.scratch_files import ScratchFiles
from tokenpipe.supervisor import Supervisor


def processes(children: Supervisor, directory: Path, endpoint: Path) -> BenchProcesses:
    arguments = Arguments(
        Options(), endpoint, ScratchFiles(directory), slots=4, bits=17, lockstep=False
    )
    return BenchProcesses(children, arguments)


def ended(made: BenchProcesses) -> bool:
    made.check()
    return not living(made.clients)


def test_a_client_that_cannot_connect_is_named_with_its_log(tmp_path: Path) -> None:
    with Supervisor(tmp_path) as children:
        made = processes(children, tmp_path, tmp_path / "nothing")
        made.start_clients([[]])
        said = r"bench\.client 0 .* ended with exit code \d+, too early"
        with pytest.raises(BenchFailed, match=said) as failed:
            eventually(lambda: ended(made), 20.0)
    assert str(tmp_path / "nothing") in str(failed.value)


def test_a_client_may_end_when_it_has_written_its_report(runtime_dir: Path, tmp_path: Path) -> None:
    def silent(engine: FakeEngine, client: int, message: object) -> None:
        pass

    with fake_engine(runtime_dir, silent) as engine, Supervisor(tmp_path) as children:
        made = processes(children, tmp_path, engine.endpoint)
        made.start_clients([[]])
        assert eventually(lambda: ended(made), 20.0)
        (report,) = made.client_reports()
    assert report["tokens"] == 0 and report["cpu_s"] > 0
