"""Rows in, output and outcomes out: all state of the requests bound to some DP ranks.

A pure state machine. Nothing here but `service` knows a socket, and nothing knows a clock.
"""

from .core import Processor

__all__ = ["Processor"]
