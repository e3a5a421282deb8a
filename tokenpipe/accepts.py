"""`Accepts`: the type of a field that accepts more types than it keeps. For type checkers only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

Kept = TypeVar("Kept")
Given = TypeVar("Given")

if TYPE_CHECKING:

    class Accepts(Generic[Kept, Given]):
        """A field that reads as `Kept`. Its value may be given as `Kept` or as `Given`."""

        def __get__(self, owner: object, kind: type | None = None, /) -> Kept: ...
        def __set__(self, owner: object, value: Kept | Given, /) -> None: ...

else:

    class Accepts:
        """At run time `Accepts[Kept, Given]` is `Kept`, for pydantic and dataclasses."""

        def __class_getitem__(cls, types: tuple[Any, Any]) -> Any:
            return types[0]


def default(value: Any) -> Any:
    """Return the value, typed as Any: a checker takes Any as default of an `Accepts` field."""
    return value
