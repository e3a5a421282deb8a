"""Drives processors, a scheduler and workers at random: frames and commands overtake each other,
lanes lose frames, ranks die, clients read late. Each request must end as if nothing had happened.
"""

from __future__ import annotations

from collections import Counter, deque
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.postprocess.vocab import real
from tests.processor import beside
from tests.processor.model import ABORT, ERROR, Request, Running, Worker
from tests.processor.rig import LANE, Rig, Row, Stream
from tokenpipe.types import split_handle
from tokenpipe.wire import (
    Abort,
    Bind,
    HandleAborted,
    HandleFinished,
    HandleReleased,
    HandleRescheduled,
    Message,
    OpenClient,
    Preempt,
    RankOpened,
)

SLOTS = 2
WORDS = real("gpt2_style").vocabulary.table
STRINGS = ["A", "5", "&c", "!$7", "0Q"]


class Engine(RuleBasedStateMachine):
    """Two processors of one rank each, and everything around them."""

    @initialize()
    def start(self) -> None:
        self.rig = Rig(ranks=2, clients=1, slots=SLOTS)  # its frames and client; unused processor
        self.processors = [
            Rig(ranks=2, clients=0, slots=SLOTS, vocab=WORDS).processor for _ in range(2)
        ]
        self.now = 100.0
        self.incarnations = [70, 71]  # as the scheduler knows them
        self.alive = [70, 71]
        for dp, processor in enumerate(self.processors):
            processor.command(OpenClient(0, 5), self.now)
            processor.rank_lost(1 - dp, "belongs to the other processor", self.now)
            processor.reports()
        self.workers = [Worker(), Worker()]
        self.lanes: list[deque[bytes]] = [deque(), deque()]
        self.commands: list[deque[Message]] = [deque(), deque()]
        self.requests: list[Request] = []
        self.waiting: list[Request] = []
        self.bound: dict[int, Request] = {}  # without an outcome, as far as the scheduler knows
        self.deaths = 0
        self.outcomes: Counter[int] = Counter()
        self.releases: Counter[int] = Counter()
        self.submit(4, 12, 2, False, [5], -1)
        self.submit(2, 16, 0, True, [], 1)

    # --- scheduler ----------------------------------------------------------------------------

    @precondition(lambda self: len(self.requests) < 12)
    @rule(
        count=st.integers(1, 4),
        max_tokens=st.integers(1, 16),
        min_tokens=st.integers(0, 4),
        ignore_eos=st.booleans(),
        stops=st.lists(st.integers(0, 69), max_size=2),
        k=st.sampled_from([-1, -1, 0, 2]),
        stop=st.one_of(st.none(), st.lists(st.sampled_from(STRINGS), max_size=2)),
        interval=st.sampled_from([1, 1, 3]),
        with_extras=st.booleans(),
    )
    def submit(
        self,
        count: int,
        max_tokens: int,
        min_tokens: int,
        ignore_eos: bool,
        stops: list[int],
        k: int,
        stop: list[str] | None = None,
        interval: int = 1,
        with_extras: bool = True,
    ) -> None:
        """Submit requests; with a list of stop strings they have text."""
        low = min(min_tokens, max_tokens)
        about = (stop is not None, tuple(stop or ()), interval, with_extras)
        for _ in range(count):
            key = len(self.requests)
            made = Request(key, max_tokens, low, ignore_eos, tuple(stops), k, *about)
            self.requests.append(made)
            self.waiting.append(self.requests[-1])

    @precondition(lambda self: self.waiting)
    @rule(dp=st.integers(0, 1), slot=st.integers(0, SLOTS - 1))
    def bind(self, dp: int, slot: int) -> None:
        taken = {split_handle(h)[:2] for h in self.bound}
        if not self.waiting or (dp, slot) in taken:
            return
        request = self.waiting.pop(0)
        handle = self.rig.new_handle(slot, dp)
        self.bound[handle] = request
        self.commands[dp].append(
            Bind(
                handle,
                self.incarnations[dp],
                request.key,
                0,
                request.max_tokens,
                request.min_tokens,
                request.ignore_eos,
                request.stop_token_ids,
                request.output,
                stream_interval=request.interval,
                extras_offset=request.extras_offset,
                text=request.text,
                stop=request.stop,
            )
        )
        if self.incarnations[dp] == self.alive[dp]:
            self.workers[dp].running[handle] = Running(request, len(request.output))

    @precondition(lambda self: self.bound)
    @rule(pick=st.integers(0, 7), abort=st.sampled_from([False, False, True]))
    def preempt_or_abort(self, pick: int, abort: bool) -> None:
        if not self.bound:
            return
        handle = sorted(self.bound)[pick % len(self.bound)]
        dp = split_handle(handle)[0]
        self.bound[handle].aborted |= abort
        self.commands[dp].append(Abort(handle) if abort else Preempt(handle))
        self.workers[dp].frees.append(handle)

    @rule()
    def read_reports(self) -> None:
        for dp, processor in enumerate(self.processors):
            for report in processor.reports():
                self.take_report(dp, report)

    def take_report(self, dp: int, report: Message) -> None:
        if isinstance(report, RankOpened):
            self.incarnations[dp] = report.incarnation
        elif isinstance(report, HandleReleased):
            assert self.outcomes[report.handle] == 1, "released before its outcome"
            self.releases[report.handle] += 1
            assert self.releases[report.handle] == 1
        elif isinstance(report, HandleFinished | HandleAborted | HandleRescheduled):
            self.outcomes[report.handle] += 1
            assert self.outcomes[report.handle] == 1, "a second outcome"
            self.take_outcome(report, self.bound.pop(report.handle))
            self.workers[dp].frees.append(report.handle)

    def take_outcome(
        self, report: HandleFinished | HandleAborted | HandleRescheduled, request: Request
    ) -> None:
        if isinstance(report, HandleRescheduled):
            ids = report.output_token_ids
            assert list(ids) == request.expected()[0][: len(ids)]
            assert len(ids) >= len(request.output)
            assert self.stream(request).tokens[: len(ids)] == list(ids), "not flushed up to it"
            if request.text:
                so_far = request.expected_text(len(ids)).text
                assert self.stream(request).text.decode() == so_far
            assert report.extras_offset == len(self.stream(request).extras), "not flushed up to it"
            request.output, request.extras_offset = ids, report.extras_offset
            self.waiting.append(request)
        else:
            if isinstance(report, HandleAborted):
                assert request.aborted
                request.outcome = 3
            else:
                request.outcome = report.finish
            request.output = tuple(request.expected()[0][: report.output_tokens])

    # --- workers and lanes --------------------------------------------------------------------

    @precondition(lambda self: any(w.running for w in self.workers))
    @rule(
        dp=st.integers(0, 1),
        counts=st.lists(st.integers(-1, 3), min_size=8, max_size=8),
        again=st.integers(0, 2),
    )
    def step(self, dp: int, counts: list[int], again: int) -> None:
        worker = self.workers[dp]
        running = zip(sorted(worker.running), counts, strict=False)
        self.send(dp, [worker.rows(handle, n, again) for handle, n in running if n >= 0])

    def send(self, dp: int, rows: list[Row]) -> None:
        self.lanes[dp].append(self.rig.frame(rows, dp))

    @precondition(lambda self: any(w.frees for w in self.workers))
    @rule(dp=st.integers(0, 1))
    def let_go(self, dp: int) -> None:
        self.send(dp, self.workers[dp].let_go())

    @precondition(lambda self: any(w.running for w in self.workers))
    @rule(dp=st.integers(0, 1), n=st.integers(0, 3))
    def drain_unasked(self, dp: int, n: int) -> None:
        known = self.processors[dp]._table
        for handle in sorted(self.workers[dp].running):
            if known.state(handle)[0] > 1:  # bound
                self.send(dp, [self.workers[dp].rows(handle, n, drained=True)])
                return

    @precondition(lambda self: any(w.running for w in self.workers))
    @rule(dp=st.integers(0, 1), kind=st.integers(0, 4))
    def fail_row(self, dp: int, kind: int) -> None:
        for handle in sorted(self.workers[dp].running)[:1]:
            self.send(dp, [self.workers[dp].bad_row(handle, kind)])

    @precondition(lambda self: any(self.lanes))
    @rule(dp=st.integers(0, 1), n=st.integers(1, 3))
    def deliver_frames(self, dp: int, n: int) -> None:
        for _ in range(min(n, len(self.lanes[dp]))):
            self.processors[dp].feed(dp, 0, self.lanes[dp].popleft(), self.now)

    @precondition(lambda self: any(self.commands))
    @rule(dp=st.integers(0, 1), n=st.integers(1, 3))
    def deliver_commands(self, dp: int, n: int) -> None:
        for _ in range(min(n, len(self.commands[dp]))):
            self.processors[dp].command(self.commands[dp].popleft(), self.now)

    @precondition(lambda self: any(self.lanes))
    @rule(dp=st.integers(0, 1))
    def lose_frames(self, dp: int) -> None:
        if self.lanes[dp]:
            self.lanes[dp].popleft()
            self.processors[dp].gap(dp, 0, self.now)

    @precondition(lambda self: self.bound and self.deaths < 2)
    @rule(dp=st.integers(0, 1))
    def restart_worker(self, dp: int) -> None:
        self.deaths += 1
        self.workers[dp] = Worker()
        self.lanes[dp].clear()
        self.alive[dp] += 10
        self.processors[dp].rank_lost(dp, "killed", self.now)
        self.processors[dp].rank_up(dp, self.alive[dp], self.now)

    @rule(dp=st.integers(0, 1))
    def die_and_go_on(self, dp: int) -> None:
        """Replace a processor with one that loads its state."""
        saved = self.processors[dp].save()
        successor = Rig(ranks=2, clients=0, slots=SLOTS, vocab=WORDS, begun=False).processor
        successor.load(saved)
        assert successor.counters == self.processors[dp].counters
        assert successor.next_deadline == self.processors[dp].next_deadline
        assert successor.unsent_bytes(0) == self.processors[dp].unsent_bytes(0)
        assert successor._table.save() == self.processors[dp]._table.save()
        self.processors[dp] = successor

    @rule(seconds=st.sampled_from([0.5, 3.0, 11.0]))
    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 0.5
            for dp, processor in enumerate(self.processors):
                processor.seen(dp, self.now)
                if processor.next_deadline <= self.now:
                    processor.tick(self.now)
                    assert processor.next_deadline > self.now

    # --- client -------------------------------------------------------------------------------

    @rule(dp=st.integers(0, 1), limit=st.sampled_from([1, 60, 1 << 20]), urgent_only=st.booleans())
    def flush(self, dp: int, limit: int, urgent_only: bool) -> None:
        processor = self.processors[dp]
        before = processor.unsent_bytes(0)
        frame = processor.flush(0, LANE, limit, urgent_only)
        if frame is None:
            assert not before or urgent_only
        else:
            self.rig.clients[0].apply(frame)
            assert processor.unsent_bytes(0) < before

    def stream(self, request: Request) -> Stream:
        return self.rig.clients[0].streams.get(request.key, Stream())

    @invariant()
    def streams_are_prefixes(self) -> None:
        for request in getattr(self, "requests", ()):
            got = self.stream(request)
            ids, finish, reason = request.expected()
            assert got.tokens == ids[: len(got.tokens)]
            assert got.ks == [request.k] * len(got.tokens)
            if request.text:
                whole = request.expected_text()
                assert whole.text.startswith(got.text.decode()) or got.finish == ERROR
                if got.finish in (1, 2):
                    assert (got.text.decode(), got.stop_string) == (whole.text, whole.stop_string)
            else:
                assert not got.text
            extras = beside.read(got.extras, len(got.tokens), bool(got.finish))
            beside.check(extras, got.tokens, [request.with_extras] * len(got.tokens))
            prompt = beside.prompt_of(4) if request.with_extras and got.tokens else None
            cut = got.finish in (ABORT, ERROR) and not got.tokens  # may end before its first row
            assert extras.prompt_logprobs == prompt or (cut and request.with_extras)
            if got.finish in (1, 2):
                assert (got.tokens, got.finish, got.stop_reason) == (ids, finish, reason)
            elif got.finish == ERROR:
                assert len(got.tokens) in request.failed_at
                assert got.error

    # --- the end ------------------------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "requests"):
            return
        for _ in range(1000):
            if not self.waiting and not self.bound and self.outcomes == self.releases:
                break
            for dp in range(2):
                self.deliver_commands(dp, 1 << 20)
            self.read_reports()
            for dp, worker in enumerate(self.workers):
                for slot in range(SLOTS):
                    self.bind(dp, slot)
                self.send(dp, [worker.rows(handle, 9) for handle in sorted(worker.running)])
                self.deliver_commands(dp, 1 << 20)
                self.let_go(dp)
                self.deliver_frames(dp, 1 << 20)
                while self.processors[dp].dirty_clients():
                    self.flush(dp, 1 << 20, False)
            self.pass_time(3.0)
            self.read_reports()
        self.check_all_is_over()

    def check_all_is_over(self) -> None:
        assert not self.waiting and not self.bound
        self.streams_are_prefixes()
        for request in self.requests:
            got = self.stream(request)
            assert got.finish == request.outcome != 0
            assert len(got.tokens) == len(request.output)
        assert self.outcomes == self.releases
        for processor in self.processors:
            counters = processor.counters
            assert counters["parked_bytes"] == 0 == counters["held_outcomes"]
            assert counters["bindings"] == counters["parked_bindings"]
            assert processor.unsent_bytes(0) == 0


TestEngine = Engine.TestCase
TestEngine.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)


@pytest.mark.parametrize("seed", range(6))
def test_storm(seed: int) -> None:
    """Play the same rules for long, with requests long enough to be disturbed often."""
    random = Random(seed)
    engine = Engine()
    engine.start()
    for _ in range(600):
        dp = random.randrange(2)
        match random.randrange(41):
            case 40:
                engine.die_and_go_on(dp)
            case 0 if len(engine.requests) < 60:
                stops = [random.randrange(70)]
                k, stop = random.choice([-1, 1]), random.choice([None, [], ["A", "5;B"]])
                engine.submit(
                    6, random.randint(1, 90), 1, True, stops, k, stop, random.choice([1, 4])
                )
            case 1 | 2 | 3:
                engine.preempt_or_abort(random.randrange(8), random.random() < 0.2)
            case 4 if engine.deaths < 8:
                engine.restart_worker(dp)
            case 5:
                engine.lose_frames(dp)
            case 6:
                engine.drain_unasked(dp, random.randrange(3))
            case 7:
                engine.fail_row(dp, random.randrange(5))
            case 8:
                engine.pass_time(random.choice([0.5, 0.5, 3.0, 11.0]))
            case 9 | 10 | 11:
                engine.flush(dp, random.choice([1, 60, 1 << 20]), random.random() < 0.3)
            case 12 | 13 | 14 | 15:
                engine.read_reports()
            case 16 | 17 | 18 | 19:
                engine.let_go(dp)
            case 20 | 21 | 22 | 23 | 24:
                engine.bind(dp, random.randrange(SLOTS))
            case 25 | 26 | 27 | 28:
                engine.deliver_commands(dp, random.randint(1, 3))
            case 29 | 30 | 31 | 32:
                engine.deliver_frames(dp, random.randint(1, 3))
            case _:
                counts = [random.randint(-1, 3) for _ in range(8)]
                engine.step(dp, counts, random.choice([0, 0, 1, 2]))
        engine.streams_are_prefixes()
    engine.teardown()
