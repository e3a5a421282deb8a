"""A client's place: a name and an index of its own, lanes in both directions, a welcome."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.client.engine import FakeEngine, fake_engine, only_listen
from tests.client.frames import Row
from tests.client.rig import Kept, opened
from tests.conftest import eventually
from tokenpipe.client.opening import SPARE_BYTES, claim_place, open_lanes
from tokenpipe.errors import LaneBusy, LaneLost, StartupError, TokenpipeError
from tokenpipe.instance import Instance
from tokenpipe.topology import Topology


def place(closing: ExitStack, engine: FakeEngine, name: str) -> int:
    return claim_place(closing, Instance.attach(engine.endpoint), 2, name)


def test_places_and_names_are_exclusive_and_free_again_with_their_holder(
    runtime_dir: Path,
) -> None:
    with fake_engine(runtime_dir, only_listen) as engine, ExitStack() as first:
        assert place(first, engine, "a") == 0
        with ExitStack() as second:
            with pytest.raises(LaneBusy, match=r"client name 'a' is taken: .*a"):
                place(second, engine, "a")
            assert place(second, engine, "b") == 1
            with (
                ExitStack() as third,
                pytest.raises(LaneBusy, match=r"all 2 client places are taken: .*; "),
            ):
                place(third, engine, "c")
        with ExitStack() as second:
            assert place(second, engine, "c") == 1  # its name did not stay taken
        first.close()
        with ExitStack() as again:
            assert place(again, engine, "a") == 0


@pytest.mark.parametrize("name", ["a/b", "..", "ü" * 300, "\0"])
def test_any_text_is_a_name(runtime_dir: Path, name: str) -> None:
    with fake_engine(runtime_dir, only_listen) as engine, ExitStack() as closing:
        assert place(closing, engine, name) == 0
        with pytest.raises(LaneBusy, match="is taken"):
            place(closing, engine, name)


def test_a_client_has_a_lane_of_each_processor_and_one_of_the_engine(runtime_dir: Path) -> None:
    topology = Topology(clients=2, data_parallel_size=3, processors={"count": 3})
    with fake_engine(runtime_dir, only_listen, topology) as engine:
        with opened(engine, "a") as a, opened(engine, "b") as b:
            assert (a.me.rank, b.me.rank) == ("0", "1")
            assert a.me.incarnation != b.me.incarnation
            assert len(a.counters) == len(b.counters) == 5  # three, the engine's, and submits
            assert not set(a.counters) & set(b.counters)
        with opened(engine, "a") as again:
            assert again.me.rank == "0"


def test_a_token_with_all_that_may_stand_beside_it_fits_an_output_lane(runtime_dir: Path) -> None:
    topology = Topology(clients=1, bounds={"max_frame_bytes": 1 << 16})
    text = "x" * ((1 << 16) + SPARE_BYTES - 200)  # beside a key, an offset and a header
    with fake_engine(runtime_dir, only_listen, topology) as engine, opened(engine) as lanes:
        kept = Kept()
        engine.call(partial(engine.send, 0, Row(1, 0, [5], text=text)))
        assert eventually(lambda: kept.read(lanes) or len(kept.frames) == 1)
        assert len(kept.frames[0]) > 1 << 16


def test_where_nobody_welcomes_nothing_is_kept(runtime_dir: Path) -> None:
    topology = Topology(clients=1, timeouts={"startup_s": 0.2})
    with fake_engine(runtime_dir, only_listen, topology) as engine:
        engine._silent = True
        with pytest.raises(StartupError, match=r"0\.2 s"):
            open_lanes(Instance.attach(engine.endpoint), topology, "a")
        with ExitStack() as closing:
            assert place(closing, engine, "a") == 0
        engine.fall_silent()
        with pytest.raises((LaneLost, StartupError)):
            open_lanes(Instance.attach(engine.endpoint), topology, "a")


def test_no_instance_no_client(runtime_dir: Path) -> None:
    with pytest.raises(TokenpipeError):
        open_lanes(Instance.attach(runtime_dir / "nothing"), Topology(), "a")
