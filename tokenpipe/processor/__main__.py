"""Run one processor as a process: `python -m tokenpipe.processor --endpoint DIR --index N`."""

from __future__ import annotations

import argparse
import gc
import signal
import sys

from tokenpipe.topology import Topology
from tokenpipe.transport import (
    Instance,
    Peer,
    command_lane,
    receiver_port,
    report_lane,
    sender_port,
)

from .service import make_service

IDLE_S = 0.5


def main() -> int:
    """Serve until the engine ends the command lane or is gone, or a signal asks to stop."""
    parser = argparse.ArgumentParser(prog="python -m tokenpipe.processor", description=__doc__)
    parser.add_argument("--endpoint", required=True, help="directory of the instance")
    parser.add_argument("--index", type=int, required=True, help="which processor to be")
    args = parser.parse_args()
    instance = Instance.attach(args.endpoint)
    topology = Topology.from_json_dict(instance.info["topology"])
    claim = instance.claim("processor", str(args.index))
    service = make_service(
        instance,
        topology,
        args.index,
        receiver_port(instance.lane_path(command_lane(args.index))),
        sender_port(
            instance.lane_path(report_lane(args.index)), Peer("processor", str(args.index), 0)
        ),
    )

    def stop(*_: object) -> None:
        service.stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's; the engine decides
    gc.collect()
    gc.freeze()
    while not service.stopping:
        service.turn(IDLE_S)
    service.close(topology.timeouts.close_s)
    claim.release()
    return 0


if __name__ == "__main__":
    sys.exit(main())
