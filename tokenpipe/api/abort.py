"""Abort a request by its id, whichever worker of the API server serves it.

Each worker listens on a datagram socket in the instance's directory (0700); a question names an id,
an answer says how many requests it ended there.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

ASK_S = 0.5
QUESTION_BYTES = 4096


class AbortPost:
    """One worker's end."""

    def __init__(self, directory: Path, abort: Callable[[str], int]) -> None:
        self._directory = directory
        self._abort = abort
        self._path = Path()
        self._sock: socket.socket | None = None

    def open(self) -> None:
        """Bind and listen in the running loop."""
        self._path = self._directory / f"a{os.getpid()}"
        self._path.unlink(missing_ok=True)  # of a process that had our number and was killed
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.setblocking(False)
        self._sock.bind(os.fspath(self._path))
        asyncio.get_running_loop().add_reader(self._sock.fileno(), self._answer)

    def close(self) -> None:
        """Unbind."""
        if self._sock is not None:
            asyncio.get_running_loop().remove_reader(self._sock.fileno())
            self._sock.close()
            self._path.unlink(missing_ok=True)
            self._sock = None

    def _answer(self) -> None:
        assert self._sock is not None
        try:
            raw, who = self._sock.recvfrom(QUESTION_BYTES)
            request_id = json.loads(raw)["abort"]
            if isinstance(request_id, str) and who:
                self._sock.sendto(b"%d" % self._abort(request_id), who)
        except (OSError, ValueError, KeyError, TypeError):
            return  # not a question of ours, or whoever asked has gone

    async def ask(self, request_id: str) -> int:
        """Abort here and at every other worker; return how many requests were ended."""
        ended = self._abort(request_id)
        others = [p for p in self._directory.glob("a[0-9]*") if p != self._path]
        if not others:
            return ended
        return ended + await asyncio.to_thread(self._ask_others, request_id, others)

    def _ask_others(self, request_id: str, others: list[Path]) -> int:
        question = json.dumps({"abort": request_id}).encode()
        ended = 0
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.bind("")  # a name of the kernel's choice, outside of any directory
            sock.settimeout(ASK_S)
            asked = 0
            for path in others:
                try:
                    sock.sendto(question, os.fspath(path))
                    asked += 1
                except OSError:
                    continue  # its worker is gone
            # A worker that died in between, or is stuck, says nothing and ends nothing.
            with suppress(TimeoutError, ValueError):
                for _ in range(asked):
                    ended += int(sock.recv(64))
        return ended
