"""The process that `serve` starts: its arguments, and the status of its end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.api.pipeline_thread import pipeline
from tests.conftest import eventually
from tokenpipe.instance import ENDPOINT_VARIABLE


@pytest.mark.parametrize("engine", [True, False])
def test_a_signal_ends_it_with_0_and_a_failed_start_with_3(runtime_dir: Path, engine: bool) -> None:
    patience = "60" if engine else "-1"
    with pipeline(runtime_dir) as endpoint, socket.create_server(("127.0.0.1", 0)) as sock:
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        command = [sys.executable, "-m", "tokenpipe.api", "--fd", str(sock.fileno())]
        command += ["--deadline", str(time.monotonic() + float(patience)), "--plain-text"]
        where = endpoint if engine else runtime_dir / "none"
        environment = {**os.environ, "PYTHONPATH": os.getcwd(), ENDPOINT_VARIABLE: str(where)}
        process = subprocess.Popen(
            command, env=environment, pass_fds=[sock.fileno()], stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        with process, process.stderr:
            if engine:
                assert eventually(lambda: _answers(url), 30.0)
                body = {"prompt": "x"}
                answer = httpx.post(f"{url}/v1/completions", json=body, verify=False)
                assert answer.status_code == 503
                process.send_signal(signal.SIGTERM)
                assert process.wait(20) == 0
            else:
                assert process.wait(30) == 3
                assert "there is no instance at" in process.stderr.read()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", verify=False, timeout=1.0).status_code == 200
    except httpx.HTTPError:
        return False
