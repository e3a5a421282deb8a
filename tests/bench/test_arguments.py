"""Workers and clients read from their command lines what the options of the run say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tokenpipe.bench import client, worker
from tokenpipe.bench.arguments import PATIENCE_S, Arguments, command_line
from tokenpipe.bench.client_results import PlannedRequest
from tokenpipe.bench.options import Options
from tokenpipe.bench.scratch_files import ScratchFiles


def arguments(directory: Path, options: Options, **more: Any) -> Arguments:
    given = {"slots": 4, "bits": 15, "lockstep": False, **more}
    return Arguments(options, endpoint="/run/it", files=ScratchFiles(directory), **given)


def test_a_worker_understands_its_command_line(tmp_path: Path) -> None:
    options = Options(rate=50.0, tokens_per_row=3, logprobs=2)
    args = worker.parse(arguments(tmp_path, options).worker(1, 2))
    assert (args.endpoint, args.dp, args.tp, args.bits) == ("/run/it", 1, 2, 15)
    assert (args.rate, args.tokens_per_row, args.logprobs) == (50.0, 3, 2)
    assert args.report == tmp_path / "report-worker-1.2.json"
    assert args.pin is args.rows is None and not (args.discard or args.lockstep)


def test_a_worker_that_discards_ends_by_its_number_of_rows(tmp_path: Path) -> None:
    options = Options(steps=7, discard=True, pin=True)
    args = worker.parse(arguments(tmp_path, options, lockstep=True).worker(0, 0))
    assert args.discard and args.lockstep and args.rows == 7 * 4 and args.pin == 0
    assert args.rate is None


def test_a_client_understands_its_command_line(tmp_path: Path) -> None:
    options = Options(rate=50.0, consume="streams", text=True, logprobs=0, pin=True)
    requests = [PlannedRequest(0.0, 5)]
    args = client.parse(arguments(tmp_path, options).client(1, requests))
    assert (args.name, args.consume, args.text) == ("bench-1", "streams", True)
    assert (args.bits, args.logprobs, args.pin) == (15, 0, 1)
    assert args.requests.read_text() == "[[0.0, 5, -1]]"


@pytest.mark.parametrize(("rate", "patience_s"), [(None, PATIENCE_S), (0.5, PATIENCE_S + 20.0)])
def test_a_client_of_slow_workers_waits_longer(
    tmp_path: Path, rate: float | None, patience_s: float
) -> None:
    args = client.parse(arguments(tmp_path, Options(rate=rate)).client(0, []))
    assert args.patience == patience_s


def test_values_that_are_not_given_are_left_out() -> None:
    given = {"--a": 0, "--b": None, "--c": True, "--d": False, "--e": "x"}
    assert command_line(given) == ["--a", "0", "--c", "--e", "x"]
