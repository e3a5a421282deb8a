"""Abort a request by its id, whichever worker of the API server has it.

Each worker has a datagram socket in the instance's directory, which only its user can open. A
question names an id; the answer is how many requests of that id the worker has aborted. The name of
a socket is never used again, so who finds that nobody reads it may remove it.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tokenpipe.instance import Upkeep

ANSWER_S = 0.5  # so long a worker may take to answer
QUESTION_BYTES = 4096


class AbortSocket:
    """One worker's socket. All methods run in the worker's event loop."""

    def __init__(self, directory: Path, abort: Callable[[str], int]) -> None:
        """`abort` aborts this worker's requests of an id and returns how many there were."""
        self._directory = directory
        self._abort = abort
        self._path = Path()
        self._sock: socket.socket | None = None
        self._upkeep = Upkeep(directory, owns=False)

    def open(self) -> None:
        """Bind the socket and answer questions from now on."""
        self._remove_dead()
        self._path = self._directory / f"a{secrets.token_hex(4)}"
        self._bind()
        self._upkeep.add(self._path.name, self._bind)

    def keep(self) -> None:
        """Bind the socket again if another program removed its file. Call it often."""
        self._upkeep.look(lambda: True)

    def _bind(self) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            sock.setblocking(False)
            sock.bind(os.fspath(self._path))
        except BaseException:
            sock.close()
            raise
        self._unbind()
        self._sock = sock
        asyncio.get_running_loop().add_reader(sock.fileno(), self._answer)

    def _unbind(self) -> None:
        if self._sock is not None:
            asyncio.get_running_loop().remove_reader(self._sock.fileno())
            self._sock.close()
            self._sock = None

    def close(self) -> None:
        """Close the socket and remove its file. A second call does nothing."""
        if self._sock is not None:
            self._upkeep.remove(self._path.name)
            self._unbind()
            self._path.unlink(missing_ok=True)

    def _answer(self) -> None:
        assert self._sock is not None
        try:
            raw, sender = self._sock.recvfrom(QUESTION_BYTES)
            request_id = json.loads(raw)["abort"]
            if isinstance(request_id, str) and sender:
                self._sock.sendto(b"%d" % self._abort(request_id), sender)
        except (OSError, ValueError, KeyError, TypeError):
            return  # foreign bytes, or the sender has gone

    async def abort_everywhere(self, request_id: str) -> int:
        """Abort the requests of an id in all workers; return how many there were."""
        aborted = self._abort(request_id)
        others = self._others()
        if not others:
            return aborted
        return aborted + await asyncio.to_thread(self._ask, request_id, others)

    def _others(self) -> list[Path]:
        found = self._directory.glob("a" + "[0-9a-f]" * 8)
        return [path for path in found if path != self._path]

    def _remove_dead(self) -> None:
        """Remove the sockets of workers that were killed."""
        for path in self._others():
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                try:
                    sock.connect(os.fspath(path))
                except ConnectionRefusedError:
                    path.unlink(missing_ok=True)
                except OSError:
                    continue  # it was removed meanwhile

    def _ask(self, request_id: str, others: list[Path]) -> int:
        question = json.dumps({"abort": request_id}, ensure_ascii=False).encode()
        aborted = 0
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.bind("")  # the kernel chooses a name that is no file
            sock.settimeout(ANSWER_S)
            asked = 0
            for path in others:
                try:
                    sock.sendto(question, os.fspath(path))
                    asked += 1
                except ConnectionRefusedError:
                    path.unlink(missing_ok=True)  # its worker has gone
                except OSError:
                    continue  # it is gone, or it reads nothing
            # A worker that died meanwhile, or is stuck, does not answer and aborts nothing.
            with suppress(TimeoutError, ValueError):
                for _ in range(asked):
                    aborted += int(sock.recv(64))
        return aborted
