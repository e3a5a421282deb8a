"""Serve in the calling process: uvicorn runs in it, without a fork, and one process is saved.

The engine is a child of this process, or the caller runs it. The end of the lifespan, after the
last response, ends the engine.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress

from typing_extensions import Self

from tokenpipe.api import (
    ApiSettings,
    StoppableServer,
    check_start,
    load_single,
    raise_descriptor_limit,
)
from tokenpipe.errors import ConfigError
from tokenpipe.logs import set_up_logs
from tokenpipe.notify import Notifier
from tokenpipe.topology import Topology
from tokenpipe.worker import SYNTHETIC, EngineSpec

from .binding import bind, url_of
from .launch import STOPPED, engine_child
from .processes import LOOK_S, ServerFailed, ServerProcesses
from .server_resources import server_resources, with_name
from .signals import SecondSignal, StopSignals, stop_signals
from .standard_descriptors import open_standard_descriptors

AFTER_FAILURE_S = 1.0  # for responses that are open, and for the engine's end
_log = logging.getLogger("tokenpipe.serve")


def run(
    topology: Topology,
    spec: EngineSpec | None = None,
    *,
    endpoint: str | None = None,
    close: Callable[[], object] | None = None,
) -> int:
    """Serve with uvicorn in this process; return the exit status. Call it in the main thread.

    Args:
        topology: with `api.workers: 1`.
        spec: the executor of the engine's workers; None is the synthetic one. The engine is a
            child of this process.
        endpoint: instead of a `spec`: the endpoint of a Pipeline that the caller runs meanwhile,
            in another thread or process. The caller makes it and closes it.
        close: called at the end of the lifespan, in this thread, when every response is over.

    Raises ConfigError (a port that is taken, a missing package), LaneBusy, StartupError,
    ServerFailed (the engine died and is not started again). All child processes have ended then.
    """
    if topology.api.workers != 1:
        got = topology.api.workers
        raise ConfigError(f"api.workers: run() serves with one, launch() with several (got {got})")
    if endpoint is not None and spec is not None:
        raise ConfigError("run() takes the spec of an engine or the endpoint of one, not both")
    open_standard_descriptors()
    check_start(topology)
    raise_descriptor_limit()
    topology = with_name(topology)
    log, name = topology.log, topology.name or ""
    also = ["uvicorn", "uvicorn.error"] + ["uvicorn.access"] * topology.api.access_log
    set_up_logs("server", instance=name, also=also, form=log.format, level=log.level)
    with stop_signals() as signals:
        if endpoint is not None:
            return _attached(topology, endpoint, signals, close)
        return _whole(topology, spec or EngineSpec(SYNTHETIC), signals, close)


def _attached(
    topology: Topology, endpoint: str, signals: StopSignals, close: Callable[[], object] | None
) -> int:
    api = topology.api
    with bind(api.host, api.port, api.backlog) as sock:
        deadline = time.monotonic() + topology.timeouts.startup_s
        server = InProcessServer(url_of(sock), signals, None, 0.0, close)
        return server.serve(topology, endpoint, sock, deadline)


def _whole(
    topology: Topology, spec: EngineSpec, signals: StopSignals, close: Callable[[], object] | None
) -> int:
    with server_resources(topology) as resources:
        effective = resources.topology
        deadline = time.monotonic() + effective.timeouts.startup_s
        processes = ServerProcesses(resources, signals, [engine_child(resources, spec)])
        try:
            processes.start(deadline)
            load_single()  # its imports take long, and the engine starts meanwhile
            close_s = effective.timeouts.close_s + 1.0
            if not processes.wait_ready(deadline):
                processes.end("engine", close_s)
                return STOPPED
        except SecondSignal as second:
            processes.kill()
            return 128 + second.number
        plain = spec.target == SYNTHETIC
        server = InProcessServer(url_of(resources.sock), signals, processes, close_s, close)
        return server.serve(effective, resources.endpoint, resources.sock, deadline, plain)


class InProcessServer:
    """A server and its owner in one process; all methods run in the server's event loop.

    `processes` has the engine's process. It is None if the caller runs the engine.
    """

    def __init__(
        self,
        url: str,
        signals: StopSignals,
        processes: ServerProcesses | None,
        close_s: float,
        close: Callable[[], object] | None,
    ) -> None:
        self._url = url
        self._signals = signals
        self._processes = processes
        self._close_s = close_s
        self._close = close
        self._server: StoppableServer | None = None
        self._task: asyncio.Task[None] | None = None
        self._failure: ServerFailed | None = None

    def serve(
        self,
        topology: Topology,
        endpoint: str,
        sock: socket.socket,
        deadline: float,
        plain_text: bool = False,
    ) -> int:
        """Run the server until it ends; return the exit status. Raises ServerFailed."""
        serve_one, mute = load_single(), Notifier(None)  # no supervisor reads it
        fd = os.dup(sock.fileno())  # the server closes what it is given
        status = serve_one(ApiSettings(topology, endpoint, fd, plain_text, deadline, mute), self)
        if self._failure is not None:
            raise self._failure
        return 128 + self._signals.second if self._signals.second else status

    def begins(self, server: StoppableServer) -> None:
        """Take the server, which is about to run."""
        self._server = server

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        loop.add_reader(self._signals.fileno(), self._signal)
        if self._processes is not None:
            loop.add_reader(self._processes.children.fileno(), self._look)
        self._task = loop.create_task(self._watch())
        return self

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._signals.fileno())
        if self._task is not None:
            self._task.cancel()
        if self._processes is not None:
            loop.remove_reader(self._processes.children.fileno())
        try:
            if self._close is not None:
                self._close()
        finally:
            self._end_engine()

    def _end_engine(self) -> None:
        if self._processes is None:
            return
        with suppress(SecondSignal):
            self._processes.end("engine", AFTER_FAILURE_S if self._failure else self._close_s)
        if self._signals.second:
            self._processes.kill()

    def _signal(self) -> None:
        self._signals.clear()
        assert self._server is not None
        self._server.begin_shutdown(0.0 if self._signals.second else None)

    async def _watch(self) -> None:
        logged = False
        while True:
            if not logged and self._server is not None and self._server.started:
                logged = True
                _log.info("serving on %s", self._url)
            self._look()
            await asyncio.sleep(LOOK_S)

    def _look(self) -> None:
        if self._processes is None or self._failure is not None:
            return
        try:
            self._processes.look()
        except ServerFailed as failure:
            self._failure = failure
            self._signals.expect_second()
            assert self._server is not None
            self._server.begin_shutdown(AFTER_FAILURE_S)
