"""`Accepts`: the type of a field that takes more than it keeps. Only type checkers see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

Kept = TypeVar("Kept")
Given = TypeVar("Given")

if TYPE_CHECKING:

    class Accepts(Generic[Kept, Given]):
        """A field that reads as `Kept`; its value may be given as a `Given` instead."""

        def __get__(self, owner: object, kind: type | None = None, /) -> Kept: ...
        def __set__(self, owner: object, value: Kept | Given, /) -> None: ...

else:

    class Accepts:
        """The type that the field keeps: pydantic and dataclasses see nothing else."""

        def __class_getitem__(cls, types: tuple[Any, Any]) -> Any:
            return types[0]


def default(value: Any) -> Any:
    """Return the value. A checker takes its type, Any, as the default of an `Accepts` field."""
    return value
