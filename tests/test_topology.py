"""What a topology may be, and how it says what it may not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from tokenpipe.errors import ConfigError
from tokenpipe.topology import Bounds, Processors, Timeouts, Topology

PATHS = {"tokenizer", "runtime_dir", "log_dir", "api.chat_template"}
ANY_TEXT = PATHS | {"name", "api.host", "api.model"}
NULL_IS_FINE = PATHS | {"name", "vocab_size", "processors.count", "timeouts.recover_s"}
NULL_IS_FINE |= {"api.max_connections"}


def refused(text: str) -> list[str]:
    """Return the lines of the error that a text gives."""
    with pytest.raises(ConfigError) as caught:
        Topology.loads(text, "t.yaml")
    lines = str(caught.value).split("\n")
    assert all(re.match(r"t\.yaml:\d+: ", line) for line in lines), lines
    return lines


def every_key(model: type[BaseModel] = Topology, above: str = "") -> list[str]:
    keys: list[str] = []
    for name, field in model.model_fields.items():
        keys.append(above + name)
        section = field.annotation
        if isinstance(section, type(BaseModel)):
            keys += every_key(section, f"{name}.")
    return keys


def text_for(key: str, value: str) -> str:
    *sections, last = key.split(".")
    return f"{sections[0]}:\n  {last}: {value}\n" if sections else f"{last}: {value}\n"


def test_file_with_everything(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(
        "name: a\ndata_parallel_size: 4\ntensor_parallel_size: 2\ntp_policy: verify\n"
        "platform: gpu\nslots_per_rank: 16\nvocab_size: 100\neos_token_ids: [1, 2]\n"
        "processors: {mode: process, count: 2}\nclients: 3\nbackpressure: fail\n"
        "bounds: {lane_bytes: 2048, max_frame_bytes: 1024}\ntimeouts:\n  close_s: 1\n"
        f"runtime_dir: {tmp_path}\nlog_dir: logs\n"
    )
    made = Topology.load(path)
    assert made.eos_token_ids == (1, 2)
    assert made.processors == Processors(mode="process", count=2)
    assert made.bounds == Bounds(lane_bytes=2048, max_frame_bytes=1024)
    assert made.timeouts.close_s == 1.0 and isinstance(made.timeouts.close_s, float)
    assert made.runtime_dir == tmp_path and made.log_dir == Path("logs")


@pytest.mark.case("B72")
@pytest.mark.parametrize("key", every_key())
@pytest.mark.parametrize("value", ["null", "", "false", "on", "[]", "{a: 1}", "-1", "1.5", "'x\0'"])
def test_surprising_value_is_taken_as_meant_or_refused_by_line(key: str, value: str) -> None:
    text = text_for(key, value)
    try:
        made = Topology.loads(text, "t.yaml")
    except ConfigError as error:
        line = len(text.splitlines()) if "\0" not in text else None
        assert str(error).startswith(f"t.yaml:{line}: {key}" if line else "t.yaml"), str(error)
        return
    at: Any = made
    for part in key.split("."):
        at = getattr(at, part)
    if value in ("null", ""):
        assert key in NULL_IS_FINE and at is None
    elif value == "[]":
        assert key in ("eos_token_ids", "api.allowed_origins") and at == ()
    elif value == "on":
        assert key in ANY_TEXT and str(at) == "on"
    elif value == "false":
        assert key == "api.access_log" and at is False
    else:
        seconds = key.startswith(("timeouts.", "api.timeout_")) or key == "policies.within_s"
        assert value == "1.5" and seconds and at == 1.5


@pytest.mark.case("B72")
@pytest.mark.parametrize("value", ["0", "0.0", "'0'", "true"])
@pytest.mark.parametrize("key", [k for k in every_key() if "bytes" in k or k.endswith("_s")])
def test_no_bound_and_no_deadline_may_be_nothing(key: str, value: str) -> None:
    (line,) = refused(text_for(key, value))
    assert line.startswith(f"t.yaml:2: {key}: must be ")


@pytest.mark.case("B72")
def test_all_problems_at_once_in_the_order_of_the_file() -> None:
    assert refused(
        "data_parallel_size: true\n"
        "client: 3\n"
        "bounds:\n"
        "  lane_bytes: 64MiB\n"
        "  lane_byte: 1\n"
        "platform: tpu\n"
        "eos_token_ids: [1, on, -1]\n"
    ) == [
        "t.yaml:1: data_parallel_size: must be an integer (got true)",
        "t.yaml:2: client: unknown key; did you mean clients?",
        't.yaml:4: bounds.lane_bytes: must be bytes as a plain integer (got "64MiB")',
        "t.yaml:5: bounds.lane_byte: unknown key; did you mean lane_bytes?",
        't.yaml:6: platform: must be "cpu", "gpu", "xpu" or "metax_gpu" (got "tpu")',
        't.yaml:7: eos_token_ids[1]: must be an integer (got "on")',
        "t.yaml:7: eos_token_ids[2]: must be greater than or equal to 0 (got -1)",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "processors:\n  count: 3\ndata_parallel_size: 2",
            "t.yaml:2: processors.count: more processors than the 2 DP rank(s) (got 3)",
        ),
        (
            "data_parallel_size: 4\nprocessors: {mode: inline, count: 2}",
            "t.yaml:2: processors.count: inline has exactly one processor (got 2)",
        ),
        (
            "eos_token_ids:\n- 7\n- 100\nvocab_size: 100",
            "t.yaml:3: eos_token_ids[1]: outside of vocab_size 100 (got 100)",
        ),
        (
            "bounds:\n  lane_bytes: 2048\n  max_frame_bytes: 4096",
            "t.yaml:3: bounds.max_frame_bytes: larger than bounds.lane_bytes 2048 (got 4096)",
        ),
        (
            "clients: 2\napi: {workers: 3}",
            "t.yaml:2: api.workers: more than clients 2: each is a client (got 3)",
        ),
    ],
)
def test_impossible_combination(text: str, said: str) -> None:
    assert refused(text) == [said]


def test_yaml_1_2_numbers() -> None:
    made = Topology.loads("slots_per_rank: 0o10\nvocab_size: 0x10\nclients: 010\n")
    assert (made.slots_per_rank, made.vocab_size, made.clients) == (8, 16, 10)


@pytest.mark.parametrize("name", ["a/b", "..", ".hidden", "", "a\0b", "x" * 101, "a\nb"])
def test_name_must_be_a_file_name(name: str) -> None:
    with pytest.raises(ConfigError, match="name: must be "):
        Topology(name=name)


def test_unreadable_file(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"name: \xff\n")
    for path, why in (("none.yaml", "No such file"), ("", "directory"), ("latin.yaml", "UTF-8")):
        with pytest.raises(ConfigError, match=why) as caught:
            Topology.load(tmp_path / path)
        assert str(tmp_path) in str(caught.value)


def test_python_is_checked_like_yaml() -> None:
    wrong: Any = {"clients": "3", "bounds": {"lane_bytes": True}, "clientz": 1}
    with pytest.raises(ConfigError) as caught:
        Topology(**wrong)
    assert str(caught.value).split("\n") == [
        'clients: must be an integer (got "3")',
        "bounds.lane_bytes: must be bytes as a plain integer (got true)",
        "clientz: unknown key; did you mean clients?",
    ]
    with pytest.raises(ConfigError, match=r"^close_s: must be greater than 0 \(got 0\)$"):
        Timeouts(close_s=0)
    with pytest.raises(ConfigError, match=r"^processors\.count: more processors than the 1 DP"):
        Topology(processors=Processors(count=2))


def test_is_a_value() -> None:
    made = Topology(clients=2)
    assert made == Topology(clients=2) and hash(made) == hash(Topology(clients=2))
    with pytest.raises(ValueError, match="frozen"):
        made.clients = 3  # type: ignore[misc]


def test_command_line_beats_file() -> None:
    read = Topology.loads("data_parallel_size: 4\nprocessors: {count: 4}\nclients: 2")
    made = read.replaced(data_parallel_size=2, processors={"count": 2}, timeouts={"close_s": 1.0})
    assert (made.data_parallel_size, made.processors.count, made.clients) == (2, 2, 2)
    assert made.timeouts == Timeouts(close_s=1.0)
    with pytest.raises(ConfigError, match=r"processors\.count"):
        read.replaced(data_parallel_size=2)
    with pytest.raises(ConfigError, match="nope: unknown key"):
        read.replaced(nope=1)


@given(
    dp=st.integers(1, 300),
    tp=st.integers(1, 4),
    count=st.integers(1, 300) | st.none(),
    eos=st.lists(st.integers(0, 9), max_size=3),
)
def test_every_rank_has_one_processor(dp: int, tp: int, count: int | None, eos: list[int]) -> None:
    made = Topology(
        data_parallel_size=dp,
        tensor_parallel_size=tp,
        processors=Processors(count=None if count is None else min(count, dp)),
        eos_token_ids=tuple(eos),
    )
    owned = [made.ranks_of(p) for p in range(made.processor_count)]
    assert [rank for ranks in owned for rank in ranks] == list(range(dp))
    assert max(map(len, owned)) - min(map(len, owned)) <= 1
    assert len(made.workers) == dp * tp == len(set(made.workers))
    for wrong in (-1, dp):
        with pytest.raises(ValueError, match="no DP rank"):
            made.processor_of(wrong)


def test_json_round_trip(tmp_path: Path) -> None:
    made = Topology(
        data_parallel_size=2,
        processors=Processors(count=2),
        eos_token_ids=(3,),
        runtime_dir=tmp_path,
        timeouts=Timeouts(close_s=0.25),
    )
    assert Topology.from_json_dict(json.loads(json.dumps(made.to_json_dict()))) == made


def test_json_holds_the_effective_number_of_processors() -> None:
    made = Topology(data_parallel_size=3)
    assert made.to_json_dict()["processors"]["count"] == made.processor_count
    inline = Topology(data_parallel_size=3, processors=Processors(mode="inline"))
    assert Topology.from_json_dict(inline.to_json_dict()).processor_count == 1
