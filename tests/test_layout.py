"""A layout names every lane once, with the transport's own names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tokenpipe.instance import output_lane, worker_lane
from tokenpipe.layout import layout_of
from tokenpipe.topology import Processors, Topology


@given(dp=st.integers(1, 9), tp=st.integers(1, 3), clients=st.integers(1, 12), inline=st.booleans())
def test_every_lane_once(dp: int, tp: int, clients: int, inline: bool) -> None:
    topology = Topology(
        data_parallel_size=dp,
        tensor_parallel_size=tp,
        clients=clients,
        processors=Processors(mode="inline") if inline else Processors(count=(dp + 1) // 2),
    )
    layout = layout_of(topology)
    p = topology.processor_count
    names = [lane.socket for lane in layout.lanes]
    assert len(names) == len(set(names))
    assert len(names) == 2 * dp * tp + (0 if inline else 2 * p) + clients * (2 + p)
    receivers = {lane.socket: lane.receiver for lane in layout.lanes}
    for d, t in topology.workers:
        assert receivers[worker_lane(d, t)] == f"processor {topology.processor_of(d)}"
    assert receivers[output_lane(p - 1, clients - 1)] == f"client {clients - 1}"


def test_inline_processor_lives_in_the_pipeline() -> None:
    layout = layout_of(Topology(processors=Processors(mode="inline"), name="here"))
    assert [(q.role, q.runs_in) for q in layout.processes[:2]] == [
        ("pipeline", "own process"),
        ("processor", "pipeline 0"),
    ]
    assert all(q.started_by for q in layout.processes)
    assert layout.directory.endswith("/here")


def test_it_says_whose_rows_count() -> None:
    for policy, others in (
        ("leader", "it need not send rows"),
        ("verify", "its rows are compared"),
    ):
        topology = Topology(tensor_parallel_size=2, tp_policy=policy)  # type: ignore[arg-type]
        owns = [q.owns for q in layout_of(topology).processes if q.role == "worker"]
        assert owns == [f"slots of DP rank 0; {what}" for what in ("its rows count", others)]
