"""Start everything of a topology, watch it, and end it: the process of `python -m tokenpipe serve`.

It opens no lane and knows no token: it binds the port, keeps the instance's directory, starts the
engine's process and the API server, and acts on what becomes of them.
"""

from __future__ import annotations

import json
import logging
import secrets
import selectors
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from signal import SIGKILL, SIGTERM

from tokenpipe.engine import SYNTHETIC, EngineSpec
from tokenpipe.errors import TokenpipeError
from tokenpipe.logs import set_up_logs
from tokenpipe.plan import plan
from tokenpipe.pulse import set_title
from tokenpipe.supervisor import Budget, Child, ChildSpec, Died, Supervisor
from tokenpipe.topology import Topology
from tokenpipe.transport import ENDPOINT_VARIABLE, Reservation, default_base, sweep

from .binding import bind, url_of

STOPPED, FAILED, WRONG, NOT_STARTED = 0, 1, 2, 3  # exit statuses; 128 + n: a second signal n
LOOK_S = 0.25
OWN_WORD_S = 1.0  # a child that misses the deadline says why itself, if it still can
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_log = logging.getLogger("tokenpipe.serve")


class ServerFailed(TokenpipeError):
    """A process died and is not started again; says which, how, and its last words."""


class _Interrupted(Exception):
    """A second signal: the end is now."""


def launch(topology: Topology, spec: EngineSpec) -> int:
    """Serve until a signal or a death; return the exit status.

    Raises ConfigError (a port that is taken, a wrong directory), LaneBusy, StartupError,
    ServerFailed; whatever had started is gone then.
    """
    name = topology.name or f"s{secrets.token_hex(4)}"
    set_title("tp:supervisor")
    log = topology.log
    set_up_logs("supervisor", instance=name, form=log.format, level=log.level)
    with (
        _signals() as signals,
        bind(topology.api.host, topology.api.port, topology.api.backlog) as sock,
    ):
        for swept in sweep(topology.runtime_dir or default_base()):
            if swept.outcome == "removed":
                _log.info("removed what a dead instance left: %s", swept.directory)
        longest = max((lane.socket for lane in plan(topology).lanes), key=len)
        reservation = Reservation.take(topology.runtime_dir, name, longest_lane=longest)
        own_logs = topology.log_dir is None
        log_dir = topology.log_dir or reservation.directory / "logs"
        try:
            effective = topology.replaced(
                name=name, log_dir=log_dir, api={"port": sock.getsockname()[1]}
            )
            with Supervisor(log_dir) as children:
                return _Server(effective, spec, sock, reservation, children, signals).run()
        finally:
            reservation.close(logs=own_logs)


class _Server:
    def __init__(
        self,
        topology: Topology,
        spec: EngineSpec,
        sock: socket.socket,
        reservation: Reservation,
        children: Supervisor,
        signals: _Signals,
    ) -> None:
        self._topology = topology
        self._sock = sock
        self._reservation = reservation
        self._children = children
        self._signals = signals
        self._budget = Budget(topology.policies.restarts, topology.policies.within_s)
        self._starting: dict[Child, float] = {}  # those started again, with their deadlines
        self._silent: set[int] = set()
        self._stopping = False
        environment = {"TOKENPIPE_TOPOLOGY": json.dumps(topology.to_json_dict())}
        endpoint = str(reservation.directory)
        arguments = ("--engine", spec.target, "--arguments", json.dumps(dict(spec.arguments)))
        self._engine = ChildSpec("engine", "0", "tokenpipe.engine", arguments, environment)
        plain = ("--plain-text",) if spec.target == SYNTHETIC else ()
        self._api = ChildSpec(
            "api",
            "0",
            "tokenpipe.serve",
            ("--fd", str(sock.fileno()), *plain),
            # One thread: a pool of an arithmetic library would stand before the fork of workers.
            environment
            | {ENDPOINT_VARIABLE: endpoint, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            (sock.fileno(),),
            topology.api.workers,
        )

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
        except _Interrupted as second:
            for child in self._children.living:
                child.signal(SIGKILL)
            _log.warning("ended at once by a second signal")
            return 128 + int(second.args[0])

    # --- start ---

    def _start(self) -> bool:
        """Return False where a signal came first."""
        t = self._topology
        deadline = time.monotonic() + t.timeouts.startup_s
        # Side by side: the API server's long imports pass while the engine starts.
        specs = (self._engine, self._api)
        children = [self._children.start(self._with_deadline(spec, deadline)) for spec in specs]

        def pump(seconds: float) -> None:
            self._signals.wait(self._children, seconds)
            if self._signals.first:
                raise InterruptedError

        left = deadline - time.monotonic() + OWN_WORD_S
        try:
            self._children.wait_ready({child: child.missing for child in children}, left, pump)
        except InterruptedError:
            return False
        _log.info(
            "serving on %s; instance %s, logs in %s",
            url_of(self._sock),
            t.name,
            self._children.log_dir,
        )
        return True

    def _with_deadline(self, spec: ChildSpec, deadline: float) -> ChildSpec:
        args = (*spec.args, "--deadline", f"{deadline:.3f}")
        return ChildSpec(
            spec.role, spec.rank, spec.module, args, spec.env, spec.fds, spec.processes
        )

    # --- watch ---

    def _watch(self) -> None:
        while not self._signals.first:
            self._signals.wait(self._children, LOOK_S)
            for died in self._children.poll():
                self._died(died)
            self._look_after()

    def _died(self, died: Died) -> None:
        self._starting.pop(died.child, None)
        _log.error("%s", died)
        role = died.child.spec.role
        policies = self._topology.policies
        if (policies.engine if role == "engine" else policies.api) == "fail":
            raise ServerFailed(f"{died} (policies.{role}: fail)")
        if not self._budget.take(role, time.monotonic()):
            raise ServerFailed(f"{died}\nIt was started again too often: {self._budget}")
        if role == "engine":
            self._reservation.clear()
        deadline = time.monotonic() + self._topology.timeouts.startup_s
        spec = self._engine if role == "engine" else self._api
        self._starting[self._children.start(self._with_deadline(spec, deadline))] = deadline

    def _look_after(self) -> None:
        """See who is late or silent."""
        now = time.monotonic()
        stuck = self._children.stuck(self._topology.timeouts.stuck_s)
        for child, seconds in stuck:
            if child.pid not in self._silent:
                _log.error("%s gave no sign of life for %.0f s", child, seconds)
            if self._topology.policies.on_stuck == "kill":
                child.kill_silent(now, self._topology.timeouts.stuck_s)
        self._silent = {child.pid for child, _ in stuck}
        for child, deadline in list(self._starting.items()):
            phase = child.missing()
            if phase is None:
                _log.info("%s is back", child)
                del self._starting[child]
            elif now > deadline + OWN_WORD_S:
                _log.error("%s is not ready in time; phase: %s", child, phase)
                child.signal(SIGKILL)

    # --- stop ---

    def _stop(self) -> None:
        """Let open answers end, then the API server, then everything behind it."""
        t = self._topology
        _log.info("stops: open answers have %g s", t.api.timeout_graceful_shutdown)
        self._end("api", t.api.timeout_graceful_shutdown + 1.5)
        self._end("engine", t.timeouts.close_s + 1.0)

    def _end_after_failure(self) -> None:
        """End what is left: nobody gets an answer any more, but everybody a last word."""
        self._signals.forget_first()
        self._end("api", 2.0)
        self._end("engine", 1.0)

    def _end(self, role: str, timeout_s: float) -> None:
        children = [child for child in self._children.living if child.spec.role == role]
        for child in children:
            child.signal(SIGTERM)
        deadline = time.monotonic() + timeout_s
        while any(child.died is None for child in children):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            self._signals.wait(self._children, left)
            if self._signals.second:
                raise _Interrupted(self._signals.second)
            for died in self._children.poll():
                if died.child not in children or died.returncode != 0:
                    _log.error("%s", died)
        for died in self._children.stop(0.0, children):
            _log.error("%s did not end in time", died.child)


class _Signals:
    """Count signals; end waits with them. Nothing is done in the handler itself."""

    def __init__(self) -> None:
        self.first = self.second = 0
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._theirs.setblocking(False)

    def handle(self, number: int, _frame: object) -> None:
        if self.first:
            self.second = number
        else:
            self.first = number
        with suppress(BlockingIOError):
            self._ours.send(b"x")

    def forget_first(self) -> None:
        """Let the next signal be the one that ends at once."""
        self.first = self.first or -1

    def wait(self, children: Supervisor, timeout_s: float) -> None:
        """Wait for a signal or a death."""
        with selectors.DefaultSelector() as selector:
            selector.register(children, selectors.EVENT_READ)
            selector.register(self._theirs, selectors.EVENT_READ)
            for key, _ in selector.select(timeout_s):
                if key.fileobj is self._theirs:
                    self._theirs.recv(64)

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()


@contextmanager
def _signals() -> Iterator[_Signals]:
    signals = _Signals()
    before = {number: signal.signal(number, signals.handle) for number in SIGNALS}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signals.close()
