"""Run one worker rank: `python -m tokenpipe.worker --dp N --tp N --engine module:factory`.

Exit status: 0 if it was told to end. 1 if rows could not be delivered, or the executor failed. 75
if its lanes ended and nobody had stopped it: its processor or its engine's process is dead.
"""

from __future__ import annotations

import argparse
import gc
import logging
import signal
import sys
import traceback
from collections.abc import Sequence

from tokenpipe.errors import LaneLost, TokenpipeError
from tokenpipe.instance import Instance
from tokenpipe.logs import set_up_logs
from tokenpipe.notify import Notifier, set_title
from tokenpipe.topology import Topology

from .declared import model_card_of
from .executor import EngineSpec, RankPlace
from .publisher import Publisher
from .step_lane import StepLane
from .worker_loop import WorkerLoop

LANES_OVER = 75
_log = logging.getLogger("tokenpipe.worker")


def main(argv: Sequence[str]) -> int:
    """Run one rank; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tokenpipe.worker", description=__doc__)
    parser.add_argument("--endpoint", help="instance directory; default $TOKENPIPE_ENDPOINT")
    parser.add_argument("--dp", type=int, default=0, help="data-parallel rank")
    parser.add_argument("--tp", type=int, default=0, help="tensor-parallel rank")
    parser.add_argument("--engine", required=True, help="module:factory")
    parser.add_argument(
        "--lockstep",
        action="store_true",
        help="run the steps that each plan allows; always so with several TP ranks",
    )
    args = parser.parse_args(argv)
    notifier = Notifier.inherited()
    set_title(f"tp:worker {args.dp}.{args.tp}")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # comes from the terminal; the supervisor decides
    try:
        rank = _Rank(args, notifier)
    except Exception as error:
        notifier.failed(_story(error))
        raise
    return rank.run()


class _Rank:
    """One rank with its executor and its lanes. It is made and then run once."""

    def __init__(self, args: argparse.Namespace, notifier: Notifier) -> None:
        self._notifier = notifier
        instance = Instance.attach(args.endpoint)
        topology = Topology.from_json_dict(instance.info["topology"])
        name, log = instance.info["name"], topology.log
        rank = f"{args.dp}.{args.tp}"
        set_up_logs("worker", rank, instance=name, form=log.format, level=log.level)
        notifier.phase(f"making engine {args.engine}")
        spec = EngineSpec.inherited(args.engine)
        executor = spec.make(RankPlace(topology, args.dp, args.tp))
        # Before the rank is up: no request may come that was checked against another model card.
        notifier.facts(model_card=model_card_of(executor).to_json_dict())
        notifier.phase("waiting for its processor's welcome")
        self._lane = StepLane.worker(args.endpoint, args.dp, args.tp)
        self._publisher = Publisher(args.endpoint, args.dp, args.tp)
        self._loop = WorkerLoop(
            self._lane,
            self._publisher,
            executor,
            notifier=notifier,
            lockstep=args.lockstep or topology.tensor_parallel_size > 1,
        )

    def run(self) -> int:
        signal.signal(signal.SIGTERM, self._loop.stop)
        gc.collect()
        gc.freeze()
        self._notifier.ready()
        try:
            self._loop.run()
        except LaneLost as error:
            _log.warning("a lane of the worker was lost (%s); the worker ends", error)
            self._close(0.0)
            return LANES_OVER
        except Exception as error:
            _log.exception("the executor failed; the worker ends")
            self._notifier.failed(_story(error))
            self._close()
            return 1
        undelivered = self._close()
        if undelivered:
            _log.error("the processor did not take the last %d frames in time", undelivered)
        return LANES_OVER if undelivered and not self._loop.stopped else int(bool(undelivered))

    def _close(self, timeout_s: float | None = None) -> int:
        """Close both lanes; return the frames that were not delivered."""
        undelivered = self._publisher.close(timeout_s)
        self._lane.close()
        return undelivered


def _story(error: Exception) -> str:
    if isinstance(error, TokenpipeError):
        return f"{type(error).__name__}: {error}"
    return "".join(traceback.format_exception(error))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
