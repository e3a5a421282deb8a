"""Serve with several workers: gunicorn forks them, and each runs uvicorn with its own client.

Before the fork there is no lane and no thread, because each worker makes its own app and client.
The supervisor judges by the workers' notifications whether they live. So gunicorn's timeout is
off; it would also end workers that still start.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import signal
import time
from dataclasses import replace
from typing import Any

import uvicorn
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.workers.base import Worker
from uvicorn_worker import UvicornWorker

from tokenpipe.errors import TokenpipeError
from tokenpipe.logs import set_up_logs
from tokenpipe.notify import set_title
from tokenpipe.supervisor import RestartPolicy

from .app import make_app
from .server import CLOSE_S, GracefulServer, make_config
from .server_state import ServerState
from .settings import ApiSettings
from .worker_arbiter import WorkerArbiter

PR_SET_PDEATHSIG = 1
SPARE_S = CLOSE_S + 1.0  # the manager waits so much longer than its workers shut down
_log = logging.getLogger("tokenpipe.serve")
_settings: list[ApiSettings] = []  # of the manager; each worker inherits it by its fork


class WorkerServer(GracefulServer):
    """Tells the manager that this worker has started."""

    def __init__(self, config: uvicorn.Config, state: ServerState, shared: mmap.mmap) -> None:
        super().__init__(config, state)
        self._shared = shared

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """Start, then tell."""
        await super().startup(sockets)  # type: ignore[arg-type]
        self._shared[0] = self.started


class ApiWorker(UvicornWorker):  # type: ignore[misc]
    """A worker that ends as a server of one process does."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        (settings,) = _settings
        self.shared = mmap.mmap(-1, 1)  # with the manager: whether this worker has started
        if self.age > settings.topology.api.workers:  # the deadline of the server's start is over
            startup_s = settings.topology.timeouts.startup_s
            settings = replace(settings, deadline=time.monotonic() + startup_s)
        self.state = ServerState(settings, rank=str(self.age))
        self.config = make_config(self.state, None)

    @property
    def has_started(self) -> bool:
        """Whether the worker has served. The manager asks after its end."""
        return self.shared[0] != 0

    async def _serve(self) -> None:
        self.config.app = self.wsgi
        server = WorkerServer(self.config, self.state, self.shared)
        await server.serve(sockets=self.sockets)
        if not server.started:
            raise SystemExit(Arbiter.WORKER_BOOT_ERROR)

    def load_wsgi(self) -> None:
        try:
            self.wsgi = make_app(self.state)
        except TokenpipeError as error:
            self.state.settings.notifier.failed(f"{type(error).__name__}: {error}")
            raise


def run(settings: ApiSettings) -> int:
    """Serve until a signal; return the exit status."""
    _settings[:] = [settings]
    _Manager(settings).run()  # ends by SystemExit
    return 0


class _Manager(BaseApplication):  # type: ignore[misc]
    def __init__(self, settings: ApiSettings) -> None:
        self._ours = settings
        super().__init__()

    def run(self) -> None:
        """Serve. Ends by SystemExit."""
        topology = self._ours.topology
        restarts = RestartPolicy.of(topology.policies, topology.api.workers)
        WorkerArbiter(self, restarts, self._ours.notifier).run()

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
        raise AssertionError("each worker makes an app of its own")


class _Logger:
    """Send gunicorn's lines to the loggers that exist; gunicorn would configure loggers itself."""

    def __init__(self, cfg: Any) -> None:
        self.cfg = cfg
        self.error_log = logging.getLogger("gunicorn.error")
        self.access_log = logging.getLogger("gunicorn.access")

    def setup(self, cfg: Any) -> None:
        """Change nothing."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.error_log, name)

    def access(self, *_: Any) -> None:
        """Log nothing: uvicorn logs accesses."""

    def reopen_files(self) -> None:
        """Change nothing: there are no files."""

    def close_on_exec(self) -> None:
        """Change nothing: no program is executed."""


def _post_fork(_arbiter: Arbiter, worker: Worker) -> None:
    (settings,) = _settings
    # It fires when the thread that forked dies. The manager has one thread, so it fires when the
    # manager dies.
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != worker.ppid:
        os._exit(1)  # the manager died before the call
    set_title(f"tp:api {worker.age}")
    log, name = settings.topology.log, settings.topology.name or ""
    also = ["uvicorn", "uvicorn.error"] + ["uvicorn.access"] * settings.topology.api.access_log
    rank = str(worker.age)
    set_up_logs("api", rank, instance=name, also=also, form=log.format, level=log.level)


def _child_exit(arbiter: WorkerArbiter, worker: ApiWorker) -> None:
    (settings,) = _settings
    settings.notifier.left(worker.pid)
    started = worker.has_started
    worker.shared.close()
    if not arbiter.LISTENERS:
        return  # the manager stops, and told this worker to end
    how = "died" if started else "could not start"
    arbiter.ended(f"API worker {worker.age} (pid {worker.pid}) {how}", started=started)
