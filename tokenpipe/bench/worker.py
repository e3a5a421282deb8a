"""Play one worker rank: take plans from a StepLane, publish tokens that the oracle knows.

`python -m tokenpipe.bench.worker --dp 0 --tp 0 ...` is what the bench starts, one process a rank.
It runs free while its batch does not change, as fast as `--rate` lets it, and ends when the engine
ends its lane or on SIGTERM. With `--report` it writes what it did as JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tokenpipe.errors import LaneFull, LaneLost
from tokenpipe.wire import StepPlan
from tokenpipe.worker import PlanLane, Publisher, Publishes, StepLane

from .oracle import VOCAB_BITS, logprobs_of
from .oracle_batch import OracleBatch, OracleRows
from .pace import Pace
from .process_usage import UsageMeter, pin
from .progress import TokenCounter
from .samples import Samples

IDLE_WAIT_S = 0.5  # for plans, while there is nothing to publish; less where the Publisher says so
FULL_WAIT_S = 0.001  # between two attempts at a full lane
COARSE_WAIT_S = 0.003  # below this a lane's poll (whole ms) is too coarse to keep a rate


class PacedPublishes(Publishes, Protocol):
    """A Publisher that says how long it may be left alone."""

    @property
    def poll_within_s(self) -> float: ...


class Discard:
    """Take what a Publisher takes and send nothing: the run that others are measured against."""

    def publish(
        self,
        step: int,
        handles: Any,
        tokens: Any,
        counts: Any = None,
        status: Any = None,
        logprobs: Any = None,
        drained: Any = None,
        *,
        annexes: Any = None,
    ) -> None:
        """Drop a step."""

    def poll(self) -> None:
        """Do nothing."""

    @property
    def poll_within_s(self) -> float:
        """Nothing is ever due."""
        return IDLE_WAIT_S


@dataclass
class Worker:
    """Take plans and run the steps they ask for.

    `steps` ends the run after that many, `most_rows` once so many rows were made. `follow` applies
    plans but runs no steps, for a TP rank whose publisher does not send. With `lockstep` it runs a
    plan's `steps` before it takes the next plan: TP ranks whose rows are compared then agree on
    what belongs to which step.
    """

    lane: PlanLane
    pub: PacedPublishes
    batch: OracleBatch
    rate: float | None = None
    steps: int | None = None
    most_rows: int | None = None
    logprobs: int | None = None
    bits: int = VOCAB_BITS
    follow: bool = False
    lockstep: bool = False
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    stopped: bool = False
    step: int = 0
    rows: int = 0
    tokens: int = 0
    publish_ns: Samples = field(default_factory=Samples)
    tally: TokenCounter = field(default_factory=TokenCounter)
    meter: UsageMeter | None = None  # runs from the first plan

    def __post_init__(self) -> None:
        self._pace = Pace(self.rate, self.clock())

    def run(self) -> None:
        """Run until the engine ends the lane, all is done or someone sets `stopped`."""
        turn = self.granted_turn if self.lockstep else self.turn
        while not self._over():
            turn()

    def turn(self) -> None:
        """Take the plans that are there, then run one step when it is due."""
        working = self.batch.due and not self.follow
        wait_s = self._pace.wait_s(self.clock()) if working else self._idle_s()
        if working and wait_s < COARSE_WAIT_S:
            self._take(0.0)
            if wait_s:
                self.sleep(wait_s)  # keeps a rate; nothing else is waited for
            self._run_step()
            return
        self._take(min(wait_s, self._idle_s()))
        if not working:
            self.pub.poll()
            self._pace.restart(self.clock())

    def granted_turn(self) -> None:
        """Take plans and run after each the steps that it grants, as every TP rank of it does."""
        plans = self.lane.recv(self._idle_s())
        if not plans:
            self.pub.poll()
        for plan in plans:
            self._change(plan)
            for _ in range(plan.steps):
                if self._over():
                    return
                wait_s = self._pace.wait_s(self.clock())
                if wait_s:
                    self.sleep(wait_s)
                self._run_step()

    def report(self) -> dict[str, Any]:
        """Return steps, rows, tokens, publish_us and what was used since the first plan."""
        return {
            "steps": self.step,
            "rows": self.rows,
            "tokens": self.tokens,
            "publish_us": self.publish_ns.us(),
            **(self.meter.spent() if self.meter else {}),
        }

    def _idle_s(self) -> float:
        return min(IDLE_WAIT_S, self.pub.poll_within_s)

    def _over(self) -> bool:
        if self.most_rows is not None and self.rows >= self.most_rows:
            return True
        return self.stopped or self.lane.ended or self.step == self.steps

    def _take(self, timeout_s: float) -> None:
        for plan in self.lane.recv(timeout_s):
            self._change(plan)

    def _change(self, plan: StepPlan) -> None:
        self.meter = self.meter or UsageMeter.start()
        if plan.reset:
            self.batch.clear()
        self.batch.change(plan.binds, plan.frees)

    def _run_step(self) -> None:
        rows = self.batch.step()
        self.step += 1
        self._pace.took()
        logprobs = None
        if self.logprobs is not None:
            logprobs = logprobs_of(rows.tokens, self.logprobs, self.bits)
        begin = time.perf_counter_ns()
        try:
            while not self._published(rows, logprobs):
                if self.stopped:
                    return
                self.pub.poll()
                self.sleep(FULL_WAIT_S)  # the step may be published again, says LaneFull
        except LaneLost as lost:  # the processor died: its next life knows none of our handles
            print(f"step {self.step}: {lost}", file=sys.stderr)
            self.batch.clear()
            return
        self.publish_ns.add(time.perf_counter_ns() - begin)
        self.rows += len(rows.handles)
        self.tokens += len(rows.tokens)
        self.tally.add(len(rows.tokens))

    def _published(self, rows: OracleRows, logprobs: Any) -> bool:
        """Publish a step; False where its lane is full."""
        try:
            self.pub.publish(
                self.step,
                rows.handles,
                rows.tokens,
                counts=rows.counts,
                logprobs=logprobs,
                drained=rows.drained if len(rows.drained) else None,
            )
        except LaneFull:
            return False
        return True


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line of a worker."""
    parser = argparse.ArgumentParser(prog="python -m tokenpipe.bench.worker", description=__doc__)
    parser.add_argument("--endpoint", help="instance directory; default $TOKENPIPE_ENDPOINT")
    parser.add_argument("--dp", type=int, default=0, help="data-parallel rank")
    parser.add_argument("--tp", type=int, default=0, help="tensor-parallel rank")
    parser.add_argument("--rate", type=float, help="steps per second; default as fast as it goes")
    parser.add_argument("--steps", type=int, help="end after that many steps")
    parser.add_argument("--rows", type=int, help="end after that many rows")
    parser.add_argument("--tokens-per-row", type=int, default=1)
    parser.add_argument("--overrun", type=int, default=2, help="steps beyond a request's end")
    parser.add_argument("--logprobs", type=int, help="top-k logprobs beside each token")
    parser.add_argument("--bits", type=int, default=VOCAB_BITS, help="of the oracle's tokens")
    parser.add_argument("--lockstep", action="store_true", help="run the steps each plan grants")
    parser.add_argument("--discard", action="store_true", help="make tokens, publish nothing")
    parser.add_argument("--pin", type=int, help="CPU to run on")
    parser.add_argument("--report", type=Path, help="file for what was done, as JSON")
    parser.add_argument("--token-count", type=Path, help="file for the number of tokens so far")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    """Run one rank; return its exit status (1 where rows could not be delivered)."""
    args = parse(argv)
    if args.pin is not None:
        pin(args.pin)
    lane = StepLane.worker(args.endpoint, args.dp, args.tp)
    publisher = Publisher(args.endpoint, args.dp, args.tp)
    worker = Worker(
        lane,
        Discard() if args.discard else publisher,
        OracleBatch(tokens_per_row=args.tokens_per_row, overrun=args.overrun, bits=args.bits),
        rate=args.rate,
        steps=args.steps,
        most_rows=args.rows,
        logprobs=args.logprobs,
        bits=args.bits,
        follow=not publisher.sends,
        lockstep=args.lockstep,
        tally=TokenCounter(args.token_count),
    )

    def stop(*_: object) -> None:
        worker.stopped = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    gc.collect()
    gc.freeze()
    lost = None
    try:
        worker.run()
    except LaneLost as error:
        lost = str(error)
    undelivered = publisher.close()
    if args.report is not None:
        report = {**worker.report(), "undelivered": undelivered, "lane_lost": lost}
        args.report.write_text(json.dumps(report))
    return 1 if undelivered else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
