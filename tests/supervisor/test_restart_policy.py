"""How often a child may be started again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import Clock
from tokenpipe.supervisor import NoRestart, Restart, RestartPolicy
from tokenpipe.topology import Policies

USED_UP = NoRestart("all 2 restart(s) within 60 s are used up")


def test_restarts_are_counted_for_each_child(clock: Clock) -> None:
    policy = RestartPolicy(2, 60.0)
    first, second = Restart(1, 2, 60.0), Restart(2, 2, 60.0)
    assert [policy.died("worker", "a", clock()) for _ in range(3)] == [first, second, USED_UP]
    assert policy.died("worker", "b", clock()) == first
    clock.advance(59.9)
    assert policy.died("worker", "a", clock()) == USED_UP
    clock.advance(0.1)
    assert policy.died("worker", "a", clock()) == first


def test_verdicts_are_the_end_of_a_sentence() -> None:
    assert str(Restart(2, 5, 7.5)) == "restart 2 of 5 within 7.5 s"
    assert str(USED_UP) == f"it is not started again: {USED_UP.why}"


def test_a_topologys_policies_are_for_each_role(clock: Clock) -> None:
    policies = Policies(worker="fail", engine="restart", restarts=2, within_s=10.0)
    policy = RestartPolicy.of(policies)
    assert policy.died("worker", "worker 0.0", clock()) == NoRestart("policies.worker is fail")
    for role in ("engine", "processor", "api"):
        assert policy.died(role, f"{role} 0", clock()) == Restart(1, 2, 10.0)
    assert RestartPolicy.of(policies, 3).died("api", "all", clock()) == Restart(1, 6, 10.0)


@given(
    deaths=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 20)), max_size=40),
    restarts=st.integers(1, 4),
    within=st.integers(1, 30),
)
def test_no_window_has_more_restarts_and_none_is_refused_before(
    deaths: list[tuple[str, int]], restarts: int, within: int
) -> None:
    policy, now = RestartPolicy(restarts, within), 0
    taken: dict[str, list[int]] = {"a": [], "b": []}
    for child, later in deaths:
        now += later
        recent = [at for at in taken[child] if now - at < within]
        verdict = policy.died("worker", child, now)
        assert isinstance(verdict, Restart) == (len(recent) < restarts)
        if isinstance(verdict, Restart):
            assert verdict.number == len(recent) + 1
            taken[child].append(now)
