"""Names of lanes, locks and directories: each once, and short enough for a socket."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpipe.errors import ConfigError
from tokenpipe.instance import lane_name
from tokenpipe.instance.names import (
    MAX_PATH_BYTES,
    USUAL_LANE,
    check_room,
    directory_name,
    lock_name,
)


def test_lane_names_are_injective_and_wrong_ones_refused() -> None:
    kinds = ("worker", "command", "report", "submit", "output", "own_output", "step")
    pairs = [
        (kind, a, b)
        for kind in kinds
        for a in range(13)
        for b in (range(13) if kind in ("worker", "output", "step") else (0,))
    ]
    assert len({lane_name(*pair) for pair in pairs}) == len(pairs)
    for wrong in (("other", 0, 0), ("worker", -1, 0), ("command", 0, 1)):
        with pytest.raises(ConfigError):
            lane_name(*wrong)


@pytest.mark.parametrize("role", ["engine", "clientname"])
@pytest.mark.parametrize("rank", ["", "0", "0.12", "a-f.9"])
def test_a_lock_is_named_by_role_and_rank(role: str, rank: str) -> None:
    assert lock_name(role, rank) == f"{role}{rank}.lock"


@pytest.mark.parametrize(
    ("role", "rank"),
    [("", "0"), ("Engine", "0"), ("a/b", "0"), ("engine", "../x"), ("engine", "0\n"), ("e\n", "0")],
)
def test_no_lock_leaves_its_directory(role: str, rank: str) -> None:
    with pytest.raises(ConfigError, match="is not a role and a rank"):
        lock_name(role, rank)


@pytest.mark.case("F22")
def test_a_plain_name_is_its_own_directory_while_its_sockets_fit() -> None:
    base = Path("/run/tp")
    room = MAX_PATH_BYTES - len(f"/run/tp//{USUAL_LANE}")
    assert directory_name(base, "n" * room, USUAL_LANE) == "n" * room
    digest = directory_name(base, "n" * (room + 1), USUAL_LANE)
    assert digest.startswith("~") and len(digest) == 17


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=30))
def test_any_name_gives_one_entry_of_a_directory(name: str) -> None:
    entry = directory_name(Path("/run"), name, USUAL_LANE)
    assert entry == directory_name(Path("/run"), name, USUAL_LANE)
    assert "/" not in entry and entry not in (".", "..") and not entry.startswith(".")
    assert entry == name or entry != directory_name(Path("/run"), f"{name}x", USUAL_LANE)


def test_a_directory_without_room_for_a_socket_is_refused_with_the_sizes() -> None:
    fits = Path("/" + "d" * (MAX_PATH_BYTES - len("//w0.0")))
    check_room(fits, "w0.0")
    with pytest.raises(ConfigError, match=r"has 108 bytes, a socket may have 107; .*runtime_dir"):
        check_room(fits, "w0.00")
    with pytest.raises(ConfigError, match="too long"):
        check_room(Path("/" + "é" * 60), "w0.0")  # bytes, not characters
