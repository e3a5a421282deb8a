"""The client as a program, over real lanes: its report counts right and wrong tokens."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import pytest

from tests.client.engine import FakeEngine, fake_engine
from tests.client.frames import Row
from tokenpipe.bench.client import main, parse
from tokenpipe.bench.oracle import sequence
from tokenpipe.wire import Cancel, Submit

LENGTH, ABORT = 2, 3


def answer(engine: FakeEngine, client: int, message: Submit | Cancel) -> None:
    """Send half of a request's tokens, then the rest; end it where the client cancels it."""
    key = message.key
    if isinstance(message, Cancel):
        engine.send(client, Row(key, 5, [], ABORT))
        return
    assert message.params.ignore_eos
    engine.send(client, Row(key, 0, sequence(key, 0, 5)))
    if message.params.max_tokens == 10:
        engine.send(client, Row(key, 5, sequence(key, 5, 5), LENGTH))


def spoil(engine: FakeEngine, client: int, message: Submit | Cancel) -> None:
    """Send a token of another request, and two tokens too few."""
    key = message.key
    tokens = [*sequence(key, 0, 7), *sequence(key + 1, 7, 1)]
    engine.send(client, Row(key, 0, tokens, LENGTH))


def played(base: Path, tmp_path: Path, reply: Any, *options: str) -> dict[str, Any]:
    """Run the client on three requests, and cancel the last one after 5 tokens."""
    requests, report = tmp_path / "requests.json", tmp_path / "report.json"
    requests.write_text(json.dumps([[0.0, 10, -1], [0.0, 10, -1], [0.0, 20, 5]]))
    with fake_engine(base, reply) as engine:
        arguments = ["--endpoint", str(engine.endpoint), "--requests", str(requests)]
        assert main([*arguments, "--report", str(report), *options]) == 0
    gc.unfreeze()  # other tests run in this process too
    return dict(json.loads(report.read_text()))


@pytest.mark.parametrize("consume", ["columns", "streams"])
def test_right_tokens_are_right_and_one_request_is_cancelled(
    runtime_dir: Path, tmp_path: Path, consume: str
) -> None:
    report = played(runtime_dir, tmp_path, answer, "--consume", consume)
    assert report["reasons"] == {"length": 2, "abort": 1}
    assert (report["tokens"], report["cancelled"], report["short"]) == (25, 1, 0)
    assert not any(report[k] for k in ("lost", "duplicated", "misattributed", "misscored"))
    assert report["cpu_s"] > 0 and report["rss_mb"] > 0


@pytest.mark.parametrize("consume", ["columns", "streams"])
def test_wrong_tokens_are_in_the_report(runtime_dir: Path, tmp_path: Path, consume: str) -> None:
    report = played(runtime_dir, tmp_path, spoil, "--consume", consume)
    assert report["misattributed"] == 3 and report["short"] == 3


@pytest.mark.parametrize("consume", ["columns", "streams"])
def test_a_silent_engine_ends_the_client(runtime_dir: Path, tmp_path: Path, consume: str) -> None:
    def nothing(engine: FakeEngine, client: int, message: Submit | Cancel) -> None:
        pass

    report = played(runtime_dir, tmp_path, nothing, "--consume", consume, "--patience", "0.1")
    assert report["reasons"] == {} and report["tokens"] == 0


def test_another_way_of_reading_is_refused() -> None:
    with pytest.raises(SystemExit):
        parse(["--requests", "w", "--report", "r", "--consume", "rows"])
