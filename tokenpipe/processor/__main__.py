"""Run one processor as a process: `python -m tokenpipe.processor --endpoint DIR --index N`."""

from __future__ import annotations

import argparse
import gc
import logging
import signal
import sys

from tokenpipe.errors import ConfigError
from tokenpipe.instance import Instance, command_lane, report_lane
from tokenpipe.logs import set_up_logs
from tokenpipe.notify import Notifier, set_title
from tokenpipe.topology import Topology
from tokenpipe.transport import Peer, Role, new_incarnation, open_receiver, open_sender
from tokenpipe.wire import ProcessorStarted

from .journal import Journal
from .lives import next_life
from .service import CONTROL_BYTES, ProcessorService

IDLE_S = 0.5
_log = logging.getLogger("tokenpipe.processor")


def main() -> int:
    """Serve until the engine ends its command lane or is gone, or until a SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m tokenpipe.processor", description=__doc__)
    parser.add_argument("--endpoint", required=True, help="directory of the instance")
    parser.add_argument("--index", type=int, required=True, help="number of the processor")
    files = "descriptors of the two files of its journal"
    parser.add_argument("--journal", type=int, nargs=2, metavar="FD", help=files)
    args = parser.parse_args()
    notifier = Notifier.inherited()
    set_title(f"tp:processor {args.index}")
    try:
        journal = None if args.journal is None else Journal(args.journal)
        return _serve(args.endpoint, args.index, journal, notifier)
    except ConfigError as error:  # of the tokenizer, say; a traceback would not help its user
        reason = f"{type(error).__name__}: {error}"
        _log.error("processor %d cannot start: %s", args.index, reason)
        notifier.failed(reason)
        return 2


def _serve(endpoint: str, index: int, journal: Journal | None, notifier: Notifier) -> int:
    instance = Instance.attach(endpoint)
    topology = Topology.from_json_dict(instance.info["topology"])
    name, log = instance.info["name"], topology.log
    set_up_logs("processor", str(index), instance=name, form=log.format, level=log.level)
    claim = instance.claim("processor", str(index))
    life, why = next_life(index, topology, journal)
    # It has the state of the last process, so workers and engine see that one's incarnation.
    me = Peer("processor", str(index), life.incarnation)
    engine = Role("engine", "0")
    life.reports.insert(0, ProcessorStarted(why))
    commands = open_receiver(
        instance,
        command_lane(index),
        me=me,
        expects=engine,
        max_frame_bytes=CONTROL_BYTES,
        hold_bytes=CONTROL_BYTES,
    )
    fresh = me._replace(incarnation=new_incarnation())  # this lane numbers its frames anew
    reports = open_sender(
        instance, report_lane(index), me=fresh, to=engine, bound_bytes=CONTROL_BYTES
    )
    service = ProcessorService(
        instance, topology, index, commands, reports, life=life, journal=journal
    )

    def stop(*_: object) -> None:
        service.stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from a terminal; the engine ends this process
    gc.collect()
    gc.freeze()
    notifier.ready()
    while not service.stopping:
        service.turn(IDLE_S)
        if notifier.watchdog():
            notifier.problem(service.problem)
    service.close(topology.timeouts.close_s)
    claim.release()
    return 0


if __name__ == "__main__":
    sys.exit(main())
