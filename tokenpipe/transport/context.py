"""The process's one ZeroMQ context, made anew in a forked child."""

from __future__ import annotations

import os

import zmq

_context: zmq.Context[zmq.Socket[bytes]] | None = None
_inherited: list[object] = []  # a parent's contexts: kept, because to end them here would hang


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
