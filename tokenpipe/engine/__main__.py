"""Run the engine's process: `python -m tokenpipe.engine --engine module:factory`.

It owns the pipeline, schedules requests, and starts and watches processors and workers. The
topology is JSON in $TOKENPIPE_TOPOLOGY. Exit status: 0 if it was told to stop, 1 if a process died
that is not started again, 2 if the configuration is wrong, 3 if the start failed.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from tokenpipe.errors import ConfigError, StartupError, TokenpipeError
from tokenpipe.logs import set_up_logs
from tokenpipe.notify import Notifier, set_title
from tokenpipe.topology import Topology
from tokenpipe.worker import EngineSpec

from .host import EngineHost, start_host

TOPOLOGY_VARIABLE = "TOKENPIPE_TOPOLOGY"
_log = logging.getLogger("tokenpipe.engine")


def main(argv: Sequence[str]) -> int:
    """Serve until SIGTERM; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tokenpipe.engine", description=__doc__)
    parser.add_argument("--engine", required=True, help="module:factory")
    parser.add_argument("--deadline", type=float, help="monotonic time at which all must be up")
    args = parser.parse_args(argv)
    set_title("tp:engine 0")
    topology = Topology.from_json_dict(json.loads(os.environ.pop(TOPOLOGY_VARIABLE, "{}")))
    log = topology.log
    set_up_logs("engine", "0", instance=topology.name or "", form=log.format, level=log.level)
    spec = EngineSpec.inherited(args.engine)
    deadline = args.deadline or time.monotonic() + topology.timeouts.startup_s
    notifier = Notifier.inherited()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # comes from the terminal; the supervisor decides
    try:
        return _serve(topology, spec, notifier, deadline)
    except TokenpipeError as error:
        said = f"{type(error).__name__}: {error}"
        _log.error("%s", said)
        notifier.failed(said)
        return 3 if isinstance(error, StartupError) else 2 if isinstance(error, ConfigError) else 1


def _serve(topology: Topology, spec: EngineSpec, notifier: Notifier, deadline: float) -> int:
    hosts: list[EngineHost] = []
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)

        def stop(*_: object) -> None:
            if not hosts:
                raise SystemExit(0)  # nothing is served yet. On the way, all processes are stopped
            hosts[0].stopping = True
            with suppress(OSError):  # the host has ended already
                ours.send(b"x")  # ends the host's wait

        signal.signal(signal.SIGTERM, stop)
        with start_host(topology, spec, notifier, deadline) as host:
            hosts.append(host)
            host.pipe.watch(theirs.fileno())
            gc.collect()
            gc.freeze()
            notifier.ready(endpoint=host.endpoint)
            host.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
