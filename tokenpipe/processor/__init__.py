"""Rows in, output and outcomes out: all state of the requests bound to some DP ranks.

A pure state machine. Nothing here but `service` and its lanes knows a socket, nothing a clock.
"""

from .core import Processor
from .service import CONTROL_BYTES, ProcessorService

__all__ = ["CONTROL_BYTES", "Processor", "ProcessorService"]
