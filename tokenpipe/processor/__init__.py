"""Turn workers' rows into output for clients and reports for the engine.

`Processor` holds the state of all requests that are bound to some DP ranks. It is pure: it has no
socket, clock or log. `ProcessorService` runs it on lanes.
"""

from .core import Processor
from .lives import new_life
from .service import CONTROL_BYTES, ProcessorService

__all__ = ["CONTROL_BYTES", "Processor", "ProcessorService", "new_life"]
