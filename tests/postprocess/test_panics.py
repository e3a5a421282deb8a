"""A panic of Rust code reaches a caller as an Exception; other errors stay as they are."""

from __future__ import annotations

from tokenpipe.postprocess.panics import as_exception


class PanicException(BaseException):
    """Named as the class of the package, which cannot be imported."""


def test_a_panic_becomes_a_runtime_error_with_its_text() -> None:
    error = as_exception(PanicException("index out of range"))
    assert isinstance(error, RuntimeError)
    assert "index out of range" in str(error)


def test_other_errors_stay() -> None:
    for error in (KeyboardInterrupt(), ValueError("x")):
        assert as_exception(error) is error
