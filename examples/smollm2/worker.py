"""One rank of the engine: `python -m examples.smollm2.worker --dp 0`."""

from __future__ import annotations

import argparse
import signal
import sys
import warnings
from pathlib import Path

from tokenpipe import CPUModelRunner, Publisher, StepLane

from .forced import Forced
from .model import SmolLM2
from .weights import Weights


def main() -> int:
    """Run until the engine ends the lane."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--endpoint")
    parser.add_argument("--dp", type=int, default=0)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--room", type=int, required=True)
    parser.add_argument("--forced", type=Path, help="plain ids that are fed whatever was sampled")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    lane = StepLane.worker(args.endpoint, args.dp)
    weights = Weights(args.weights)
    if args.forced is None:
        model = SmolLM2(weights, args.slots, args.room)
    else:
        model = Forced(weights, args.slots, args.room, args.forced)
    with Publisher(args.endpoint, args.dp) as pub:  # now the rank is up
        runner = CPUModelRunner(model, pub)

        def stop(*_: object) -> None:
            runner.stopped = True

        signal.signal(signal.SIGTERM, stop)
        runner.warm_up(rows=2, tokens=8)
        runner.run(lane, lockstep=True)
    lane.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
