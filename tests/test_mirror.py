"""Each module has a test file of its own name: `room/module.py` has `tests/room/test_module.py`.

A module without one stands in a list here: its name, and the tests that run it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "tokenpipe"
MODULES = {
    path.relative_to(PACKAGE).with_suffix("").as_posix(): path
    for path in PACKAGE.rglob("*.py")
    if path.stem != "__init__"  # tests/test_exports.py
}

# Nothing in it runs by itself: it declares types, names or numbers.
DECLARES = {
    "api/owner": "serve/test_in_process.py",
    "api/settings": "api/test_start.py",
    "engine/scheduler_protocols": "engine/test_scheduler.py",
    "postprocess/encoder": "postprocess/test_tokenizer_file.py",
    "postprocess/vocabulary": "postprocess/test_tokenizer_file.py",
    "extras": "wire/test_extras_packer.py, wire/test_extras_parser.py",
    "types/enums": "test_core_numbers.py",
    "transport/peer_events": "transport/test_sender_state.py",
    "transport/port": "transport/test_memory_port.py, transport/test_zmq_port.py",
    "processor/codes": "test_core_numbers.py",
    "wire/columns": "test_core_numbers.py, wire/test_layout.py",
    "wire/bind_messages": "wire/test_messages.py",
    "wire/extras_format": "wire/test_extras_packer.py, wire/test_extras_parser.py",
    "wire/lane": "wire/test_layout.py",
    "wire/plan_messages": "wire/test_messages.py",
    "wire/report_messages": "wire/test_messages.py",
    "wire/sampling_spec": "wire/test_messages.py",
    "wire/submit_messages": "wire/test_messages.py",
    "worker/protocols": "worker/test_worker_loop.py",
}
# It runs as a process; the tests that start one are named.
PROGRAMS = {
    "__main__": "test_cli.py",
    "engine/__main__": "engine/test_host.py",
    "worker/__main__": "engine/test_host.py",
}
# It works inside of another module, and is tested through that.
THROUGH = {
    "pipeline/client_link": "pipeline/test_clients.py",
    "pipeline/counts": "pipeline/test_counters.py",
    "pipeline/links": "pipeline/test_deaths.py",
    "pipeline/pool": "pipeline/test_deaths.py",
    "pipeline/processors": "pipeline/test_deaths.py",
    "pipeline/resources": "pipeline/test_pipeline.py, pipeline/test_closing.py",
    "pipeline/reports": "pipeline/test_deaths.py, pipeline/test_going_on.py",
    "pipeline/step_lanes": "pipeline/test_plans.py",
    "processor/rank_feed": "processor/test_rank_lanes.py, processor/test_replay.py",
    "processor/saved_state": "processor/test_machine.py, processor/test_replay.py",
    "runners/step_launcher": "runners/test_model_runner.py",
    "runners/warm_up": "runners/test_model_runner.py",
    "transport/receiver_protocol": "transport/test_receiver.py, transport/test_chaos.py",
    "transport/sender_protocol": "transport/test_sender.py, transport/test_chaos.py",
    "transport/welcome": "pipeline/test_own_thread.py, transport/test_sender.py",
}
REASONS = {**DECLARES, **PROGRAMS, **THROUGH}


def mirror_of(module: str) -> Path:
    """Return where a module's tests are."""
    room, _, name = module.rpartition("/")
    return TESTS / room / f"test_{name.strip('_')}.py"


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_module_has_a_test_file_of_its_name_or_a_reason(module: str) -> None:
    path = mirror_of(module)
    if module in REASONS:
        assert not path.exists(), f"{module} has tests: take it out of the list"
    else:
        assert path.exists(), f"{module}: {path.relative_to(TESTS.parent)} is not there"
        assert "def test_" in path.read_text(encoding="utf-8")


def test_the_lists_name_modules_that_are_there_and_each_once() -> None:
    assert set(REASONS) <= set(MODULES), set(REASONS) - set(MODULES)
    assert len(REASONS) == len(DECLARES) + len(PROGRAMS) + len(THROUGH)


@pytest.mark.parametrize(("module", "where"), sorted(REASONS.items()))
def test_the_tests_that_a_reason_names_are_there(module: str, where: str) -> None:
    for name in where.split(", "):
        assert (TESTS / name).exists(), f"{module}: {name}"
