"""Other implementations of the same path, each as fast as its approach allows.

A rival is a module with a `LABEL` and three classes: `Send` runs in the worker's process, `Process`
in the processor's and `Receive` in the client's. Each rival has a message format of its own. The
code that calls them is the same for all (`benchmarks.rival_processes`).
"""

from __future__ import annotations

from types import ModuleType

from . import mp_queue, zmq_msgspec_columns, zmq_msgspec_rows, zmq_pickle_rows

RIVALS: dict[str, ModuleType] = {
    module.LABEL: module
    for module in (zmq_pickle_rows, zmq_msgspec_rows, zmq_msgspec_columns, mp_queue)
}
