"""Start all processes of a topology, watch them and end them: `python -m tokenpipe serve`.

This process opens no lane and knows no token. It binds the port, holds the instance's directory,
starts the engine and the API server, and starts or ends them as the policies say.
"""

from __future__ import annotations

import json
import logging
import time

from tokenpipe.api import check_start, raise_descriptor_limit
from tokenpipe.instance import ENDPOINT_VARIABLE
from tokenpipe.logs import set_up_logs
from tokenpipe.notify import set_title
from tokenpipe.supervisor import ChildSpec
from tokenpipe.topology import Topology
from tokenpipe.worker import SYNTHETIC, EngineSpec

from .binding import url_of
from .processes import LOOK_S, ServerFailed, ServerProcesses
from .server_resources import ServerResources, server_resources, with_name
from .signals import SecondSignal, StopSignals, stop_signals
from .standard_descriptors import open_standard_descriptors

STOPPED = 0  # exit status after one signal; after a second signal n it is 128 + n
_log = logging.getLogger("tokenpipe.serve")


def launch(topology: Topology, spec: EngineSpec | None = None) -> int:
    """Serve until a signal; return the exit status. Call it in the main thread.

    `spec` is the executor of the engine's workers; None is the synthetic one. Raises ConfigError (a
    port that is taken, a wrong directory, a missing package), LaneBusy, StartupError, ServerFailed
    (a process died and is not started again). All child processes have ended then.
    """
    open_standard_descriptors()
    check_start(topology)
    raise_descriptor_limit()
    set_title("tp:supervisor")
    topology = with_name(topology)
    log, name = topology.log, topology.name or ""
    set_up_logs("supervisor", instance=name, form=log.format, level=log.level)
    with stop_signals() as signals, server_resources(topology) as resources:
        return _Server(resources, spec or EngineSpec(SYNTHETIC), signals).run()


def engine_child(resources: ServerResources, spec: EngineSpec) -> ChildSpec:
    """Return how the engine's process is started."""
    env = _environment(resources) | spec.environment
    return ChildSpec("engine", "0", "tokenpipe.engine", ("--engine", spec.target), env)


def _api_child(resources: ServerResources, spec: EngineSpec) -> ChildSpec:
    plain = ("--plain-text",) if spec.target == SYNTHETIC else ()
    return ChildSpec(
        "api",
        "0",
        "tokenpipe.api",
        ("--fd", str(resources.sock.fileno()), *plain),
        # One thread: an arithmetic library must not start threads before the workers are forked.
        _environment(resources)
        | {
            ENDPOINT_VARIABLE: resources.endpoint,
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
        },
        (resources.sock.fileno(),),
        resources.topology.api.workers,
    )


def _environment(resources: ServerResources) -> dict[str, str]:
    return {"TOKENPIPE_TOPOLOGY": json.dumps(resources.topology.to_json_dict())}


class _Server:
    def __init__(self, resources: ServerResources, spec: EngineSpec, signals: StopSignals) -> None:
        self._resources = resources
        self._signals = signals
        specs = (engine_child(resources, spec), _api_child(resources, spec))
        self._processes = ServerProcesses(resources, signals, specs)

    def run(self) -> int:
        """Start, watch and stop. A first signal stops the server in order, also while it starts."""
        try:
            try:
                if self._start():
                    self._watch()
                self._stop()
                return STOPPED
            except ServerFailed:
                self._end_after_failure()
                raise
        except SecondSignal as second:
            self._processes.kill()
            return 128 + second.number

    def _start(self) -> bool:
        """Return False if a signal came first."""
        resources = self._resources
        deadline = time.monotonic() + resources.topology.timeouts.startup_s
        self._processes.start(deadline)
        if not self._processes.wait_ready(deadline):
            return False
        _log.info(
            "serving on %s; instance %s, logs in %s",
            url_of(resources.sock),
            resources.topology.name,
            resources.children.log_dir,
        )
        return True

    def _watch(self) -> None:
        while not self._signals.first:
            self._signals.wait(self._resources.children, LOOK_S)
            self._processes.look()

    def _stop(self) -> None:
        """End the API server after its open responses, then the engine."""
        t = self._resources.topology
        _log.info("the server stops; open responses have %g s", t.api.timeout_graceful_shutdown)
        self._processes.end("api", t.api.timeout_graceful_shutdown + 1.5)
        self._processes.end("engine", t.timeouts.close_s + 1.0)

    def _end_after_failure(self) -> None:
        """End the processes that are left; each open stream gets an error as its last event."""
        self._signals.expect_second()
        self._processes.end("api", 2.0)
        self._processes.end("engine", 1.0)
