"""Other ways of the same path, each written as well as its way allows.

A rival is a module with a `LABEL` and three classes: `Send` (in the worker's process), `Process`
(in the processor's) and `Receive` (in the client's). What they exchange is theirs; who calls them,
how long and with what is the same for all (`benchmarks.sides`).
"""

from __future__ import annotations

from types import ModuleType

from . import mp_queue, zmq_msgspec_columns, zmq_msgspec_rows, zmq_pickle_rows

RIVALS: dict[str, ModuleType] = {
    module.LABEL: module
    for module in (zmq_pickle_rows, zmq_msgspec_rows, zmq_msgspec_columns, mp_queue)
}
