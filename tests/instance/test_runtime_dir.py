"""A long runtime directory and a long name against the 107 bytes that a socket may have."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tokenpipe.errors import ConfigError
from tokenpipe.instance import Instance, Reservation
from tokenpipe.instance import runtime_dir as runtime_dir_module
from tokenpipe.layout import layout_of
from tokenpipe.topology import Topology

SOCKET_BYTES = 107


def directory_of(base: Path, size_bytes: int, letter: str) -> Path:
    """Make a directory below `base` whose whole path has `size_bytes` bytes, or one fewer."""
    room = size_bytes - len(os.fsencode(base)) - 1
    path = base / (letter * (room // len(letter.encode())))
    path.mkdir(mode=0o700)
    return path


def create(topology: Topology) -> Instance:
    lanes = [lane.socket for lane in layout_of(topology).lanes]
    longest = max(lanes, key=len)
    info = {"topology": topology.to_json_dict()}
    base = topology.runtime_dir
    return Instance.create(base, topology.name, info, longest_lane=longest)


@pytest.mark.case("B12")
@pytest.mark.parametrize("letter", ["d", "é", "漢"])
@pytest.mark.parametrize("name", ["n" * 80, "ñ" * 80, "short", None])
def test_both_ends_derive_the_same_short_path(
    runtime_dir: Path, letter: str, name: str | None
) -> None:
    base = directory_of(runtime_dir, 82, letter)
    topology = Topology(runtime_dir=base, name=name, data_parallel_size=12)
    owner = create(topology)
    try:
        peer = Instance.attach(owner.directory)
        for lane in layout_of(topology).lanes:
            path = owner.lane_path(lane.socket)
            assert path == peer.lane_path(lane.socket)
            assert len(os.fsencode(path)) <= SOCKET_BYTES
        assert Topology.from_json_dict(peer.info["topology"]) == topology.replaced(
            processors={"count": topology.processor_count}
        )
    finally:
        owner.close()
        base.rmdir()


@pytest.mark.case("B12")
@pytest.mark.parametrize("letter", ["d", "é"])
@pytest.mark.parametrize("name", ["n", None])
def test_directory_that_is_too_long_alone_is_refused_by_name(
    runtime_dir: Path, letter: str, name: str | None
) -> None:
    base = directory_of(runtime_dir, 105, letter)
    with pytest.raises(ConfigError, match="too long") as caught:
        create(Topology(runtime_dir=base, name=name))
    assert str(base) in str(caught.value) and "runtime_dir" in str(caught.value)
    base.rmdir()


@pytest.mark.case("B12")
@pytest.mark.parametrize("name", ["n", None])
def test_nothing_is_made_below_a_path_that_is_refused(runtime_dir: Path, name: str | None) -> None:
    base = runtime_dir / ("d" * 60) / ("e" * 60)
    with pytest.raises(ConfigError, match="too long"):
        create(Topology(runtime_dir=base, name=name))
    with pytest.raises(ConfigError, match="too long"):
        Reservation.take(base, "n")
    assert not list(runtime_dir.iterdir())


def test_a_path_that_no_directory_can_have_is_a_config_error(runtime_dir: Path) -> None:
    for base in (runtime_dir / "a\0b", runtime_dir / "\ud800"):
        for name in ("n", None):
            with pytest.raises(ConfigError, match="runtime directory"):
                Instance.create(base, name, {})
        with pytest.raises(ConfigError, match="runtime directory"):
            Reservation.take(base, "n")
    for given in ("a\0b", Path("a\0b")):
        with pytest.raises(ConfigError, match=r"runtime_dir: .*without a NUL"):
            Topology(runtime_dir=given)


@pytest.mark.case("F40")
def test_the_directory_of_another_user_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under `sudo -E`: it can be written, and its owner could replace what is in it."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert runtime_dir_module.default_base() == tmp_path / "tokenpipe"
    real = os.stat

    def foreign(path: str | Path) -> os.stat_result:
        there = list(real(path))
        there[stat.ST_UID] = os.geteuid() + 1
        return os.stat_result(there)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", foreign)
        assert not runtime_dir_module._is_own(str(tmp_path))
    assert not runtime_dir_module._is_own("/nowhere/at/all")
