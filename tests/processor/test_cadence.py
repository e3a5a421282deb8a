"""When the ends of a processor are served: alone by example, together in a simulated time."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpipe.processor.cadence import FRAMES_PER_TURN, LOOK_S, PACE_S, Ask, Cadence
from tokenpipe.processor.deadlines import NEVER

A_LITTLE = 1e-9  # what sums of floats round off
Arrivals = list[tuple[float, int, int]]  # when, at which end, how many messages
COUNTS = st.sampled_from([1, 2, FRAMES_PER_TURN - 1, FRAMES_PER_TURN, 200])


@dataclass(eq=False)
class End:
    """An end with messages that wait, as the times they came, and a deadline."""

    name: str
    came: list[float] = field(default_factory=list)
    next_deadline: float = NEVER
    period_s: float = NEVER  # the deadline comes again so long after each read
    served_at: float = 0.0
    full: bool = False  # the last read took as much as it may


def yes(now: float) -> bool:
    return True


def no(now: float) -> bool:
    return False


def flooding(now: float) -> tuple[Cadence, End, End]:
    """Return a cadence after a turn at `now` that could not read all, a worker and another end."""
    worker, other = End("worker"), End("other")
    cadence = Cadence([worker])
    cadence.used(other)
    assert cadence.ask(now, 1.0, no) is Ask.ALL
    assert cadence.seconds(now) == 1.0
    assert cadence.serve(now, [worker]) == {worker}
    cadence.fed(now, True)
    return cadence, worker, other


def test_a_quiet_turn_waits_on_all_for_as_long_as_it_may() -> None:
    cadence = Cadence([End("worker")])
    assert cadence.ask(5.0, 2.0, yes) is Ask.ALL
    assert cadence.seconds(5.0) == 2.0
    assert cadence.serve(7.0, []) == set()


def test_a_wait_ends_at_the_first_deadline_and_its_end_is_served() -> None:
    worker, client = End("worker", next_deadline=6.0), End("client", next_deadline=5.5)
    cadence = Cadence([worker])
    cadence.used(client)
    assert cadence.ask(5.0, 2.0, no) is Ask.ALL
    assert cadence.seconds(5.0) == 0.5
    assert cadence.serve(5.5, []) == {client}
    client.next_deadline = NEVER
    assert cadence.next_deadline == 6.0
    assert cadence.ask(6.5, 2.0, no) is Ask.ALL
    assert cadence.seconds(6.5) == 0.0
    assert cadence.serve(6.5, [client]) == {worker, client}


def test_a_deadline_is_looked_up_again_after_its_end_was_used_and_only_then() -> None:
    client = End("client", next_deadline=5.0)
    cadence = Cadence([])
    cadence.used(client)
    assert cadence.next_deadline == 5.0
    client.next_deadline = 4.0
    assert cadence.next_deadline == 5.0
    cadence.used(client)
    assert cadence.next_deadline == 4.0


def test_deadlines_are_looked_at_although_no_turn_waits() -> None:
    worker, client = End("worker"), End("client")
    cadence = Cadence([worker])
    assert cadence.serve(5.0, [worker]) == {worker}
    client.next_deadline = 5.0 + LOOK_S / 2
    cadence.used(client)
    assert cadence.ask(5.0 + LOOK_S, 1.0, no) is Ask.ALL  # the worker has a message again
    assert cadence.serve(5.0 + LOOK_S, [worker]) == {worker, client}


def test_a_closed_end_is_not_served() -> None:
    client = End("client", next_deadline=5.0)
    cadence = Cadence([])
    cadence.used(client)
    assert cadence.next_deadline == 5.0
    cadence.used(client)
    cadence.forget(client)
    assert cadence.next_deadline == NEVER
    assert cadence.serve(9.0, []) == set()


def test_a_flood_is_read_without_a_question_and_the_others_are_asked_now_and_then() -> None:
    cadence, worker, other = flooding(5.0)
    assert cadence.ask(5.0 + LOOK_S / 2, 1.0, no) is Ask.NOBODY
    assert cadence.serve(5.0 + LOOK_S / 2, []) == {worker}
    assert cadence.ask(5.0 + LOOK_S, 1.0, no) is Ask.OTHERS
    assert cadence.seconds(5.0 + LOOK_S) == 0.0
    assert cadence.serve(5.0 + LOOK_S, [other]) == {worker, other}
    cadence.fed(5.0 + LOOK_S, False)
    assert cadence.ask(5.0 + LOOK_S, 1.0, no) is Ask.ALL
    assert cadence.seconds(5.0 + LOOK_S) == 1.0


def test_a_flood_is_paced_while_a_client_is_behind() -> None:
    cadence, worker, other = flooding(0.0)
    assert cadence.ask(0.0, 1.0, yes) is Ask.OTHERS
    assert cadence.seconds(0.0) == PACE_S
    assert cadence.serve(PACE_S / 2, [other]) == {other}
    assert cadence.ask(PACE_S / 2, 1.0, yes) is Ask.OTHERS
    assert cadence.seconds(PACE_S / 2) == PACE_S / 2
    assert cadence.serve(PACE_S, []) == {worker}


def test_a_worker_that_is_due_does_not_put_off_the_read_of_another() -> None:
    worker, busy = End("worker"), End("busy", next_deadline=PACE_S / 2)
    cadence = Cadence([worker, busy])
    assert cadence.serve(0.0, [busy]) == {busy}
    cadence.fed(0.0, True)
    assert cadence.ask(0.0, 1.0, yes) is Ask.OTHERS
    assert cadence.seconds(0.0) == PACE_S / 2
    assert cadence.serve(PACE_S / 2, []) == {worker, busy}


def test_who_may_not_wait_is_not_paced() -> None:
    cadence, worker, _ = flooding(5.0)
    assert cadence.ask(5.0, 0.0, yes) is Ask.NOBODY
    assert cadence.serve(5.0, []) == {worker}


class World:
    """Ends whose messages come at given times, and turns that take time."""

    def __init__(self, workers: int, others: int, turn_s: float, to_come: Arrivals) -> None:
        self.workers = [End(f"worker {i}") for i in range(workers)]
        self.others = [End(f"other {i}") for i in range(others)]
        self.ends = [*self.workers, *self.others]
        self.cadence = Cadence(self.workers)
        self.cadence.used(*self.others)
        self.turn_s = turn_s
        self.now = 0.0
        ends = self.ends
        self.to_come = sorted(((at, ends[i % len(ends)], n) for at, i, n in to_come), key=_time)

    def turn(self, timeout_s: float, behind: bool) -> None:
        """Take a turn, and check what is promised of each."""
        earliest = min(end.next_deadline for end in self.ends)
        ask = self.cadence.ask(self.now, timeout_s, lambda now: behind)
        asked = {Ask.ALL: self.ends, Ask.OTHERS: self.others, Ask.NOBODY: []}[ask]
        may_be_late = LOOK_S + self.turn_s
        if ask is not Ask.NOBODY and not any(end.came for end in asked):
            seconds = self.cadence.seconds(self.now)
            assert 0.0 <= seconds <= timeout_s + A_LITTLE
            assert seconds <= max(0.0, earliest - self.now) + A_LITTLE
            self.sleep(asked, seconds)
            may_be_late = 0.0  # who has time to wait is on time
        ready = [end for end in asked if end.came]
        served = self.cadence.serve(self.now, ready)
        assert served.issuperset(ready)
        for end in self.ends:
            if end in served:
                self.read(end)
            else:
                assert self.now - end.next_deadline <= may_be_late + A_LITTLE
        if fed := [end for end in self.workers if end in served]:
            self.cadence.fed(self.now, any(end.full for end in fed))
        self.pass_time(self.turn_s)
        self.check_that_none_starves()

    def check_that_none_starves(self) -> None:
        for end in self.ends:
            if end.came:
                most = PACE_S if end in self.workers else LOOK_S
                since = max(end.came[0], end.served_at)
                assert self.now - since <= most + 2 * self.turn_s + A_LITTLE

    def sleep(self, asked: list[End], seconds: float) -> None:
        until = self.now + seconds
        while self.now < until and not any(end.came for end in asked):
            first = self.to_come[0][0] if self.to_come else until
            self.pass_time(min(until, max(first, self.now)) - self.now)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        while self.to_come and self.to_come[0][0] <= self.now + A_LITTLE:
            at, end, count = self.to_come.pop(0)
            end.came += [at] * count

    def read(self, end: End) -> None:
        """Take what one turn may take, and set the next deadline."""
        end.full = len(end.came) >= FRAMES_PER_TURN
        del end.came[:FRAMES_PER_TURN]
        end.served_at = self.now
        end.next_deadline = self.now + end.period_s


def _time(arrival: tuple[float, End, int]) -> float:
    return arrival[0]


@given(
    workers=st.integers(1, 3),
    others=st.integers(1, 3),
    turn_us=st.sampled_from([1, 20, 300, 1100, 5000]),
    to_come=st.lists(
        st.tuples(st.integers(0, 400).map(lambda n: n / 20_000), st.integers(0, 5), COUNTS)
    ),
    periods=st.lists(st.sampled_from([NEVER, 0.0004, 0.005, 0.1]), min_size=6, max_size=6),
    turns=st.lists(st.tuples(st.sampled_from([0.0, 0.0003, 0.5]), st.booleans()), max_size=120),
)
def test_no_end_starves_and_no_deadline_is_slept_through(
    workers: int,
    others: int,
    turn_us: int,
    to_come: Arrivals,
    periods: list[float],
    turns: list[tuple[float, bool]],
) -> None:
    world = World(workers, others, turn_us / 1e6, to_come)
    for end, period_s in zip(world.ends, periods, strict=False):
        end.period_s = period_s
    world.cadence.used(*world.ends)
    for timeout_s, behind in turns:
        world.turn(timeout_s, behind)


@pytest.mark.parametrize("paced", [False, True])
def test_a_flood_is_read_whole_in_turns_of_a_bounded_size(paced: bool) -> None:
    world = World(1, 1, 0.0002, [(0.0, 0, 1000), (0.001, 1, 1)])
    turns = 0
    while world.to_come or any(end.came for end in world.ends):
        world.turn(0.5, paced)
        turns += 1
    read = -(-1000 // FRAMES_PER_TURN)
    assert turns >= read
    if paced:
        assert world.now >= (read - 1) * PACE_S
    else:
        assert turns <= read + 2 and world.now <= (read + 2) * 0.0002 + A_LITTLE
