"""The runner of each platform that a topology can name."""

from __future__ import annotations

from typing import get_args

import pytest

import tokenpipe
from tokenpipe.errors import ConfigError
from tokenpipe.runners import ModelRunner, runner_for
from tokenpipe.runners.devices import FACTS
from tokenpipe.topology import Topology

PLATFORMS = get_args(Topology.model_fields["platform"].annotation)


def test_each_platform_of_a_topology_has_a_runner_and_facts() -> None:
    assert set(PLATFORMS) == set(FACTS)
    runners = [runner_for(platform) for platform in PLATFORMS]
    assert [runner.platform for runner in runners] == list(PLATFORMS)
    assert len(set(runners)) == len(runners)
    for runner in runners:
        assert issubclass(runner, ModelRunner)
        assert getattr(tokenpipe, runner.__name__) is runner
        assert runner.facts() is FACTS[runner.platform]


def test_another_platform_is_refused_and_those_that_there_are_are_named() -> None:
    with pytest.raises(ConfigError, match=r"no runner for 'tpu': one of cpu, gpu, xpu, metax_gpu"):
        runner_for("tpu")
