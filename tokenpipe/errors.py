"""Say who is to blame.

TokenpipeError
├── ConfigError            a topology, path or flag is wrong; nothing was started
├── FrameError             bytes from a peer are not a frame of ours; the frame was dropped
├── RowError               an array handed to publish() is wrong; nothing was numbered or sent
├── LaneError              a lane cannot do what was asked
│   ├── LaneBusy           the name is held by a living process (named)
│   ├── LaneFull           the bound in bytes is reached and stays so
│   ├── FrameTooLarge      one frame alone exceeds the bound; it was not numbered
│   ├── LaneLost           the peer is dead
│   └── LaneClosed         your own code closed it
├── ForkError              an object is used in a process that did not make it
├── StartupError           a child did not become ready (names role, rank, phase, log)
├── ProcessorFailed        a processor died and is not started again
├── RunnerFailed           a worker's model or device failed; the loop reports its rank as failed
├── RowsFailed             what a model raises for some rows of its batch; they end with an error
├── SlotBusy               bind to a slot whose binding has no outcome yet
├── FieldError             a field of a request is wrong (it is named); nothing was sent
└── RequestRefused         what an executor raises for a request that it does not take

A request that fails raises nothing: its last output has an `error_code` and an `error`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

_Error = TypeVar("_Error", bound=BaseException)


class TokenpipeError(Exception):
    """Base of everything tokenpipe raises on purpose."""


class ConfigError(TokenpipeError):
    """A topology, path or flag is wrong; says file, line and key."""


class FrameError(TokenpipeError):
    """Bytes from a peer are not a valid frame; says what and where."""


class RowError(TokenpipeError, ValueError):
    """An argument of publish() is wrong; says which array and row. Nothing was sent."""


class LaneError(TokenpipeError):
    """A lane cannot do what was asked; says which lane."""


class LaneBusy(LaneError):
    """The name is held by a living process; says which."""


class LaneFull(LaneError):
    """The lane holds as many unacknowledged bytes as it may."""


class FrameTooLarge(LaneError):
    """A single frame is larger than the lane's bound; it was not numbered."""


class LaneLost(LaneError):
    """The peer of this lane is dead."""


class LaneClosed(LaneError):
    """This end was closed by your own code."""


class ForkError(TokenpipeError):
    """An object is used in a process that did not make it."""


class StartupError(TokenpipeError):
    """A child process did not become ready; says role, rank, phase, exit and log tail."""


class ProcessorFailed(TokenpipeError):
    """A dead processor is not started again; raised from wait() and poll(), which cannot go on."""


class RunnerFailed(TokenpipeError):
    """The model, the device or a copy off it failed. The worker's loop reports this rank."""


class RowsFailed(TokenpipeError):
    """A model cannot go on with some rows; raised by it, it ends those and no others."""

    def __init__(self, handles: Iterable[int], why: str = "") -> None:
        super().__init__(why or "the model cannot go on with some rows")
        self.handles = frozenset(handles)


class SlotBusy(TokenpipeError):
    """The slot's present binding has no outcome yet."""


class FieldError(TokenpipeError, ValueError):
    """A field of a request is wrong: `field` is its name, `problem` says what is wrong with it."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.field = field
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}"


class RequestRefused(TokenpipeError, ValueError):
    """An executor does not take a request. Raised by `Executor.admit`; the caller gets the text.

    Args:
        problem: what is wrong, for the caller, who gets it as an HTTP 400.
        field: name of the request's field that is to blame, if one is; the text begins with it.
    """

    def __init__(self, problem: str, field: str | None = None) -> None:
        super().__init__(problem, field)
        self.problem = problem
        self.field = field

    def __str__(self) -> str:
        return self.problem if self.field is None else f"{self.field}: {self.problem}"


def first_line(error: BaseException | str) -> str:
    """Return what an error says without the lines that follow, which are the end of a log."""
    return str(error).split("\n", 1)[0]


def afresh(error: _Error) -> _Error:
    """Return an exception that says the same and was raised nowhere; cause and notes are kept.

    For an error that is raised more than once: a raise adds its frames to the exception, which
    keeps them, and all that they hold, alive.
    """
    again = type(error).__new__(type(error), *error.args)
    again.__dict__.update(error.__dict__)
    if "__notes__" in again.__dict__:  # of add_note(), from Python 3.11 on
        again.__dict__["__notes__"] = list(again.__dict__["__notes__"])
    again.__cause__ = error.__cause__
    again.__suppress_context__ = error.__suppress_context__
    return again
