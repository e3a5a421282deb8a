"""Serve with several workers: gunicorn keeps them, each is a uvicorn with a client of its own.

Before the fork there is neither a lane nor a thread: the app, and with it the client, is made in
the worker. The supervisor judges liveness by the workers' notifications. So gunicorn's timeout,
which would also end workers that are still starting, is off.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import time
from typing import Any

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.errors import HaltServer
from gunicorn.workers.base import Worker
from uvicorn_worker import UvicornWorker

from tokenpipe.errors import TokenpipeError
from tokenpipe.logs import set_up_logs
from tokenpipe.notify import set_title
from tokenpipe.supervisor import GiveUp, RestartPolicy

from .app import make_app
from .server import CLOSE_S, DrainingServer, make_config
from .server_state import ServerState
from .settings import Settings

PR_SET_PDEATHSIG = 1
SPARE_S = CLOSE_S + 1.0  # of the manager's patience, past that of the workers
_log = logging.getLogger("tokenpipe.serve")
_settings: list[Settings] = []  # the manager's; a worker inherits it by its fork
_restarts: list[RestartPolicy] = []  # of its workers, counted together


class ApiWorker(UvicornWorker):  # type: ignore[misc]
    """A worker whose end is the same as that of a server alone."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        (settings,) = _settings
        self.state = ServerState(settings, rank=str(self.age))
        self.config = make_config(settings, None)

    async def _serve(self) -> None:
        self.config.app = self.wsgi
        server = DrainingServer(self.config, self.state)
        await server.serve(sockets=self.sockets)
        if not server.started:
            raise SystemExit(Arbiter.WORKER_BOOT_ERROR)

    def load_wsgi(self) -> None:
        try:
            self.wsgi = make_app(self.state)
        except TokenpipeError as error:
            self.state.settings.notifier.failed(f"{type(error).__name__}: {error}")
            raise


def run(settings: Settings) -> int:
    """Serve until told to stop; return the exit status."""
    _settings[:] = [settings]
    topology = settings.topology
    _restarts[:] = [RestartPolicy.of(topology.policies, topology.api.workers)]
    _Manager(settings).run()  # ends by SystemExit
    return 0


class _Manager(BaseApplication):  # type: ignore[misc]
    def __init__(self, settings: Settings) -> None:
        self._ours = settings
        super().__init__()

    def load_config(self) -> None:
        api = self._ours.topology.api
        values = {
            "bind": [f"fd://{self._ours.fd}"],
            "workers": api.workers,
            "worker_class": ApiWorker,
            "timeout": 0,
            "graceful_timeout": int(api.timeout_graceful_shutdown + SPARE_S) + 1,
            "backlog": api.backlog,
            "control_socket_disable": True,  # a thread of the manager, and one name for all
            "preload_app": False,
            "proc_name": "tp:api 0",
            "logger_class": _Logger,
            "post_fork": _post_fork,
            "child_exit": _child_exit,
        }
        for name, value in values.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        raise AssertionError("each worker makes its own app")


class _Logger:
    """Send gunicorn's lines to the loggers that were set up; it would configure its own."""

    def __init__(self, cfg: Any) -> None:
        self.cfg = cfg
        self.error_log = logging.getLogger("gunicorn.error")
        self.access_log = logging.getLogger("gunicorn.access")

    def setup(self, cfg: Any) -> None:
        """PeerEvent nothing."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.error_log, name)

    def access(self, *_: Any) -> None:
        """Leave access lines to uvicorn."""

    def reopen_files(self) -> None:
        """PeerEvent nothing: there are none."""

    def close_on_exec(self) -> None:
        """PeerEvent nothing: nothing is executed."""


def _post_fork(_arbiter: Arbiter, worker: Worker) -> None:
    (settings,) = _settings
    # The manager has one thread, so this fires at its death and not before.
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != worker.ppid:
        os._exit(1)  # it died before that
    set_title(f"tp:api {worker.age}")
    log, name = settings.topology.log, settings.topology.name or ""
    also = ["uvicorn", "uvicorn.error"] + ["uvicorn.access"] * settings.topology.api.access_log
    form, level = log.format, log.level
    set_up_logs("api", str(worker.age), instance=name, also=also, form=form, level=level)


def _child_exit(arbiter: Arbiter, worker: Worker) -> None:
    (settings,) = _settings
    settings.notifier.left(worker.pid)
    if not arbiter.LISTENERS:
        return  # it stops, and this worker was told to end
    verdict = _restarts[0].died("api", "the workers", time.monotonic())
    what = f"API worker {worker.age} (pid {worker.pid}) died; {verdict}"
    if isinstance(verdict, GiveUp):
        settings.notifier.failed(what)
        raise HaltServer(what)
    _log.error("%s", what)
