"""Give back what an object held that was let go without being closed."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable

from .guard import current_process


def when_dropped(owner: object, what: str, release: Callable[[], object]) -> Callable[[], object]:
    """Call `release` once `owner` is collected, and warn; return what calls that off.

    `release` must not lead to `owner`. It is called in whatever thread lets the owner go; never in
    a fork, whose parent still has it all, nor at the interpreter's end, which lets all locks go.
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
        warnings.warn(
            f"unclosed {what} was let go", ResourceWarning, stacklevel=3
        )  # where it was let go
