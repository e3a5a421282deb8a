"""Start everything of a topology, watch it, and end it: the process of `python -m tokenpipe serve`.

It opens no lane and knows no token: it binds the port, keeps the instance's directory, starts the
engine's process and the API server, and acts on what becomes of them.
"""

from __future__ import annotations

import json
import logging
import time

from tokenpipe.api import check_start
from tokenpipe.instance import ENDPOINT_VARIABLE
from tokenpipe.logs import set_up_logs
from tokenpipe.notify import set_title
from tokenpipe.supervisor import ChildSpec
from tokenpipe.topology import Topology
from tokenpipe.worker import SYNTHETIC, EngineSpec

from .binding import url_of
from .processes import LOOK_S, Household, Premises, ServerFailed, named, premises
from .signals import Interrupted, Signals, taken_signals

STOPPED = 0  # exit status; 128 + n: a second signal n
_log = logging.getLogger("tokenpipe.serve")


def launch(topology: Topology, spec: EngineSpec | None = None) -> int:
    """Serve until a signal or a death; return the exit status. For the main thread.

    `spec` is the engine, None the synthetic one. Raises ConfigError (a port that is taken, a wrong
    directory, a missing package), LaneBusy, StartupError, ServerFailed; whatever had started is
    gone then.
    """
    check_start(topology)
    set_title("tp:supervisor")
    topology = named(topology)
    log, name = topology.log, topology.name or ""
    set_up_logs("supervisor", instance=name, form=log.format, level=log.level)
    with taken_signals() as signals, premises(topology) as place:
        return _Server(place, spec or EngineSpec(SYNTHETIC), signals).run()


def engine_child(place: Premises, spec: EngineSpec) -> ChildSpec:
    """Say how the engine's process is started."""
    arguments = ("--engine", spec.target, "--arguments", json.dumps(dict(spec.arguments)))
    return ChildSpec("engine", "0", "tokenpipe.engine", arguments, _environment(place))


def _api_child(place: Premises, spec: EngineSpec) -> ChildSpec:
    plain = ("--plain-text",) if spec.target == SYNTHETIC else ()
    return ChildSpec(
        "api",
        "0",
        "tokenpipe.api",
        ("--fd", str(place.sock.fileno()), *plain),
        # One thread: a pool of an arithmetic library would stand before the fork of workers.
        _environment(place)
        | {ENDPOINT_VARIABLE: place.endpoint, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        (place.sock.fileno(),),
        place.topology.api.workers,
    )


def _environment(place: Premises) -> dict[str, str]:
    return {"TOKENPIPE_TOPOLOGY": json.dumps(place.topology.to_json_dict())}


class _Server:
    def __init__(self, place: Premises, spec: EngineSpec, signals: Signals) -> None:
        self._place = place
        self._signals = signals
        specs = (engine_child(place, spec), _api_child(place, spec))
        self._house = Household(place, signals, specs)

    def run(self) -> int:
        """Start, watch, stop; a first signal ends it in order at any moment."""
        try:
            try:
                if self._start():
                    self._watch()
                self._stop()
                return STOPPED
            except ServerFailed:
                self._end_after_failure()
                raise
        except Interrupted as second:
            self._house.kill()
            return 128 + second.number

    def _start(self) -> bool:
        """Return False where a signal came first."""
        place = self._place
        deadline = time.monotonic() + place.topology.timeouts.startup_s
        self._house.start(deadline)
        if not self._house.wait_ready(deadline):
            return False
        _log.info(
            "serving on %s; instance %s, logs in %s",
            url_of(place.sock),
            place.topology.name,
            place.children.log_dir,
        )
        return True

    def _watch(self) -> None:
        while not self._signals.first:
            self._signals.wait(self._place.children, LOOK_S)
            self._house.look()

    def _stop(self) -> None:
        """Let open answers end, then the API server, then everything behind it."""
        t = self._place.topology
        _log.info("stops: open answers have %g s", t.api.timeout_graceful_shutdown)
        self._house.end("api", t.api.timeout_graceful_shutdown + 1.5)
        self._house.end("engine", t.timeouts.close_s + 1.0)

    def _end_after_failure(self) -> None:
        """End what is left: nobody gets an answer any more, but everybody a last word."""
        self._signals.forget_first()
        self._house.end("api", 2.0)
        self._house.end("engine", 1.0)
