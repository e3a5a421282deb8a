"""Reports to the engine, in order. Some wait until a client was sent all tokens.

The next binding of a request continues from the tokens in the report. The client must have been
sent just these tokens. So the report of a rescheduled or prefilled request is held until a flush
has packed the rest of its tokens.
"""

from __future__ import annotations

from tokenpipe.wire import Message


class ReportQueue:
    """Holds reports until they are taken."""

    def __init__(self) -> None:
        self._ready: list[Message] = []
        self._held: dict[int, list[Message]] = {}

    def put(self, message: Message) -> None:
        """Add a report that can be taken at once."""
        self._ready.append(message)

    def put_for(self, handle: int, message: Message, hold: bool = False) -> None:
        """Add a report of a handle. It waits with `hold`, or behind an earlier one that waits."""
        if handle in self._held:
            self._held[handle].append(message)
        elif hold:
            self._held[handle] = [message]
        else:
            self._ready.append(message)

    def sent(self, handle: int) -> None:
        """Release the reports of a handle whose client was sent all tokens."""
        self._ready.extend(self._held.pop(handle, ()))

    def replace(self, handle: int, outcome: Message) -> None:
        """Release the reports of a handle, with this outcome instead of the one that waited."""
        held = self._held.pop(handle)
        self._ready += [outcome, *held[1:]]

    def take(self) -> list[Message]:
        """Return the released reports and forget them."""
        ready, self._ready = self._ready, []
        return ready

    def save(self) -> tuple[list[Message], dict[int, list[Message]]]:
        """Return the released reports, and those that wait by their handle."""
        return self._ready, self._held

    def load(self, ready: list[Message], held: dict[int, list[Message]]) -> None:
        """Take saved reports."""
        self._ready, self._held = ready, held

    @property
    def held(self) -> int:
        """How many handles have reports that wait."""
        return len(self._held)
