"""Apply the engine's commands. Commands that come too late are counted and ignored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from tokenpipe._core import Table
from tokenpipe.postprocess import TextOptions
from tokenpipe.types import RescheduleReason, make_handle, split_handle
from tokenpipe.wire import Abort, Bind, CloseClient, Message, OpenClient, OpenRank, Preempt

from .lifecycle import Lifecycle
from .rank import Rank
from .report_queue import ReportQueue


class CommandHandler:
    """Applies commands to the table, and knows which clients are open."""

    def __init__(
        self,
        table: Table,
        ranks: Mapping[int, Rank],
        life: Lifecycle,
        reports: ReportQueue,
        counted: Counter[str],
    ) -> None:
        self._table = table
        self._ranks = ranks
        self._life = life
        self._reports = reports
        self._counted = counted
        self.clients: dict[int, int] = {}  # index -> incarnation, while open
        self._acts: dict[type[Message], Callable[[Any, float], None]] = {
            Bind: self._bind,
            Preempt: self._preempt,
            Abort: self._abort,
            OpenRank: self._open_rank,
            OpenClient: self._open_client,
            CloseClient: self._close_client,
        }

    def do(self, message: Message, now: float) -> None:
        """Apply one command. A message that is not a processor's command is counted."""
        act = self._acts.get(type(message))
        if act is None:
            self._counted["bad_commands"] += 1
        else:
            act(message, now)

    def _bind(self, m: Bind, now: float) -> None:
        dp, _, generation = split_handle(m.handle)
        rank = self._ranks.get(dp)
        try:
            floor = self._table.floor(m.handle)
        except KeyError:
            rank = None  # the rank is ours, but has no such slot
        if rank is None:
            self._counted["bad_commands"] += 1
            self._life.refuse(m, RescheduleReason.RANK_LOST)
        elif generation <= floor:
            self._counted["late_commands"] += 1
        elif not rank.incarnation or rank.incarnation != m.rank_incarnation:
            self._dead_on_arrival(rank, m, RescheduleReason.RANK_LOST)
        elif self._table.busy(m.handle):
            self._dead_on_arrival(rank, m, RescheduleReason.SLOT_BUSY)
        else:
            rank.parked.cancel(m.handle)
            text = _text_options(m) if m.text else None
            if text is not None:
                self._life.texts[m.handle] = text
            events = self._table.bind(
                m.handle,
                m.key,
                m.client,
                m.max_tokens,
                m.min_tokens,
                m.ignore_eos,
                m.stop_token_ids,
                m.output_token_ids,
                m.prefill,
                text,
                m.stream_interval,
                m.stream_interval_ms,
                m.cached_tokens,
                m.extras_offset,
            )
            self._life.bound(rank, m.handle, len(m.output_token_ids), now)
            if events is not None:
                self._life.apply_events(rank, events, now)

    def _dead_on_arrival(self, rank: Rank, m: Bind, reason: RescheduleReason) -> None:
        rank.parked.cancel(m.handle)
        self._table.raise_floor(m.handle)
        self._life.refuse(m, reason)

    def _preempt(self, m: Preempt, now: float) -> None:
        rank = self._ranks.get(split_handle(m.handle)[0])
        if rank is None or not self._life.preempt(rank, m.handle, now):
            self._counted["late_commands"] += 1

    def _abort(self, m: Abort, now: float) -> None:
        rank = self._ranks.get(split_handle(m.handle)[0])
        if rank is None or not self._life.abort(rank, m.handle, now):
            self._counted["late_commands"] += 1

    def _open_rank(self, m: OpenRank, now: float) -> None:
        for slot, generation in enumerate(m.floors):
            if generation > 0:
                try:
                    self._table.raise_floor(make_handle(m.dp, slot, generation))
                except (KeyError, ValueError):
                    self._counted["bad_commands"] += 1

    def _open_client(self, m: OpenClient, now: float) -> None:
        if self.clients.get(m.client) == m.incarnation:
            return
        self._close_client(CloseClient(m.client), now)
        try:
            self._table.open_client(m.client)
        except ValueError:
            self._counted["bad_commands"] += 1
        else:
            self.clients[m.client] = m.incarnation

    def _close_client(self, m: CloseClient, now: float) -> None:
        if self.clients.pop(m.client, None) is not None:
            self._life.sent(self._table.close_client(m.client))


def _text_options(m: Bind) -> TextOptions:
    return TextOptions(
        m.skip_special_tokens,
        m.spaces_between_special_tokens,
        m.include_stop_str_in_output,
        m.stop,
        m.prompt_tail,
        m.prompt_cut,
    )
