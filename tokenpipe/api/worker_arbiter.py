"""Fork API workers under one budget: a worker that cannot start ends no other worker."""

from __future__ import annotations

import logging
import time
from typing import Any

from gunicorn.arbiter import Arbiter
from gunicorn.errors import HaltServer

from tokenpipe.notify import Notifier
from tokenpipe.supervisor import NoRestart, RestartPolicy

FIRST_PAUSE_S = 1.0  # after a start that failed; each further one doubles it
MOST_PAUSE_S = 30.0
NOT_STARTED = 1  # exit status; gunicorn's own ones for this end all workers
_log = logging.getLogger("tokenpipe.serve")


class WorkerArbiter(Arbiter):  # type: ignore[misc]
    """gunicorn's manager of workers, with the policies of the topology.

    If one of the first workers cannot start, the server does not start. Later such a worker, and a
    fork that fails, count like a death: another attempt follows after a pause.
    """

    def __init__(self, app: Any, restarts: RestartPolicy, notifier: Notifier) -> None:
        super().__init__(app)
        self._restarts = restarts
        self._notifier = notifier
        self._pause_s = FIRST_PAUSE_S
        self._fork_at = 0.0

    def manage_workers(self) -> None:
        """Fork the workers that are missing, unless a pause lasts. gunicorn calls it each second.

        Raises HaltServer if no further start is allowed.
        """
        if time.monotonic() < self._fork_at:
            return
        try:
            super().manage_workers()
        except OSError as error:  # of the fork: the child ends by SystemExit
            if self._is_first(self.worker_age):
                raise
            self.ended(f"an API worker cannot be started: {error}", started=False)

    def spawn_worker(self) -> Any:
        """Fork a worker. In the child this ends with SystemExit."""
        age = self.worker_age + 1
        try:
            return super().spawn_worker()
        except SystemExit as end:
            if self._is_first(age) or end.code not in (self.WORKER_BOOT_ERROR, self.APP_LOAD_ERROR):
                raise
            raise SystemExit(NOT_STARTED) from None

    def _is_first(self, age: int) -> bool:
        return age <= int(self.cfg.workers)  # the first worker has the age 1

    def ended(self, what: str, *, started: bool) -> None:
        """Count a death, or a start that failed. Raises HaltServer if no restart is allowed."""
        verdict = self._restarts.died("api", "the workers", time.monotonic())
        what = f"{what}; {verdict}"
        if isinstance(verdict, NoRestart):
            self._notifier.failed(what)
            raise HaltServer(what)
        if started:
            self._pause_s = FIRST_PAUSE_S
        else:
            what = f"{what}, in {self._pause_s:g} s"
            self._fork_at = time.monotonic() + self._pause_s
            self._pause_s = min(2 * self._pause_s, MOST_PAUSE_S)
        _log.error("%s", what)
