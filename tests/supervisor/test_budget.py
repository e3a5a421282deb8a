"""How often a child may be started again."""

from __future__ import annotations

from tests.conftest import Clock
from tokenpipe.supervisor import Budget


def test_restarts_are_budgeted_by_key(clock: Clock) -> None:
    budget = Budget(2, 60.0)
    assert [budget.take("a", clock()) for _ in range(3)] == [True, True, False]
    assert budget.take("b", clock())
    clock.advance(59.9)
    assert not budget.take("a", clock())
    clock.advance(0.1)
    assert budget.take("a", clock())
    assert str(budget) == "2 restarts within 60 s"
