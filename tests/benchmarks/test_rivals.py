"""Each rival delivers each token, and a fault of its path is found."""

from __future__ import annotations

from multiprocessing import resource_tracker
from typing import Any

import numpy as np
import pytest

from benchmarks.fanout import check_columns, check_request
from benchmarks.launch import run_rival
from benchmarks.rivals import RIVALS
from benchmarks.rivals.protocols import Bound
from benchmarks.workload import EOS, Tokens, Workload, key
from tokenpipe.bench.checker import Checker
from tokenpipe.bench.verdict import Verdict


@pytest.fixture(scope="module", autouse=True)
def tracker() -> None:
    """Start the resource tracker of the standard library, which lives as long as this process."""
    resource_tracker.ensure_running()


pytestmark = pytest.mark.parametrize("label", RIVALS)
WORK = Workload(batch=12, clients=3)


def play(label: str, work: Workload, steps: int, max_tokens: int) -> list[list[Any]]:
    """Send steps through a rival in this process; return the messages of each client."""
    slots = range(work.batch)
    owners = [work.client_of(slot) for slot in slots]
    keys = [key(owner, slot // work.clients) for slot, owner in zip(slots, owners, strict=True)]
    send, tokens = RIVALS[label].Send(), Tokens(keys)
    process = RIVALS[label].Process(
        [Bound(s, k, c, max_tokens, EOS) for s, k, c in zip(slots, keys, owners, strict=True)]
    )
    got: list[list[Any]] = [[] for _ in range(work.clients)]
    for step in range(steps):
        row = tokens.step()
        if step == steps - 1:
            row[:] = EOS
        elif step == 3:
            row[5] = EOS  # one request ends before the others; the worker still sends rows for it
        for client, message in process.messages(
            send.message(step, np.arange(work.batch, dtype=np.int64), row)
        ):
            got[client].append(message)
    return got


def checker(client: int) -> Checker:
    made = Checker()
    for each in WORK.keys_of(client):
        made.add(each)
    return made


def test_every_token_comes_as_columns_and_as_deltas(label: str) -> None:
    receive = RIVALS[label].Receive()
    total, ended = Verdict(), 0
    for client, messages in enumerate(play(label, WORK, 20, 1 << 20)):
        by_columns, by_deltas = checker(client), checker(client)
        for message in messages:
            columns = receive.columns(message)
            ended += check_columns(
                by_columns, columns.keys, columns.offsets, None, columns.tokens, columns.ended
            )
            for owner, offset, ids, over in receive.deltas(message):
                check_request(by_deltas, owner, offset, ids, over)
        assert by_columns.verdict() == by_deltas.verdict()
        total += by_columns.verdict()
    assert total == Verdict(tokens=11 * 19 + 3)
    assert ended == 12


def test_a_request_ends_at_its_length(label: str) -> None:
    receive = RIVALS[label].Receive()
    rows = [
        row
        for messages in play(label, WORK, 20, 7)
        for message in messages
        for row in receive.deltas(message)
    ]
    assert sum(len(row[2]) for row in rows) == 11 * 7 + 4
    assert sum(row[3] for row in rows) == 12


def test_carries_a_flood_between_real_processes(label: str) -> None:
    report = run_rival(label, Workload(batch=32, clients=2, seconds=0.1))
    assert report["wrong"] == 0 and report["tokens"] > 32
    assert report["tokens_per_s"] > 0
    assert {"worker", "processor", "client", "total"} == set(report["cpu_us_per_token"])


def test_carries_paced_steps_to_a_consumer_a_request(label: str) -> None:
    work = Workload(batch=32, clients=2, seconds=0.7, rate=50.0, streams=True)
    report = run_rival(label, work)
    assert report["wrong"] == 0
    assert 0 < report["latency_us"]["p50"] <= report["latency_us"]["p99"]
    assert report["item_tokens"]["p50"] >= 1


def test_a_lost_message_is_found(label: str) -> None:
    receive = RIVALS[label].Receive()
    messages = play(label, WORK, 20, 1 << 20)[0]
    del messages[10]
    made = checker(0)
    for message in messages:
        columns = receive.columns(message)
        check_columns(made, columns.keys, columns.offsets, None, columns.tokens, columns.ended)
    assert made.verdict().wrong == 4


def test_carries_a_batch_that_changes_each_step(label: str) -> None:
    report = run_rival(label, Workload(batch=8, clients=2, seconds=0.1, churn=True))
    assert report["wrong"] == 0 and report["tokens"] > 7
