"""Topologies: made in Python, read from YAML, changed."""

from pathlib import Path

from typing_extensions import assert_type

import tokenpipe as tp


def made() -> tp.Topology:
    """Return one with keys of every kind; a section is a mapping, a path may be a string."""
    topology = tp.Topology(
        name="mine",
        data_parallel_size=2,
        tokenizer="tokenizer.json",
        eos_token_ids=[2],
        processors={"mode": "inline"},
        timeouts={"drained_s": 3.0},
        runtime_dir=Path("/run"),
    )
    assert_type(topology.tokenizer, Path | None)
    assert_type(topology.eos_token_ids, tuple[int, ...])
    assert_type(topology.processors.count, int | None)
    assert_type(topology.timeouts.drained_s, float)
    assert_type(topology.workers, tuple[tuple[int, int], ...])
    return topology.replaced(clients=2, processors={"count": 1})


def read(path: Path) -> tp.Topology:
    """Read a file, and a text."""
    topology = tp.Topology.load(path)
    assert_type(topology, tp.Topology)
    assert_type(tp.Topology.loads("clients: 3"), tp.Topology)
    return topology


def wrong(topology: tp.Topology) -> None:
    """What a checker must refuse."""
    tp.Topology(clients="8")  # type: ignore[arg-type]
    tp.Topology(clientz=8)  # type: ignore[call-arg]
    tp.Topology(tp_policy="follow")  # type: ignore[arg-type]
    tp.Topology(processors="inline")  # type: ignore[arg-type]
    tp.Topology(eos_token_ids=2)  # type: ignore[arg-type]
    tp.Topology(tokenizer=3)  # type: ignore[arg-type]
    topology.clients = 3  # type: ignore[misc]
    topology.timeouts.drained_s = 3.0  # type: ignore[misc]
    print(topology.timeout)  # type: ignore[attr-defined]
    tp.Topology.load(3)  # type: ignore[arg-type]
    tp.Pipeline({"clients": 3})  # type: ignore[arg-type]
