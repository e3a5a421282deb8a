"""What is decided about children: late, ready, silent, awake, dead; each thing once."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tokenpipe.supervisor import NoRestart, Restart, RestartPolicy
from tokenpipe.supervisor.keeper import Awake, Finding, Keeper, Late, Ready, Silent

STUCK_S = 10.0


def keeper(*, kill_stuck: bool = False, restarts: int = 3) -> Keeper:
    return Keeper(RestartPolicy(restarts, 60.0), STUCK_S, kill_stuck=kill_stuck)


def test_a_late_child_is_killed_once() -> None:
    it = keeper()
    it.started("worker", "worker 0", deadline=30.0)
    assert it.seen("worker 0", "loading", {}, 30.0) == []
    assert it.problems == {"worker 0": "not ready yet; phase: loading"}
    assert it.seen("worker 0", "warming up", {}, 30.1) == [Late("warming up")]
    assert it.seen("worker 0", "warming up", {}, 31.0) == []
    assert it.problems == {"worker 0": "was not ready in time; phase: warming up"}
    assert it.seen("worker 0", None, {7: 32.0}, 32.0) == []  # too late: it is being killed


def test_a_child_without_a_deadline_is_never_late() -> None:
    it = keeper()
    it.started("worker", "worker 0")
    assert it.seen("worker 0", "loading", {}, 1e9) == []
    assert it.seen("worker 0", None, {7: 1e9}, 1e9) == []  # a first start has an owner who waits
    assert it.problems == {}


def test_ready_is_said_once_and_ends_the_deadline() -> None:
    it = keeper()
    it.started("api", "api 0", deadline=30.0)
    assert it.seen("api 0", None, {7: 5.0, 8: 5.0}, 5.0) == [Ready()]
    assert it.seen("api 0", "serving (1 of 2 ready)", {7: 40.0}, 40.0) == []  # a fork died
    assert it.seen("api 0", None, {7: 41.0, 9: 41.0}, 41.0) == []


@pytest.mark.parametrize("kill", [False, True])
def test_silence_is_found_once_for_each_process(kill: bool) -> None:
    it = keeper(kill_stuck=kill)
    it.started("api", "api 0")
    assert it.seen("api 0", None, {7: 0.0, 8: 0.0}, STUCK_S) == []
    assert it.seen("api 0", None, {7: 0.0, 8: 9.0}, 11.0) == [Silent(7, 11.0, kill)]
    assert it.problems == {"api 0": "no sign of life for 11 s"}
    assert it.seen("api 0", None, {7: 0.0, 8: 9.0}, 20.0) == [Silent(8, 11.0, kill)]
    assert it.problems == {"api 0": "no sign of life for 20 s"}
    assert it.seen("api 0", None, {7: 20.5, 8: 9.0}, 21.0) == [Awake(7)]
    assert it.seen("api 0", None, {7: 20.5}, 22.0) == []  # the other one is gone
    assert it.problems == {}
    assert it.seen("api 0", None, {7: 20.5}, 31.0) == [Silent(7, 10.5, kill)]  # a new silence


def test_a_starting_child_is_never_silent() -> None:
    it = keeper(kill_stuck=True)
    it.started("worker", "worker 0", deadline=1000.0)
    assert it.seen("worker 0", "compiling", {}, 999.0) == []


def test_each_death_takes_one_restart() -> None:
    it = keeper(restarts=2)
    for number in (1, 2):
        it.started("worker", "worker 0")
        assert it.died("worker 0", 5.0) == Restart(number, 2, 60.0)
        with pytest.raises(KeyError):
            it.died("worker 0", 5.0)
        assert it.problems == {}
    it.started("worker", "worker 0")
    assert isinstance(it.died("worker 0", 5.0), NoRestart)


def test_a_new_life_forgets_the_silence_of_the_one_before() -> None:
    it = keeper(kill_stuck=True)
    it.started("worker", "worker 0")
    assert it.seen("worker 0", None, {7: 0.0}, 11.0) == [Silent(7, 11.0, True)]
    it.died("worker 0", 12.0)
    it.started("worker", "worker 0", 42.0)
    assert it.seen("worker 0", None, {9: 13.0}, 13.0) == [Ready()]
    assert it.seen("worker 0", None, {9: 13.0}, 24.0) == [Silent(9, 11.0, True)]


class Children(RuleBasedStateMachine):
    """Two children of random fates beside a plain model of each."""

    NAMES = ("worker 0", "worker 1")

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.keeper = keeper(kill_stuck=True)
        self.deadline: dict[str, float] = {}  # of those that live
        self.sign: dict[str, float] = {}  # of those that are ready
        self.found: dict[str, list[Finding]] = {name: [] for name in self.NAMES}
        self.lives = self.restarts = 0
        self.over: set[str] = set()

    @rule(seconds=st.sampled_from([0.1, 3.0, STUCK_S, 15.0]))
    def time_goes_on(self, seconds: float) -> None:
        self.now += seconds

    @rule(name=st.sampled_from(NAMES), patience=st.sampled_from([1.0, 20.0]))
    def starts(self, name: str, patience: float) -> None:
        if name in self.deadline or name in self.over:
            return
        self.keeper.started("worker", name, self.now + patience)
        self.deadline[name] = self.now + patience
        self.found[name] = []
        self.lives += 1

    @precondition(lambda self: self.deadline)
    @rule(data=st.data(), signs=st.booleans())
    def is_seen(self, data: st.DataObject, signs: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.deadline)))
        if signs:
            self.sign[name] = self.now
        ready = name in self.sign
        last_sign = {5: self.sign[name]} if ready else {}
        before = list(self.found[name])
        found = self.keeper.seen(name, None if ready else "loading", last_sign, self.now)
        assert len(found) <= 2 and len(set(found)) == len(found)
        for finding in found:
            match finding:
                case Late():
                    assert not ready and self.now > self.deadline[name] and not before
                case Ready():
                    assert ready and not before
                case Silent(seconds=seconds):
                    assert seconds == self.now - self.sign[name] > STUCK_S
                    assert not before or not isinstance(before[-1], Silent)
                case Awake():
                    assert before and isinstance(before[-1], Silent)
        self.found[name] += found
        if not ready and self.now > self.deadline[name]:
            assert Late("loading") in self.found[name]
        if ready and self.now - self.sign[name] > STUCK_S:
            assert isinstance(self.found[name][-1], Silent)
            assert name in self.keeper.problems

    @precondition(lambda self: self.deadline)
    @rule(data=st.data())
    def dies(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.deadline)))
        del self.deadline[name]
        self.sign.pop(name, None)
        if isinstance(self.keeper.died(name, self.now), NoRestart):
            self.over.add(name)
        else:
            self.restarts += 1
        with pytest.raises(KeyError):
            self.keeper.died(name, self.now)

    @invariant()
    def only_the_living_have_problems(self) -> None:
        assert self.keeper.problems.keys() <= self.deadline.keys()

    @invariant()
    def each_life_ends_once(self) -> None:
        assert self.lives == self.restarts + len(self.over) + len(self.deadline)


TestChildren = Children.TestCase
TestChildren.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
