"""A server as its operator has it: a process, its output in a file, polled until it is ready."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
import openai
from typing_extensions import Self

from tests.conftest import eventually

ROOT = Path(__file__).parent.parent.parent
START_S = 60.0
SERVE = ("-m", "tokenpipe", "serve")
RATE = 50.0  # of a synthetic engine, where a test says nothing: its own is for the impatient
# Read by every Python below the server: the second life of a module waits until it is let go.
HELD = """
import pathlib, sys, time
module = {module!r}
if module in getattr(sys, "orig_argv", ()):
    lived = pathlib.Path(__file__).with_name("lived")
    if lived.exists():
        while not lived.with_name("go").exists():
            time.sleep(0.01)
    lived.touch()
"""


class NotStarted(AssertionError):
    """The server did not become ready; the message has its whole output."""


class Running:
    """`python -m tokenpipe serve`, or another command, with a topology of the test's own."""

    def __init__(
        self,
        directory: Path,
        runtime_dir: Path,
        *args: str,
        command: Sequence[str] = SERVE,
        name: str | None = "it",
        wait: bool = True,
        env: dict[str, str] | None = None,
        **keys: Any,
    ) -> None:
        if command == SERVE and not {"--engine", "--engine-arg"} & set(args):
            args = (*args, "--engine-arg", f"rate={RATE}")
        self.log_dir = directory / "logs"
        self.runtime_dir = runtime_dir
        api = {"port": 0, "timeout_graceful_shutdown": 5.0, **keys.pop("api", {})}
        topology = {
            "runtime_dir": str(runtime_dir),
            "log_dir": str(self.log_dir),
            "slots_per_rank": 64,
            "processors": {"count": 1},
            **({"name": name} if name else {}),
            **keys,
            "api": api,
        }
        path = directory / "topology.yaml"
        path.write_text(json.dumps(topology))  # JSON is YAML
        self.out = directory / "serve.out"
        with open(self.out, "wb") as out:  # of this start alone
            self.process = subprocess.Popen(
                [sys.executable, *command, str(path), *args],
                stdout=out,
                stderr=out,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": f"{directory}{os.pathsep}{ROOT}", **(env or {})},
                start_new_session=True,
            )
        self.url = ""
        if wait:
            try:
                self.wait_ready()
            except BaseException:
                self.kill()
                raise

    def wait_ready(self, timeout_s: float = START_S) -> None:
        """Poll until it is ready; early exit and deadline both report the output."""
        deadline = time.monotonic() + timeout_s
        while True:
            if (status := self.process.poll()) is not None:
                raise NotStarted(f"exit status {status}:\n{self.output()}")
            if not self.url and "serving on " in self.output():
                self.url = self.output().split("serving on ")[1].split("\n")[0].split(";")[0]
            if self.url and self.is_ready():
                return
            if time.monotonic() >= deadline:
                raise NotStarted(f"not ready after {timeout_s:g} s:\n{self.output()}")
            time.sleep(0.02)

    def output(self) -> str:
        return self.out.read_text(errors="replace")

    def ready(self) -> dict[str, Any]:
        """Ask /ready, whatever it says."""
        said: dict[str, Any] = httpx.get(f"{self.url}/ready", timeout=10, verify=False).json()
        return said

    def is_ready(self) -> bool:
        try:
            return bool(self.ready()["ready"])
        except httpx.HTTPError:
            return False

    def is_down(self) -> bool:
        """Whether /ready is red and a call gets a 503 that says when to come again."""
        said = self.post("/v1/completions", {"prompt": [1], "max_tokens": 1})
        again = said.headers.get("retry-after") == "1"
        return said.status_code == 503 and again and not self.is_ready()

    def idle(self) -> bool:
        """Whether no request holds or waits for a slot."""
        said = self.ready()
        return bool(said["running"] == said["waiting"] == 0)

    def client(self, **options: Any) -> openai.OpenAI:
        options = {"max_retries": 0, "timeout": 30.0, **options}
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", **options)

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        return httpx.post(f"{self.url}{path}", json=body, timeout=30, verify=False, **options)

    # --- processes ---

    def pids(self, title: str = "tp:") -> list[int]:
        """Return the living processes below the server whose title begins so, oldest first."""
        return [pid for pid in descendants(self.process.pid) if title_of(pid).startswith(title)]

    def pid(self, title: str) -> int:
        (found,) = self.pids(title)
        return found

    def stop(self, number: signal.Signals = signal.SIGTERM, timeout_s: float = 30.0) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end:\n{self.output()}") from None

    def kill(self) -> None:
        """End everything, and wait until it is gone."""
        below = descendants(self.process.pid)
        self.process.kill()
        self.process.wait()
        assert eventually(lambda: all(gone(pid) for pid in below)), below

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.stop()
        else:
            print(self.output())
            for path in sorted(self.log_dir.glob("*.log")):
                print(f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}")
            self.kill()


def title_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def gone(pid: int) -> bool:
    """Whether a process is dead, also where nobody has waited for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def descendants(pid: int) -> list[int]:
    """Return the living processes below one, parents first."""
    found: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except FileNotFoundError:
        return found
    for task in tasks:
        try:
            children = Path(f"/proc/{pid}/task/{task}/children").read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        for child in map(int, children):
            if not gone(child):
                found.append(child)
            found += descendants(child)
    return found


def sweep(runtime_dir: Path) -> None:
    """Remove what a killed server left, as an operator does."""
    command = [sys.executable, "-m", "tokenpipe", "gc", "--runtime-dir", str(runtime_dir)]
    subprocess.run(command, check=True, capture_output=True)
