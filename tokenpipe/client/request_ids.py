"""Find a client's live requests by the caller's ids. Two requests may have the same id."""

from __future__ import annotations


class RequestIds:
    """The keys of each external id, and the keys whose abort was asked for."""

    def __init__(self) -> None:
        self._keys: dict[str, set[int]] = {}
        self._aborting: set[int] = set()

    def add(self, request_id: str, key: int) -> None:
        """Add a request."""
        self._keys.setdefault(request_id, set()).add(key)

    def forget(self, request_id: str, key: int) -> None:
        """Forget a request that is over."""
        self._aborting.discard(key)
        keys = self._keys.get(request_id)
        if keys is not None:
            keys.discard(key)
            if not keys:
                del self._keys[request_id]

    def keys(self, request_id: str) -> list[int]:
        """Return the keys of the live requests with this id."""
        return list(self._keys.get(request_id, ()))

    def abort(self, key: int) -> bool:
        """Note that a request is to be aborted. Return whether this is the first time."""
        known = key in self._aborting
        self._aborting.add(key)
        return not known

    @property
    def aborting(self) -> list[int]:
        """The keys of the live requests whose abort was asked for."""
        return list(self._aborting)

    @property
    def names(self) -> list[str]:
        """The external ids of the live requests."""
        return list(self._keys)
