"""Save the whole state of a processor as bytes, and load it. The table saves itself, in C."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from itertools import chain
from typing import Any

from tokenpipe._core import Table
from tokenpipe.errors import FrameError
from tokenpipe.postprocess import TextOptions
from tokenpipe.wire import Message, pack_control, unpack_control

from .command_handler import CommandHandler
from .lifecycle import Lifecycle
from .rank import Rank
from .report_queue import ReportQueue
from .sections import join, split

_NOBODY = (0, 0, 0, 1)  # a header for messages that no lane carries
_MESSAGES = 256  # of one frame


def pack_state(
    table: Table,
    ranks: Mapping[int, Rank],
    life: Lifecycle,
    reports: ReportQueue,
    commands: CommandHandler,
    counted: Counter[str],
) -> bytes:
    """Return the state of a processor's parts."""
    ready, held = reports.save()
    values = {
        "ranks": {dp: rank.save() for dp, rank in ranks.items()},
        "clients": commands.clients,
        "counted": counted,
        "texts": life.texts,
        "ready": len(ready),
        "held": [(handle, len(waiting)) for handle, waiting in held.items()],
    }
    messages = [*ready, *chain.from_iterable(held.values())]
    return join([table.save(), json.dumps(values).encode(), *pack_messages(messages)])


def load_state(
    saved: bytes,
    table: Table,
    ranks: Mapping[int, Rank],
    life: Lifecycle,
    reports: ReportQueue,
    commands: CommandHandler,
    counted: Counter[str],
) -> None:
    """Give these new parts the state of others. Raises FrameError."""
    in_c, text, *frames = split(saved)
    try:
        values = json.loads(text)
        for handle, options in values["texts"].items():
            life.texts[int(handle)] = _text_options(options)
        for handle in table.load(in_c):
            table.reread(handle, life.texts[handle])
        for dp, rank in values["ranks"].items():
            ranks[int(dp)].load(rank)
        commands.clients.update((int(index), of) for index, of in values["clients"].items())
        counted.update(values["counted"])
        messages = unpack_messages(frames)
        held: dict[int, list[Message]] = {}
        at = values["ready"]
        for handle, count in values["held"]:
            held[handle] = messages[at : at + count]
            at += count
    except (ValueError, KeyError, TypeError) as error:
        raise FrameError(f"saved processor: {error!r}") from error
    reports.load(messages[: values["ready"]], held)


def pack_messages(messages: list[Message]) -> list[bytes]:
    """Return control frames with these messages."""
    starts = range(0, len(messages), _MESSAGES)
    return [pack_control(_NOBODY, messages[at : at + _MESSAGES]) for at in starts]


def unpack_messages(frames: list[bytes]) -> list[Message]:
    """Return the messages of control frames. Raises FrameError."""
    return [message for frame in frames for message in unpack_control(frame)[1]]


def _text_options(saved: list[Any]) -> TextOptions:
    skip, spaces, include, stops, prompt, cut = saved
    return TextOptions(skip, spaces, include, tuple(stops), tuple(prompt), cut)
