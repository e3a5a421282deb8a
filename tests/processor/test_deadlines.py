"""The earliest of a few deadlines, however they move."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tokenpipe.processor.deadlines import NEVER, Deadlines

times = st.integers(0, 9).map(float) | st.just(NEVER)


def test_nothing_is_due_where_nothing_was_set() -> None:
    deadlines = Deadlines[str]()
    deadlines.set("a", NEVER)
    assert deadlines.earliest == NEVER
    assert deadlines.take(1e9) == []


def test_a_deadline_that_moves_leaves_nothing_behind() -> None:
    deadlines = Deadlines[str]()
    deadlines.set("a", 1.0)
    deadlines.set("b", 2.0)
    deadlines.set("a", 3.0)
    assert deadlines.earliest == 2.0
    deadlines.set("b", NEVER)
    assert deadlines.earliest == 3.0
    assert deadlines.take(2.9) == []
    assert deadlines.take(3.0) == ["a"]
    assert deadlines.take(3.0) == []


@given(st.lists(st.tuples(st.integers(0, 4), times, st.booleans()), max_size=40))
def test_as_a_list_of_all_would_say(actions: list[tuple[int, float, bool]]) -> None:
    deadlines, model = Deadlines[int](), dict[int, float]()
    for member, time, take in actions:
        if take and time != NEVER:
            reached = {who for who, due in model.items() if due <= time}
            assert set(deadlines.take(time)) == reached
            model = {who: due for who, due in model.items() if who not in reached}
        else:
            deadlines.set(member, time)
            model[member] = time
        assert deadlines.earliest == min(model.values(), default=NEVER)
