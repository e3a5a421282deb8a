"""The processor's state machine: frames, commands and time in, output and reports out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tokenpipe._core import Table, Vocab
from tokenpipe.errors import FrameError
from tokenpipe.types import MAX_SLOTS, ErrorCode, split_handle
from tokenpipe.wire import (
    Counters,
    Message,
    RankClosed,
    RankOpened,
    RanksDiffer,
    Snapshot,
)

from .command_handler import CommandHandler
from .deadlines import NEVER
from .lifecycle import Lifecycle
from .rank import Rank
from .report_queue import ReportQueue
from .saved_state import load_state, pack_state
from .verify import Verifier

MAX_FLUSH_BYTES = 1 << 20
COUNTED = (
    "bad_frames",
    "stale_frames",
    "tp_ignored",
    "lane_gaps",
    "late_commands",
    "bad_commands",
    "slow_clients",
)


class Processor:
    """Holds the state of all requests that are bound to some DP ranks.

    Pure: no clock, socket or log. `now` is in seconds of a monotonic clock, and never less than in
    an earlier call.
    """

    def __init__(
        self,
        *,
        index: int,
        ranks: Sequence[int],
        tp_size: int,
        tp_policy: str,
        slots: int,
        vocab_size: int | None,
        eos_token_ids: Sequence[int],
        drained_timeout_s: float,
        park_timeout_s: float,
        park_bytes: int,
        merge_bytes: int,
        vocab: Vocab | None = None,
        verify_window: int = 64,
    ) -> None:
        if not 1 <= slots <= MAX_SLOTS:
            raise ValueError(f"slots must be in 1..{MAX_SLOTS}, not {slots}")
        if tp_policy not in ("leader", "verify"):
            raise ValueError(f"tp_policy must be leader or verify, not {tp_policy!r}")
        self._table = Table(
            index,
            ranks,
            slots,
            1 << 31 if vocab_size is None else vocab_size,
            eos_token_ids,
            park_bytes,
            merge_bytes,
            vocab,
        )
        verify = tp_policy == "verify" and tp_size > 1
        self._ranks = {
            dp: Rank(dp, Verifier(tp_size, verify_window) if verify else None) for dp in ranks
        }
        self._tp_size = tp_size
        self._reports = ReportQueue()
        self._life = Lifecycle(self._table, self._reports, drained_timeout_s, park_timeout_s)
        self._counted = Counter(dict.fromkeys(COUNTED, 0))
        self._commands = CommandHandler(
            self._table, self._ranks, self._life, self._reports, self._counted
        )

    # --- lanes --------------------------------------------------------------------------------

    def feed(self, dp: int, tp: int, frame: bytes, now: float) -> None:
        """Apply a StepFrame that came on lane (dp, tp).

        Raises FrameError for bytes that are not a StepFrame of this lane.
        """
        rank = self._ranks.get(dp)
        if rank is None or not 0 <= tp < self._tp_size:
            self._counted["bad_frames"] += 1
            raise FrameError(f"StepFrame of dp {dp}, tp {tp}: no lane of this processor")
        if rank.incarnation == 0:
            self._counted["stale_frames"] += 1
            return
        try:
            self._apply(rank, tp, frame, now)
        except FrameError:
            self._counted["bad_frames"] += 1
            raise

    def feed_run(self, dp: int, tp: int, frames: Sequence[object], start: int, now: float) -> int:
        """Apply the frames of lane (dp, tp) from index `start` on.

        Stops at the first frame that it cannot apply, and returns its index; `feed` says why. It
        applies none from a TP rank other than 0, and none if TP ranks are compared.
        """
        rank = self._ranks.get(dp)
        if rank is None or tp != 0 or rank.incarnation == 0 or rank.verifier is not None:
            return start
        rank.life.seen(now)
        events: object = True
        while events is not None:
            start, events = self._table.feed_run(dp, frames, start, now)
            for client in self._life.apply_events(rank, events or (), now):
                self.end_slow_client(client, now)
        return start

    def _apply(self, rank: Rank, tp: int, frame: bytes, now: float) -> None:
        if tp == 0:
            rank.life.seen(now)
            events = self._table.feed(rank.dp, 0, frame, now)
            if events is not None:
                for client in self._life.apply_events(rank, events, now):
                    self.end_slow_client(client, now)
        elif rank.verifier is None:
            self._counted["tp_ignored"] += 1
        if rank.verifier is not None:
            step = rank.verifier.read(tp, frame)
            if step is None:
                return
            if (step.dp, step.tp) != (rank.dp, tp):
                raise FrameError(f"StepFrame of dp {step.dp}, tp {step.tp} on another lane")
            for found in rank.verifier.feed(step):
                self._reports.put(RanksDiffer(rank.dp, found.tp, found.step, found.handle))

    def seen(self, dp: int, now: float) -> None:
        """Note that TP rank 0 is alive without a frame, so the deadlines of its rank run on."""
        rank = self._ranks.get(dp)
        if rank is not None and rank.incarnation:
            rank.life.seen(now)

    def gap(self, dp: int, tp: int, now: float) -> None:
        """Reschedule the requests of a rank whose lane lost frames for good."""
        self._counted["lane_gaps"] += 1
        rank = self._ranks.get(dp)
        if rank is not None and tp == 0 and rank.incarnation:
            self._life.gap(rank, now)

    def rank_up(self, dp: int, incarnation: int, now: float) -> None:
        """Open a rank whose TP ranks have all connected. An earlier incarnation is closed first."""
        rank = self._ranks[dp]
        if rank.incarnation == incarnation:
            return
        self.rank_lost(dp, "another incarnation took its place", now)
        rank.open(incarnation, now)
        self._table.restart_steps(dp)
        self._reports.put(RankOpened(dp, incarnation))

    def rank_lost(self, dp: int, reason: str, now: float, *, died: bool = True) -> None:
        """Close a rank: reschedule its requests and release its slots.

        `died` is False if a worker closed its lane in order.
        """
        rank = self._ranks[dp]
        if rank.incarnation:
            self._life.lose(rank, died)
            self._reports.put(RankClosed(dp, reason, rank.incarnation))
            rank.close()

    # --- commands and time --------------------------------------------------------------------

    def command(self, message: Message, now: float) -> None:
        """Apply a command of the engine. One that comes too late is counted and ignored."""
        if isinstance(message, Snapshot):
            self._reports.put(Counters(message.id, self.counters))
        else:
            self._commands.do(message, now)

    def tick(self, now: float) -> None:
        """Act on the deadlines that are reached."""
        for rank in self._ranks.values():
            self._life.expire(rank, now)
        self._table.release(int(now * 1e9) + 1)  # + 1: a float in s rounds ns off

    @property
    def next_deadline(self) -> float:
        """When `tick` is due, or NEVER. Any other call may change it."""
        release_ns = self._table.release(0)
        due = release_ns / 1e9 if release_ns else NEVER
        for rank in self._ranks.values():
            due = min(due, rank.next_deadline)
        return due

    # --- output -------------------------------------------------------------------------------

    def reports(self) -> list[Message]:
        """Return the reports for the engine since the last call."""
        return self._reports.take()

    def dirty_clients(self) -> list[int]:
        """Return the clients that have unsent output."""
        return self._table.dirty_clients()

    def unsent_bytes(self, client: int) -> int:
        """Return about how many bytes of output are unsent."""
        return self._table.unsent_bytes(client)

    def urgent(self, client: int) -> bool:
        """Return whether a final row, or tokens that a report waits for, are unsent."""
        return self._table.urgent(client)

    def flush(
        self,
        client: int,
        header: tuple[int, int, int, int],
        max_bytes: int = MAX_FLUSH_BYTES,
        urgent_only: bool = False,
    ) -> bytes | None:
        """Return an OutputFrame of unsent output, None if there is none.

        The output counts as sent then. With `urgent_only`, only urgent rows are packed.
        """
        packed = self._table.flush(client, header, max_bytes, urgent_only)
        if packed is None:
            return None
        frame, events = packed
        self._life.sent(events)
        return frame

    def end_slow_client(self, client: int, now: float) -> None:
        """End the requests of a client that reads too slowly, and drop its unsent output."""
        self._counted["slow_clients"] += 1
        lack = self._table.unsent_bytes(client)
        error = f"slow_client: client {client} let {lack} bytes pile up"
        for _, handle, was, held, total in self._table.shed(client, ErrorCode.SLOW, error) or ():
            rank = self._ranks[split_handle(handle)[0]]
            self._life.shed(rank, handle, was, bool(held), total, error, now)

    # --- another life -------------------------------------------------------------------------

    def save(self) -> bytes:
        """Return the whole state. A new processor with the same arguments goes on from it."""
        return pack_state(
            self._table, self._ranks, self._life, self._reports, self._commands, self._counted
        )

    def load(self, saved: bytes) -> None:
        """Take the state of another processor. Call it before anything else.

        Raises FrameError for bytes that `save` did not make. Then this processor is of no use.
        """
        load_state(
            saved,
            self._table,
            self._ranks,
            self._life,
            self._reports,
            self._commands,
            self._counted,
        )

    @property
    def counters(self) -> dict[str, int]:
        """Return all counts since the start, and present sizes."""
        verifiers = [r.verifier for r in self._ranks.values() if r.verifier is not None]
        return {
            **self._table.counters(),
            **self._counted,
            "held_outcomes": self._reports.held,
            "verified": sum(v.compared for v in verifiers),
            "unverified": sum(v.skipped for v in verifiers),
        }
