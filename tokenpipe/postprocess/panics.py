"""The tokenizers package panics with a BaseException; a caller expects an Exception."""

from __future__ import annotations


def as_exception(error: BaseException) -> BaseException:
    """Return a RuntimeError for a panic of Rust code, and any other error as it is.

    A panic is about one text or one sequence. As a BaseException it would end the process, like
    KeyboardInterrupt. Its class cannot be imported.
    """
    if type(error).__name__ != "PanicException":
        return error
    return RuntimeError(f"the tokenizers package panicked: {error}")
