"""What waits for a slot is bounded: past that a call is refused at once, and told when to come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import eventually
from tests.serve.caller import Caller
from tests.serve.running import Running


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_a_full_queue_is_a_503_until_there_is_room(
    tmp_path: Path, runtime_dir: Path, workers: int
) -> None:
    keys: dict[str, Any] = {"slots_per_rank": 2, "max_queued_requests": 3}
    with Running(tmp_path, runtime_dir, api={"workers": workers}, **keys) as server:
        callers = [Caller(server, 120) for _ in range(5)]  # of 2.4 s
        assert eventually(lambda: server.ready()["waiting"] == 3)
        for stream in (False, True):
            body = {"prompt": [1], "max_tokens": 1, "stream": stream}
            refused = server.post("/v1/completions", body)
            assert refused.status_code == 503 and refused.headers["retry-after"] == "1"
            assert refused.json()["error"]["message"] == "3 requests wait already"
        several = server.post("/v1/completions", {"prompt": [1], "n": 3})
        assert several.status_code == 503
        for caller in callers:
            caller.join(30)
            assert (caller.tokens, caller.done) == (120, True), caller.error
        assert eventually(server.idle)
        several = server.post("/v1/completions", {"prompt": [1], "n": 5, "max_tokens": 2})
        assert several.status_code == 200 and len(several.json()["choices"]) == 5
