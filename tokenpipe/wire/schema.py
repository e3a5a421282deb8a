"""Write and read dataclasses as maps. The annotations of the fields say how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from tokenpipe.errors import FieldError

from .fields import Spec, got


class MapSpec:
    """The spec of a dataclass: a map from field names to values. Each field has a spec."""

    def __init__(self, cls: type[Any], specs: dict[str, Spec]) -> None:
        self.cls = cls
        self._specs = tuple(specs.items())
        self._defaults = {
            field.name: field.default
            if field.default_factory is MISSING
            else field.default_factory()
            for field in fields(cls)
        }
        self._required = {
            field.name
            for field in fields(cls)
            if field.default is MISSING and field.default_factory is MISSING
        }

    def encode(self, value: Any) -> dict[str, Any]:
        """Return the map of an instance. FieldError names a field that cannot be sent.

        A field that has its default is left out.
        """
        raw = {}
        defaults = self._defaults
        for name, spec in self._specs:
            given, usual = getattr(value, name), defaults[name]
            if given is usual or (type(given) is type(usual) and given == usual):
                continue
            try:
                raw[name] = spec.encode(given)
            except (ValueError, TypeError) as error:
                raise FieldError(f"{self.cls.__name__}.{name}", str(error)) from error
        return raw

    def decode(self, raw: Any) -> Any:
        """Return the instance of a map. ValueError names a wrong field.

        Unknown names are skipped. An absent field has its default.
        """
        if type(raw) is not dict:
            raise ValueError(f"{self.cls.__name__}: expected a map, got {got(raw)}")
        values = {}
        for name, spec in self._specs:
            if name in raw:
                try:
                    values[name] = spec.decode(raw[name])
                except ValueError as error:
                    raise ValueError(f"{self.cls.__name__}.{name}: {error}") from error
            elif name in self._required:
                raise ValueError(f"{self.cls.__name__}.{name}: absent")
        try:
            return self.cls(**values)
        except ValueError as error:
            raise ValueError(f"{self.cls.__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """The spec of a tuple of instances: an array of maps."""

    entry: MapSpec
    limit: int = 1 << 16

    def encode(self, value: Sequence[Any]) -> list[Any]:
        """Return the array of maps. ValueError if there are more than `limit`."""
        if len(value) > self.limit:
            raise ValueError(f"expected at most {self.limit} entries, got {len(value)}")
        return [self.entry.encode(instance) for instance in value]

    def decode(self, raw: Any) -> tuple[Any, ...]:
        """Return the tuple of instances. ValueError if the array is wrong."""
        if type(raw) is not list or len(raw) > self.limit:
            raise ValueError(f"expected an array of at most {self.limit} maps, got {got(raw)}")
        return tuple(self.entry.decode(entry) for entry in raw)


def map_spec(cls: type[Any]) -> MapSpec:
    """Return the spec of a dataclass. TypeError if the annotation of a field has no spec."""
    hints = get_type_hints(cls, include_extras=True)
    specs: dict[str, Spec] = {}
    for field in fields(cls):
        hint = hints[field.name]
        if get_origin(hint) is not Annotated:
            raise TypeError(f"{cls.__name__}.{field.name}: its annotation has no spec")
        specs[field.name] = get_args(hint)[1]
    return MapSpec(cls, specs)
