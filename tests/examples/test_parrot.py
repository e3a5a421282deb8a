"""The twelve lines of a served engine, asked over HTTP."""

from __future__ import annotations

import inspect
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest

from examples.parrot import Parrot
from tests.conftest import eventually
from tests.serve.running import Running

ENGINE = ("--engine", "examples.parrot:Parrot")


def said_again(prompt: list[int], tokens: int) -> list[int]:
    return list(islice(cycle(prompt), tokens))


@pytest.fixture(params=[1, 2], ids=["tp 1", "tp 2"])
def server(request: pytest.FixtureRequest, tmp_path: Path, runtime_dir: Path) -> Iterator[Running]:
    keys: dict[str, Any] = {"tensor_parallel_size": request.param, "slots_per_rank": 4}
    with Running(tmp_path, runtime_dir, *ENGINE, **keys) as running:
        yield running


def test_it_says_each_prompt_again(server: Running) -> None:
    """More requests than slots, all at once; each slot is free again at the end."""

    def ask(first: int) -> Any:
        body = {"prompt": [first, 8, 9], "max_tokens": 20, "return_token_ids": True}
        return server.post("/v1/completions", body).json()

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    for first, answer in enumerate(answers):
        (choice,) = answer["choices"]
        assert choice["token_ids"] == said_again([first, 8, 9], 20)
        assert choice["finish_reason"] == "length"
        assert answer["usage"]["completion_tokens"] == 20
    assert eventually(server.idle)


def test_a_request_goes_on_where_it_was_in_the_next_life_of_its_worker(
    tmp_path: Path, runtime_dir: Path
) -> None:
    keys: dict[str, Any] = {"data_parallel_size": 2, "slots_per_rank": 1}
    with Running(tmp_path, runtime_dir, *ENGINE, **keys) as server:
        body = {"prompt": [5, 6, 7], "max_tokens": 200_000, "return_token_ids": True}
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(server.post, "/v1/completions", body)
            assert eventually(lambda: server.ready()["running"] == 1)
            os.kill(server.pid("tp:worker 0.0"), signal.SIGKILL)  # the one that has it
            (choice,) = answer.result(60).json()["choices"]
        assert choice["token_ids"] == said_again([5, 6, 7], 200_000)


def test_it_has_at_most_twelve_lines_and_the_docs_show_them() -> None:
    source = inspect.getsource(Parrot)
    assert len([line for line in source.splitlines() if line.strip()]) <= 12
    assert source in (Path(__file__).parents[2] / "docs" / "serving.md").read_text()
