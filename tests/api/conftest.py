"""A server for tests that only ask: with one worker, and with two."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serve.running import Running


@pytest.fixture(scope="module", params=[1, 2], ids=["one worker", "two workers"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """Give a running server; it must leave nothing."""
    directory = tmp_path_factory.mktemp("serve")
    with tempfile.TemporaryDirectory(prefix="tp-") as base:
        arguments = ("--engine-arg", "rate=100")
        api = {"workers": request.param}
        with Running(
            directory, Path(base), *arguments, slots_per_rank=8, vocab_size=256, api=api
        ) as running:
            yield running
        assert running.process.returncode == 0
        assert not list(Path(base).iterdir())
