"""Small runs of each mode of the bench, with real processes."""

from __future__ import annotations

from pathlib import Path

from tokenpipe.bench.options import Options
from tokenpipe.bench.progress import Progress
from tokenpipe.bench.run import run


def small(tmp_path: Path, text: str, **options: object) -> Options:
    """Return options over a topology of one rank and eight slots."""
    file = tmp_path / "t.yaml"
    file.write_text("slots_per_rank: 8\nvocab_size: 32000\nclients: 1\n" + text)
    return Options(topology=file, preempt_rate=0.3, abort_rate=0.5, seed=4, **options)  # type: ignore[arg-type]


def test_ranks_that_verify_each_other_agree(tmp_path: Path) -> None:
    topology = "tensor_parallel_size: 2\ntp_policy: verify\neos_token_ids: [1, 2, 3]\n"
    options = small(tmp_path, topology, requests=30, tokens_per_row=3, logprobs=2)
    report = run(options)
    assert report["ok"], report
    assert report["ended"] == 30 and report["events"]["Aborted"] > 0
    assert report["tokens_in"] >= 2 * report["tokens_out"]  # every rank publishes
    assert report["config"]["topology"]["vocab_size"] == 32000


def test_inline_with_streams_of_which_some_are_closed(tmp_path: Path) -> None:
    options = small(
        tmp_path, "processors: {mode: inline}\n", requests=60, consume="streams", logprobs=1
    )
    report = run(options)
    assert report["ok"], report
    assert report["ended"] == 60 and report["reasons"]["closed"] > 0 < report["reasons"]["abort"]
    assert report["item_tokens"]["p50"] >= 1


def test_several_tokens_a_row_in_columns(tmp_path: Path) -> None:
    seen: list[Progress] = []
    report = run(small(tmp_path, "", requests=60, tokens_per_row=5, rate=2000.0), seen.append)
    assert report["ok"], report
    assert report["ended"] == 60 and report["cancelled"] > 0
    assert report["events"]["Released"] == report["events"]["binds"]
    assert report["step_latency_us"]["p50"] > 0
    assert 0 < seen[-1].requests <= seen[-1].of_requests == 60
    assert 0 < seen[-1].tokens <= seen[-1].of_tokens


def test_with_discard_every_row_is_made_and_none_arrives(tmp_path: Path) -> None:
    report = run(small(tmp_path, "tensor_parallel_size: 2\n", steps=50, discard=True))
    assert report["ok"] and report["tokens_out"] == report["ended"] == 0
    assert report["tokens_in"] >= 8 * 50
    assert report["cpu_us_per_token"]["worker"] > 0
