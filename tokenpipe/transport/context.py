"""Hold the ZeroMQ context of this process. A forked child makes a new one."""

from __future__ import annotations

import os

import zmq

_context: zmq.Context[zmq.Socket[bytes]] | None = None
_inherited: list[object] = []  # contexts of the parent: kept, because closing one here would hang


def context() -> zmq.Context[zmq.Socket[bytes]]:
    """Return this process's context."""
    global _context
    if _context is None:
        _context = zmq.Context()
        _context.max_sockets = 4096
    return _context


def _forked() -> None:
    global _context
    if _context is not None:
        _inherited.append(_context)
        _context = None


os.register_at_fork(after_in_child=_forked)
