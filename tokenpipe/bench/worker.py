"""Play one worker rank: take plans from a StepLane, publish tokens that the oracle knows.

`python -m tokenpipe.bench.worker --dp 0 --tp 0 ...` is one rank, in a process of its own.
It runs on by itself while its batch does not change, as fast as `--rate` lets it, and ends when the
engine ends its lane or on SIGTERM. With `--report` it writes its counts and times as JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tokenpipe.errors import LaneLost
from tokenpipe.worker import Publisher, StepLane, WorkerLoop

from .measured_publisher import DiscardingPublisher, MeasuredPublisher
from .oracle import VOCAB_BITS
from .oracle_batch import OracleBatch
from .paced_executor import PacedExecutor
from .process_usage import pin
from .progress import TokenCounter


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line of a worker."""
    parser = argparse.ArgumentParser(prog="python -m tokenpipe.bench.worker", description=__doc__)
    parser.add_argument("--endpoint", help="instance directory; default $TOKENPIPE_ENDPOINT")
    parser.add_argument("--dp", type=int, default=0, help="data-parallel rank")
    parser.add_argument("--tp", type=int, default=0, help="tensor-parallel rank")
    parser.add_argument("--rate", type=float, help="steps per second; default: no limit")
    parser.add_argument("--steps", type=int, help="end after that many steps")
    parser.add_argument("--rows", type=int, help="end after that many rows")
    parser.add_argument("--tokens-per-row", type=int, default=1)
    parser.add_argument("--overrun", type=int, default=2, help="steps beyond a request's end")
    parser.add_argument("--logprobs", type=int, help="top-k logprobs beside each token")
    parser.add_argument("--bits", type=int, default=VOCAB_BITS, help="of the oracle's tokens")
    parser.add_argument("--lockstep", action="store_true", help="run the steps each plan grants")
    parser.add_argument("--discard", action="store_true", help="make tokens, publish nothing")
    parser.add_argument("--pin", type=int, help="CPU to run on")
    parser.add_argument("--report", type=Path, help="file for the worker's report, as JSON")
    parser.add_argument("--token-count", type=Path, help="file for the number of tokens so far")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    """Run one rank; return its exit status (1 if rows could not be delivered)."""
    args = parse(argv)
    if args.pin is not None:
        pin(args.pin)
    lane = StepLane.worker(args.endpoint, args.dp, args.tp)
    publisher = Publisher(args.endpoint, args.dp, args.tp)
    executor = PacedExecutor(
        OracleBatch(tokens_per_row=args.tokens_per_row, overrun=args.overrun, bits=args.bits),
        rate=args.rate,
        logprobs=args.logprobs,
        bits=args.bits,
        runs=publisher.sends,
        lockstep=args.lockstep,
    )
    measured = MeasuredPublisher(
        DiscardingPublisher() if args.discard else publisher,
        TokenCounter(args.token_count),
        most_steps=args.steps,
        most_rows=args.rows,
    )
    loop = WorkerLoop(lane, measured, executor, lockstep=args.lockstep)
    measured.when_done = loop.stop
    signal.signal(signal.SIGTERM, loop.stop)
    signal.signal(signal.SIGINT, loop.stop)
    gc.collect()
    gc.freeze()
    lost = None
    try:
        loop.run()
    except LaneLost as error:
        lost = str(error)
    undelivered = publisher.close()
    if args.report is not None:
        report = measured.report() | (executor.meter.spent() if executor.meter else {})
        args.report.write_text(
            json.dumps({**report, "undelivered": undelivered, "lane_lost": lost})
        )
    return 1 if undelivered else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
