"""Release the resources of an object that was collected without being closed."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable

from .guard import current_process


def when_dropped(owner: object, what: str, release: Callable[[], object]) -> Callable[[], object]:
    """Call `release` and warn once `owner` is collected. Return a function that cancels this.

    `release` must hold no reference to `owner`. It runs in the thread that drops the last
    reference. It does not run in a forked child, whose parent still owns the resources. It does
    not run at the interpreter's exit, when the kernel releases all locks.
    """
    finalizer = weakref.finalize(owner, _dropped, current_process(), what, release)
    finalizer.atexit = False
    return finalizer.detach


def _dropped(pid: int, what: str, release: Callable[[], object]) -> None:
    if pid != current_process():
        return
    try:
        release()
    finally:
        # The stack level points to the line that dropped the object.
        warnings.warn(f"{what} was collected without close()", ResourceWarning, stacklevel=3)
