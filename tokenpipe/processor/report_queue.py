"""Reports to the engine, in order; those of a handle wait while its client lacks its tokens.

What was sent after n tokens must be a function of those n tokens, or the next processor could
not go on from them. So an outcome that hands a request on is not reported before its client was
sent everything up to it.
"""

from __future__ import annotations

from tokenpipe.wire import Message


class ReportQueue:
    """Collect reports until they are taken."""

    def __init__(self) -> None:
        self._ready: list[Message] = []
        self._held: dict[int, list[Message]] = {}

    def put(self, message: Message) -> None:
        """Add a report that waits for nothing."""
        self._ready.append(message)

    def put_for(self, handle: int, message: Message, hold: bool = False) -> None:
        """Add a report of a handle, behind those of it that are held."""
        if handle in self._held:
            self._held[handle].append(message)
        elif hold:
            self._held[handle] = [message]
        else:
            self._ready.append(message)

    def sent(self, handle: int) -> None:
        """Let a handle's reports go: its client was sent everything."""
        self._ready.extend(self._held.pop(handle, ()))

    def replace(self, handle: int, outcome: Message) -> None:
        """Let a handle's reports go, with another outcome than the one that was held."""
        held = self._held.pop(handle)
        self._ready += [outcome, *held[1:]]

    def take(self) -> list[Message]:
        """Return the reports that may go, once."""
        ready, self._ready = self._ready, []
        return ready

    @property
    def held(self) -> int:
        """Count the handles whose reports wait."""
        return len(self._held)
