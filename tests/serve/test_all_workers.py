"""All workers of a server die: its callers get the same bytes as if nothing had happened."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import eventually
from tests.postprocess.vocab import real
from tests.serve.caller import Caller
from tests.serve.running import HELD, Running, gone

TOKENS = 80
CALLS = 6
RESTART: dict[str, Any] = {"restarts": 1000, "max_deaths": 1000}


def text_keys(directory: Path) -> dict[str, Any]:
    """Return the keys of a topology whose requests have text."""
    tokenizer = real("gpt2_style").tokenizer
    path = directory / "tokenizer.json"
    tokenizer.save(str(path))
    return {"tokenizer": str(path), "vocab_size": tokenizer.get_vocab_size()}


def call(server: Running, seed: int, **fields: Any) -> Caller:
    """Begin a call that has the same answer each time."""
    fields = {"logprobs": 2, "stream_options": {"include_usage": True}, **fields}
    return Caller(server, TOKENS, prompt=[seed, 2, 3], seed=seed, **fields)


def answers(callers: list[Caller]) -> list[tuple[Any, ...]]:
    return [answer(caller) for caller in callers]


def answer(caller: Caller) -> tuple[Any, ...]:
    """Return what a call got, however it was split: ids, text, logprobs, end and usage."""
    caller.join(60)
    assert caller.done, (caller.error, caller.failed, caller.tokens)
    ids = [token for choice in caller.choices for token in choice["token_ids"]]
    text = "".join(choice["text"] for choice in caller.choices)
    logprobs = [choice["logprobs"] for choice in caller.choices if choice["logprobs"]]
    values = [value for entry in logprobs for value in entry["token_logprobs"]]
    tops = [top for entry in logprobs for top in entry["top_logprobs"]]
    return ids, text, values, tops, caller.choices[-1]["finish_reason"], caller.usage


def kill_workers(server: Running) -> None:
    """Kill all workers at once, and see that none survives."""
    victims = server.pids("tp:worker")
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: all(gone(pid) for pid in victims))


@pytest.mark.case("B45")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("ranks", "moments", "lost_rank"),
    [(1, 3, "move"), (2, 2, "wait"), pytest.param(1, 20, "move", marks=pytest.mark.soak)],
)
def test_nobody_notices_that_all_workers_died(
    tmp_path: Path, runtime_dir: Path, ranks: int, moments: int, lost_rank: str
) -> None:
    chance = random.Random(ranks + moments)
    keys: dict[str, Any] = {
        "data_parallel_size": ranks,
        "slots_per_rank": CALLS,
        "policies": {**RESTART, "lost_rank": lost_rank},
        **text_keys(tmp_path),
    }
    with Running(tmp_path, runtime_dir, **keys) as server:
        plain = answers([call(server, seed) for seed in range(CALLS)])
        stops = [{"stop": text[len(text) // 2 :][:4]} for _, text, *_ in plain]
        asked: list[tuple[int, dict[str, Any]]] = [(seed, {}) for seed in range(CALLS)]
        asked += list(enumerate(stops))
        right = answers([call(server, seed, **fields) for seed, fields in asked])
        assert right[:CALLS] == plain and {one[4] for one in right[CALLS:]} == {"stop"}
        for _ in range(moments):
            callers = [call(server, seed, **fields) for seed, fields in asked]
            moment = chance.randint(1, CALLS * TOKENS // 2)
            assert eventually(lambda calls=callers, n=moment: sum(c.tokens for c in calls) >= n)  # type: ignore[misc]
            kill_workers(server)
            assert answers(callers) == right
        assert eventually(server.is_ready, 30.0)


def test_requests_that_nobody_can_run_end_at_the_deadline(
    tmp_path: Path, runtime_dir: Path
) -> None:
    """The next worker does not come up, so old and new requests wait for nothing."""
    (tmp_path / "sitecustomize.py").write_text(HELD.format(module="tokenpipe.worker"))
    keys: dict[str, Any] = {"policies": RESTART, "timeouts": {"recover_s": 1.0}}
    with Running(tmp_path, runtime_dir, **keys) as server:
        begun = Caller(server, 1_000_000)
        assert eventually(lambda: begun.tokens > 5)
        kill_workers(server)
        said = server.post("/v1/completions", {"prompt": [1], "max_tokens": 1})
        begun.join(20)
        assert begun.error["code"] == "lost" and not begun.failed
        assert (said.status_code, said.json()["error"]["code"]) == (503, "unavailable")
        why = "no worker is up, and none came up within 1 s"
        assert begun.error["message"] == said.json()["error"]["message"] == why
        assert server.is_down() and "worker 0.0" in server.ready()["problems"]
        (tmp_path / "go").touch()
        assert eventually(server.is_ready, 30.0)
        assert server.post("/v1/completions", {"prompt": [1]}).status_code == 200


POISON = """
import os
from tokenpipe.worker import SyntheticEngine
class Fragile(SyntheticEngine):
    def admit(self, binding):
        if binding.prompt_token_ids[0] == 666:
            os.kill(os.getpid(), 9)
        super().admit(binding)
"""


def test_a_poisonous_request_ends_and_the_server_goes_on(tmp_path: Path, runtime_dir: Path) -> None:
    """With the defaults: each death takes one of three restarts, and the third ends the request."""
    (tmp_path / "fragile.py").write_text(POISON)
    with Running(tmp_path, runtime_dir, "--engine", "fragile:Fragile") as server:
        said = server.post("/v1/completions", {"prompt": [666], "max_tokens": 5})
        error = said.json()["error"]
        assert (said.status_code, error["code"]) == (500, "crashes")
        assert error["message"].startswith("its worker died 3 time(s) while it ran the request")
        assert server.post("/v1/completions", {"prompt": [1]}).status_code == 200
        assert eventually(server.is_ready, 30.0)
        log = (server.log_dir / "engine-0.log").read_text()
        assert "its worker died 3 time(s)" in log and "restart 3 of 3" in log
