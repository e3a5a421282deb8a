"""All exceptions of tokenpipe.

TokenpipeError
├── ConfigError            a topology, path or flag is wrong; nothing was started
├── FrameError             bytes from a peer are not a valid frame; the frame was dropped
├── RowError               an array given to publish() is wrong; nothing was numbered or sent
├── LaneError              a lane cannot do what was asked
│   ├── LaneBusy           a living process holds the name
│   ├── LaneFull           the lane holds as many unacknowledged bytes as it may
│   ├── FrameTooLarge      one frame alone exceeds the bound; it was not numbered
│   ├── LaneLost           the peer is dead
│   └── LaneClosed         your own code closed this end
├── ForkError              an object is used in a process that did not make it
├── WrongThread            an object for one thread is used in a second one
├── StartupError           a child process did not become ready
├── ProcessorFailed        a processor died and is not started again
├── RunnerFailed           a worker's model or device failed; the loop reports its rank as failed
├── RowsFailed             a model raises it for rows that it cannot continue
├── SlotBusy               the slot has a binding without an outcome
├── FieldError             a field of a request is wrong; nothing was sent
└── RequestRefused         an executor raises it for a request that it refuses

A request that fails raises nothing. Its last output has an `error_code` and an `error`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

_Error = TypeVar("_Error", bound=BaseException)


class TokenpipeError(Exception):
    """Base of all exceptions that tokenpipe raises on purpose."""


class ConfigError(TokenpipeError):
    """A topology, path or flag is wrong. The text has file, line and key."""


class FrameError(TokenpipeError):
    """Bytes from a peer are not a valid frame. The text says what is wrong and where."""


class RowError(TokenpipeError, ValueError):
    """An argument of publish() is wrong. The text names array and row. Nothing was sent."""


class LaneError(TokenpipeError):
    """A lane cannot do what was asked. The text names the lane."""


class LaneBusy(LaneError):
    """A living process holds the name. The text names the process."""


class LaneFull(LaneError):
    """The lane holds as many unacknowledged bytes as it may."""


class FrameTooLarge(LaneError):
    """One frame alone is larger than the lane's bound. It was not numbered."""


class LaneLost(LaneError):
    """The peer of this lane is dead."""


class LaneClosed(LaneError):
    """Your own code closed this end."""


class ForkError(TokenpipeError):
    """An object is used in a process that did not make it."""


class WrongThread(TokenpipeError):
    """An object for one thread is used in a second one."""


class StartupError(TokenpipeError):
    """A child process did not become ready. The text has role, rank, phase, exit and log tail."""


class ProcessorFailed(TokenpipeError):
    """A dead processor is not started again. `wait` and `poll` raise it, and cannot go on."""


class RunnerFailed(TokenpipeError):
    """The model, the device or a copy from the device failed. The worker's loop reports this."""


class RowsFailed(TokenpipeError):
    """A model cannot continue the rows of some handles. Their requests end; the others go on."""

    def __init__(self, handles: Iterable[int], why: str = "") -> None:
        super().__init__(why or "the model cannot continue some rows")
        self.handles = frozenset(handles)


class SlotBusy(TokenpipeError):
    """The slot has a binding without an outcome."""


class FieldError(TokenpipeError, ValueError):
    """A field of a request is wrong. `field` is its name, and `problem` says what is wrong."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.field = field
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}"


class RequestRefused(TokenpipeError, ValueError):
    """An executor refuses a request. `Executor.admit` raises it; the caller gets the text.

    Args:
        problem: what is wrong. An HTTP caller gets it with the status 400.
        field: name of the request's field that is to blame, or None. The text begins with it.
    """

    def __init__(self, problem: str, field: str | None = None) -> None:
        super().__init__(problem, field)
        self.problem = problem
        self.field = field

    def __str__(self) -> str:
        return self.problem if self.field is None else f"{self.field}: {self.problem}"


def first_line(error: BaseException | str) -> str:
    """Return the first line of an error's text. Further lines may be the end of a log."""
    return str(error).split("\n", 1)[0]


def afresh(error: _Error) -> _Error:
    """Return a copy of an exception without its traceback. Cause and notes are kept.

    Use it for an error that is raised more than once. Each raise adds stack frames to an exception,
    and the exception keeps the frames and all their objects alive.
    """
    again = type(error).__new__(type(error), *error.args)
    again.__dict__.update(error.__dict__)
    if "__notes__" in again.__dict__:  # add_note() of Python 3.11 makes them
        again.__dict__["__notes__"] = list(again.__dict__["__notes__"])
    again.__cause__ = error.__cause__
    again.__suppress_context__ = error.__suppress_context__
    return again
